"""Recipes: every row sound, settings checked, every tiny form trains."""

import json
import re

import pytest

from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.recipe import changed, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder
from keras_highway.training.train import main
from keras_highway.variants import LM_VARIANTS, VARIANTS

BASE = RECIPES["cifar10_19layer"]


@pytest.mark.parametrize("name", RECIPES)
def test_rows_are_sound_and_written_as_json(name):
    recipe = RECIPES[name]
    recipe.check()
    tiny(recipe).check()
    assert recipe.name == name and recipe.variant in {**VARIANTS, **LM_VARIANTS}
    assert json.loads(json.dumps(recipe.to_dict()))["name"] == name


@pytest.mark.parametrize("name", [name for name, row in RECIPES.items() if row.task.divides])
def test_tiny_forms_divide_among_the_devices_of_a_machine(name):
    """docs/imagenet.md begins with one on all GPUs."""
    strategy, recipe = Strategy(), tiny(RECIPES[name])
    for strategy.replicas in (1, 2, 4, 8):
        strategy.check(recipe)
    assert recipe.train_images // recipe.batch_size >= 3


def test_every_variant_has_its_recipe():
    for spec in (*VARIANTS.values(), *LM_VARIANTS.values()):
        assert RECIPES[spec.recipe].variant == spec.name


def test_published_extents():
    """Steps of the papers: 200,000 of 100 images; 200 epochs; 300 at batch 2048."""
    assert BASE.epochs * 50_000 // BASE.batch_size == 200_000
    assert [round(share * 200_000) for share in BASE.milestones] == [100_000, 150_000, 175_000]
    assert (RECIPES["highway110"].epochs, RECIPES["highway110"].batch_size) == (200, 128)
    assert (RECIPES["resnet50_a2"].epochs, RECIPES["resnet50_a2"].batch_size) == (300, 2048)
    assert RECIPES["resnet50_a1"].epochs == 600 and RECIPES["resnet50_a3"].epochs == 100


def test_a3_trains_at_another_size_than_it_is_tested_at():
    a3, a2 = RECIPES["highway50_a3"], RECIPES["highway50_a2"]
    assert (a3.train_size, TRANSFORMS[a3.transform].size) == (160, (224, 224))
    assert a3.input_shape == (None, None, 3) and dict(a3.overrides) == {}
    assert a2.train_size is a2.input_shape is changed(a2, train_size=224).input_shape is None
    assert changed(a2, data="tfds:imagenet2012", train_size=128).input_shape == (None, None, 3)


def test_the_size_that_a_recipe_states_gives_way_to_that_of_another_transform():
    """Nobody asked for it; what was asked for does not give way."""
    recipe = RECIPES["highway50_imagenette"]  # net.input_shape=[128,128,3] is its own
    smaller = with_settings(recipe, ["transform=imagenet_64", "net.gate_bias=-3"])
    assert smaller.input_shape == (64, 64, 3) and dict(smaller.overrides) == {"gate_bias": -3}
    assert with_settings(recipe, ["transform=imagenet_128"]) == recipe
    with pytest.raises(ValueError, match=r"net\.input_shape must equal the image shape .*128, 128, 3"):
        with_settings(recipe, ["transform=imagenet_64", "net.input_shape=[128,128,3]"])
    with pytest.raises(ValueError, match=r"Did you mean 'imagenet_64'"):
        with_settings(recipe, ["transform=imagenet64"])


def test_settings_of_the_command_line():
    recipe = with_settings(
        BASE, ["epochs=3", "learning_rate=1", "net.gating=full", "net.gate_bias=-4", "flip=False", "source=a test"]
    )
    assert (recipe.epochs, recipe.learning_rate, recipe.flip, recipe.source) == (3, 1.0, False, "a test")
    assert dict(recipe.overrides) == {"gating": "full", "gate_bias": -4}
    assert with_settings(recipe, []) == recipe
    hierarchical = with_settings(RECIPES["charlm_small_coupled"], ["net.hierarchical=true"])
    assert dict(hierarchical.overrides) == {"hierarchical": True}


