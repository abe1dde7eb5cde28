"""Arguments that are taken, and arguments that are refused with a word of why: what once was ignored or failed late."""

import json
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.export import fold_batch_norm, load_exportable
from keras_highway.layers import (
    BasicBlock,
    Branch,
    CarriedLSTM,
    ChannelGate,
    HighwayConv2D,
    HighwayDense,
    Preprocessing,
    SharedKernels,
)
from keras_highway.layers.blocks import ZeroPadProjection
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.training.loop import train
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights.hub import parse_target
from keras_highway.weights.torch_files import model_of
from keras_highway.weights.torch_names import torch_state

SAMPLES = Path(__file__).parents[1] / "samples"
TINY = {"blocks": (1, 1, 1), "widths": (4, 4, 8), "stem_width": 4}
IMAGES = np.random.default_rng(0).uniform(0, 255, (2, 40, 36, 3)).astype("float32")


def numpy(x):
    return keras.ops.convert_to_numpy(x)


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
    with pytest.raises(ValueError, match="fixed image size"):
        kh.create_model("mnist10_w16", input_shape=(None, None, 1))


def test_folding_keeps_preprocessing():
    model = kh.create_model("highway20", include_preprocessing=True, classifier_activation=None, **TINY)
    for layer in model.layers:
        if layer.name == "stem":
            layer.bn1.moving_mean.assign(layer.bn1.moving_mean + 0.3)
    spec = kh.get_spec("highway20")
    folded = fold_batch_norm(model, override(spec, **TINY))
    assert folded.input_shape == model.input_shape
    np.testing.assert_allclose(numpy(folded(IMAGES)), numpy(model(IMAGES)), atol=1e-4)
    assert any(isinstance(layer, Preprocessing) for layer in folded.layers)


def test_what_is_computed_on_the_way_is_float32_whatever_the_policy(tmp_path, bfloat16):
    path = tmp_path / "w.weights.h5"
    exact = kh.create_model("resnet20", dtype="float32", **TINY)
    kernel = exact.get_layer("stem").conv1.kernel
    kernel.assign(np.full(kernel.shape, 1.0 + 2.0**-12, "float32"))  # which bfloat16 does not have
    weights_file.save(exact, path, "resnet20", 10, overrides=TINY)
    with pytest.warns(kh.FreshHead):
        other = kh.create_model("resnet20", weights=path, classes=3, dtype="float32", **TINY)
    np.testing.assert_array_equal(numpy(other.get_layer("stem").conv1.kernel), numpy(kernel))


@pytest.mark.slow
def test_torch_files_are_converted_in_float32(tmp_path, bfloat16):
    safetensors = pytest.importorskip("safetensors.numpy")
    state = torch_state(kh.ResNet50(weights=None, classes=2, dtype="float32"))
    state["conv1.weight"] = np.full_like(state["conv1.weight"], 1.0 + 2.0**-12)
    safetensors.save_file(state, tmp_path / "resnet50.safetensors")
    model, classes = model_of(tmp_path / "resnet50.safetensors", "resnet50")
    assert classes == 2
    assert (numpy(model.get_layer("stem").conv1.kernel) == 1.0 + 2.0**-12).all()


@pytest.mark.more
@pytest.mark.usefixtures("computes_channels_first")
def test_export_for_any_size_with_channels_first(tmp_path, channels_first):
    model = kh.create_model("highway20", **TINY)
    kh.save(model, tmp_path / "net", class_names=[*"abcdefghij"], transform="cifar10")
    part = load_exportable(str(tmp_path / "net"), logits=True, any_size=True)
    assert part.model.input_shape == (None, 3, None, None)


def test_the_command_line_reads_images_whatever_the_users_data_format(channels_first, capsys):
    """Its files give channels last, and a network with the channels first was refused as that of another data set."""
    assert main(["classify", str(SAMPLES / "digit_7.png"), "--json"]) == 0
    (image,) = json.loads(capsys.readouterr().out)["images"]
    assert image["predictions"][0]["name"] == "7" and keras.config.image_data_format() == "channels_first"


def test_training_whatever_the_users_data_format(channels_first, tmp_path):
    recipe = changed(tiny(RECIPES["mnist10_w16"]), epochs=1)
    assert train(recipe, None, tmp_path)["epochs"] == 1
    assert keras.config.image_data_format() == "channels_first"
    assert kh.load(tmp_path).input_shape == (None, 1, 28, 28)


def test_initializers_that_are_functions_or_have_a_generator():
    def ones(shape, dtype=None):
        return keras.ops.ones(shape, dtype)

    layer = HighwayDense(kernel_initializer=ones)
    layer.build((None, 4))
    assert (numpy(layer.transform.kernel) == 1).all()
    layer = HighwayDense(kernel_initializer=keras.initializers.HeNormal(seed=keras.random.SeedGenerator(1)))
    layer.build((None, 4))
    assert (numpy(layer.transform.kernel) != numpy(layer.transform_gate.kernel)).any()


@pytest.mark.parametrize("name", ["removed", "variant", "file"])
def test_internal_arguments_are_no_fields(name):
    with pytest.raises(ValueError, match=f"Unknown field.*{name}|{name}"):
        kh.load("mnist10_w16.tvdn", **{name: ("stage1_block1",)})
    if name != "variant":
        with pytest.raises(ValueError, match=name):
            kh.create_model("highway20", **{name: ("stage1_block2",)})


@pytest.mark.parametrize("variant", ["highway20", "mnist10_w16", "highway_fc10", "charlm_small_coupled"])
def test_a_rank_is_of_low_rank_gates_alone(variant):
    with pytest.raises(ValueError, match="`gate_rank` is needed with gate='low_rank' and only there"):
        kh.create_model(variant, gate_rank=4)
    with pytest.raises(ValueError, match="`gate_rank` is needed with gate='low_rank' and only there"):
        kh.create_model(variant, gate="low_rank")


