"""Builders: the habits of keras.applications.ResNet50, and what goes beyond them."""

import dataclasses
import inspect
import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support.keras_models import without_values
from keras_highway.models.builder import build
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.load import FreshHead

ZOO = Path(__file__).resolve().parents[1] / "zoo" / "weights"

TINY = {"blocks": (1, 1, 1, 1), "widths": (4, 4, 4, 4)}  # Highway50 in small


def tiny(**kwargs):
    return kh.Highway50(**{"weights": None, "classes": 5, "input_shape": (32, 32, 3), **TINY, **kwargs})


def test_signature_is_that_of_keras_applications():
    expected = inspect.signature(keras.applications.ResNet50).parameters
    for builder in (kh.Highway50, kh.Highway101, kh.Highway152, kh.ResNet50, kh.ResNet101, kh.ResNet152):
        actual = inspect.signature(builder).parameters
        assert list(actual)[:-1] == list(expected)
        for name in set(expected) - {"name", "classes"}:
            assert actual[name].default == expected[name].default
        assert actual["classes"].default is None  # that of the weights, else 1000
        assert actual["name"].default == builder.__name__.lower()
        assert "Args:" in builder.__doc__


@pytest.mark.parametrize("size", [32, 33, 97])
def test_any_size_from_32(size):
    assert tiny(input_shape=(size, size, 3)).output_shape == (None, 5)


def test_undetermined_size_with_classifier():
    model = tiny(input_shape=(None, None, 3))
    for size in (32, 64):
        assert model(np.zeros((1, size, size, 3), "float32")).shape == (1, 5)


@pytest.mark.parametrize(("pooling", "shape"), [(None, (None, 1, 1, 16)), ("avg", (None, 16)), ("max", (None, 16))])
def test_without_top(pooling, shape):
    assert tiny(include_top=False, pooling=pooling).output_shape == shape


def test_other_channels():
    assert tiny(input_shape=(32, 32, 7)).input_shape == (None, 32, 32, 7)


def test_input_tensor_keeps_its_predecessors():
    inputs = keras.Input((32, 32, 3))
    model = tiny(input_tensor=keras.layers.Rescaling(0.5)(inputs))
    assert model.inputs[0] is inputs
    assert any(isinstance(layer, keras.layers.Rescaling) for layer in model.layers)


def test_input_tensor_must_be_a_keras_tensor():
    with pytest.raises(ValueError, match="Keras tensor"):
        tiny(input_tensor=np.zeros((1, 32, 32, 3)))


def test_classifier_activation():
    x = np.random.default_rng(0).random((3, 32, 32, 3), "float32")
    np.testing.assert_allclose(np.asarray(tiny()(x)).sum(1), 1.0, rtol=1e-5)
    assert tiny(classifier_activation=None).get_layer("head").activation is keras.activations.linear


def test_mixed_precision_keeps_the_skip_stream_float32():
    model = tiny(dtype="mixed_bfloat16")
    block = model.get_layer("stage2_block1")
    assert block.transform.conv1.compute_dtype == "bfloat16"
    assert block.output.dtype == model.output.dtype == "float32"


