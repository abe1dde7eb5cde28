"""Batch normalization in one operation of TensorFlow's, which reads and writes images once or twice.

On a CPU it is quick where the number of channels is a multiple of 16, the
lanes of a vector register; elsewhere it may take five times as long. There,
channels of zeros are added.
"""

import keras
from keras import ops

LANES = 16
_DTYPES = ("float32", "bfloat16", "float16")


def fuses_batch_norm(x, axis: int, synchronized: bool = False) -> bool:
    """Whether `batch_norm` computes what Keras's layer does; on other backends than TensorFlow it never does.

    Called while a function is traced. Not fused are ranks other than 4,
    channels first on a CPU, statistics over several replicas, and functions
    that XLA compiles: it makes the variance of this operation as
    `mean(x²) - mean(x)²`, 4 % wrong in float32 where the mean is 100 standard
    deviations, and fuses Keras's operations anyway.

    Args:
        x: Tensor.
        axis: Int, the axis of the channels.
        synchronized: Whether statistics are over all replicas.
    """
    if keras.backend.backend() != "tensorflow" or len(x.shape) != 4:
        return False
    if keras.backend.standardize_dtype(x.dtype) not in _DTYPES or axis % 4 not in (1, 3):
        return False
    return not (is_compiled_by_xla() or (synchronized and _replicas() > 1)) and (axis % 4 == 3 or on_gpu(x))


def batch_norm(x, gamma, beta, axis, epsilon, moving=None):
    """Normalizes images by the batch's statistics, or by those of `moving`.

    Args:
        x: Tensor of rank 4, in float32, bfloat16 or float16.
        gamma: Tensor of shape `(channels,)`, or `None` for 1; those of
            channels after the last are 0.
        beta: Tensor of shape `(channels,)`, or `None` for 0; also.
        axis: Int, the axis of the channels: the last or, on a GPU, the second.
        epsilon: Float, added to the variance.
        moving: Mean and variance to normalize by, each of shape
            `(channels,)`. Defaults to `None`: the batch's.

    Returns:
        The normalized images, of `x`'s shape and dtype; mean and variance in
        float32, the batch's or those of `moving`. The variance is over n, as
        Keras has it.
    """
    import tensorflow as tf

    channels = x.shape[axis]
    mean, variance = (tf.zeros([0]),) * 2 if moving is None else (ops.cast(v, "float32") for v in moving)
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=tf.ones([channels]) if gamma is None else _of_length(gamma, channels),
        offset=tf.zeros([channels]) if beta is None else _of_length(beta, channels),
        mean=mean,
        variance=variance,
        epsilon=epsilon,
        data_format="NHWC" if axis % 4 == 3 else "NCHW",
        is_training=moving is None,
    )
    if moving is None:
        # The operation divides by n - 1 (Bessel's correction): where n is 1, perhaps by 0.
        n = tf.cast(tf.size(x, out_type=tf.int64) // channels, tf.float32)
        variance = tf.where(n > 1, variance * ((n - 1) / n), tf.zeros_like(variance))
    return y, mean, variance


def in_lanes(channels: int) -> int:
    """The next multiple of `LANES`."""
    return -(-channels // LANES) * LANES


def fills_lanes(x, axis: int) -> bool:
    """Whether `batch_norm` is quick for this number of channels."""
    return x.shape[axis] % LANES == 0 or on_gpu(x)


def widen(x, channels: int):
    """Adds channels of zeros after the last axis of images; as quick as `pad` is slow, also in its gradient."""
    import tensorflow as tf

    @tf.custom_gradient
    def function(x):
        zeros = tf.zeros(tf.concat([tf.shape(x)[:-1], [channels - x.shape[-1]]], 0), x.dtype)
        return tf.concat([x, zeros], -1), lambda dy, old=x.shape[-1]: narrow(dy, old)

    return function(x)


def narrow(x, channels: int):
    """Returns the first channels of images; the inverse of `widen`."""
    import tensorflow as tf

    @tf.custom_gradient
    def function(x):
        return x[..., :channels], lambda dy, old=x.shape[-1]: widen(dy, old)

    return function(x)


def _of_length(vector, size):
    vector = ops.cast(vector, "float32")
    return vector if vector.shape[0] == size else ops.pad(vector, [[0, size - vector.shape[0]]])


def is_compiled_by_xla() -> bool:
    """Whether the function that is traced here will be XLA's."""
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _replicas() -> int:
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def on_gpu(x) -> bool:
    """Whether `x` is on a GPU, or will be: what is not placed yet goes there where there is one."""
    import tensorflow as tf

    placed = tf.DeviceSpec.from_string(x.device or "").device_type
    return placed == "GPU" if placed else bool(tf.config.list_logical_devices("GPU"))
