"""Keras's layers with a bias that learns in bfloat16.

The gradient of a bias is a sum over samples and places. In bfloat16 a sum of
like terms stops growing at some 256 of them, and two implementations add up
in the dtype of what they are given: TensorFlow's `BiasAddGrad` on CPU, which
`keras.ops.add` of a tensor and a bias leads to, and on JAX the derivative of
a broadcast, on CPU. With Keras's own layers on TensorFlow one epoch of the
small coupled language model ends at a validation perplexity of 302, with
these at 240, in float32 at 242 (one seed).
"""

import keras
from keras import ops


def add_bias(x, bias):
    """Returns `x + bias`, with a gradient of the bias that is right to the precision of `x`.

    Args:
        x: Tensor.
        bias: Tensor that broadcasts to it.
    """
    if keras.backend.backend() == "jax":
        # XLA makes one loop of it, and the gradient is summed in float32.
        return ops.cast(ops.cast(x, "float32") + ops.cast(bias, "float32"), x.dtype)
    # The bias first: Keras takes only the second argument for one. TensorFlow's sum for `AddV2` is exact enough.
    return ops.add(bias, x)


@keras.saving.register_keras_serializable(package="keras_highway")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`, see the module."""

    def call(self, inputs, training=None):
        if not _loses_bias(self):
            return super().call(inputs, training=training)
        return _activated(self, add_bias(ops.matmul(inputs, self.kernel), self.bias))


@keras.saving.register_keras_serializable(package="keras_highway")
class Conv1D(keras.layers.Conv1D):
    """`keras.layers.Conv1D`, see the module; causal padding is Keras's own."""

    def call(self, inputs):
        return super().call(inputs) if self.padding == "causal" or not _loses_bias(self) else _convolved(self, inputs)


@keras.saving.register_keras_serializable(package="keras_highway")
class Conv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D`, see the module."""

    def call(self, inputs):
        return _convolved(self, inputs) if _loses_bias(self) else super().call(inputs)


def _loses_bias(layer):
    """Only in bfloat16: in float32 the layers are Keras's to the last bit, and as fast."""
    return layer.use_bias and layer.compute_dtype == "bfloat16"


def _convolved(layer, inputs):
    last = layer.data_format == "channels_last"
    bias = layer.bias if last else ops.reshape(layer.bias, (-1,) + (1,) * layer.rank)
    return _activated(layer, add_bias(layer.convolution_op(inputs, layer.kernel), bias))


def _activated(layer, y):
    return y if layer.activation is None else layer.activation(y)
