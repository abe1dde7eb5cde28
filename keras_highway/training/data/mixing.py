"""Mixup and CutMix of a batch: drawn on the host, done on the device [Zhang et al. 2018; Yun et al. 2019; RSB].

A batch has one of both, each with a chance of one half, and one share lambda.
What is drawn is a function of (seed, epoch, step) and goes to the device as
one row per sample, all alike: so it divides among replicas as samples do.

timm mixes a batch with itself in reverse order. Which samples meet would then
depend on the number of replicas. Here they meet in pairs of near neighbours,
which the division of a batch never parts: as good, since an epoch's order is
random, and the same on any number of devices. On g GPUs timm draws g times a
step, once for each one's part; here a step's batch has one draw.
"""

import math
from collections.abc import Iterator

import numpy as np
from keras import ops

from keras_highway.training.data.samples import Shard, Source
from keras_highway.training.recipe import Recipe

# What a row holds: the own label's share of the target, the own pixels' share outside of the box, the box.
SHARE, BLEND, TOP, BOTTOM, LEFT, RIGHT = range(6)


def draw_row(recipe: Recipe, epoch: int, step: int, height: int, width: int) -> np.ndarray:
    """Draws how a batch is mixed.

    Args:
        recipe: Its `mixup`, `cutmix` and seed count.
        epoch: From 0.
        step: Of the epoch, from 0.
        height: Of the images.
        width: The same.

    Returns:
        float32 `(6,)`, see above.
    """
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
    """Return CutMix's box: of `1 - share` of the image's area, cut off where it leaves the image.

    Args:
        height: Of the image.
        width: The same.
        share: What is left of the image, in [0, 1].
        row: Of the box's centre.
        column: The same.

    Returns:
        Top, bottom, left, right; bottom and right are outside.
    """
    side = math.sqrt(1.0 - share)
    h, w = int(height * side), int(width * side)
    rows = [min(max(edge, 0), height) for edge in (row - h // 2, row + (h + 1) // 2)]
    columns = [min(max(edge, 0), width) for edge in (column - w // 2, column + (w + 1) // 2)]
    return rows[0], rows[1], columns[0], columns[1]


def mixed(images, rows, distance: int):
    """Return images mixed with their partners'.

    Args:
        images: float32 `(batch, height, width, channels)`; the batch is a
            multiple of `2 * distance`.
        rows: float32 `(batch, 6)`, of `draw_row`.
        distance: Of the samples of a pair, see `Recipe.partner_distance`.
    """
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
    """A source whose training batches end with the rows that state how they are mixed.

    Args:
        source: The data.
        recipe: What to train.
    """

    def __init__(self, source: Source, recipe: Recipe):
        self._source, self._recipe = source, recipe
        self.images, self.test_images, self.classes = source.images, source.test_images, source.classes
        self.class_names = getattr(source, "class_names", ())
        self.fingerprint = source.fingerprint

    def on_device(self):
        """Return the source's images for the device, if any."""
        return self._source.on_device()

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield the source's training batches with rows, float32 `(batch, 6)`."""
        for step, batch in enumerate(self._source.batches(epoch, start, shard), start):
            if batch[0].ndim == 4:
                height, width = batch[0].shape[1:3]
            else:  # the batch indexes images on the device, at the size of this epoch
                height, width = self._recipe.training_size(self._source.shape[:2], epoch)
            row = draw_row(self._recipe, epoch, step, height, width)
            yield (*batch, np.tile(row, (len(batch[0]), 1)))

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields the source's test batches."""
        return self._source.test_batches(size, shard)
