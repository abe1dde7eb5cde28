"""Biases learn in bfloat16: their gradients add up many small terms without losing them."""

import keras
import numpy as np
import pytest
from contracts import distinct_miniatures, gradients, to_numpy
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
from keras_highway.layers.biased import Conv1D, Conv2D, Dense
from keras_highway.models.builder import build

SMALL = distinct_miniatures()
PLACES = 4096  # in bfloat16, a sum of like terms one after the other stops at some 256 of them
BFLOAT16 = {"dtype": "mixed_bfloat16"}


def bias_gradients(layer, shape):
    """Gradients of the biases of a layer, of its output: summed over channels, the mean over places."""
    x = np.random.default_rng(0).uniform(0.1, 0.4, shape).astype("float32")
    model = keras.Sequential([layer])  # a layer's own stateless call does not cast
    model(x)
    biases = [i for i, v in enumerate(model.trainable_variables) if v.path.endswith("bias")]
    assert biases

    def mean(*values):
        variables = [ops.convert_to_tensor(v) for v in model.trainable_variables]
        for i, value in zip(biases, values, strict=True):
            variables[i] = value
        y = model.stateless_call(variables, [v.value for v in model.non_trainable_variables], x)[0]
        return ops.sum(ops.cast(y, "float32")) / PLACES

    return gradients(mean, *(to_numpy(model.trainable_variables[i]) for i in biases))


LAYERS = {
    "Dense": (lambda **k: Dense(3, **k), (8, 512, 2)),
    "Conv1D": (lambda **k: Conv1D(3, 1, **k), (8, 512, 2)),
    "Conv2D": (lambda **k: Conv2D(3, 1, **k), (1, 64, 64, 2)),
    "HighwayDense": (lambda **k: HighwayDense(gating="full", **k), (8, 512, 3)),
    "HighwayConv2D": (lambda **k: HighwayConv2D(kernel_size=1, gating="full", **k), (1, 64, 64, 3)),
    "HighwayDenseStack": (lambda **k: HighwayDenseStack(2, gating="full", **k), (PLACES, 3)),
    "LowRankDense": (lambda **k: LowRankDense(3, 2, **k), (8, 512, 3)),
    "CharCNN": (lambda **k: CharCNN((1, 2), (3, 4), **k), (PLACES, 5, 2)),
    "CarriedLSTM": (lambda **k: CarriedLSTM(3, PLACES, **k), (PLACES, 1, 2)),
    "HierarchicalSoftmax": (lambda **k: HierarchicalSoftmax(9, **k), (8, 512, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_float32(name):
    make, shape = LAYERS[name]
    exact = make(dtype="float32")
    expected = bias_gradients(exact, shape)
    layer = make(**BFLOAT16)
    layer.build(shape)
    layer.set_weights(exact.get_weights())
    for ours, theirs in zip(bias_gradients(layer, shape), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0.03, atol=2e-3)


def test_they_are_not_with_kerass_own_on_tensorflow():
    """Why `biased` is there: if this fails, TensorFlow or Keras has mended it, and the module can go."""
    if keras.backend.backend() != "tensorflow":
        pytest.skip("TensorFlow's BiasAddGrad")
    import tensorflow as tf

    if tf.config.list_physical_devices("GPU"):
        pytest.skip("its kernel for GPUs adds up in float32")
    (gradient,) = bias_gradients(keras.layers.Dense(3, **BFLOAT16), (8, 512, 2))
    assert (gradient < 0.5).all()  # 1 in truth


def test_float32_is_kerass_own_to_the_last_bit():
    x = np.random.default_rng(0).standard_normal((4, 8, 8, 3)).astype("float32")
    ours, theirs = Conv2D(5, 3, activation="tanh"), keras.layers.Conv2D(5, 3, activation="tanh")
    ours.build(x.shape)
    theirs.build(x.shape)
    ours.set_weights([w + 0.1 for w in ours.get_weights()])
    theirs.set_weights(ours.get_weights())
    np.testing.assert_array_equal(to_numpy(ours(x)), to_numpy(theirs(x)))


def stock_biases(model) -> list[str]:
    """Names of layers that are Keras's own and compute a bias in bfloat16."""
    kinds = (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D)
    return [
        layer.name
        for layer in model._flatten_layers()
        if isinstance(layer, kinds) and not isinstance(layer, (Dense, Conv1D, Conv2D))
        if layer.use_bias and layer.compute_dtype == "bfloat16"
    ]


@pytest.mark.parametrize("name", SMALL)
def test_no_variant_has_a_bias_that_does_not_learn(name):
    assert not stock_biases(build(SMALL[name], **BFLOAT16))


def test_nor_has_a_language_model():
    sizes = {"kernels": (1, 2), "filters": (2, 3), "char_units": 2, "units": 4, "streams": 2}
    model = kh.create_model("charlm_large_full", classes=9, characters=5, input_shape=(6,), **sizes, **BFLOAT16)
    assert not stock_biases(model)
    assert isinstance(model.get_layer("head"), Dense)
