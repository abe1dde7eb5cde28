"""Builders: the habits of keras.applications.ResNet50, and what goes beyond them."""

import dataclasses
import inspect
import json
from pathlib import Path

import keras
import numpy as np
import pytest
from miniatures import numpy

import keras_highway as kh
from keras_highway import layers
from keras_highway._support.keras_models import without_values
from keras_highway.cli import main
from keras_highway.export import fold_batch_norm, load_exportable
from keras_highway.layers import (
    BasicBlock,
    Branch,
    HighwayConv2D,
    Preprocessing,
    SharedKernels,
)
from keras_highway.layers.blocks import ZeroPadProjection
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.training.loop import train
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes import tiny as tiny_recipe
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.hub import parse_target
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


def test_undetermined_size_with_classifier():
    model = tiny(input_shape=(None, None, 3))
    for size in (32, 64):
        assert model(np.zeros((1, size, size, 3), "float32")).shape == (1, 5)


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
        ({"gate_bias": "low"}, "must be a finite number or"),
        ({"widths": (4, 4, -4, 4)}, "`widths`: Expected"),
        ({"widths": (4, 4, 4)}, "one number per stage"),
        ({"input_shape": (31, 40, 3)}, "at least 32x32"),
        ({"input_shape": (32, 32)}, "three numbers"),
        ({"input_shape": (32, 32, None)}, "a known number of channels"),
        ({"classes": 0}, "positive integer"),
        ({"classes": 2.5}, "positive integer"),
        ({"pooling": "mean"}, "pooling"),
        ({"input_tensor": np.zeros((1, 32, 32, 3))}, "Keras tensor"),
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


@pytest.mark.parametrize("change", [{"gating": "full"}, {"gating": "c_only"}, {"input_shape": (60, 60, 1)}])
def test_weights_that_do_not_fit_are_refused(change):
    with pytest.raises(ValueError, match="do not fit"):
        kh.create_model("mnist10_w32", weights="mnist", **change)


@pytest.mark.parametrize("change", [{"gating": "c_only"}, {"activation": "relu"}, {"depth": 52}, {"depth": 40}])
def test_overrides_that_change_the_trained_function_are_refused(change):
    """Equal shapes are not enough: a trained transform gate is not a carry gate, and new blocks would be random."""
    with pytest.raises(ValueError, match=f"it overrides {next(iter(change))}="):
        kh.load("highway_fc50_tanh.tvdn", **change)


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


SAMPLES = Path(__file__).parents[1] / "samples"
ONE_BLOCK = {"blocks": (1, 1, 1), "widths": (4, 4, 8), "stem_width": 4}
IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 40, 36, 3)).astype("float32")


