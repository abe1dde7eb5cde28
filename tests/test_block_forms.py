"""Forms of highway20's block: equal parameters, one recipe, the way of the study in small."""

import math

import pytest

from keras_highway._support.keras_models import without_values
from keras_highway.layers import GatedBlock
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.cifar import FORMS, RATES
from keras_highway.training.recipes.cifar import form_of as recipe_of
from keras_highway.variants import VARIANTS
from training.study import STUDIES, main

HIGHWAY20 = 266_404


def branch(channels, inside, out):
    """Two 3x3 convolutions without biases, gamma and beta behind each."""
    return 9 * channels * inside + 2 * inside + 9 * inside * out + 2 * out


def parameters_by_hand(form, widths):
    """A stem of 16 channels, three stages of three blocks, a classifier of 10 classes."""
    total, channels = 27 * 16 + 2 * 16, 16
    for w in widths:
        others = branch(w, w, w)
        gates = {
            "channel": 3 * w,
            "low_rank": branch(channels, 8, w) + 2 * branch(w, 8, w),
            "tied": branch(channels, w, w) + others - 2 * w,  # biases in place of gamma and beta
        }.get(form, branch(channels, w, w) + 2 * others)
        transforms = branch(channels, w, w) + 2 * others - (2 * 9 * w * w if form == "shared" else 0)
        projection = 0 if channels == w else channels * w + 2 * w
        total += transforms + gates + projection
        channels = w
    return total + 10 * channels + 10


def built(form):
    recipe = RECIPES[recipe_of(form)]
    return without_values(lambda: build(override(VARIANTS[recipe.variant], **dict(recipe.overrides))))


@pytest.mark.parametrize("form", FORMS)
def test_parameters_are_equal_to_within_two_percent(form):
    model = built(form)
    count = sum(math.prod(v.shape) for v in model.trainable_variables)
    widths = dict(RECIPES[recipe_of(form)].overrides).get("widths", VARIANTS["highway20"].widths)
    assert count == parameters_by_hand(form, widths)
    assert abs(count / HIGHWAY20 - 1) < 0.02
    documented = {"channel": 266_748, "low_rank": 264_991, "tied": 263_547, "shared": 264_063}
    assert count == documented.get(form, HIGHWAY20)  # what the recipes' page states


def test_forms_are_what_they_are_called():
    def of(form):
        return [layer for layer in built(form).layers if isinstance(layer, GatedBlock)]

    assert {block.gate for block in of("channel")} == {"channel"}
    assert {(block.gate, block.gate_rank) for block in of("low_rank")} == {("low_rank", 8)}
    assert [block.gate for block in of("tied")] == ["same", "tied", "tied"] * 3
    assert [block.shared_transform for block in of("shared")] == [False, True, True] * 3
    rates = [block.stochastic_depth for block in of("stochastic_depth")]
    assert rates == pytest.approx([0.025 * i for i in range(9)])


def test_recipes_are_one_but_for_the_form():
    base = RECIPES["highway20"].to_dict()
    for form in FORMS[1:]:
        other = RECIPES[recipe_of(form)].to_dict()
        assert {key for key in base if base[key] != other[key]} == {"name", "weights", "overrides", "source"}
        assert other["variant"] == "highway20" and other["epochs"] == 15
    study = STUDIES["block_forms"]
    assert (study.base, study.rates, study.nets[0]) == ("highway20", RATES, "highway20")
    recipe = study.rate_recipe("highway20_tied", 0.2)
    assert (recipe.holdout_images, recipe.epochs, recipe.learning_rate) == (5000, 5, 0.2)


def test_the_table_of_nothing_trained(tmp_path, capsys):
    assert main(["block_forms", "--table", "--out", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[0].strip("| ") for row in rows] == list(map(recipe_of, FORMS))


@pytest.mark.slow
def test_the_whole_way_in_small_and_again_at_no_cost(tmp_path, capsys):
    arguments = [
        "block_forms",
        "--tiny",
        "--nets",
        "highway20",
        "highway20_shared",
        "--seeds",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert main(arguments) == 0
    first = capsys.readouterr().out
    assert "| highway20_shared | " in first and len(list(tmp_path.glob("tiny/rates/*/result.json"))) == 6
    stamps = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint.npz")}
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-4:] == first.splitlines()[-4:]
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("checkpoint.npz")} == stamps