def test_spec_overrides():
    model = tiny(gating="full", gate_bias=-3.0, stochastic_depth=0.1)
    block = model.get_layer("stage4_block1")
    assert (block.gating, block.gate_bias, block.stochastic_depth) == ("full", -3.0, 0.1)
    assert model.get_layer("stage1_block1").stochastic_depth == 0.0  # it grows linearly with depth


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gatin": "full"}, "Did you mean 'gating'"),
        ({"gating": "ful"}, "Did you mean 'full'"),
        ({"gate_bias": float("nan")}, "must be a finite number or 'by_depth'"),
        ({"gate_bias": "low"}, "must be a finite number or"),
        ({"widths": (4, 4, -4, 4)}, "must be positive"),
        ({"widths": (4, 4, 4)}, "one number per stage"),
        ({"input_shape": (31, 40, 3)}, "at least 32x32"),
        ({"input_shape": (32, 32)}, "three numbers"),
        ({"input_shape": (32, 32, None)}, "channels must be known"),
        ({"classes": 0}, "positive integer"),
        ({"classes": 2.5}, "positive integer"),
        ({"pooling": "mean"}, "pooling"),
        ({"stochastic_depth": 1.0}, "stochastic_depth"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny(**arguments)


def test_unknown_variant_names_the_near_ones():
    with pytest.raises(ValueError, match="Did you mean 'highway50'"):
        kh.create_model("higway50")


@pytest.mark.parametrize("known", [(), ("highway50.imagenette",)])
def test_imagenet_weights_are_not_published_yet(known, monkeypatch):
    """What there is instead comes first, a line each: of another net, of other data."""
    others = {name: row for name, row in registry.WEIGHTS.items() if row.variant != "highway50"}
    row = dataclasses.replace(registry.find("resnet50.a1"), variant="highway50", data="imagenette", classes=("a", "b"))
    rows = {name: dataclasses.replace(row, name=name, repository="") for name in known}
    monkeypatch.setattr(registry, "WEIGHTS", {**others, **rows})
    monkeypatch.setattr(registry, "local_file", lambda row: None)
    with pytest.raises(ValueError) as error:
        kh.Highway50()
    first, relative, *remedies, last = str(error.value).split("\n")
    assert first == "No ImageNet weights of 'highway50' are published yet. Use instead:"
    assert relative.startswith("  - keras_highway.HighwayResNet50(weights='imagenet'): ")
    loads = [
        f"  - keras_highway.load({name!r}): trained on imagenette, 2 classes; the file is in a checkout: "
        "set KERAS_HIGHWAY_ZOO to its zoo/weights"
        for name in known
    ]
    assert remedies == [
        *loads,
        "  - random weights: weights=None",
        "  - train it: python -m keras_highway train highway50 --data DIR",
    ]
    assert last == "All weights: keras_highway.list_weights()."


def test_an_error_of_a_typing_mistake_names_what_was_meant():
    with pytest.raises(ValueError, match=r"Unknown weights for 'mnist10_w16': 'mnits'\. Did you mean 'mnist'") as error:
        kh.create_model("mnist10_w16", weights="mnits")
    assert "keras_highway.load('mnist10_w16.tvdn'): trained on mnist, 10 classes\n" in str(error.value)


def test_list_models():
    assert {"highway50", "resnet152", "mnist10_w16"} <= set(kh.list_models())
    assert all(name.startswith("highway1") for name in kh.list_models("highway1*"))
    zoo = {json.loads(row.read_text("utf-8"))["variant"] for row in ZOO.glob("[!.]*/weights.json")}
    published = {"mnist10_w16", "mnist10_w32", "cifar10_19layer", "cifar100_19layer", "charlm_large_coupled"}
    assert published | {"resnet20", "highway20", "exclusive20", "preact20", "postact20"} <= zoo
    assert set(kh.list_models(weights=True)) == zoo | {
        f"{kind}{depth}" for kind in ("resnet", "highway_resnet") for depth in (50, 101, 152)
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A randomly initialized mnist10_w16 and its stamped file."""
    model = kh.create_model("mnist10_w16")
    path = tmp_path_factory.mktemp("weights") / "w16.weights.h5"
    weights_file.save(model, path, "mnist10_w16", 10)
    return model, path


def test_weights_from_a_file(saved):
    model, path = saved
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    for other in (kh.load(str(path)), kh.create_model("mnist10_w16", weights=str(path))):
        np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))


def test_new_classes_keep_the_trained_body(saved):
    model, path = saved
    with pytest.warns(FreshHead, match="head for 7 classes is fresh: .* has one for 10"):
        other = kh.create_model("mnist10_w16", weights=str(path), classes=7, stochastic_depth=0.1)
    assert other.output_shape == (None, 7)
    for layer in model.layers[1:-1]:
        for actual, expected in zip(layer.weights, other.get_layer(layer.name).weights, strict=True):
            np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


def test_weights_without_top(saved):
    model, path = saved
    body = kh.load(str(path), include_top=False)
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    features = keras.Model(model.input, model.get_layer("stage3_pool").output)
    np.testing.assert_array_equal(np.asarray(body(x)), np.asarray(features(x)))


@pytest.mark.parametrize("change", [{"gating": "full"}, {"gating": "c_only"}, {"input_shape": (60, 60, 1)}])
def test_weights_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match="do not fit"):
        kh.create_model("mnist10_w32", weights="mnist", **change)


@pytest.mark.parametrize("change", [{"gating": "c_only"}, {"activation": "relu"}, {"depth": 52}, {"depth": 40}])
def test_overrides_that_change_the_trained_function_are_refused(change):
    """Equal shapes are not enough: a trained transform gate is not a carry gate, and new blocks would be random."""
    with pytest.raises(ValueError, match=f"it overrides {next(iter(change))}="):
        kh.load("highway_fc50_tanh.tvdn", **change)


def test_own_file_of_an_overridden_variant(tmp_path):
    model = kh.create_model("highway_fc10", gating="full", depth=4)
    path = tmp_path / "own.weights.h5"
    model.save_weights(path)
    with pytest.warns(kh.UncheckedWeights, match=r"own\.weights\.h5 has no hash"):
        other = kh.create_model("highway_fc10", gating="full", depth=4, weights=str(path))
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(model(x)))


def test_weights_behind_an_input_tensor_with_layers_of_its_own():
    inputs = keras.Input((28, 28, 1))
    x = keras.layers.Conv2D(1, 1, name="adapter")(inputs)
    model = kh.load("mnist10_w32.tvdn", input_tensor=x)
    trained = kh.load("mnist10_w32.tvdn")
    for name in ("stem", "stage3_block3", "head"):
        for actual, expected in zip(model.get_layer(name).weights, trained.get_layer(name).weights, strict=True):
            np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


def test_without_top_any_size_is_the_default():
    assert kh.Highway50(weights=None, include_top=False, **TINY).input_shape == (None, None, None, 3)


@pytest.mark.parametrize("depth", [50, 101, 152])
def test_highway_resnets_are_their_resnets_with_a_gate_for_every_channel(depth):
    spec, baseline = kh.get_spec(f"highway_resnet{depth}"), kh.get_spec(f"resnet{depth}")
    assert (spec.widths, spec.blocks, spec.gating, spec.gate) == (
        baseline.widths,
        baseline.blocks,
        "coupled",
        "channel",
    )
    model = without_values(lambda: build(spec))
    parameters = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    channels = sum(4 * width * blocks for width, blocks in zip(spec.widths, spec.blocks, strict=True))
    assert parameters == baseline.published_parameters + channels
    assert f"{parameters:,} trainable parameters" in getattr(kh, f"HighwayResNet{depth}").__doc__


def test_dropout_before_the_classifier(saved):
    assert tiny(head_dropout=0.3).get_layer("head_dropout").rate == 0.3
    assert kh.create_model("highway_fc10", depth=3, head_dropout=0.2).get_layer("head_dropout").rate == 0.2
    trained, path = saved
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    other = kh.create_model("mnist10_w16", weights=str(path), head_dropout=0.5)
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(trained(x)))