def test_second_inputs_are_checked_where_a_model_is_built():
    x, logits = keras.Input((8, 8, 4)), keras.Input((8, 8, 4))
    with pytest.raises(ValueError, match="has gate='tied' and needs the logits of the shared gate"):
        BasicBlock(4, gate="tied")(x)
    with pytest.raises(ValueError, match="takes the kernels of its transform"):
        BasicBlock(4, gating="residual", shared_transform=True)(x)
    with pytest.raises(ValueError, match="takes none as an input"):
        BasicBlock(4)(x, gate=logits)
    with pytest.raises(ValueError, match=r"takes the kernels of its transform.*kernels=given"):
        BasicBlock(4)(x, kernels=SharedKernels((4, 4), (3, 3))(x))
    eager = np.zeros((1, 8, 8, 4), "float32")
    with pytest.raises(ValueError, match="takes none as an input"):
        BasicBlock(4)(eager, gate=eager)


def test_symbolic_dtypes_are_the_real_ones():
    gate = ChannelGate(4, dtype="mixed_bfloat16")
    assert gate(keras.Input((4,))).dtype == "float32" == keras.backend.standardize_dtype(gate(np.ones((1, 4))).dtype)
    lstm = CarriedLSTM(3, streams=2, dtype="bfloat16")
    lstm.build((2, 5, 4))
    assert {variable.dtype for variable in lstm.carried} == {"float32"} and lstm.kernel.dtype == "bfloat16"


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="JAX has no float64 here")
def test_pooled_features_of_a_float64_model_are_float64():
    pyramid = kh.features(kh.create_model("highway20", dtype="float64", **TINY), pool="avg")
    assert {output.dtype for output in pyramid.model.outputs} == {"float64"}


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
    model = kh.create_model("highway20", include_preprocessing="cifar10", **TINY)
    assert model.get_layer("preprocessing").transform == kh.get_transform("cifar10")
    with pytest.raises(ValueError, match="cifar11"):
        kh.create_model("highway20", include_preprocessing="cifar11", **TINY)


@pytest.mark.parametrize("shape", [32, "abc", (32, 32), (32.5, 32, 3), (32, 32, 3, 1)])
def test_input_shapes_that_are_none(shape):
    with pytest.raises(ValueError, match="`input_shape` must have three numbers"):
        kh.create_model("highway20", input_shape=shape, **TINY)


def test_a_shape_that_contradicts_the_tensor():
    images = keras.Input((64, 64, 3))
    with pytest.raises(ValueError, match="`input_shape` must be that of `input_tensor`"):
        kh.create_model("highway20", input_tensor=images, input_shape=(32, 32, 3), **TINY)
    assert kh.create_model("highway20", input_tensor=images, input_shape=(64, 64, 3), **TINY)


def test_numbers_of_classes_of_numpy():
    classes = np.int64(5)
    model = kh.create_model("highway20", classes=classes, **TINY)
    assert model.output_shape == (None, 5) == kh.reset_classifier(model, classes).output_shape


def test_no_classifier_on_a_language_model():
    lm = kh.create_model("charlm_small_coupled", classifier_activation="softmax")
    with pytest.raises(ValueError, match="goes on after its layer 'head'"):
        kh.reset_classifier(lm, 5)


def test_nothing_is_published_to_a_revision():
    assert parse_target("hf://org/name@main").repository == "org/name"
    with pytest.raises(ValueError, match=r"leave out the revision. Received: 'org/pets@v2'"):
        parse_target("org/pets@v2")
    with pytest.raises(ValueError, match="leave out the revision"):
        kh.push_to_hub(kh.create_model("highway20", **TINY), "org/pets@v2", class_names=[*"abcdefghij"])


def test_preprocess_input_by_keras_applications_order():
    images = np.zeros((1, 3, 8, 8), "uint8")
    np.testing.assert_array_equal(
        kh.preprocess_input(images, "channels_first"), kh.preprocess_input(images, "imagenet", "channels_first")
    )


def test_errors_that_are_raised_are_public():
    assert issubclass(kh.HubError, OSError) and issubclass(kh.UncheckedWeights, kh.Notice)


def test_without_the_top_behind_a_tensor_or_preprocessing():
    images = keras.Input((64, 48, 3))
    body = kh.create_model("highway20", include_top=False, input_tensor=images, **TINY)
    assert body.input_shape == (None, 64, 48, 3)
    body = kh.create_model("highway20", include_top=False, include_preprocessing="cifar10", **TINY)
    assert body.output_shape[1:] == (8, 8, 8) and body.input_shape == (None, None, None, 3)


@pytest.mark.parametrize("changes", [{"gating": "plain"}, {"final_relu": True}, {"gating": "plain", "blocks": (1, 1)}])
def test_a_net_that_could_not_be_trained_is_refused_and_a_trained_one_is_loaded(changes, tmp_path):
    small = {"blocks": (1, 1), "widths": (4, 4), "stem_width": 4, "input_shape": (32, 32, 3), "classes": 2}
    with pytest.raises(ValueError, match="`zero_init` starts the transform at 0"):
        kh.create_model("highway50", **{**small, **changes})
    assert kh.create_model("highway50", **{**small, **changes}, zero_init=False).count_params() > 0
    net = build(override(VARIANTS["highway50"], **{**small, **changes}))  # a configuration without these checks
    net.save(tmp_path / "net.keras")
    assert keras.models.load_model(tmp_path / "net.keras").count_params() == net.count_params()
