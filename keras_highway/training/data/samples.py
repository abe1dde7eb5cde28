"""Samples of an epoch: shards of a batch, repeated augmentation, held-out images, and the `Source` protocol."""

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
        """Return the part of a global batch."""
        size = len(batch) // self.count
        return batch[self.index * size : (self.index + 1) * size]


def fingerprint_of(*parts: np.ndarray | str) -> str:
    """Return the SHA-256 of arrays, with their shapes and dtypes, and texts, in hexadecimal."""
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
        """Return the images for the device, or None where batches carry their own."""
        ...

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield an epoch's training batches from the `start`-th on, a function of (seed, epoch) alone."""
        ...

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields the test set in batches of equal size; what fills up the last one has weight 0."""
        ...


_ROUND = 256  # timm's sampler: an epoch is a multiple of this many samples, where there are as many images


def epoch_samples(images: int, copies: int) -> int:
    """Return the samples of an epoch.

    Args:
        images: Number of training images.
        copies: Of an image in an epoch; 1 for no repeated augmentation.

    Returns:
        `images`; with several copies rounded down to a multiple of 256, as
        timm's `RepeatAugSampler` does, unless there are fewer images.
    """
    if copies == 1 or images < _ROUND:
        return images
    return images // _ROUND * _ROUND


def runs(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of equal samples begin, and how long they are.

    Args:
        samples: Integers, one axis, not empty.
    """
    first = np.flatnonzero(np.concatenate([[True], samples[1:] != samples[:-1]]))
    return first, np.diff(first, append=len(samples))


def repeated(order: np.ndarray, copies: int) -> np.ndarray:
    """Return an epoch's samples in their global order: every image's copies follow one another.

    An epoch has as many samples as without repetition, and so sees one image
    in `copies` of them; the next epoch's order brings others. Of r replicas,
    timm's `RepeatAugSampler` gives replica i the samples i, i + r, ...; the
    samples of a step, over all of its replicas, are those of a step here.

    Args:
        order: Integers `(images,)`, an epoch's permutation of the images.
        copies: Of an image in an epoch.

    Returns:
        Integers `(epoch_samples(images, copies),)`.
    """
    samples = epoch_samples(len(order), copies)
    return np.repeat(order[: -(-samples // copies)], copies)[:samples]


_SEED = 20_090_620  # of the shuffle, fixed: what is held out must not change with a run's own seed


def split_off(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the images to train on and of those held out, both ascending.

    Each class is shuffled, and the shuffled classes are interleaved in
    proportion to their sizes; the last `count` of that order are held out. So
    every class loses the same share of its images, to one image, and a larger
    hold-out contains a smaller one.

    Args:
        labels: Integers `(images,)`, the class of every image.
        count: Images to hold out.

    Raises:
        ValueError: If no image would be left to train on.
    """
    if count >= len(labels):
        raise ValueError(
            f"There are {len(labels)} training images, and some must be left to train on. "
            f"Received: holdout_images={count}"
        )
    share = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = np.random.default_rng((_SEED, int(label))).permutation(len(members))
        share[members] = (order + 0.5) / len(members)
    order = np.lexsort((labels, share))
    return np.sort(order[:-count]), np.sort(order[-count:])
