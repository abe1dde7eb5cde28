"""A layer that resizes, crops and normalizes images."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import Shape, checked_data_format
from keras_highway.data.transforms import Transform
from keras_highway.layers.base import check_images

_GREY = 1


@keras.saving.register_keras_serializable(package="keras_highway")
class Preprocessing(keras.layers.Layer):
    """A transform as a layer: images of any size, pixels in [0, 255], to the input of a network.

    Computes the same as `keras_highway.data.load_image` and the transform's
    `apply`. Images of exactly the transform's size are only normalized, as by
    `preprocess_input`. All others are resized and cropped at the centre.
    Resizing equals Pillow's antialiased resizing, including its rounding to
    integers. Gradients ignore the rounding.

    Grey images are repeated to three channels if the transform has three.

    Input: `(batch, height, width, channels)`, any size, any real dtype.
    Output: float32 `(batch, *transform.size, transform.channels)`. With
    `channels_first` both have the channels as their second axis.

    Args:
        transform: A `keras_highway.data.transforms.Transform`, or its fields as a dict.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to
            `keras.config.image_data_format()`.

    Raises:
        ValueError: If images and transform differ in the number of channels.
        TypeError: If `transform` is not a `Transform`.
    """

    def __init__(self, transform: Transform | Mapping[str, Any], data_format: str | None = None, **kwargs: Any):
        kwargs.setdefault("dtype", "float32")
        super().__init__(autocast=False, trainable=False, **{k: v for k, v in kwargs.items() if k != "trainable"})
        self.transform = transform if isinstance(transform, Transform) else _from_fields(transform)
        self.data_format = checked_data_format(data_format)

    def build(self, input_shape: Shape) -> None:
        """Check rank and channels; there are no weights."""
        check_images(self, input_shape)
        channels = input_shape[1 if self._first else -1]
        if channels not in (_GREY, self.transform.channels):
            raise ValueError(
                f"Preprocessing needs images with {self.transform.channels} channel(s)"
                f"{' or one' if self.transform.channels > 1 else ''}. Received: input shape {tuple(input_shape)}"
            )

    def call(self, images: Any) -> Any:
        """Resize, crop and normalize a batch."""
        x = self._resized(ops.cast(images, "float32"))
        if x.shape[1 if self._first else -1] != self.transform.channels:
            x = ops.repeat(x, self.transform.channels, axis=1 if self._first else -1)
        return self.transform.apply(x, self.data_format)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        """Return the transform's size and channels."""
        size, channels = self.transform.size, self.transform.channels
        return (input_shape[0], channels, *size) if self._first else (input_shape[0], *size, channels)

    def compute_output_spec(self, images: Any, **kwargs: Any) -> Any:
        """Return float32 under every policy."""
        return keras.KerasTensor(self.compute_output_shape(images.shape), "float32")

    def get_config(self) -> dict[str, Any]:
        """Return the transform's fields."""
        return {
            **super().get_config(),
            "transform": dataclasses.asdict(self.transform),
            "data_format": self.data_format,
        }

    @property
    def _first(self) -> bool:
        return self.data_format == "channels_first"

    def _resized(self, x: Any) -> Any:
        axes = (2, 3) if self._first else (1, 2)
        shape = ops.shape(x)
        height, width = (x.shape[axis] or shape[axis] for axis in axes)
        if isinstance(height, int) and isinstance(width, int):
            if (height, width) == tuple(self.transform.size):
                return x
            rows, columns = _matrices(self.transform, height, width)
            resampled = 1.0
        else:
            rows, columns, resampled = _open_matrices(self.transform, height, width)
        x = x if self._first else ops.transpose(x, (0, 3, 1, 2))
        lines = [ops.transpose(part) for part in _parts(columns)]
        x = _whole(sum(ops.matmul(x, part) for part in lines), resampled)  # Pillow's order: rows of pixels first
        x = _whole(sum(ops.matmul(part, x) for part in _parts(rows)), resampled)
        return x if self._first else ops.transpose(x, (0, 2, 3, 1))


