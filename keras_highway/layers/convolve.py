"""`keras.ops.conv` of images, in another way where TensorFlow's writes beyond its memory or is slow on a CPU.

Kernels of one pixel with a stride: with fewer than 16 input channels and a
batch that its threads cannot share alike, oneDNN's gradient of such a kernel
writes beyond its memory, and the process dies sooner or later (TensorFlow 2.21
on a CPU, docs/upstream.md, 8). In bfloat16 gradients of many kernels are slow,
see `keras_highway._support.conv_product`.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.conv_product import is_product, product

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
    x, strides = subsampled(x, kernel.shape[:2], strides, data_format)
    if tuple(dilation_rate) == (1, 1) and is_product(x, kernel.shape, strides, padding, data_format):
        return product(x, ops.cast(kernel, x.dtype), strides, padding)
    return ops.conv(x, kernel, list(strides), padding, data_format, dilation_rate)


def subsampled(
    x: Any, kernel_size: Sequence[int], strides: Sequence[int], data_format: str
) -> tuple[Any, tuple[int, ...]]:
    """Returns the images that a convolution goes over and the strides it takes, the same convolution and safe.

    Args:
        x: Tensor, images.
        kernel_size: Pair of ints.
        strides: Pair of ints.
        data_format: As in `keras.layers.Conv2D`.

    Returns:
        `x` and `strides`, or the pixels of `x` that are used and `(1, 1)`.
    """
    channels = x.shape[1 if data_format == "channels_first" else -1]
    if keras.backend.backend() != "tensorflow" or tuple(kernel_size) != (1, 1) or channels >= _SAFE:
        return x, tuple(strides)
    down, right = strides
    if data_format == "channels_first":
        return x[:, :, ::down, ::right], (1, 1)
    return x[:, ::down, ::right, :], (1, 1)
