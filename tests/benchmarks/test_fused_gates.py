"""H and T of a HighwayConv2D as two convolutions (what the layer does) or as one of twice the width."""

import keras
import numpy as np
import pytest
from comparison import compare
from keras import ops

from keras_highway import mix
from keras_highway.layers import HighwayConv2D


class OneConvolution(keras.layers.Layer):
    """The coupled HighwayConv2D with transform and gate as halves of one convolution's output."""

    def build(self, input_shape):
        self.conv = keras.layers.Conv2D(2 * input_shape[-1], 3, padding="same")
        self.conv.build(input_shape)

    def call(self, x):
        h, t = ops.split(self.conv(x), 2, axis=-1)
        return mix(x, ops.relu(h), ops.sigmoid(t))


def net(layer_class, size, width, depth=8):
    inputs = keras.Input((size, size, 3))
    x = keras.layers.Conv2D(width, 3, padding="same", activation="relu")(inputs)
    for _ in range(depth):
        x = layer_class()(x)
    model = keras.Model(inputs, keras.layers.Dense(10, "softmax")(keras.layers.GlobalAveragePooling2D()(x)))
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    return model


def weights_as_one(separate, fused):
    """Puts the weights of two convolutions into one."""
    for one, two in zip(fused.layers, separate.layers, strict=True):
        if isinstance(two, HighwayConv2D):
            h, t = two.transform.get_weights(), two.transform_gate.get_weights()
            one.conv.set_weights([np.concatenate(pair, axis=-1) for pair in zip(h, t, strict=True)])
        else:
            one.set_weights(two.get_weights())


@pytest.mark.parametrize("size, width", [(28, 16), (32, 96), (8, 160)])
def test_one_convolution_against_two(benchmark, size, width):
    separate, fused = net(HighwayConv2D, size, width), net(OneConvolution, size, width)
    weights_as_one(separate, fused)
    rng = np.random.default_rng(0)
    x, y = rng.random((32, size, size, 3), "float32"), rng.integers(0, 10, 32)
    np.testing.assert_allclose(separate.predict_on_batch(x), fused.predict_on_batch(x), rtol=1e-4, atol=1e-5)
    result = compare(
        benchmark,
        f"H and T as one convolution / as two, train, {size}x{size}x{width}",
        lambda: fused.train_on_batch(x, y),
        lambda: separate.train_on_batch(x, y),
    )
    # The layer keeps two: a device on which one is much faster would be a reason to change it.
    assert result.judged.ratio + result.judged.margin >= 0.8, result
