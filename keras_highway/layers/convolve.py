"""`keras.ops.conv` of images, in another way where oneDNN's writes beyond its memory or is slow on a CPU.

Kernels of one pixel with a stride: with fewer than 16 input channels oneDNN's
gradient of such a kernel writes beyond its memory, in TensorFlow and PyTorch.
The process dies sooner or later, computes wrong gradients or never ends
(docs/upstream.md, 8). In bfloat16 gradients of many kernels are slow,
see `keras_highway._support.fused_ops`.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.fused_ops import is_product, product

_ONEDNN = ("tensorflow", "torch")  # the backends that compute with it
_SAFE = 16  # channels from which on the gradient is right


def convolve(
    x: Any,
    kernel: Any,
    strides: Sequence[int],
    padding: str,
    data_format: str,
    dilation_rate: Sequence[int] = (1, 1),
) -> Any:
    """Convolves images.

    Args:
        x: Tensor, images of rank 4.
        kernel: Tensor of shape `(height, width, inputs, filters)`.
        strides: Pair of ints.
        padding: `"valid"` or `"same"`.
        data_format: As in `keras.layers.Conv2D`.
        dilation_rate: Pair of ints. Defaults to `(1, 1)`.

    Returns:
        What `keras.ops.conv` does, to the precision of `x`'s dtype.
    """
    x, strides = subsampled(x, kernel.shape, strides, data_format)
    if tuple(dilation_rate) == (1, 1) and is_product(x, kernel.shape, strides, padding, data_format):
        return product(x, ops.cast(kernel, x.dtype), strides, padding)
    return ops.conv(x, kernel, list(strides), padding, data_format, dilation_rate)


def subsampled(
    x: Any, kernel_shape: Sequence[int], strides: Sequence[int], data_format: str
) -> tuple[Any, tuple[int, ...]]:
    """Returns the images that a convolution goes over and the strides it takes, the same convolution and safe.

    Args:
        x: Tensor, images.
        kernel_shape: Four ints, `(height, width, inputs, filters)`.
        strides: Pair of ints.
        data_format: As in `keras.layers.Conv2D`.

    Returns:
        `x` and `strides`, or the pixels of `x` that are used and `(1, 1)`.
    """
    height, width, channels, _ = kernel_shape  # of the kernel: in an export that PyTorch traces those of x are no ints
    down, right = strides
    affected = (height, width) == (1, 1) and (down, right) != (1, 1) and channels < _SAFE
    if not affected or keras.backend.backend() not in _ONEDNN:
        return x, (down, right)
    if data_format == "channels_first":
        return x[:, :, ::down, ::right], (1, 1)
    return x[:, ::down, ::right, :], (1, 1)
