"""Batch normalization and convolutions in one operation of TensorFlow.

On a CPU, batch normalization is quick if the number of channels is a multiple of 16, the lanes of a vector register.
Elsewhere it may take five times as long, so channels of zeros are added. In bfloat16, oneDNN's gradients of kernels
take longer than the same sums as a product of matrices: docs/upstream.md, 10.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
from keras import ops

LANES = 16
_DTYPES = ("float32", "bfloat16", "float16")


def fuses_batch_norm(x, axis: int, synchronized: bool = False) -> bool:
    """Whether `batch_norm` computes the same as Keras's layer; on TensorFlow only.

    Called while a function is traced. Not fused are ranks other than 4,
    channels first on a CPU, statistics over several replicas, and functions
    that XLA compiles: it makes the variance of this operation as
    `mean(x²) - mean(x)²`, 4 % wrong in float32 where the mean is 100 standard
    deviations, and fuses Keras's operations anyway.
    """
    if keras.backend.backend() != "tensorflow" or len(x.shape) != 4:
        return False
    if keras.backend.standardize_dtype(x.dtype) not in _DTYPES or axis % 4 not in (1, 3):
        return False
    return not (is_compiled_by_xla() or (synchronized and _replicas() > 1)) and (axis % 4 == 3 or on_gpu(x))


def batch_norm(x, gamma, beta, axis, epsilon, moving=None):
    """Normalize images by the batch's statistics, or by `moving`."""
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
    """Return the next multiple of `LANES`."""
    return -(-channels // LANES) * LANES


def fills_lanes(x, axis: int) -> bool:
    """Whether `batch_norm` is quick for this number of channels."""
    return x.shape[axis] % LANES == 0 or on_gpu(x)


def widen(x, channels: int):
    """Add channels of zeros at the end of the last axis; quicker than `pad`, also in its gradient."""
    import tensorflow as tf

    @tf.custom_gradient
    def function(x):
        zeros = tf.zeros(tf.concat([tf.shape(x)[:-1], [channels - x.shape[-1]]], 0), x.dtype)
        return tf.concat([x, zeros], -1), lambda dy, old=x.shape[-1]: narrow(dy, old)

    return function(x)


def narrow(x, channels: int):
    """Return the first channels of images; the inverse of `widen`."""
    import tensorflow as tf

    @tf.custom_gradient
    def function(x):
        return x[..., :channels], lambda dy, old=x.shape[-1]: widen(dy, old)

    return function(x)


def _of_length(vector, size):
    vector = ops.cast(vector, "float32")
    return vector if vector.shape[0] == size else ops.pad(vector, [[0, size - vector.shape[0]]])


def is_compiled_by_xla() -> bool:
    """Whether XLA compiles the function that is being traced."""
    import tensorflow as tf
    from tensorflow.python.ops.control_flow_util import GraphOrParentsInXlaContext

    return GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())


def _replicas() -> int:
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def on_gpu(x) -> bool:
    """Whether `x` is on a GPU, or will be placed on one."""
    import tensorflow as tf

    placed = tf.DeviceSpec.from_string(x.device or "").device_type
    return placed == "GPU" if placed else bool(tf.config.list_logical_devices("GPU"))


# Bounds of what was measured to pay.
_FEW_PIXELS = 16  # of a map, on which copies for each place of a larger kernel pay
_FEW_PLACES = 9  # of such a kernel
_ENOUGH_WEIGHTS = 16384  # for each of its places, inputs x filters
_ENOUGH_OF_A_PIXEL = 1024  # of a kernel of one pixel


def is_product(x: Any, kernel_shape: Sequence[int], strides: Sequence[int], padding: str, data_format: str) -> bool:
    """Whether `product` convolves more quickly; on TensorFlow only, while a function is traced."""
    if keras.backend.backend() != "tensorflow" or data_format != "channels_last":
        return False
    height, width, channels, filters = kernel_shape
    if keras.backend.standardize_dtype(x.dtype) != "bfloat16" or x.shape[-1] != channels or None in x.shape[1:]:
        return False
    if is_compiled_by_xla() or on_gpu(x) or not has_bfloat16():
        return False
    output = _output(x, kernel_shape, strides, padding)
    pixel = (height, width) == (1, 1)
    if min(output) <= 0 or channels * filters < (_ENOUGH_OF_A_PIXEL if pixel else _ENOUGH_WEIGHTS):
        return False
    if pixel:
        return True
    strided = tuple(strides) != (1, 1)
    if height * width > _FEW_PLACES or (padding == "same" and strided):
        return False
    # Without a stride the gradient by the images is a product, too, over each of their pixels.
    rows, columns = output if strided else x.shape[1:3]
    return rows * columns <= _FEW_PIXELS


