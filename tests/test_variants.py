"""Every row of the variant table: builds, trains, comes back from a file, has the published size and depth."""

import dataclasses
import functools
import itertools
import json
import math

import keras
import numpy as np
import pytest
from contracts import array, check_round_trip, distinct_miniatures, layers_deep, miniature, predict_on, to_numpy
from golden import describe
from hypothesis import given
from hypothesis import strategies as st

import keras_highway as kh
from keras_highway._support.keras_models import without_values
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.layers import GatedBlock
from keras_highway.models.builder import build
from keras_highway.specs import (
    ConvNetSpec,
    ConvStackSpec,
    DenseStackSpec,
    initial_gate_bias,
    override,
    stochastic_depth_rates,
    to_dict,
)
from keras_highway.training.recipes import RECIPES
from keras_highway.variants import LM_VARIANTS, VARIANTS

GOLDEN = json.loads(describe.FILE.read_text())
MINIATURES = distinct_miniatures()
OTHER = "jax" if keras.backend.backend() == "tensorflow" else "tensorflow"


def image_batch(model, n=4):
    return array(n, *model.input_shape[1:])


@functools.cache
def facts_of(name) -> dict:
    """Facts of a full-size model; the model itself is released."""
    model = without_values(lambda: build(VARIANTS[name]))
    return {
        "parameters": describe.parameters(model),
        "depth": layers_deep(model),
        "names": describe.names(model),
        "features": model.get_layer("head").input.shape[-1],
    }


