"""Recipes: every row sound, settings checked, every tiny form trains."""

import json

import pytest

from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.recipe import changed, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder
from keras_highway.training.train import choose, main
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


def test_highway111_has_a_section_of_its_own():
    assert RECIPES["highway111"].source == "BLOG, Further Reducing Parameters"
    assert RECIPES["postact110"].source == "BLOG, More Comparisons"


def test_a3_trains_at_another_size_than_it_is_tested_at():
    a3, a2 = RECIPES["highway50_a3"], RECIPES["highway50_a2"]
    assert (a3.train_size, TRANSFORMS[a3.transform].size) == (160, (224, 224))
    assert a3.input_shape == (None, None, 3) and dict(a3.overrides) == {}
    assert a2.train_size is a2.input_shape is changed(a2, train_size=224).input_shape is None
    assert changed(a2, data="tfds:imagenet2012", train_size=128).input_shape == (None, None, 3)


def test_sizes_by_phase_cost_their_share_of_the_pixels():
    recipe = RECIPES["cifar10_19layer_fast"]
    sizes = [recipe.training_size((32, 32), epoch)[0] for epoch in range(recipe.epochs)]
    assert [sizes.count(size) for size in (16, 24, 32)] == [21, 15, 16] and sizes == sorted(sizes)
    assert recipe.equivalents((32, 32), 52) == 21 / 4 + 15 * 9 / 16 + 16 <= 30
    assert recipe.input_shape == (None, None, 3)


def test_the_network_has_the_size_of_the_transform():
    smaller = changed(RECIPES["resnet50"], transform="imagenet_128")
    assert smaller.input_shape == (128, 128, 3) and RECIPES["resnet50"].input_shape is None
    assert RECIPES["resnet50_imagenette"].input_shape is None  # it has one of its own
    with pytest.raises(ValueError, match=r"makes images of 128x128.*net\.input_shape=\[160, 160, 3\]"):
        with_settings(smaller, ["net.input_shape=[160,160,3]"])


def test_the_size_that_a_recipe_states_gives_way_to_that_of_another_transform():
    """Nobody asked for it; what was asked for does not give way."""
    recipe = RECIPES["highway50_imagenette"]  # net.input_shape=[128,128,3] is its own
    smaller = with_settings(recipe, ["transform=imagenet_64", "net.gate_bias=-3"])
    assert smaller.input_shape == (64, 64, 3) and dict(smaller.overrides) == {"gate_bias": -3}
    assert with_settings(recipe, ["transform=imagenet_128"]) == recipe
    with pytest.raises(ValueError, match=r"makes images of 64x64.*net\.input_shape=\[128, 128, 3\]"):
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


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("epoch=3", "Did you mean 'epochs'"),
        ("epochs=3.5", "`epochs` must be of type int"),
        ("epochs=-1", "`epochs` must be positive"),
        ("flip=1", "`flip` must be of type bool"),
        ("schedule=cosin", "`schedule` must be one of.*Did you mean 'cosine'"),
        ("variant=highway51", "Did you mean 'highway50'"),
        ("transform=cifr10", "Did you mean 'cifar10'"),
        ("crop_padding=-1", "`crop_padding` must not be negative"),
        ("milestones=(0.5, 0.2)", "`milestones` must rise between 0 and 1"),
        ("ema=1.5", "`ema` must be in"),
        ("train_size=48", "those in memory keep their size. Received: train_size=48, data='cifar10'"),
        ("train_size=16", "`train_size` must be at least 32"),
        ("train_sizes=((0.7, 16), (0.4, 24))", "`train_sizes` must be pairs of a share"),
        ("train_sizes=((0.4, 0),)", "`train_sizes` must be pairs of a share"),
        ("dropout_from=1.0", "`dropout_from` must be in"),
        ("micro_batches=3", "must be a multiple of `micro_batches`"),
        ("optimizer=adamw", "Multipliers of rate and decay are for SGD"),
        ("rand_augment=m7", "A RandAugment policy is mM-mstdS-inc1.*Received: rand_augment='m7'"),
        ("mixup=-0.1", "`mixup` must not be negative"),
        ("repeated_augmentation=0", "`repeated_augmentation` must be positive"),
        ("net.gate_bais=-1", "Did you mean 'gate_bias'"),
        ("weights=../mine", "`weights` must be a name without '/'"),
        ("epochs", "--set takes FIELD=VALUE"),
    ],
)
def test_settings_that_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        with_settings(BASE, [setting])


def test_unknown_recipes_name_the_near_ones(capsys):
    with pytest.raises(SystemExit) as error:
        main(["mnist10_w61"])
    assert error.value.code == 2 and "Did you mean 'mnist10_w16'" in capsys.readouterr().err
    with pytest.raises(ValueError, match="Unknown recipe"):
        choose("highway", [], small=True)


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


def test_changed_checks():
    assert changed(BASE, epochs=5).epochs == 5
    for name in ("micro_batches", "task"):  # what the engines ask of every recipe, and no field of a language model's
        with pytest.raises(ValueError, match="Unknown field of recipe 'charlm_small_coupled'"):
            with_settings(RECIPES["charlm_small_coupled"], [f"{name}=2"])
    with pytest.raises(ValueError, match="Unknown field of recipe 'cifar10_19layer'"):
        changed(BASE, rate=1.0)