@functools.cache
def has_bfloat16() -> bool:
    """Whether oneDNN is in use, on a processor with instructions for bfloat16.

    TensorFlow's own product in bfloat16 truncates its sums, where oneDNN's rounds them.
    """
    from tensorflow.python.framework.test_util import IsMklEnabled

    flags = processor_fields().get("flags", "").split()
    return bool(IsMklEnabled()) and not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


def product(x: Any, kernel: Any, strides: Sequence[int], padding: str) -> Any:
    """Convolve images as `keras.ops.conv` does, by a product of matrices; see `is_product`."""
    import tensorflow as tf

    height, width, channels, filters = kernel.shape
    rows, columns = _output(x, kernel.shape, strides, padding)
    margins = [((k - 1) // 2, k // 2) if padding == "same" else (0, 0) for k in (height, width)]

    patches_of = functools.partial(
        _patches, size=(height, width), output=(rows, columns), strides=strides, margins=margins
    )

    def multiplied(patches, kernel):
        y = tf.matmul(patches, tf.reshape(kernel, [height * width * channels, filters]))
        return tf.reshape(y, [-1, rows, columns, filters])

    # TensorFlow keeps the trace of every custom gradient until the process ends.
    if (height, width) == (1, 1) and tuple(strides) == (1, 1):
        return multiplied(tf.reshape(x, [-1, channels]), kernel)

    @tf.custom_gradient
    def function(x, kernel):
        def gradient(dy):
            # The patches are made again: nine times the images are not kept for it.
            by_kernel = tf.matmul(patches_of(x), tf.reshape(dy, [-1, filters]), transpose_a=True)
            return _by_images(x, kernel, dy, strides, margins), tf.reshape(by_kernel, kernel.shape)

        return multiplied(patches_of(x), kernel), gradient

    return function(x, kernel)


def _by_images(x, kernel, dy, strides, margins):
    """Return the gradient by the images, summed in one product and rounded once."""
    import tensorflow as tf

    height, width, channels, _ = kernel.shape
    if tuple(strides) != (1, 1):
        return tf.raw_ops.Conv2DBackpropInput(
            input_sizes=tf.shape(x),
            filter=kernel,
            out_backprop=dy,
            strides=[1, *strides, 1],
            padding="VALID",  # there are no margins with a stride; an explicit padding oneDNN does not take
        )
    margins = [(k - 1 - before, k - 1 - after) for k, (before, after) in zip((height, width), margins, strict=True)]
    seen = _patches(dy, (height, width), x.shape[1:3], (1, 1), margins, turned=True)
    turned = tf.reshape(tf.transpose(kernel, [2, 0, 1, 3]), [channels, -1])
    return tf.reshape(tf.matmul(seen, turned, transpose_b=True), tf.shape(x))


def _patches(x, size, output, strides, margins, turned=False):
    """Return the patch that the kernel sees at each place, `(batch * places, size * channels)`.

    `tf.slice` copies whole rows where a slice with a stride goes by the number:
    so pixels are laid out by their place in a stride first.
    """
    import tensorflow as tf

    channels = x.shape[-1]
    # As far as the last place in whole strides: more, or less than there is.
    ends = [((k - 1) // stride + n) * stride for k, n, stride in zip(size, output, strides, strict=True)]
    more = [end - sum(m) - n for end, m, n in zip(ends, margins, x.shape[1:3], strict=True)]
    sides = [(before, max(after + extra, 0)) for (before, after), extra in zip(margins, more, strict=True)]
    if any(side != (0, 0) for side in sides):
        x = tf.pad(x, [(0, 0), *sides, (0, 0)])
    if min(more) < 0:
        x = tf.slice(x, [0, 0, 0, 0], [-1, *ends, -1])
    (down, right), (rows, columns) = strides, output
    x = tf.reshape(x, [-1, ends[0] // down, down, ends[1] // right, right, channels])
    places = [(i, j) for i in range(size[0]) for j in range(size[1])]
    seen = [
        tf.slice(x, [0, i // down, i % down, j // right, j % right, 0], [-1, rows, 1, columns, 1, channels])
        for i, j in (reversed(places) if turned else places)
    ]
    return tf.reshape(tf.concat(seen, -1), [-1, len(places) * channels])


def _output(x, kernel_shape, strides, padding):
    """Return height and width of the result."""
    taken = (0, 0) if padding == "same" else (kernel_shape[0] - 1, kernel_shape[1] - 1)
    return tuple(-((k - size) // stride) for size, k, stride in zip(x.shape[1:3], taken, strides, strict=True))


def processor_fields() -> dict[str, str]:
    """Return the fields of one processor in /proc/cpuinfo, such as `model name` and `flags`; none on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