@pytest.mark.parametrize("name", MINIATURES)
def test_a_miniature_trains_and_comes_back_from_a_file(name):
    # An almost closed gate (-6) would make some updates smaller than float32 can add.
    model = build(override(MINIATURES[name], gate_bias=-1.0))
    x, y = image_batch(model), np.array([0, 1, 2, 1])
    p = to_numpy(model(x, training=False))
    assert p.shape == (4, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    before = [to_numpy(v) for v in model.trainable_variables]
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", run_eagerly=True)
    for _ in range(2):  # at the first step a "zeroBN" lets no gradient into the transform
        loss = model.train_on_batch(x, y)
    assert np.isfinite(loss)
    moved = [(to_numpy(v) != old).any() for v, old in zip(model.trainable_variables, before, strict=True)]
    still = [v.path for v, m in zip(model.trainable_variables, moved, strict=True) if not m]
    assert len(still) <= len(moved) // 10, still  # a ReLU or two of these few may be dead
    assert all(np.isfinite(to_numpy(v)).all() for v in model.weights)
    check_round_trip(model, [x])


@pytest.mark.parametrize("name", ["highway50", "highway110", "cifar10_19layer", "highway_fc50_tanh"])
def test_weights_files_and_mixed_precision(name, tmp_path):
    spec = miniature(VARIANTS[name])
    model = build(spec)
    x = image_batch(model)
    model.save_weights(tmp_path / "model.weights.h5")
    again, mixed = build(spec), build(spec, dtype="mixed_bfloat16")
    y = to_numpy(model(x))
    assert (to_numpy(again(x)) != y).any()
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(to_numpy(again(x)), y)
    mixed.load_weights(tmp_path / "model.weights.h5")
    p = mixed(x)
    assert keras.backend.standardize_dtype(p.dtype) == "float32"
    np.testing.assert_allclose(to_numpy(p), y, atol=0.1)
    for block in mixed.layers:
        if isinstance(block, GatedBlock):
            assert (block.output.dtype, block.transform.compute_dtype) == ("float32", "bfloat16")


@pytest.mark.parametrize("gating", ["plain", "residual", "t_only", "c_only", "coupled", "full"])
@pytest.mark.parametrize("name", ["highway50", "highway110", "mnist10_w16", "highway_fc10"])
def test_any_variant_under_any_gating(name, gating):
    model = build(override(miniature(VARIANTS[name]), gating=gating))
    assert {layer.gating for layer in model.layers if isinstance(layer, GatedBlock)} == {gating}
    assert np.isfinite(to_numpy(model(image_batch(model, 1)))).all()


@pytest.mark.parametrize("name", [name for name, spec in VARIANTS.items() if spec.published_parameters])
def test_published_parameters(name):
    assert facts_of(name)["parameters"] == VARIANTS[name].published_parameters


@pytest.mark.parametrize("name", [name for name, spec in VARIANTS.items() if spec.printed_parameters])
def test_counts_are_those_printed_rounded_or_cut_off(name):
    spec = VARIANTS[name]
    number, _, unit = spec.printed_parameters.partition(" ")
    scale = {"": 1, "K": 1000, "M": 1_000_000}[unit]
    digit = 10 ** -len(number.partition(".")[2])
    assert spec.published_parameters is not None
    exact = spec.published_parameters / scale
    assert float(number.replace(",", "")) in (
        pytest.approx(math.floor(exact / digit) * digit),
        pytest.approx(round(exact / digit) * digit),
    )


@pytest.mark.parametrize(
    ("name", "about", "within"),
    [
        ("highway_a", 236e3, 0.01),
        ("highway_b", 2.3e6, 0.01),
        ("highway_c", 1.25e6, 0.01),
        ("highway50", 26.4e6, 0.03),
        ("resnet50", 25.5e6, 0.03),
        ("mnist10_w16", 39e3, 0.03),
        ("mnist10_w32", 151e3, 0.03),
    ],
)
def test_sizes_the_papers_round(name, about, within):
    assert facts_of(name)["parameters"] == pytest.approx(about, rel=within)


DEPTHS = {
    "mnist10_w16": 10,
    "mnist10_w32": 10,
    "cifar10_19layer": 19,
    "cifar100_19layer": 19,
    "highway_a": 11,
    "highway_b": 19,
    "highway_c": 32,
    "highway50": 50,
    "resnet50": 50,
    "highway110": 110,
    "resnet110": 110,
    "highway111": 111,
    # Counted without the classifier.
    "highway_fc10": 10 + 1,
    "highway_fc50_tanh": 50 + 1,
    "plain_fc100": 100 + 1,
    "highway_fc1000": 1000 + 1,
}


@pytest.mark.parametrize("name", DEPTHS)
def test_depth_in_layers(name):
    assert facts_of(name)["depth"] == DEPTHS[name]
    spec = VARIANTS[name]
    assert spec.layers_deep == DEPTHS[name] - isinstance(spec, DenseStackSpec)


@pytest.mark.parametrize(("name", "bias"), [("highway_a", -1.0), ("highway_b", -2.0), ("highway_c", -3.0)])
def test_nets_after_fitnets(name, bias):
    """[TVDN, 2.2, 3.3.1]: gate bias by depth; max-pool, a hidden layer and the softmax, no 1x1 convolution."""
    assert VARIANTS[name].gate_bias == "by_depth"
    model = without_values(lambda: build(VARIANTS[name]))
    blocks = [layer for layer in model.layers if isinstance(layer, GatedBlock)]
    assert {block.gate_bias for block in blocks} == {bias}
    assert [layer.name for layer in model.layers[-4:]] == ["max_pool", "fc", "head_dropout", "head"]
    assert model.get_layer("max_pool").input.shape[1:3] == (8, 8)  # FitNets' pool is of 8
    assert model.get_layer("fc").units == 500
    layers = [getattr(layer, "transform", layer) for layer in model.layers]
    sizes = [layer.kernel_size[0] for layer in layers if isinstance(layer, keras.layers.Conv2D)]
    assert sizes == {"highway_a": 9 * [3], "highway_b": 17 * [3], "highway_c": 15 * [3, 1]}[name]


def test_gate_bias_by_depth_of_any_net():
    for name, bias in (("mnist10_w16", -1.0), ("highway110", -3.0), ("highway_fc20", -2.0)):
        assert initial_gate_bias(override(VARIANTS[name], gate_bias="by_depth")) == bias
    with pytest.raises(ValueError, match="not in language models"):
        override(LM_VARIANTS["charlm_small_coupled"], gate_bias="by_depth")


@pytest.mark.parametrize("name", GOLDEN["names"])
def test_golden_layer_names_and_weight_paths(name):
    listing = facts_of(name)["names"]
    assert (describe.hashed(listing) if name in describe.BY_HASH else listing) == GOLDEN["names"][name]


@pytest.mark.parametrize("name", GOLDEN["h5"])
def test_golden_keys_of_weights_files(name):
    model = build(override(VARIANTS[name], **describe.SHRUNKEN[name]))
    assert describe.h5_keys(model) == GOLDEN["h5"][name]


@pytest.mark.slow
def test_both_backends_compute_the_same(tmp_path):
    names = ("highway50", "resnet110", "highway110", "mnist10_w16", "highway_fc50_tanh")
    assert {type(VARIANTS[n]) for n in names} == {ConvNetSpec, ConvStackSpec, DenseStackSpec}
    expected = {}
    for name in names:
        model = build(miniature(VARIANTS[name]))
        x = image_batch(model)
        np.save(tmp_path / f"{name}.x.npy", x)
        # Trained for a step, so that moving averages and biases are not all 0 and 1.
        model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy", run_eagerly=True)
        model.train_on_batch(x, np.array([0, 1, 2, 1]))
        expected[name] = to_numpy(model(x, training=False))
        model.save_weights(tmp_path / f"{name}.weights.h5")
    predict_on(OTHER, tmp_path)
    for name, y in expected.items():
        other = np.load(tmp_path / f"{name}.{OTHER}.npy")
        np.testing.assert_allclose(other, y, atol=1e-4, err_msg=name)


def test_the_first_convolution_of_the_cifar_nets_starts_with_deviation_one():
    """[caffe]: the prototxt's `value: 0.05` is ignored."""
    net = kh.create_model("cifar10_19layer", weights=None)
    kernels = {v.path: to_numpy(v) for v in net.trainable_variables if v.name == "kernel"}
    assert kernels["stem/kernel"].std() == pytest.approx(1.0, rel=0.1)  # 864 numbers
    assert kernels["head/kernel"].std() == pytest.approx(0.05, rel=0.1)


def test_dropout_rates_are_scaled_and_names_stay():
    whole = kh.create_model("cifar10_19layer", weights=None)
    half = kh.create_model("cifar10_19layer", weights=None, dropout_scale=0.5)
    rates = {layer.name: layer.rate for layer in half.layers if "dropout" in layer.name}
    assert rates == dict.fromkeys(["stage1_dropout", "stage2_dropout", "stage3_dropout", "head_dropout"], 0.1)
    assert [layer.name for layer in half.layers[1:]] == [layer.name for layer in whole.layers[1:]]


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("mnist10_w32", ("stem", "stage1_block1/transform", "stage2_block2/transform_gate")),
        ("cifar10_19layer", ("stage1_block1/transform", "stage3_block1/transform_gate", "stage2_transition", "neck")),
        ("cifar100_19layer", ("stage2_block1/transform", "head")),
    ],
)
def test_tvdn_kernels_start_with_the_variance_of_the_authors_fork_of_caffe(name, layers):
    """Its "xavier" is normal with variance 2 / fan_in [caffe]; upstream Caffe's is uniform with half of that."""
    kernels = {v.path.removesuffix("/kernel"): to_numpy(v) for v in build(VARIANTS[name]).weights if v.name == "kernel"}
    for layer in layers:
        kernel = kernels[layer]
        expected = math.sqrt(2 / math.prod(kernel.shape[:-1]))
        assert kernel.std() == pytest.approx(expected, rel=4 / math.sqrt(kernel.size)), layer
        assert np.abs(kernel).max() > 1.8 * expected  # beyond the limit of a uniform distribution


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "logged"),
    [
        ("mnist10_w32", "mnist", 2.516),
        ("cifar10_19layer", "cifar10", 2.497),
        ("cifar100_19layer", "cifar100", 5.719),
    ],
)
def test_untrained_nets_have_the_test_loss_of_the_authors_logs(name, data, logged):
    try:
        test = kh.data.load_dataset(data)
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(f"needs {data}: set KERAS_HIGHWAY_DATA ({error})")
    transform = RECIPES[name].transform
    images, labels = TRANSFORMS[transform].apply(test.x_test[:500]), test.y_test[:500]
    losses = []
    for seed in range(8):
        keras.utils.set_random_seed(seed)
        logits = build(VARIANTS[name], classifier_activation=None).predict(images, batch_size=100, verbose=0)
        losses.append(float(np.mean(to_numpy(keras.losses.sparse_categorical_crossentropy(labels, logits, True)))))
    print(f"{name}: {np.mean(losses):.3f} ± {np.std(losses, ddof=1):.3f}, the authors' {logged}")
    assert abs(np.mean(losses) - logged) <= 2 * np.std(losses, ddof=1)


