"""What a run's loop and its data agree on: a source, and the part of a batch that a process computes."""

import hashlib
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from keras_highway.training.data.device_images import DeviceImages


class Shard(NamedTuple):
    """The part of every global batch that a process computes: equal parts, in order.

    Attributes:
        index: Which part.
        count: How many there are.
    """

    index: int = 0
    count: int = 1

    def of(self, batch: np.ndarray) -> np.ndarray:
        """Returns the part of a global batch."""
        size = len(batch) // self.count
        return batch[self.index * size : (self.index + 1) * size]


def fingerprint_of(*parts: np.ndarray | str) -> str:
    """Returns the SHA-256 of arrays, with their shapes and dtypes, and texts, in hexadecimal."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            digest.update(part.encode())
        else:
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


class Source(Protocol):
    """What the loop requires of a source.

    Attributes:
        images: Number of training images.
        test_images: Number of test images.
        classes: Number of classes.
        fingerprint: Hexadecimal digits of what is trained and tested on and
            its order, of photographs of their labels alone: a run goes on
            with the same, and its processes have the same.
    """

    images: int
    test_images: int
    classes: int
    fingerprint: str

    def on_device(self) -> DeviceImages | None:
        """Returns the images for the device, or None where batches carry their own."""
        ...

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields an epoch's training batches from the `start`-th on, a function of (seed, epoch) alone."""
        ...

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields the test set in batches of equal size; what fills up the last one has weight 0."""
        ...
