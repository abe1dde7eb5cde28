"""Biases learn in 16 bits: their gradients sum many small terms without loss."""

import keras
import numpy as np
import pytest
from contracts import check_config, distinct_miniatures, gradients, to_numpy
from keras import ops

import keras_highway as kh
from keras_highway.layers import (
    CarriedLSTM,
    CharCNN,
    HighwayConv2D,
    HighwayDenseStack,
)
from keras_highway.layers.ungated import Conv1D, Conv2D, Dense
from keras_highway.models.builder import build

SMALL = distinct_miniatures()
POSITIONS = 8 * 64 * 64  # one after the other, a sum of like terms stops at some 256 in bfloat16, at 2,048 in float16
BFLOAT16 = {"dtype": "mixed_bfloat16"}


def bias_gradients(layer, shape, ending="bias"):
    """Gradients of the biases of a layer, of a weighted sum of its output over all positions."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0.1, 0.4, shape).astype("float32")
    model = keras.Sequential([layer])  # a layer's own stateless call does not cast
    weights = ops.convert_to_tensor(rng.uniform(0.5, 1.5, (*model(x).shape[:-1], 1)).astype("float32"))
    chosen = [i for i, v in enumerate(model.trainable_variables) if v.path.endswith(ending)]
    assert chosen

    def total(*values):
        variables = [ops.convert_to_tensor(v) for v in model.trainable_variables]
        for i, value in zip(chosen, values, strict=True):
            variables[i] = value
        y = model.stateless_call(variables, [v.value for v in model.non_trainable_variables], x)[0]
        return ops.sum(ops.cast(y, "float32") * weights)

    if keras.backend.backend() == "jax":  # compiled, as in training
        import jax

        total = jax.jit(total)
    return gradients(total, *(to_numpy(model.trainable_variables[i]) for i in chosen))


def assert_like_float32(make, shape, policy, **options):
    """The gradients under a policy are those in float32 with the same weights."""
    exact, layer = make(dtype="float32"), make(dtype=policy)
    exact_gradients = bias_gradients(exact, shape, **options)
    layer.build(shape)
    layer.set_weights(exact.get_weights())
    for actual, expected in zip(bias_gradients(layer, shape, **options), exact_gradients, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=0.03, atol=0.002 * np.abs(expected).max())


IMAGES, ROWS = (8, 64, 64, 3), (64, 512, 3)
LAYERS = {
    "Dense": (lambda **k: Dense(3, **k), IMAGES),
    "causal Conv1D": (lambda **k: Conv1D(3, 2, padding="causal", **k), ROWS),
    "Conv2D": (lambda **k: Conv2D(3, 1, **k), IMAGES),
    "HighwayConv2D": (lambda **k: HighwayConv2D(kernel_size=1, gating="full", **k), IMAGES),
    "HighwayDenseStack": (lambda **k: HighwayDenseStack(2, gating="full", **k), (POSITIONS, 3)),
    "CharCNN": (lambda **k: CharCNN((1, 2), (3, 4), **k), (POSITIONS, 5, 2)),
    "CarriedLSTM": (lambda **k: CarriedLSTM(3, POSITIONS, **k), (POSITIONS, 1, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_in_bfloat16_are_those_of_float32(name):
    assert_like_float32(*LAYERS[name], "mixed_bfloat16")


# On TensorFlow these are Keras's own, whose sum is exact in float16; on JAX it is not.
def test_gradients_in_float16_are_those_of_float32():
    assert_like_float32(*LAYERS["HighwayConv2D"], "mixed_float16")


@pytest.mark.parametrize("gating", ["coupled", "full"])
def test_gates_of_one_value_a_channel_learn_on_a_skip_of_16_bits(gating):
    def make(dtype):
        options = {"gate": "channel", "gating": gating, "skip_dtype": keras.DTypePolicy(dtype).compute_dtype}
        return HighwayConv2D(kernel_size=1, **options, dtype=dtype)

    assert_like_float32(make, IMAGES, "mixed_bfloat16", ending="logit")


STOCK = {Dense: keras.layers.Dense, Conv1D: keras.layers.Conv1D, Conv2D: keras.layers.Conv2D}
OPTIONS = [
    (Dense, {"units": 5, "activation": "tanh"}, (2, 6, 4)),
    (Conv1D, {"filters": 4, "kernel_size": 2, "padding": "causal", "dilation_rate": 2}, (2, 9, 4)),
    (Conv2D, {"filters": 4, "kernel_size": 3, "groups": 2, "activation": "relu"}, (2, 7, 7, 4)),
    (Conv2D, {"filters": 3, "kernel_size": 1, "data_format": "channels_first"}, (2, 4, 5, 6)),
]


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(("kind", "options", "shape"), OPTIONS)
def test_outputs_are_those_of_kerass_layers(kind, options, shape, policy):
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    ours, theirs = kind(**options, dtype=policy), STOCK[kind](**options, dtype=policy)
    ours.build(shape)
    theirs.build(shape)
    ours.set_weights([w + 0.1 for w in ours.get_weights()])
    theirs.set_weights(ours.get_weights())
    try:
        expected = ops.cast(theirs(x), "float32")
    except Exception as error:  # TensorFlow's own class, which other backends lack
        if "only supports the NHWC tensor format on the CPU" not in str(error):
            raise
        pytest.skip(f"this processor has no channels-first convolution in {theirs.compute_dtype} for Keras's layer")
    y = ops.cast(ours(x), "float32")
    steps = {"float32": 0.0, "mixed_bfloat16": 2**-8, "mixed_float16": 2**-11}[policy]  # of rounding
    np.testing.assert_allclose(to_numpy(y), to_numpy(expected), rtol=2 * steps, atol=2 * steps)
    check_config(ours)


def stock_biases(model) -> list[str]:
    """Names of layers that are Keras's own and compute a bias in 16 bits."""
    return [
        layer.name
        for layer in model._flatten_layers()
        if type(layer).__module__.startswith("keras.src.layers")
        if getattr(layer, "bias", None) is not None and layer.compute_dtype in ("bfloat16", "float16")
    ]


once = pytest.mark.skipif(keras.backend.backend() == "jax", reason="the same on every backend; TensorFlow is quicker")


@once
@pytest.mark.parametrize("name", SMALL)
def test_no_variant_has_a_bias_that_does_not_learn(name):
    assert not stock_biases(build(SMALL[name], **BFLOAT16))


@once
def test_nor_has_a_language_model():
    sizes = {"kernels": (1, 2), "filters": (2, 3), "char_units": 2, "units": 4, "streams": 2}
    model = kh.create_model("charlm_large_full", classes=9, characters=5, input_shape=(6,), **sizes, **BFLOAT16)
    assert not stock_biases(model)
    assert isinstance(model.get_layer("head"), Dense)
