"""Recipes that train a published net for a tenth of its epochs or less: alike but for what names the net."""

import json
from pathlib import Path

import pytest

from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.cifar_fitnets import NETS, RATES, fast
from training.study import STUDIES, main

ROOT = Path(__file__).parents[1]
OWN = {"name", "variant", "weights"}


def differ(first, second):
    first, second = RECIPES[first].to_dict(), RECIPES[second].to_dict()
    return {key for key in first if first[key] != second[key]}


def test_nets_of_table_2():
    assert differ("highway_b_fast", "highway_c_fast") == OWN
    assert differ("highway_a_fast", "highway_b_fast") == OWN | {"learning_rate"}
    assert differ("highway_b_fast", "cifar10_19layer_fast") == OWN | {"epochs", "precision", "source", "learning_rate"}
    study = STUDIES["fitnets"]
    assert (study.nets, study.rates, study.held_out) == (tuple(map(fast, NETS)), RATES, 5000)
    recipe = study.rate_recipe("highway_a_fast", 0.002)
    assert (recipe.holdout_images, recipe.epochs, recipe.learning_rate) == (5000, 5, 0.002)


@pytest.mark.parametrize("net", NETS)
def test_the_rate_of_a_net_is_that_of_its_best_short_run(net):
    runs = ROOT / "zoo" / "runs" / "fitnets" / "rates"
    if not runs.is_dir():
        pytest.skip("runs of the repository: they are not in an sdist")
    results = {rate: json.loads((runs / f"{fast(net)}_{rate:g}" / "result.json").read_text()) for rate in RATES}
    assert {(result["holdout_images"], result["epochs"], result["n"]) for result in results.values()} == {(5000, 5, 1)}
    assert RECIPES[fast(net)].learning_rate == max(RATES, key=lambda rate: results[rate]["mean"])


def test_nets_of_110_layers():
    assert differ("highway110_fast", "resnet110_fast") == OWN
    schedule = {"epochs", "schedule", "warmup_epochs", "source"}
    assert differ("highway110_fast", "highway110") == schedule | {"name", "weights"}


def test_the_table_of_nothing_trained(tmp_path, capsys):
    assert main(["fitnets", "--table", "--nets", "highway_a_fast", "--out", str(tmp_path)]) == 0
    assert "| highway_a_fast | - | 0 |" in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_way_in_small(tmp_path, capsys):
    arguments = ["fitnets", "--tiny", "--nets", "highway_a_fast", "--seeds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 0
    assert "| highway_a_fast | 0.00" in capsys.readouterr().out
    assert len(list(tmp_path.glob("tiny/rates/*/result.json"))) == len(RATES)
