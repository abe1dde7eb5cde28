"""A folder of class sub-folders with images, e.g. ImageNet: decoded in parallel, never all in memory."""

import dataclasses
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import read_bounded
from keras_highway._support.schema import refuse
from keras_highway._support.terminal import is_text, visible
from keras_highway.data import Dataset
from keras_highway.data.datasets import check_class_names
from keras_highway.data.images import MOST_BYTES, NAMELESS
from keras_highway.data.photographs import LABELS, SUFFIXES, as_targets, classes_in, photographs_of, read_labels
from keras_highway.data.transforms import TRANSFORMS, Transform
from keras_highway.training.data.augment import augment_of, decoded
from keras_highway.training.data.samples import Shard, fingerprint_of, repeated, runs, split_off
from keras_highway.training.recipe import Recipe


class FolderSource:
    """`DIR/train/CLASS/*` and `DIR/val/CLASS/*`, e.g. ImageNet: decoded in parallel, never all in memory.

    They may also lie as in Tiny ImageNet's archive, see `keras_highway.data.photographs`. With `DIR/train/labels.csv`
    and `DIR/val/labels.csv` an image has any number of labels, and the head is a sigmoid.

    Training images are cropped, mirrored and augmented by `Augment`, test
    images get the transform's central crop. Augmentation is a function of
    (seed, epoch, position). An image that cannot be read is a ValueError.
    """

    _REMEDY = (
        "Replace it and resume. `python -m keras_highway.training.shards DIR --out SHARDS` names all broken images and "
        "leaves them out; a run on shards starts again in another folder."
    )

    def __init__(self, recipe: Recipe, data_dir):
        root = Path(data_dir or "")
        self.sigmoid = (root / "train" / LABELS).is_file()
        if self.sigmoid:
            names, files = _labelled_files(root, recipe.loss)
        else:
            names = common_class_names(root)
            files = {split: image_files(root / split, names) for split in ("train", "val")}
            check_several(names, f"{root}/train")
        self._start(recipe, TRANSFORMS[recipe.transform], files, len(names))
        self.class_names = tuple(names)

    def _start(self, recipe: Recipe, transform: Transform, files: dict[str, tuple], classes: int) -> None:
        """Note the images, after the recipe's hold-out and limits."""
        self._recipe, self._transform, self.classes = recipe, transform, classes
        if recipe.holdout_images is not None:
            images, labels = files["train"]
            kept, held_out = split_off(labels, recipe.holdout_images)
            files = {"train": (images[kept], labels[kept]), "val": (images[held_out], labels[held_out])}
        limits = {"train": recipe.train_images, "val": recipe.test_images}
        self._files = {split: _thinned(pair, limits[split]) for split, pair in files.items()}
        self.images, self.test_images = (len(self._files[split][0]) for split in ("train", "val"))
        # Without names: a folder and its shards are the same data.
        self.fingerprint = fingerprint_of(*(self._files[split][1].astype(np.int64) for split in ("train", "val")))

    def on_device(self) -> None:
        """Batches carry their own images."""
        return None

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield shuffled, augmented `(images, labels, weights)`."""
        tf = tensorflow()
        paths, labels = self._files["train"]
        size = self._recipe.batch_size
        order = np.random.default_rng((self._recipe.seed, epoch)).permutation(self.images)
        order = repeated(order, self._recipe.repeated_augmentation)
        seeds = np.stack([np.full(len(order), self._recipe.seed), epoch * self.images + np.arange(len(order))], 1)
        positions = [shard.of(np.arange(i * size, (i + 1) * size)) for i in range(start, len(order) // size)]
        if not positions:
            return
        positions = np.concatenate(positions)
        augment, samples = augment_of(self._recipe, self._transform, epoch), order[positions]
        own = size // shard.count
        if self._recipe.repeated_augmentation > 1:
            made = batches(self._copies(samples, seeds[positions]), augment.copies, own, several=True)
        else:
            data = tf.data.Dataset.from_tensor_slices((paths[samples], labels[samples], seeds[positions]))
            data = data.map(
                lambda path, label, seed: (self._read(path), label, seed), num_parallel_calls=tf.data.AUTOTUNE
            )
            made = batches(data, augment, own)
        yield from self._explained("train", samples.reshape(-1, own), made)

    def _copies(self, samples, seeds):
        """Return encoded images, each once for its consecutive copies, with a label and a seed per copy."""
        tf = tensorflow()
        paths, labels = self._files["train"]
        first, counts = runs(samples)
        several = np.minimum(first[:, None] + np.arange(counts.max()), len(samples) - 1)
        images = samples[first]
        data = tf.data.Dataset.from_tensor_slices((paths[images], labels[images], seeds[several], counts))
        return data.map(
            lambda path, label, seeds, count: (self._read(path), tf.repeat(label[None], count, axis=0), seeds[:count]),
            num_parallel_calls=tf.data.AUTOTUNE,
        )

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields central crops."""
        tf = tensorflow()
        paths, labels = self._files["val"]
        total = -(-self.test_images // size) * size
        positions = np.concatenate([shard.of(np.arange(i, i + size)) for i in range(0, total, size)])
        weights = (positions < self.test_images).astype(np.float32)
        positions = np.minimum(positions, self.test_images - 1)
        data = tf.data.Dataset.from_tensor_slices((paths[positions], labels[positions]))
        data = data.map(
            lambda path, label: (self._read(path), label, tf.zeros([2], tf.int64)), num_parallel_calls=tf.data.AUTOTUNE
        )
        own = size // shard.count
        decoded = batches(data, CentralCrop(self._transform), own)
        decoded = self._explained("val", positions.reshape(-1, own), decoded)
        for (images, truth, _), weight in zip(decoded, weights.reshape(-1, own), strict=True):
            yield images, truth, weight

    def _explained(self, split: str, samples: np.ndarray, made: Iterator[tuple]) -> Iterator[tuple]:
        """Yield batches, one per row of samples; if one cannot be made, raise an error that names the file."""
        done, errors = 0, tensorflow().errors
        try:
            for batch in made:
                yield batch
                done += 1
        except errors.OpError:
            for sample in samples[done]:
                self._check(self._files[split][0][sample])
            raise  # all images are sound: the fault has passed, or is another

    def _check(self, path) -> None:
        """Raise a ValueError for an image that is missing, cut short or broken, not for a failing file system."""
        tf = tensorflow()
        try:
            decoded(self._bytes(path), self._transform.channels)
        except (FileNotFoundError, EOFError, tf.errors.InvalidArgumentError, ValueError) as error:
            raise ValueError(f"{self._place(path)} cannot be read: {reason_of(error)}. {self._REMEDY}") from error
        except (tf.errors.OpError, OSError):
            return

    def _place(self, path) -> str:
        """Return the name of an image for messages."""
        return str(path)

    def _read(self, path):
        """Return an encoded image, a scalar tf.string."""
        tf = tensorflow()
        return tf.ensure_shape(tf.numpy_function(self._bytes, [path], tf.string), ())

    def _bytes(self, path: Any) -> bytes:
        return read_bounded(os.fsdecode(path), MOST_BYTES)


def reason_of(error: Exception) -> str:
    """Return the error of TensorFlow or Pillow without names of operations and a full stop."""
    noise = r"\{\{.*?\}\}|\[Op:.*|(ImageError: )?" + NAMELESS + ": "
    line = str(error).splitlines()[0]
    asserted = re.search(r"assertion failed: \[(.*?)\]", line)  # what follows are its numbers
    return asserted[1] if asserted else re.sub(noise, "", line).strip(" .")


def class_names(folder: Path) -> list[str]:
    """Return the names of a folder's classes, in order: its sub-folders, or Tiny ImageNet's list."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"No folder {folder}. This recipe needs DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg: pass --data DIR."
        )
    names = classes_in(folder)
    if not names:
        raise ValueError(f"{folder} has no sub-folders; it needs one per class.")
    check_class_names(names, str(folder))
    return names


def common_class_names(root: Path) -> list[str]:
    """Return the names of the classes of `train` and `val`, which must be the same."""
    train, val = (class_names(root / split) for split in ("train", "val"))
    if differ := sorted(set(train) ^ set(val)):
        raise ValueError(f"{root}/train and {root}/val have different classes: {', '.join(differ[:5])}, ...")
    return train


def _labelled_files(root: Path, loss: str) -> tuple[list[str], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """Return the classes in `train/labels.csv`, and images with their targets."""
    if loss != "bce":
        raise ValueError(
            f"{root / 'train' / LABELS} needs the loss of a sigmoid: --set loss=bce. Received: loss={loss!r}"
        )
    labels = {split: read_labels(root / split) for split in ("train", "val")}
    names = sorted({name for row in labels["train"].values() for name in row})
    check_class_names(names, str(root / "train" / LABELS))
    return names, {
        split: (np.array(list(map(str, rows))), np.array(as_targets(root / split / LABELS, rows.values(), names)))
        for split, rows in labels.items()
    }


def check_several(names: Sequence[str], where: str) -> None:
    """Raise a ValueError if there is only one class."""
    if len(names) == 1:
        raise ValueError(f"{where} has one class, {names[0]}: there is nothing to tell apart.")


def image_files(folder: Path, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return the images of classes, class after class, sorted by name."""
    paths, labels = [], []
    for label, (name, files) in enumerate(photographs_of(folder, names)):
        strange = next((file for file in files if not is_text(str(file))), None)
        refuse(
            (not files, f"{folder / name} holds no images: {', '.join(SUFFIXES)}."),
            (strange, f"The name of a file is not UTF-8: rename it. Received: {visible(strange)}"),
        )
        paths += map(str, files)
        labels += [label] * len(files)
    return np.array(paths), np.array(labels, np.int64)


def _thinned(files, count):
    """Return some of the files, spread evenly over the classes, which follow one another."""
    paths, labels = files
    if count is None or count >= len(paths):
        return files
    positions = np.linspace(0, len(paths) - 1, count).round().astype(int)
    return paths[positions], labels[positions]


class EncodedSource(FolderSource):
    """A data set in memory as JPEGs, for tests and dry runs of recipes that need files."""

    def __init__(self, recipe: Recipe, data: Dataset):
        transform = dataclasses.replace(TRANSFORMS[recipe.transform], size=data.x_train.shape[1:3])
        splits = {"train": (data.x_train, data.y_train), "val": (data.x_test, data.y_test)}
        files = {name: (_encoded(x), y.astype(np.int64)) for name, (x, y) in splits.items()}
        self._start(recipe, transform, files, len(data.classes))

    def _bytes(self, path: Any) -> bytes:
        return path  # the image itself


def _encoded(images: np.ndarray) -> np.ndarray:
    tf = tensorflow()
    return np.array([tf.io.encode_jpeg(image, quality=95).numpy() for image in images], object)


class CentralCrop:
    """The transform's resizing and central crop, as `load_image`; the seed is not used."""

    def __init__(self, transform: Transform):
        self._transform = transform

    def __call__(self, encoded, seed):
        """Return a float32 image of the transform's size."""
        tf = tensorflow()
        image = decoded(encoded, self._transform.channels)
        shape = tf.shape(image)
        image = self._cropped(image, *self._transform.window(shape[0], shape[1], tf.minimum))
        shape = tf.shape(image)
        size = self._transform.resized(shape[0], shape[1], tf.maximum)
        image = tf.image.resize(image, size, method=self._transform.interpolation, antialias=True)
        image = self._cropped(image, *self._transform.size)
        return self._normalized(tf.round(image))  # a user's resized images have whole pixels

    def _cropped(self, image, height, width):
        shape = tensorflow().shape(image)
        top, left = (self._transform.margin(shape[i], kept) for i, kept in enumerate((height, width)))
        return image[top : top + height, left : left + width]

    def _normalized(self, image):
        tf = tensorflow()
        image = tf.clip_by_value(image, 0.0, 255.0) * self._transform.scale
        return (image - self._transform.mean) / self._transform.std


def batches(data, decode: Callable, size: int, several: bool = False) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield batches of decoded images."""
    tf = tensorflow()
    data = data.map(lambda encoded, label, seed: (decode(encoded, seed), label), num_parallel_calls=tf.data.AUTOTUNE)
    if several:
        data = data.unbatch()
    for images, labels in data.batch(size).prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        yield images, labels.astype(np.int32), np.ones(len(labels), np.float32)