@pytest.fixture
def bfloat16():
    """Of all layers that are not told another."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("bfloat16")
    yield
    keras.config.set_dtype_policy(before)


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


def test_folding_keeps_preprocessing():
    model = kh.create_model("highway20", include_preprocessing=True, classifier_activation=None, **ONE_BLOCK)
    for layer in model.layers:
        if layer.name == "stem":
            layer.bn1.moving_mean.assign(layer.bn1.moving_mean + 0.3)
    spec = kh.get_spec("highway20")
    folded = fold_batch_norm(model, override(spec, **ONE_BLOCK))
    assert folded.input_shape == model.input_shape
    np.testing.assert_allclose(numpy(folded(IMAGES)), numpy(model(IMAGES)), atol=1e-4)
    assert any(isinstance(layer, Preprocessing) for layer in folded.layers)


def test_what_is_computed_on_the_way_is_float32_whatever_the_policy(tmp_path, bfloat16):
    path = tmp_path / "w.weights.h5"
    exact = kh.create_model("resnet20", dtype="float32", **ONE_BLOCK)
    kernel = exact.get_layer("stem").conv1.kernel
    kernel.assign(np.full(kernel.shape, 1.0 + 2.0**-12, "float32"))  # which bfloat16 does not have
    weights_file.save(exact, path, "resnet20", 10, overrides=ONE_BLOCK)
    with pytest.warns(kh.FreshHead):
        other = kh.create_model("resnet20", weights=path, classes=3, dtype="float32", **ONE_BLOCK)
    np.testing.assert_array_equal(numpy(other.get_layer("stem").conv1.kernel), numpy(kernel))


@pytest.mark.more
@pytest.mark.usefixtures("computes_channels_first")
def test_export_for_any_size_with_channels_first(tmp_path, channels_first):
    model = kh.create_model("highway20", **ONE_BLOCK)
    kh.save(model, tmp_path / "net", class_names=[*"abcdefghij"], transform="cifar10")
    part = load_exportable(str(tmp_path / "net"), logits=True, any_size=True)
    assert part.model.input_shape == (None, 3, None, None)


def test_the_command_line_reads_images_whatever_the_users_data_format(channels_first, capsys):
    """Its files give channels last, and a network with the channels first was refused as that of another data set."""
    assert main(["classify", str(SAMPLES / "digit_7.png"), "--json"]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    assert image["predictions"][0]["name"] == "7" and keras.config.image_data_format() == "channels_first"


def test_training_whatever_the_users_data_format(channels_first, tmp_path):
    recipe = changed(tiny_recipe(RECIPES["mnist10_w16"]), epochs=1)
    assert train(recipe, None, tmp_path)["epochs"] == 1
    assert keras.config.image_data_format() == "channels_first"
    assert kh.load(tmp_path).input_shape == (None, 1, 28, 28)


@pytest.mark.parametrize("variant", ["highway20", "mnist10_w16", "highway_fc10", "charlm_small_coupled"])
def test_a_rank_is_of_low_rank_gates_alone(variant):
    with pytest.raises(ValueError, match="`gate_rank` is needed with gate='low_rank' and only there"):
        kh.create_model(variant, gate_rank=4)
    with pytest.raises(ValueError, match="`gate_rank` is needed with gate='low_rank' and only there"):
        kh.create_model(variant, gate="low_rank")


def test_second_inputs_are_checked_where_a_model_is_built():
    x, logits = keras.Input((8, 8, 4)), keras.Input((8, 8, 4))
    with pytest.raises(ValueError, match="needs the logits"):
        BasicBlock(4, gate="tied")(x)
    with pytest.raises(ValueError, match="takes kernels"):
        BasicBlock(4, gating="residual", shared_transform=True)(x)
    with pytest.raises(ValueError, match="only with gate"):
        BasicBlock(4)(x, gate=logits)
    with pytest.raises(ValueError, match="takes kernels"):
        BasicBlock(4)(x, kernels=SharedKernels((4, 4), (3, 3))(x))
    eager = np.zeros((1, 8, 8, 4), "float32")
    with pytest.raises(ValueError, match="only with gate"):
        BasicBlock(4)(eager, gate=eager)


@pytest.mark.parametrize(
    "make",
    [
        lambda word: Preprocessing(kh.get_transform("cifar10"), data_format=word),
        lambda word: ZeroPadProjection(4, data_format=word),
        lambda word: SharedKernels((4,), (3,), data_format=word),
        lambda word: Branch((4,), (3,), data_format=word),
        lambda word: HighwayConv2D(data_format=word),
        lambda word: BasicBlock(4, data_format=word),
        lambda word: kh.preprocess_input(IMAGES, data_format=word),
    ],
)
def test_a_data_format_is_one_of_two(make):
    with pytest.raises(ValueError, match=r"`data_format` must be .*'channels_first'. Received.*'nchw'"):
        make("nchw")


def test_a_transform_by_its_name():
    model = kh.create_model("highway20", include_preprocessing="cifar10", **ONE_BLOCK)
    assert model.get_layer("preprocessing").transform == kh.get_transform("cifar10")
    with pytest.raises(ValueError, match="cifar11"):
        kh.create_model("highway20", include_preprocessing="cifar11", **ONE_BLOCK)


def test_a_shape_that_contradicts_the_tensor():
    images = keras.Input((64, 64, 3))
    with pytest.raises(ValueError, match="match `input_tensor`"):
        kh.create_model("highway20", input_tensor=images, input_shape=(32, 32, 3), **ONE_BLOCK)
    assert kh.create_model("highway20", input_tensor=images, input_shape=(64, 64, 3), **ONE_BLOCK)


def test_no_classifier_on_a_language_model():
    lm = kh.create_model("charlm_small_coupled", classifier_activation="softmax")
    with pytest.raises(ValueError, match="ends in its `head`"):
        kh.reset_classifier(lm, 5)


def test_nothing_is_published_to_a_revision():
    assert parse_target("hf://org/name@main").repository == "org/name"
    with pytest.raises(ValueError, match=r"remove the revision. Received: 'org/pets@v2'"):
        parse_target("org/pets@v2")
    with pytest.raises(ValueError, match="remove the revision"):
        kh.push_to_hub(kh.create_model("highway20", **ONE_BLOCK), "org/pets@v2", class_names=[*"abcdefghij"])


def test_preprocess_input_by_keras_applications_order():
    images = np.zeros((1, 3, 8, 8), "uint8")
    np.testing.assert_array_equal(
        kh.preprocess_input(images, "channels_first"), kh.preprocess_input(images, "imagenet", "channels_first")
    )


@pytest.mark.parametrize("changes", [{"gating": "plain"}, {"final_relu": True}, {"gating": "plain", "blocks": (1, 1)}])
def test_a_net_that_could_not_be_trained_is_refused_and_a_trained_one_is_loaded(changes, tmp_path):
    small = {"blocks": (1, 1), "widths": (4, 4), "stem_width": 4, "input_shape": (32, 32, 3), "classes": 2}
    with pytest.raises(ValueError, match="`zero_init` starts the transform at 0"):
        kh.create_model("highway50", **{**small, **changes})
    assert kh.create_model("highway50", **{**small, **changes}, zero_init=False).count_params() > 0
    net = build(override(VARIANTS["highway50"], **{**small, **changes}))  # a configuration without these checks
    net.save(tmp_path / "net.keras")
    assert keras.models.load_model(tmp_path / "net.keras").count_params() == net.count_params()


SMALL = {"blocks": (1, 1, 1, 1), "widths": (4, 4, 4, 4), "classes": 3, "weights": None}
RNG = np.random.default_rng(0)


# --- Loading ------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(14, 56, 1), (14, 14, 4)])
def test_weights_of_pixels_are_not_those_of_other_pixels(shape):
    with pytest.raises(ValueError, match=r"not \(28, 28, 1\). Use the input shape"):
        kh.load("highway_fc50_tanh.tvdn", input_shape=shape)
    assert kh.load("highway_fc50_tanh.tvdn", input_shape=(28, 28, 1)).input_shape == (None, 28, 28, 1)


@pytest.mark.parametrize(("variant", "shape"), [("highway_fc10", (20, 20, 1)), ("mnist10_w16", (32, 32, 1))])
def test_files_that_do_not_say_of_which_pixels_they_are(variant, shape, tmp_path):
    """Of Keras's own, which fit what is requested."""
    model = kh.create_model(variant, weights=None, input_shape=shape)
    model.save_weights(tmp_path / "own.weights.h5")
    with pytest.warns(kh.UncheckedWeights):
        again = kh.create_model(variant, weights=str(tmp_path / "own.weights.h5"), input_shape=shape)
    for ours, theirs in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# --- Images that are not the network's ----------------------------------------


