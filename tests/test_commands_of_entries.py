"""The command of an entry of the zoo gives the recipe that trained it."""

import itertools
import json
import shlex
import shutil
from pathlib import Path

import pytest

from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import defaults_of, same_recipe
from zoo.release.results import command_of

WEIGHTS = Path(__file__).parents[1] / "zoo" / "weights"


@pytest.mark.parametrize("folder", sorted(WEIGHTS.glob("*.*")), ids=lambda path: path.name)
def test_the_command_trains_what_was_trained(folder):
    words = shlex.split(command_of(folder).split(" (N = ")[0])
    recipe = RECIPES[words[4]]
    settings = [after for word, after in itertools.pairwise(words) if word == "--set" and after != "seed=N"]
    trained = json.loads((folder / "recipe.json").read_text())
    assert same_recipe(trained, with_settings(recipe, settings).to_dict(), defaults_of(recipe))


def test_seeds_and_later_settings_are_printed(tmp_path):
    assert command_of(WEIGHTS / "highway_fc50_tanh.tvdn").endswith(
        "--set seed=N --out runs/highway_fc50_tanh/N (N = 1, 2, 3)"
    )
    assert command_of(WEIGHTS / "mnist10_w16.tvdn").endswith("--data DIR")
    shutil.copy(WEIGHTS / "mnist10_w16.tvdn" / "result.json", tmp_path)
    trained = json.loads((WEIGHTS / "mnist10_w16.tvdn" / "recipe.json").read_text())
    del trained["decay_multipliers"]  # as of before the recipe had them
    (tmp_path / "recipe.json").write_text(json.dumps(trained))
    assert command_of(tmp_path).endswith('--data DIR --set "decay_multipliers=()"')
