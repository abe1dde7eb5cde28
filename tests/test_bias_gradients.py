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
    HierarchicalSoftmax,
    HighwayConv2D,
    HighwayDense,
    HighwayDenseStack,
    LowRankDense,
)
from keras_highway.layers.ungated import Conv1D, Conv2D, Dense, add_bias
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
    "Conv1D": (lambda **k: Conv1D(3, 1, **k), ROWS),
    "causal Conv1D": (lambda **k: Conv1D(3, 2, padding="causal", **k), ROWS),
    "Conv2D": (lambda **k: Conv2D(3, 1, **k), IMAGES),
    "HighwayDense": (lambda **k: HighwayDense(gating="full", **k), ROWS),
    "HighwayConv2D": (lambda **k: HighwayConv2D(kernel_size=1, gating="full", **k), IMAGES),
    "HighwayDenseStack": (lambda **k: HighwayDenseStack(2, gating="full", **k), (POSITIONS, 3)),
    "LowRankDense": (lambda **k: LowRankDense(3, 2, **k), ROWS),
    "CharCNN": (lambda **k: CharCNN((1, 2), (3, 4), **k), (POSITIONS, 5, 2)),
    "CarriedLSTM": (lambda **k: CarriedLSTM(3, POSITIONS, **k), (POSITIONS, 1, 2)),
    "HierarchicalSoftmax": (lambda **k: HierarchicalSoftmax(9, **k), ROWS),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_in_bfloat16_are_those_of_float32(name):
    assert_like_float32(*LAYERS[name], "mixed_bfloat16")


# On TensorFlow these are Keras's own, whose sum is exact in float16; on JAX it is not.
@pytest.mark.parametrize("name", ["Dense", "Conv2D", "HighwayConv2D"])
def test_gradients_in_float16_are_those_of_float32(name):
    assert_like_float32(*LAYERS[name], "mixed_float16")


@pytest.mark.parametrize("gating", ["coupled", "full"])
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_gates_of_one_value_a_channel_learn_on_a_skip_of_16_bits(policy, gating):
    def make(dtype):
        options = {"gate": "channel", "gating": gating, "skip_dtype": keras.DTypePolicy(dtype).compute_dtype}
        return HighwayConv2D(kernel_size=1, **options, dtype=dtype)

    assert_like_float32(make, IMAGES, policy, ending="logit")


def on_accelerator() -> bool:
    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def test_they_are_not_with_kerass_own():
    """Why `biased` is there: where this fails, a backend or Keras has mended it, and that backend's part can go."""
    if keras.backend.backend() not in ("tensorflow", "jax"):
        pytest.skip("not measured on this backend")
    if on_accelerator():
        pytest.skip("measured on CPU only")
    expected = bias_gradients(Conv2D(3, 1, **BFLOAT16), IMAGES)[0]
    (gradient,) = bias_gradients(keras.layers.Conv2D(3, 1, **BFLOAT16), IMAGES)
    assert (gradient < 0.5 * expected).all()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("shape", "bias"),
    [
        ((4, 5), (5,)),
        ((1, 1, 5), (1, 5)),
        ((1, 1, 5), (5, 5)),
        ((1, 1, 1, 5), (1, 5)),
        ((2, 3, 4), (3, 1)),
        ((5,), (5,)),
    ],
)
def test_a_bias_broadcasts(shape, bias, dtype):
    x, b = np.full(shape, 2.0), np.arange(np.prod(bias), dtype="float32").reshape(bias)
    y = add_bias(ops.cast(x, dtype), ops.cast(b, "float32"))
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    np.testing.assert_array_equal(to_numpy(ops.cast(y, "float32")), x + b)


STOCK = {Dense: keras.layers.Dense, Conv1D: keras.layers.Conv1D, Conv2D: keras.layers.Conv2D}
OPTIONS = [
    (Dense, {"units": 5, "activation": "tanh"}, (2, 6, 4)),
    (Dense, {"units": 5, "use_bias": False}, (2, 4)),
    (Conv1D, {"filters": 4, "kernel_size": 3, "strides": 2, "padding": "same"}, (2, 9, 4)),
    (Conv1D, {"filters": 4, "kernel_size": 2, "padding": "causal", "dilation_rate": 2}, (2, 9, 4)),
    (Conv2D, {"filters": 4, "kernel_size": 3, "groups": 2, "activation": "relu"}, (2, 7, 7, 4)),
    (Conv2D, {"filters": 4, "kernel_size": 3, "dilation_rate": 2, "padding": "same"}, (2, 7, 7, 4)),
    (Conv2D, {"filters": 3, "kernel_size": 1, "data_format": "channels_first"}, (2, 4, 5, 6)),
]


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
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


def test_stock_biases_are_found():
    x = keras.Input((4, 4, 2))
    y = keras.layers.DepthwiseConv2D(2, name="stock", **BFLOAT16)(Conv2D(2, 1, **BFLOAT16)(x))
    assert stock_biases(keras.Model(x, keras.layers.Dense(2, dtype="float32")(y))) == ["stock"]


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


@pytest.mark.parametrize("name", ["highway_fc10", "mnist10_w16"])
def test_quantizing_in_place_names_the_way_that_works(name):
    """Keras quantizes no subclass of its layers, and said that Dense could not be."""
    model = build(SMALL[name])
    with pytest.warns(UserWarning) as warned:
        model.quantize("int8")
    messages = {str(w.message) for w in warned}
    (said,) = (message for message in messages if "keras_highway" in message)
    assert (
        "cannot be quantized in place" in said
        and "export WEIGHTS --format litert --int8" in said
        and "mode='int8'" in said
    )
    assert not any(f"Layer {kind} does" in message for message in messages for kind in ("Dense", "Conv2D"))
