"""Keras's batch normalization, in one operation where TensorFlow has one.

Keras 3 makes it of moments, a reciprocal root, products and sums, each of
which reads and writes the images, in float32 under every dtype policy.
TensorFlow's operation goes over them in their own dtype, with statistics in
float32.
"""

from typing import Any

import keras
from keras import ops

from keras_highway._support.fused_ops import batch_norm, fills_lanes, fuses_batch_norm, in_lanes, narrow, widen


@keras.saving.register_keras_serializable(package="keras_highway")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization`, fused on TensorFlow: the same arguments, weights and results.

    Fused are images in float32, bfloat16 or float16 with the channels last (on
    a GPU, also first), where neither XLA compiles the function nor replicas
    share their statistics. Elsewhere, with a mask, with `renorm` and in
    inference on a CPU with a number of channels that is not a multiple of 16
    it is Keras's own.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        learns = training and self.trainable
        if mask is None and self.fuses(inputs):
            if fills_lanes(inputs, self.axis):
                return self.normalize(inputs, learns)
            if learns:
                channels = inputs.shape[-1]
                return narrow(self.normalize(widen(inputs, in_lanes(channels)), learns), channels)
        return super().call(inputs, training=training, mask=mask)

    def fuses(self, x: Any) -> bool:
        """Whether TensorFlow's operation computes what this layer does with a tensor."""
        return not self.renorm and fuses_batch_norm(x, self.axis, self.synchronized)

    def normalize(self, x: Any, learns: bool | None) -> Any:
        """Compute `call` in one operation; in training, `x` may have extra channels of zeros at the end."""
        moving = None if learns else (self.moving_mean, self.moving_variance)
        y, mean, variance = batch_norm(x, self.gamma, self.beta, self.axis, self.epsilon, moving)
        if learns:
            _move(self.moving_mean, mean, self.momentum)
            _move(self.moving_variance, variance, self.momentum)
        return ops.cast(y, self.compute_dtype)


def _move(average: keras.Variable, value: Any, momentum: float) -> None:
    value = value[: average.shape[0]]
    average.assign(ops.cast(average, "float32") * momentum + value * (1.0 - momentum))
