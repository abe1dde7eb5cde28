"""Samples of an epoch: parts of a batch, repeated augmentation, held-out images, Mixup and CutMix; `Source`."""

import hashlib
import math
from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from keras import ops

from keras_highway.training.data.device_images import DeviceImages
from keras_highway.training.recipe import Recipe


class Shard(NamedTuple):
    """The part of every global batch that a process computes: equal parts, in order."""

    index: int = 0  # index of the part
    count: int = 1  # number of parts

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
    """A source of batches, as the loop uses it."""

    images: int
    test_images: int
    classes: int
    fingerprint: str

    def on_device(self) -> DeviceImages | None:
        """Return the images for the device, or None where batches carry their own."""
        ...

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield an epoch's training batches from the `start`-th, a function of (seed, epoch)."""
        ...

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the test set in batches of equal size; samples that fill up the last one have weight 0."""
        ...


_ROUND = 256  # samples of an epoch are a multiple, as in timm's sampler, unless there are fewer images


def epoch_samples(images: int, copies: int) -> int:
    """Return the samples of an epoch."""
    if copies == 1 or images < _ROUND:
        return images
    return images // _ROUND * _ROUND


def runs(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where runs of equal samples begin, and how long they are."""
    first = np.flatnonzero(np.concatenate([[True], samples[1:] != samples[:-1]]))
    return first, np.diff(first, append=len(samples))


def repeated(order: np.ndarray, copies: int) -> np.ndarray:
    """Return an epoch's samples in their global order: every image's copies follow one another.

    An epoch has as many samples as without repetition, and sees one in `copies`
    images, others in the next epoch. A step has the same samples as a step of
    timm's `RepeatAugSampler` over all of its replicas.
    """
    samples = epoch_samples(len(order), copies)
    return np.repeat(order[: -(-samples // copies)], copies)[:samples]


_SEED = 20_090_620  # fixed: held-out images must not change with a run's seed


def remaining(images: int, holdout: int) -> int:
    """Return the number of images to train on."""
    if holdout >= images:
        raise ValueError(
            f"`holdout_images` must leave some of the {images} training images. Received: holdout_images={holdout}"
        )
    return images - holdout


def split_off(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the images to train on and of those held out, both ascending.

    Each class is shuffled, and the shuffled classes are interleaved in
    proportion to their sizes; the last `count` of that order are held out. So
    every class loses the same share of its images, to one image, and a larger
    hold-out contains a smaller one.
    """
    remaining(len(labels), count)
    if labels.ndim == 2:  # targets of a sigmoid: each combination is a class
        labels = np.unique(labels, axis=0, return_inverse=True)[1].reshape(-1)
    share = np.empty(len(labels))
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = np.random.default_rng((_SEED, int(label))).permutation(len(members))
        share[members] = (order + 0.5) / len(members)
    order = np.lexsort((labels, share))
    return np.sort(order[:-count]), np.sort(order[-count:])


# Mixup and CutMix of a batch [Zhang et al. 2018; Yun et al. 2019; RSB]. A batch has one of both, each with a chance of
# one half, and one share. The draw is a function of (seed, epoch, step); it goes to the device as one row per sample,
# all equal, so that it divides among replicas as samples do. timm mixes a batch with itself in reverse order, which
# depends on the number of replicas, and draws once for each GPU. Here neighbours are mixed: the division of a batch
# never parts them, and the order of an epoch is random.
# Columns of a row: the own label's share of the target, the own pixels' share outside of the box, the box.
SHARE, BLEND, TOP, BOTTOM, LEFT, RIGHT = range(6)


def draw_row(recipe: Recipe, epoch: int, step: int, height: int, width: int) -> np.ndarray:
    """Draw how a batch is mixed."""
    draw = np.random.default_rng((recipe.seed, epoch, step, 2))
    cut = draw.random() < 0.5 if recipe.mixup and recipe.cutmix else bool(recipe.cutmix)
    alpha = recipe.cutmix if cut else recipe.mixup
    share = draw.beta(alpha, alpha)
    if not cut:
        return np.array([share, share, 0, 0, 0, 0], np.float32)
    top, bottom, left, right = cut_box(height, width, share, draw.integers(height), draw.integers(width))
    share = 1.0 - (bottom - top) * (right - left) / (height * width)
    return np.array([share, 1.0, top, bottom, left, right], np.float32)


def cut_box(height: int, width: int, share: float, row: int, column: int) -> tuple[int, int, int, int]:
    """Return CutMix's box, with `1 - share` of the image's area, cut off at the image's edges."""
    side = math.sqrt(1.0 - share)
    h, w = int(height * side), int(width * side)
    rows = [min(max(edge, 0), height) for edge in (row - h // 2, row + (h + 1) // 2)]
    columns = [min(max(edge, 0), width) for edge in (column - w // 2, column + (w + 1) // 2)]
    return rows[0], rows[1], columns[0], columns[1]


def mixed(images, rows, distance: int):
    """Return images mixed with their partners'."""
    _, height, width, _ = images.shape
    others = partners(images, distance)
    row, column = ops.arange(height, dtype="float32")[:, None, None], ops.arange(width, dtype="float32")[:, None]
    top, bottom, left, right, blend = (rows[:, i, None, None, None] for i in (TOP, BOTTOM, LEFT, RIGHT, BLEND))
    inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    return ops.where(inside, others, blend * images + (1.0 - blend) * others)


def partners(samples, distance: int):
    """Return each sample's partner: in every `2 * distance` samples the two halves are swapped."""
    halves = ops.reshape(samples, (-1, 2, distance, *samples.shape[1:]))
    return ops.reshape(ops.flip(halves, axis=1), samples.shape)


class MixedSource:
    """A source whose training batches end with rows of `draw_row`."""

    def __init__(self, source: Source, recipe: Recipe):
        self._source, self._recipe = source, recipe
        self.images, self.test_images, self.classes = source.images, source.test_images, source.classes
        self.class_names, self.sigmoid = getattr(source, "class_names", ()), getattr(source, "sigmoid", False)
        self.fingerprint = source.fingerprint

    def on_device(self):
        """Return the source's images for the device, if any."""
        return self._source.on_device()

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the source's training batches with rows, float32 `(batch, 6)`."""
        for step, batch in enumerate(self._source.batches(epoch, start, shard), start):
            # Images on the device have the size of the epoch.
            carried = batch[0].ndim == 4
            height, width = (
                batch[0].shape[1:3] if carried else self._recipe.training_size(self._source.shape[:2], epoch)
            )
            row = draw_row(self._recipe, epoch, step, height, width)
            yield (*batch, np.tile(row, (len(batch[0]), 1)))

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the source's test batches."""
        return self._source.test_batches(size, shard)
