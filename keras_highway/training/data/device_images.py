"""A data set in device memory as uint8, its samples cropped, mirrored and normalized by a few gathers."""

import keras
import numpy as np
from keras import ops

from keras_highway.data.transforms import Transform, mean_image

# A sample is a row of integers, drawn on the host from (seed, epoch): an image gets the same crop on any number of
# devices, and after any restart.
INDEX, ROW, COLUMN, FLIP, WEIGHT = range(5)
COLUMNS = 5
_RESIZED = 1000  # images at a time: all of them in float32 would be large


class DeviceImages:
    """All images of a data set on the device, and the batches drawn of them."""

    def __init__(self, images: np.ndarray, labels: np.ndarray, transform: Transform):
        self.smaller: dict[tuple[int, int], DeviceImages] = {}
        self.sample: np.ndarray | None = None
        n, self.height, self.width, self.channels = images.shape
        self._transform = transform
        self._pixels = _fixed(images.reshape(n * self.height * self.width, self.channels), "uint8", "images")
        self._labels = _fixed(labels, "int32", "labels")
        self.variables = [self._pixels, self._labels]
        if transform.contrast:
            mean, std = transform.contrast_statistics(images)
            self._mean, self._std = (_fixed(v, "float32", k) for v, k in ((mean, "mean"), (std, "std")))
            self.variables += [self._mean, self._std]
        self._mean_image = None
        if transform.mean_image:
            pixels = resized_by_area(mean_image(transform.mean_image), (self.height, self.width))
            pixels = pixels.reshape(self.height * self.width, self.channels)
            self._mean_image = _fixed(pixels, "float32", "mean_image")
            self.variables.append(self._mean_image)

    def __call__(self, samples):
        """Return a batch."""
        index = samples[:, INDEX]
        rows = ops.arange(self.height, dtype="int32")[None, :] + samples[:, ROW, None]
        across = ops.arange(self.width, dtype="int32")[None, :]
        across = ops.where(samples[:, FLIP, None] == 1, self.width - 1 - across, across)
        columns = across + samples[:, COLUMN, None]
        inside = _within(rows, self.height)[:, :, None] & _within(columns, self.width)[:, None, :]
        rows, columns = ops.clip(rows, 0, self.height - 1), ops.clip(columns, 0, self.width - 1)
        positions = rows[:, :, None] * self.width + columns[:, None, :]
        first = (index * (self.height * self.width))[:, None, None]
        pixels = ops.cast(ops.take(self._pixels, first + positions, axis=0), "float32")
        return self._normalized(pixels, inside[..., None], index, positions), ops.take(self._labels, index, axis=0)

    def _normalized(self, pixels, inside, index, positions):
        if self._transform.contrast:
            mean, std = (ops.take(v, index, axis=0)[:, None, None, None] for v in (self._mean, self._std))
            x = (pixels - mean) / std
            if self._mean_image is not None:
                x = x - ops.take(self._mean_image, positions, axis=0)
            return ops.where(inside, x, 0.0)
        x = ops.where(inside, pixels, 0.0) * self._transform.scale
        if any(self._transform.mean):
            x = x - ops.convert_to_tensor(self._transform.mean, "float32")
        if any(s != 1.0 for s in self._transform.std):
            x = x / ops.convert_to_tensor(self._transform.std, "float32")
        return x


def resized_by_area(images: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return images resized by the mean over each new pixel's area; integers are rounded."""
    rows, columns = (_area_weights(old, new) for old, new in zip(images.shape[-3:-1], size, strict=True))
    height, width, channels = images.shape[-3:]
    flat = images.reshape(-1, height, width * channels)
    out = np.empty((len(flat), *size, channels), images.dtype)
    for first in range(0, len(flat), _RESIZED):
        part = np.matmul(rows, flat[first : first + _RESIZED].astype(np.float32))
        part = np.matmul(columns, part.reshape(-1, size[0], width, channels))
        out[first : first + _RESIZED] = np.rint(part) if np.issubdtype(out.dtype, np.integer) else part
    return out.reshape(*images.shape[:-3], *size, channels)


def _area_weights(old: int, new: int) -> np.ndarray:
    """Return the `(new, old)` shares of old pixels in new ones."""
    edges = np.arange(new + 1) * (old / new)
    starts = np.arange(old)
    overlap = np.minimum(edges[1:, None], starts + 1) - np.maximum(edges[:-1, None], starts)
    return (np.maximum(overlap, 0) * (new / old)).astype(np.float32)


def _within(positions, size):
    return (positions >= 0) & (positions < size)


def _fixed(array, dtype, name):
    return keras.Variable(np.asarray(array, dtype), dtype=dtype, trainable=False, name=f"data_{name}")


def normalized(images, transform: Transform):
    """Return a batch as the network's input."""
    if keras.backend.standardize_dtype(images.dtype) != "uint8":
        return images
    x = ops.cast(images, "float32") * transform.scale
    return (x - np.asarray(transform.mean, "float32")) / np.asarray(transform.std, "float32")
