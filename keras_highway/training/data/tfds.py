"""Any image data set of TensorFlow Datasets that was prepared here: `data="tfds:NAME"`."""

from collections.abc import Iterator

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway.data.datasets import check_class_names
from keras_highway.data.photographs import check_features, encoded_rows, labelled_split, tfds_builder
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.data.augment import augment_of
from keras_highway.training.data.folders import CentralCrop, batches, reason_of
from keras_highway.training.data.samples import Shard, epoch_samples, fingerprint_of, remaining
from keras_highway.training.recipe import Recipe

PREFIX = "tfds:"
_SHUFFLE = 10_000  # encoded images in the buffer


class TfdsSource:
    """Training on the split `train`, tests on `test` or else `validation`; never all in memory.

    Images are augmented as `FolderSource` does. They come in the order of the
    files through a shuffle buffer whose seed is (seed, epoch).
    """

    def __init__(self, recipe: Recipe, data_dir):
        self._recipe = recipe
        self._transform = TRANSFORMS[recipe.transform]
        self._builder = tfds_builder(recipe.data.removeprefix(PREFIX), data_dir, 'data="tfds:..."')
        info = self._builder.info
        label = check_features(recipe.data, self._builder)
        self._test_split = labelled_split(self._builder) or ""
        if "train" not in info.splits or not self._test_split:
            raise ValueError(
                f"{recipe.data} needs the splits train and, with labels, test or validation. It has "
                f"{list(info.splits)}."
            )
        images, self._tested = info.splits["train"].num_examples, (self._test_split, 0)
        test_images = info.splits[self._test_split].num_examples
        if recipe.holdout_images is not None:
            images, test_images = _without(images, recipe, info.disable_shuffling), recipe.holdout_images
            self._tested = ("train", images)
        self.images, self.test_images = _limited(images, recipe.train_images), _limited(test_images, recipe.test_images)
        self.classes = label.num_classes
        # The version fixes the order within a file; how many files there are is each machine's that prepared them.
        files = [[*map(int, info.splits[split].shard_lengths)] for split in ("train", self._tested[0])]
        facts = (str(info.full_name), self.images, self.test_images, *self._tested, files)
        self.fingerprint = fingerprint_of(repr(facts))
        self.class_names = tuple(getattr(label, "names", None) or ())
        check_class_names(self.class_names, recipe.data)

    def on_device(self) -> None:
        """Batches carry their own images."""
        return None

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield shuffled, augmented `(images, labels, weights)`."""
        tf = tensorflow()
        size, seed, copies = self._recipe.batch_size, self._recipe.seed, self._recipe.repeated_augmentation
        draw = np.random.default_rng((seed, epoch)).integers(2**31)
        samples = epoch_samples(self.images, copies)
        count = -(-samples // copies)
        # With several copies an epoch sees a part of the images: the epochs go round through the files.
        first = epoch * count % self.images
        last = min(first + count, self.images)
        data = self._encoded("train", last - first, first)
        if first + count > last:
            data = data.concatenate(self._encoded("train", first + count - last))
        data = data.shuffle(_SHUFFLE, seed=int(draw), reshuffle_each_iteration=False)
        data = data.flat_map(lambda *pair: tf.data.Dataset.from_tensors(pair).repeat(copies)).take(samples)
        data = data.enumerate(epoch * self.images).map(lambda i, pair: (*pair, [np.int64(seed), i]))
        data = _part(data.batch(size, drop_remainder=True).skip(start), size, shard)
        augment = augment_of(self._recipe, self._transform, epoch)
        yield from self._explained("train", batches(data, augment, size // shard.count))

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields central crops; the first images again, with weight 0, fill up the last batch."""
        total = -(-self.test_images // size) * size
        split, first = self._tested
        data = self._encoded(split, self.test_images, first).repeat().take(total)
        data = data.map(lambda encoded, label: (encoded, label, np.zeros(2, np.int64)))
        weights = (np.arange(total) < self.test_images).astype(np.float32).reshape(-1, size)
        decoded = batches(_part(data.batch(size), size, shard), CentralCrop(self._transform), size // shard.count)
        decoded = self._explained(split, decoded)
        for (images, labels, _), weight in zip(decoded, weights, strict=True):
            yield images, labels, shard.of(weight)

    def _explained(self, split: str, made: Iterator[tuple]) -> Iterator[tuple]:
        """Return the batches that are made; of a broken image an error, which names the set."""
        broken = tensorflow().errors.InvalidArgumentError
        try:
            yield from made
        except broken as error:
            raise ValueError(
                f"An image of {self._recipe.data}, split {split}, cannot be read: {reason_of(error)}. Prepare the set "
                "again, or train on a folder of its images, where broken ones are named."
            ) from error

    def _encoded(self, split, count, first=0):
        tensorflow()
        data = encoded_rows(self._builder, f"{split}[{first}:{first + count}]")
        return data.map(lambda row: (row["image"], row["label"]))


def _part(data, size, shard):
    """Return the shard's part of every batch, as single rows again."""
    own = size // shard.count
    first = shard.index * own
    return data.map(lambda *columns: tuple(c[first : first + own] for c in columns)).unbatch()


def _without(images, recipe, in_order) -> int:
    """Return the images left to train on; the files are already shuffled by a hash of the examples' keys."""
    if in_order:
        raise ValueError(
            f"{recipe.data} was prepared without a shuffle: its last images are not a random sample of it. "
            f"Received: holdout_images={recipe.holdout_images}"
        )
    return remaining(images, recipe.holdout_images)


def _limited(count, limit) -> int:
    return count if limit is None else min(count, limit)