def _two_images():
    a, b = keras.Input((64, 64, 1)), keras.Input((64, 64, 2))
    return keras.layers.Concatenate()([a, b])


@pytest.mark.parametrize(
    "images",
    [
        lambda: keras.layers.Resizing(64, 64)(keras.Input((None, None, 3))),
        lambda: keras.layers.CenterCrop(224, 224)(keras.Input((256, 256, 3))),
        lambda: keras.layers.Reshape((64, 64, 3))(keras.Input((64 * 64 * 3,))),
        _two_images,
        lambda: keras.Input((64, 64, 3)),
    ],
)
def test_strides_are_of_the_pixels_that_the_network_sees(images):
    pyramid = kh.features(kh.create_model("resnet50", input_tensor=images(), **SMALL))
    assert [level.stride for level in pyramid.info] == [4, 8, 16, 32]
    assert [level.channels for level in pyramid.info] == [16] * 4


@pytest.mark.parametrize("stages", [(), 3, {}])
def test_features_of_no_stages_are_refused(stages):
    with pytest.raises(ValueError, match="`stages` must be one or more"):
        kh.features(kh.create_model("resnet50", **SMALL), stages=stages)


# --- Layers -------------------------------------------------------------------


def test_a_branch_ends_in_its_activation_in_training_too():
    """In training on TensorFlow's CPU a softmax went over 13 channels of padding besides."""
    branch, x = layers.Branch((3,), (1,), activation="softmax"), RNG.random((2, 4, 4, 3), "float32")
    for training in (True, False):
        np.testing.assert_allclose(numpy(branch(x, training=training)).sum(-1), 1.0, rtol=1e-5)


def test_a_seed_draws_what_it_did():
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


@pytest.mark.parametrize("size", [0, (3, 0), "3", (3, 3, 3), 2.5])
@pytest.mark.parametrize("name", ["kernel_size", "gate_kernel_size"])
def test_kernel_sizes_are_checked_where_they_are_given(name, size):
    with pytest.raises(ValueError, match=f"`{name}` must be a positive integer.*Received: {name}="):
        layers.HighwayConv2D(**{name: size})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.Preprocessing(kh.get_transform("cifar10"))(np.zeros((40, 40, 3))), "needs an input of rank 4"),
        (lambda: layers.Branch((4,), (3,), (2,))(np.zeros((2, 8))), "needs an input of rank 4"),
        (lambda: layers.HighwayDense(stochastic_depth="0.1"), r"`stochastic_depth` must be in \[0, 1\)"),
        (lambda: kh.merge_lora("x"), "Received: 'x' of type str"),
        (
            lambda: kh.create_model("resnet20", gating="plain", stochastic_depth=0.5, weights=None),
            "which gating='plain' does not have",
        ),
    ],
)
def test_what_was_wrong_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_numbers_of_numpy_are_numbers():
    fields = {
        "remat": np.bool_(True),
        "gate_bias": np.float32(-1),
        "stochastic_depth": np.float64(0.25),
        "gate": "low_rank",
        "gate_rank": np.int64(2),
        "widths": tuple(np.array([4, 4, 4])),
    }
    model = kh.create_model("highway20", weights=None, **fields)
    block = model.get_layer("stage3_block3")
    assert (block.remat, block.gate_bias, block.stochastic_depth, block.gate_rank) == (True, -1.0, 0.25, 2)
    with pytest.raises(ValueError, match="`gate_rank`: Expected `int"):
        kh.create_model("highway20", weights=None, gate="low_rank", gate_rank=np.timedelta64(2))
