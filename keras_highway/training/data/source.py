"""Sources of a run's images: arrays in memory, which move to the device, or a folder of class sub-folders."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from keras_highway.data.datasets import FOLDERS, folder_of, is_sharded, load_dataset
from keras_highway.data.transforms import CLASSES, TRANSFORMS
from keras_highway.training.data.device_images import COLUMNS, DeviceImages, resized_by_area
from keras_highway.training.data.samples import (
    MixedSource,
    Shard,
    Source,
    epoch_samples,
    fingerprint_of,
    remaining,
    repeated,
)
from keras_highway.training.data.synthetic import PREFIX, synthetic_dataset
from keras_highway.training.recipe import Recipe

_SAMPLE = 2000


class ArraySource:
    """MNIST, CIFAR and other sets that fit into memory; a batch is rows of integers, see `DeviceImages`."""

    def __init__(self, recipe: Recipe, data_dir):
        self._recipe, made_up = recipe, recipe.data.startswith(PREFIX)
        data = synthetic_dataset(recipe.data) if made_up else load_dataset(recipe.data, data_dir)
        train, test = (data.x_train, data.y_train), (data.x_test, data.y_test)
        if recipe.holdout_images is not None:
            first = remaining(len(train[0]), recipe.holdout_images)
            train, test = tuple(a[:first] for a in train), tuple(a[first:] for a in train)
        self._train = tuple(a[: recipe.train_images] for a in train)
        self._test = tuple(a[: recipe.test_images] for a in test)
        self.images, self.test_images, self.classes = len(self._train[0]), len(self._test[0]), len(data.classes)
        # Names of your own set; the package knows the others.
        known = made_up or data.classes == CLASSES[recipe.data]
        self.class_names: tuple[str, ...] = () if known else data.classes
        self.shape = data.x_train.shape[1:]
        self.fingerprint = fingerprint_of(*self._train, *self._test)
        transform = TRANSFORMS[recipe.transform]
        if self.shape != (*transform.size, transform.channels) and not made_up:
            raise ValueError(
                f"`transform` needs images of shape {(*transform.size, transform.channels)}, and {recipe.data} has "
                f"{tuple(self.shape)}. Received: transform={recipe.transform!r}"
            )

    def on_device(self) -> DeviceImages:
        """Return the training images, then the test images, on the device."""
        images, labels = (np.concatenate(pair) for pair in zip(self._train, self._test, strict=True))
        transform = TRANSFORMS[self._recipe.transform]
        data = DeviceImages(images, labels, transform)
        for size in {(size, size) for _, size in self._recipe.train_sizes}:
            data.smaller[size] = DeviceImages(resized_by_area(self._train[0], size), self._train[1], transform)
        if self._recipe.whiten_stem:
            size = self._recipe.training_size(self.shape[:2], 0)
            plain = dataclasses.replace(transform, mean_image="")  # it moves all images alike
            data.sample = plain.apply(resized_by_area(self._train[0][:_SAMPLE], size))
        return data

    def samples(self, epoch: int) -> np.ndarray:
        """Return an epoch's training samples in order: shuffled, with their crops and mirrorings."""
        recipe = self._recipe
        order = np.random.default_rng((recipe.seed, epoch)).permutation(self.images)
        order = repeated(order, recipe.repeated_augmentation)
        samples = np.ones((len(order), COLUMNS), np.int32)
        samples[:, 0] = order
        draw = np.random.default_rng((recipe.seed, epoch, 1))
        height, width = self.shape[:2]
        padding = round(recipe.crop_padding * recipe.training_size((height, width), epoch)[0] / height)
        samples[:, 1:3] = draw.integers(-padding, padding + 1, (len(order), 2))
        if recipe.flip and recipe.alternating_flip:
            first = np.random.default_rng((recipe.seed, 2)).integers(0, 2, self.images)
            samples[:, 3] = (first[order] + epoch) % 2
        else:
            samples[:, 3] = draw.integers(0, 2, len(order)) if recipe.flip else 0
        return samples

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield `(samples,)`."""
        samples, size = self.samples(epoch), self._recipe.batch_size
        for step in range(start, len(samples) // size):
            yield (shard.of(samples[step * size : (step + 1) * size]),)

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield `(samples,)`, uncropped."""
        for first in range(0, self.test_images, size):
            batch = np.zeros((size, COLUMNS), np.int32)
            count = min(size, self.test_images - first)
            batch[:, 0] = self.images  # the first test image fills up, with weight 0
            batch[:count, 0] += np.arange(first, first + count, dtype=np.int32)
            batch[:count, 4] = 1
            yield (shard.of(batch),)


def open_source(recipe: Recipe, data_dir) -> Source:
    """Return the source of a recipe's data."""
    if recipe.data.startswith("tfds:"):
        from keras_highway.training.data.tfds import TfdsSource

        source = TfdsSource(recipe, data_dir)
    elif recipe.data in FOLDERS:
        from keras_highway.training.data.folders import FolderSource
        from keras_highway.training.data.shards import ShardSource

        root = folder_of(recipe.data, data_dir)
        source = (ShardSource if is_sharded(root) else FolderSource)(recipe, root)
    elif recipe.rand_augment and recipe.data.startswith(PREFIX):
        from keras_highway.training.data.folders import EncodedSource

        source = EncodedSource(recipe, synthetic_dataset(recipe.data))
    else:
        source = ArraySource(recipe, data_dir)
    if epoch_samples(source.images, recipe.repeated_augmentation) < recipe.batch_size:
        raise ValueError(
            f"{recipe.data} has {source.images} training images, less than a batch. "
            f"Received: batch_size={recipe.batch_size}"
        )
    if recipe.mixes:
        return MixedSource(source, recipe)
    return source