LM = RECIPES["charlm_small_full"]
PHOTOGRAPHS, RESNET = RECIPES["highway50_imagenette"], RECIPES["resnet110"]


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (BASE, "epoch=3", "Did you mean 'epochs'"),
        (BASE, "epochs=3.5", "`epochs`: .*int"),
        (BASE, "epochs=-1", "`epochs`: .*>= 1"),
        (BASE, "schedule=cosin", "`schedule` must be one of.*Did you mean 'cosine'"),
        (BASE, "ema=1.5", "`ema`: .*< 1"),
        (BASE, "train_sizes=((0.4, 0),)", "`train_sizes`"),
        (BASE, "decay_multipliers=('head/*', 2)", "`decay_multipliers`"),
        (BASE, "decay_multipliers=(('*', 1e999),)", "`decay_multipliers`.*inf"),
        (BASE, "bias_multiplier=-3.0", "`bias_multiplier`"),
        (BASE, "repeated_augmentation=0", "`repeated_augmentation`"),
        (PHOTOGRAPHS, "rand_augment=m7", "`rand_augment` must be mM-mstdS-inc1"),
        (BASE, "weights=../mine", "`weights`"),
        (BASE, "name=../x", "`name`"),
        (BASE, "net.gate_bais=-1", "Did you mean 'gate_bias'"),
        (BASE, "net.gate_bias=1e999", "`gate_bias` must be a finite number or .*Received: gate_bias=inf"),
        (BASE, "net.classes=3", "number of classes follows from the data"),
        (LM, "net.dropout=1e999", "`dropout`: .*Received: dropout=inf"),
        (LM, "precision=half", "`precision` must be one of float32"),
        (LM, "micro_batches=2", "Unknown field of recipe 'charlm_small_full'"),
        (BASE, "milestones=()", "`milestones`.*at least one"),
        (BASE, "train_sizes=((0.7, 16), (0.4, 24))", "`train_sizes` must be pairs"),
        (BASE, "train_size=48", "`train_size` has no effect .*train_size=48, data='cifar10'"),
        (PHOTOGRAPHS, "train_size=16", "`train_size` is too small"),
        (BASE, "optimizer=adamw", "need optimizer='sgd'"),
        (BASE, "data=tfds:cifar10", "Contrast normalization needs images that fit into memory"),
        (RECIPES["highway110"], "warmup_epochs=3", "at rate 0: set `warmup_rate`.*schedule='step'"),
        (RESNET, "epochs=1", "`warmup_epochs` must be less than `epochs`"),
        (PHOTOGRAPHS, "nesterov=false", "`nesterov` needs"),
        (PHOTOGRAPHS, "decay=0.9", "`decay` needs schedule='exponential'"),
        (PHOTOGRAPHS, "flip=true", "`flip` has no effect on images read from files"),
        (BASE, "crop_scale=0.5", "`crop_scale` has no effect on images in memory"),
    ],
    ids=lambda value: value if isinstance(value, str) and "=" in value else "",
)
def test_settings_that_are_refused(recipe, settings, message):
    with pytest.raises(ValueError, match=message):
        with_settings(recipe, re.split(r" (?=\w+=)", settings))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["mnist10_w61"], "Did you mean 'mnist10_w16'"),
        (["highway", "--tiny"], "`recipe` must be one of"),
        (["mnist10_w16", "--set", "net.stages=[1]"], "`stages`: Expected `object`"),
        (["mnist10_w16", "--set", "classes=1000000000000"], "Unknown field"),
        (["mnist10_w16", "--set", "net.classes=1000000000000"], "follows from the data"),
        (["mnist10_w16", "--set", "epochs=1000000000000000000000"], "`epochs`: Expected `int` <="),
        (["mnist10_w16", "--set", "net.input_shape=[14,14,1]"], "must equal the image shape"),
        (["mnist10_w16", "--set", "net.input_shape=[28,28,3]"], "must equal the image shape"),
    ],
)
def test_impossible_requests_are_one_line_and_code_2(capsys, argv, message):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    error = capsys.readouterr().err
    assert ended.value.code == 2 and message in error and error.count("\n") == 1


# One a family and feature; all of them take minutes.
QUICK = ("mnist10_w16", "highway_fc50_cifar100", "highway_c", "resnet110")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in RECIPES],
)
def test_tiny_forms_train_by_the_command(name, tmp_path, capsys):
    main([name, "--tiny", "--out", str(tmp_path), "--strategy", "none"])
    language = name in LM_VARIANTS
    assert capsys.readouterr().out.count("tokens/s" if language else "images/s") == 2
    rows = RunFolder(tmp_path, tiny(RECIPES[name]), Strategy()).rows()
    mixes = not language and RECIPES[name].mixes  # a batch that eight devices divide
    assert [row["step"] for row in rows] == (["30", "60"] if language else ["3", "6"] if mixes else ["6", "12"])
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["weights"] == f"{name}.tiny" and result["n"] == 1 and result["data"].startswith("synthetic_")
    assert (tmp_path / "model.weights.h5").stat().st_size > 1000
