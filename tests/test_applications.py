"""Builders: the habits of keras.applications.ResNet50, and what goes beyond them."""

import inspect
import json
from pathlib import Path

import keras
import numpy as np
import pytest
from miniatures import numpy

import keras_highway as kh
from keras_highway._support.keras_models import without_values
from keras_highway.cli import main
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights.load import FreshHead

ZOO = Path(__file__).resolve().parents[1] / "zoo" / "weights"

TINY = {"blocks": (1, 1, 1, 1), "widths": (4, 4, 4, 4)}  # Highway50 in small


def tiny(**kwargs):
    return kh.Highway50(**{"weights": None, "classes": 5, "input_shape": (32, 32, 3), **TINY, **kwargs})


def test_signature_equals_keras_applications():
    expected = inspect.signature(keras.applications.ResNet50).parameters
    for builder in (kh.Highway50, kh.Highway101, kh.Highway152, kh.ResNet50, kh.ResNet101, kh.ResNet152):
        actual = inspect.signature(builder).parameters
        assert list(actual)[:-1] == list(expected)
        for name in set(expected) - {"name", "classes", "classifier_activation"}:
            assert actual[name].default == expected[name].default
        assert actual["classifier_activation"].default == "auto"  # the weights' own, else softmax
        assert actual["classes"].default is None  # the weights' number, else 1000
        assert actual["name"].default == builder.__name__.lower()
        assert "Args:" in builder.__doc__


@pytest.mark.parametrize(("pooling", "shape"), [(None, (None, 1, 1, 16)), ("avg", (None, 16)), ("max", (None, 16))])
def test_without_top(pooling, shape):
    assert tiny(include_top=False, pooling=pooling).output_shape == shape


def test_input_tensor_keeps_its_predecessors():
    inputs = keras.Input((32, 32, 3))
    model = tiny(input_tensor=keras.layers.Rescaling(0.5)(inputs))
    assert model.inputs[0] is inputs
    assert any(isinstance(layer, keras.layers.Rescaling) for layer in model.layers)


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
        ({"widths": (4, 4, -4, 4)}, "`widths`: Expected"),
        ({"input_shape": (31, 40, 3)}, "at least 32x32"),
        ({"classes": 0}, "positive integer"),
        ({"classes": 2.5}, "positive integer"),
        ({"pooling": "mean"}, "pooling"),
        ({"stochastic_depth": 1.0}, "stochastic_depth"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny(**arguments)


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


def test_other_names_of_as_many_classes_have_a_fresh_head(tmp_path):
    trained = numpy(kh.load("mnist10_w16.tvdn").get_layer("head").kernel)
    with pytest.warns(FreshHead, match="head for a, b, c, d, e and 5 others is fresh"):
        fresh = kh.load("mnist10_w16.tvdn", classes=list("abcdefghij"))
    assert np.abs(numpy(fresh.get_layer("head").kernel) - trained).max() > 0.01
    np.testing.assert_array_equal(fresh.weights[0], kh.load("mnist10_w16.tvdn").weights[0])
    for same in (list("0123456789"), 10):
        np.testing.assert_array_equal(kh.load("mnist10_w16.tvdn", classes=same).get_layer("head").kernel, trained)
    kh.save(fresh, tmp_path / "letters")
    assert kh.decode_predictions(np.eye(10), 1, weights=kh.load(tmp_path / "letters"))[2][0].name == "c"
    assert kh.create_model("mnist10_w16", classes=["cat", "dog"]).output_shape == (None, 2)
    with pytest.raises(ValueError, match="`classes`"):
        kh.create_model("mnist10_w16", classes=["cat", 3])


def test_new_classes_keep_the_trained_body(saved):
    model, path = saved
    with pytest.warns(FreshHead, match="head for 7 classes is fresh: .* has one for 10"):
        other = kh.create_model("mnist10_w16", weights=str(path), classes=7, stochastic_depth=0.1)
    assert other.output_shape == (None, 7)
    for layer in model.layers[1:-1]:
        for actual, expected in zip(layer.weights, other.get_layer(layer.name).weights, strict=True):
            np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


@pytest.mark.parametrize("change", [{"gating": "full"}, {"input_shape": (60, 60, 1)}])
def test_weights_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match="do not fit"):
        kh.create_model("mnist10_w32", weights="mnist", **change)


@pytest.mark.parametrize("change", [{"gating": "c_only"}, {"depth": 52}])
def test_overrides_that_change_the_trained_function_are_refused(change):
    """Equal shapes are not enough: a trained transform gate is not a carry gate, and new blocks would be random."""
    with pytest.raises(ValueError, match=f"it overrides {next(iter(change))}="):
        kh.load("highway_fc50_tanh.tvdn", **change)


def test_dropout_before_the_classifier(saved):
    assert tiny(head_dropout=0.3).get_layer("head_dropout").rate == 0.3
    assert kh.create_model("highway_fc10", depth=3, head_dropout=0.2).get_layer("head_dropout").rate == 0.2
    trained, path = saved
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    other = kh.create_model("mnist10_w16", weights=str(path), head_dropout=0.5)
    np.testing.assert_array_equal(np.asarray(other(x)), np.asarray(trained(x)))


SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture
def channels_first():
    keras.config.set_image_data_format("channels_first")
    yield
    keras.config.set_image_data_format("channels_last")


@pytest.mark.parametrize("variant", ["highway_a", "mnist10_w16", "highway20"])
def test_trained_weights_without_the_top(variant, tmp_path):
    """A layer between pool and classifier, which only the first of them has, is a part of the top."""
    whole = kh.create_model(variant)
    path = tmp_path / "whole.weights.h5"
    weights_file.save(whole, path, variant, whole.output_shape[-1])
    size = (*whole.input_shape[1:3],)
    body = kh.load(path, include_top=False, input_shape=(*size, whole.input_shape[3]))
    x = np.random.default_rng(0).random((2, *body.input_shape[1:]), "float32")
    names = [layer.name for layer in body.layers]
    part = keras.Model(whole.input, whole.get_layer(names[-1]).output)
    np.testing.assert_allclose(numpy(body(x)), numpy(part(x)), atol=1e-6)
    assert not {"fc", "head"} & set(names)


def test_convolutional_stacks_without_the_top_take_any_size():
    for variant in ("cifar10_19layer", "mnist10_w16", "highway_a"):
        body = kh.create_model(variant, include_top=False)
        assert body.input_shape[1:3] == (None, None)
    body = kh.load("mnist10_w16.tvdn", include_top=False, input_shape=(None, None, 1))
    larger = kh.load("mnist10_w16.tvdn", include_top=False, input_shape=(56, 56, 1))
    x = np.random.default_rng(0).random((1, 56, 56, 1), "float32")
    np.testing.assert_allclose(numpy(body(x)), numpy(larger(x)), atol=1e-6)
    with pytest.raises(ValueError, match="fixed size"):
        kh.create_model("mnist10_w16", input_shape=(None, None, 1))


def test_the_command_line_reads_images_whatever_the_users_data_format(channels_first, capsys):
    """Its files give channels last, and a network with the channels first was refused: of another data set."""
    assert main(["classify", str(SAMPLES / "digit_7.png"), "--json"]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    assert image["predictions"][0]["name"] == "7" and keras.config.image_data_format() == "channels_first"


@pytest.mark.parametrize("changes", [{"gating": "plain"}, {"final_relu": True}])
def test_a_net_that_could_not_be_trained_is_refused_and_a_trained_one_is_loaded(changes, tmp_path):
    small = {"blocks": (1, 1), "widths": (4, 4), "stem_width": 4, "input_shape": (32, 32, 3), "classes": 2}
    with pytest.raises(ValueError, match="`zero_init` starts the transform at 0"):
        kh.create_model("highway50", **{**small, **changes})
    assert kh.create_model("highway50", **{**small, **changes}, zero_init=False).count_params() > 0
    net = build(override(VARIANTS["highway50"], **{**small, **changes}))  # a configuration without these checks
    net.save(tmp_path / "net.keras")
    assert keras.models.load_model(tmp_path / "net.keras").count_params() == net.count_params()


SMALL = {"blocks": (1, 1, 1, 1), "widths": (4, 4, 4, 4), "classes": 3, "weights": None}


@pytest.mark.parametrize("shape", [(14, 56, 1), (14, 14, 4)])
def test_weights_of_another_input_shape_are_refused(shape):
    with pytest.raises(ValueError, match=r"not \(28, 28, 1\). Use the input shape"):
        kh.load("highway_fc50_tanh.tvdn", input_shape=shape)
    assert kh.load("highway_fc50_tanh.tvdn", input_shape=(28, 28, 1)).input_shape == (None, 28, 28, 1)


@pytest.mark.parametrize(
    "images",
    [lambda: keras.layers.Resizing(64, 64)(keras.Input((None, None, 3))), lambda: keras.Input((64, 64, 3))],
)
def test_strides_are_of_the_pixels_that_the_network_sees(images):
    pyramid = kh.features(kh.create_model("resnet50", input_tensor=images(), **SMALL))
    assert [level.stride for level in pyramid.info] == [4, 8, 16, 32]
    assert [level.channels for level in pyramid.info] == [16] * 4


def test_a_seed_draws_the_same_weights_as_in_0_1_0():
    """Numbers of 0.1.0: of a seed come a recipe's weights, and paired differences between runs of one seed."""
    keras.utils.set_random_seed(0)
    model = kh.create_model("highway20", weights=None, blocks=(1, 1, 1))
    block = model.get_layer("stage2_block1")
    sums = [float(np.abs(numpy(part.conv1.kernel)).sum()) for part in (block.transform, block.transform_gate)]
    sums.append(float(np.abs(numpy(block.projection.conv1.kernel)).sum()))
    expected = {"tensorflow": [245.736, 245.433, 84.368]}.get(keras.backend.backend())
    if expected is None:
        pytest.skip("draws differ by backend")
    np.testing.assert_allclose(sums, expected, rtol=1e-5)


def test_highway_resnet50_is_its_resnet_with_a_gate_for_every_channel():
    spec, baseline = kh.get_spec("highway_resnet50"), kh.get_spec("resnet50")
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
    assert f"{parameters:,} trainable parameters" in kh.HighwayResNet50.__doc__