def _matrices(transform: Transform, height: int, width: int) -> list[np.ndarray]:
    """Return the matrices that resize the rows and columns of images of a known size."""
    parts = zip((height, width), transform.window(height, width), strict=True)
    targets = transform.resized(*transform.window(height, width))
    return [
        _resampling(np, transform.interpolation, length, part, target, kept).astype(np.float32)
        for (length, part), target, kept in zip(parts, targets, transform.size, strict=True)
    ]


def _open_matrices(transform: Transform, height: Any, width: Any) -> tuple[Any, Any, Any]:
    """Return the same of images whose size is known when they come; and 0.0 for images of the very size, else 1.0."""
    size = transform.size
    same = ops.logical_and(ops.equal(height, size[0]), ops.equal(width, size[1]))
    parts = transform.window(height, width, ops.minimum)
    targets = transform.resized(*parts, ops.maximum)
    rows, columns = (
        _resampling(ops, transform.interpolation, length, part, ops.where(same, kept, target), kept)
        for length, part, target, kept in zip((height, width), parts, targets, size, strict=True)
    )
    return rows, columns, 1.0 - ops.cast(same, "float32")


def _resampling(xp: Any, interpolation: str, length: Any, part: Any, target: Any, kept: int) -> Any:
    """Return the `(kept, length)` matrix that resizes the central `part` of a line to `target` and crops it.

    Distances are whole numbers until the last division, so that a float32 of
    them is exact.
    """
    dtype = "float64" if xp is np else "float32"
    new = xp.reshape(xp.arange(kept, dtype="int32") + Transform.margin(target, kept), (-1, 1))
    old = xp.reshape(xp.arange(length, dtype="int32") - Transform.margin(length, part), (1, -1))
    steps = xp.abs((2 * old + 1) * target - (2 * new + 1) * part)
    larger = max(part, target) if xp is np else ops.maximum(part, target)
    distances = _cast(xp, steps, dtype) / _cast(xp, 2 * larger, dtype)
    inside = _cast(xp, xp.logical_and(old >= 0, old < part), dtype)
    weights = _FILTERS[interpolation](xp, distances) * inside
    return weights / xp.sum(weights, axis=1, keepdims=True)


def _parts(matrix: Any) -> tuple[Any, Any]:
    """Return a matrix as 256ths and what is left: GPUs may round the operands of a product to 11 bits, as pixels have.

    The sums of the first part are exact everywhere, and the second's are small.
    """
    matrix = ops.convert_to_tensor(matrix)
    coarse = ops.floor(matrix * 256.0) / 256.0
    return coarse, matrix - coarse


def _cast(xp: Any, x: Any, dtype: Any) -> Any:
    return np.asarray(x, dtype) if xp is np else ops.cast(x, dtype)


def _bicubic(xp: Any, d: Any) -> Any:
    """Keys's cubic convolution with a = -0.5, Pillow's."""
    near = (1.5 * d - 2.5) * d * d + 1.0
    far = ((-0.5 * d + 2.5) * d - 4.0) * d + 2.0
    return xp.where(d < 1.0, near, xp.where(d < 2.0, far, xp.zeros_like(d)))


def _bilinear(xp: Any, d: Any) -> Any:
    return xp.maximum(1.0 - d, xp.zeros_like(d))


_FILTERS = {"bicubic": _bicubic, "bilinear": _bilinear}


def _whole(x: Any, resampled: Any) -> Any:
    """Whole pixels in [0, 255], halves upward as Pillow rounds, where images were resampled at all."""
    whole = ops.clip(ops.floor(x + 0.5), 0.0, 255.0)
    return x + ops.stop_gradient(whole - x) * resampled


def _from_fields(fields: Any) -> Transform:
    if not isinstance(fields, Mapping):
        raise TypeError(
            "`transform` must be a Transform, e.g. keras_highway.get_transform('mnist'). "
            f"Received: transform={fields!r}"
        )
    return Transform(**fields)
