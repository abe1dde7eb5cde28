"""Keras's batch normalization, in one operation where TensorFlow has one.

Keras 3 makes it of moments, a reciprocal root, products and sums, each of which
reads and writes the images, in float32 whatever the dtype policy. TensorFlow's
operation goes over them in their own dtype, with statistics in float32.
"""

import keras
from keras import ops

from keras_highway.fused import batch_norm, fuses_batch_norm


@keras.saving.register_keras_serializable(package="keras_highway")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization`, fused on TensorFlow: the same arguments, weights and results.

    Fused are images in float32, bfloat16 or float16 with the channels last
    (on a GPU, also first), where neither XLA compiles the function nor
    replicas share their statistics. Elsewhere, with a mask and with `renorm`
    it is Keras's own.
    """

    def call(self, inputs, training=None, mask=None):
        if mask is not None or self.renorm or not fuses_batch_norm(inputs, self.axis, self.synchronized):
            return super().call(inputs, training=training, mask=mask)
        learns = training and self.trainable
        moving = None if learns else (self.moving_mean, self.moving_variance)
        y, mean, variance = batch_norm(inputs, self.gamma, self.beta, self.axis, self.epsilon, moving)
        if learns:
            _move(self.moving_mean, mean, self.momentum)
            _move(self.moving_variance, variance, self.momentum)
        return ops.cast(y, self.compute_dtype)


def _move(average, value, momentum) -> None:
    average.assign(ops.cast(average, "float32") * momentum + value * (1.0 - momentum))