HIGHWAY50, MNIST, DENSE = (VARIANTS[name] for name in ("highway50", "mnist10_w16", "highway_fc10"))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_row_is_json(name):
    written = json.loads(json.dumps(to_dict(VARIANTS[name])))
    assert written["kind"] == type(VARIANTS[name]).__name__
    assert written["name"] == name
    fields = {f.name for f in dataclasses.fields(VARIANTS[name])}
    assert set(written) == fields | {"kind"}


@pytest.mark.parametrize(
    ("spec", "changes", "message"),
    [
        (HIGHWAY50, {"widths": (48, 96, -1, 384)}, "`widths`: Expected"),
        (HIGHWAY50, {"widths": ()}, "`widths`: Expected"),
        (HIGHWAY50, {"blocks": (3, 4, 6)}, "one number per stage"),
        (HIGHWAY50, {"stem": "mnist"}, "`stem` must be one of"),
        (HIGHWAY50, {"gate_bias": float("nan")}, "`gate_bias` must be a finite number"),
        (HIGHWAY50, {"zero_init": 1}, "`zero_init`: Expected"),
        (HIGHWAY50, {"classes": True}, "`classes`: Expected"),
        (HIGHWAY50, {"num_classes": 10}, "pass classes="),
        (HIGHWAY50, {"pretrained": True}, "pass weights="),
        (HIGHWAY50, {"in_chans": 1}, "pass input_shape="),
        (DENSE, {"depth": 0}, "`depth`: Expected"),
        (MNIST, {"gate": "tied"}, "gate='tied'"),
    ],
)
def test_impossible_values_are_refused(spec, changes, message):
    with pytest.raises(ValueError, match=message) as error:
        override(spec, **changes)
    assert "Received: " in str(error.value) and next(iter(changes)) in str(error.value)


@given(rate=st.floats(0, 0.99), blocks=st.integers(2, 60))
def test_stochastic_depth_grows_linearly(rate, blocks):
    rates = stochastic_depth_rates(dataclasses.replace(HIGHWAY50, stochastic_depth=rate), blocks)
    assert (len(rates), rates[0]) == (blocks, 0.0)
    assert rates[-1] == pytest.approx(rate)
    assert all(b - a == pytest.approx(rate / (blocks - 1)) for a, b in itertools.pairwise(rates))
