"""Where a run's images come from: arrays in memory, or a folder of class sub-folders."""

from pathlib import Path
from typing import Protocol

import numpy as np

from keras_highway.data import load_dataset
from keras_highway.transforms import TRANSFORMS
from training.recipe import Recipe


class Source(Protocol):
    """What the loop asks of a source.

    Attributes:
        images: Number of training images.
        classes: Number of classes.
    """

    images: int
    classes: int

    def epoch(self, epoch: int) -> dict:
        """Returns the data arguments of `fit` for an epoch, the order a function of (seed, epoch)."""
        ...

    def test(self) -> dict:
        """Returns the data arguments of `evaluate`."""
        ...


class ArraySource:
    """MNIST, CIFAR: all images in memory, no augmentation."""

    def __init__(self, recipe: Recipe, data_dir):
        data = load_dataset(recipe.data, data_dir)
        self._recipe = recipe
        self._transform = TRANSFORMS[recipe.transform]
        self._train = data.x_train, data.y_train
        self._test = {"x": self._transform.apply(data.x_test), "y": data.y_test, "batch_size": 500}
        self.images, self.classes = len(data.x_train), len(data.classes)

    def epoch(self, epoch: int) -> dict:
        """Returns the shuffled training set."""
        x, y = self._train
        order = np.random.default_rng((self._recipe.seed, epoch)).permutation(self.images)
        return {
            "x": self._transform.apply(x[order]),
            "y": y[order],
            "batch_size": self._recipe.batch_size,
            "shuffle": False,
        }

    def test(self) -> dict:
        """Returns the test set."""
        return self._test


class FolderSource:
    """`DIR/train/CLASS/*` and `DIR/val/CLASS/*`, e.g. ImageNet: decoded in parallel, never all in memory.

    Training images get a random resized crop (8 to 100 % of the area, aspect
    3/4 to 4/3) and a random flip, test images the transform's central crop
    [He et al. 2015; UIE, 5.1]. Random operations are stateless, with a seed a
    sample made of (seed, epoch, position).
    """

    def __init__(self, recipe: Recipe, data_dir):
        root = Path(data_dir or "")
        self._recipe = recipe
        self._transform = TRANSFORMS[recipe.transform]
        names = {split: _class_names(root / split) for split in ("train", "val")}
        if names["train"] != names["val"]:
            differ = sorted(set(names["train"]) ^ set(names["val"]))
            raise ValueError(f"{root}/train and {root}/val have different classes: {', '.join(differ[:5])}, ...")
        self._files = {split: _files(root / split, names[split]) for split in ("train", "val")}
        self.images, self.classes = len(self._files["train"][0]), len(names["train"])

    def epoch(self, epoch: int) -> dict:
        """Returns the shuffled, augmented training set."""
        import tensorflow as tf

        paths, labels = self._files["train"]
        order = np.random.default_rng((self._recipe.seed, epoch)).permutation(self.images)
        seeds = np.stack([np.full(self.images, self._recipe.seed), epoch * self.images + np.arange(self.images)], 1)
        data = tf.data.Dataset.from_tensor_slices((paths[order], labels[order], seeds))
        return {
            "x": self._batched(data.map(self._augmented, num_parallel_calls=tf.data.AUTOTUNE)),
            "shuffle": False,
        }

    def test(self) -> dict:
        """Returns the validation set."""
        import tensorflow as tf

        data = tf.data.Dataset.from_tensor_slices(self._files["val"])
        return {"x": self._batched(data.map(self._central, num_parallel_calls=tf.data.AUTOTUNE))}

    def _batched(self, data):
        import tensorflow as tf

        return data.batch(self._recipe.batch_size).prefetch(tf.data.AUTOTUNE)

    def _augmented(self, path, label, seed):
        import tensorflow as tf

        encoded = tf.io.read_file(path)
        image = tf.io.decode_image(encoded, channels=3, expand_animations=False)
        begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
            tf.shape(image),
            tf.zeros([0, 0, 4]),
            seed,
            area_range=(0.08, 1.0),
            aspect_ratio_range=(3 / 4, 4 / 3),
            use_image_if_no_bounding_boxes=True,
        )
        image = tf.image.resize(tf.slice(image, begin, size), self._transform.size, antialias=True)
        image = tf.image.stateless_random_flip_left_right(image, seed + tf.constant([1, 0], seed.dtype))
        return self._normalized(image), label

    def _central(self, path, label):
        import tensorflow as tf

        image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
        height, width = self._transform.size
        shape = tf.cast(tf.shape(image)[:2], tf.float32)
        scale = tf.reduce_max(tf.constant([height, width], tf.float32) / shape) / self._transform.crop
        size = tf.maximum(tf.cast(tf.round(shape * scale), tf.int32), [height, width])
        image = tf.image.resize(image, size, method=self._transform.interpolation, antialias=True)
        return self._normalized(tf.image.resize_with_crop_or_pad(image, height, width)), label

    def _normalized(self, image):
        import tensorflow as tf

        image = tf.clip_by_value(image, 0.0, 255.0) * self._transform.scale
        return (image - self._transform.mean) / self._transform.std


def open_source(recipe: Recipe, data_dir) -> Source:
    """Returns the source of a recipe's data: `"folder"` or a data set in memory.

    Raises:
        ValueError: If the folder is no data set.
        FileNotFoundError: If it is missing.
    """
    return FolderSource(recipe, data_dir) if recipe.data == "imagenet" else ArraySource(recipe, data_dir)


def _class_names(folder: Path) -> list[str]:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"No folder {folder}. This recipe needs DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg: pass --data DIR."
        )
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not names:
        raise ValueError(f"{folder} has no sub-folders; it needs one a class.")
    return names


def _files(folder: Path, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    paths, labels = [], []
    for label, name in enumerate(names):
        found = sorted(str(path) for path in (folder / name).iterdir() if path.is_file())
        if not found:
            raise ValueError(f"{folder / name} holds no images.")
        paths += found
        labels += [label] * len(found)
    return np.array(paths), np.array(labels, np.int64)
