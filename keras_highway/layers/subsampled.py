"""Convolutions of one pixel with a stride, on TensorFlow.

With fewer than 16 input channels and a batch that its threads cannot share
alike, oneDNN's gradient of such a kernel writes beyond its memory, and the
process dies sooner or later (TensorFlow 2.21 on a CPU, docs/upstream.md, 8).
"""

from collections.abc import Sequence
from typing import Any

import keras

_SAFE = 16  # channels from which on the gradient is right


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
