"""A folder of class sub-folders with images, e.g. ImageNet: decoded in parallel, never all in memory."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keras_highway.transforms import TRANSFORMS
from training.decoding import Augment, CentralCrop, batches, tensorflow
from training.recipe import Recipe
from training.sources import Shard

_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")  # what TensorFlow decodes; other files are left alone


class FolderSource:
    """`DIR/train/CLASS/*` and `DIR/val/CLASS/*`, e.g. ImageNet: decoded in parallel, never all in memory.

    Training images get a random resized crop (8 to 100 % of the area, aspect
    3/4 to 4/3) and a random flip, test images the transform's central crop.
    Random operations are stateless, with a seed a
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
        limits = {"train": recipe.train_images, "val": recipe.test_images}
        if any(limits.values()):  # spread over the classes, which follow one another
            self._files = {split: _thinned(files, limits[split]) for split, files in self._files.items()}
        self.images, self.test_images = (len(self._files[split][0]) for split in ("train", "val"))
        self.classes = len(names["train"])

    def on_device(self) -> None:
        """Batches carry their own images."""
        return None

    def batches(self, epoch: int, start: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields shuffled, augmented `(images, labels, weights)`."""
        tf = tensorflow()
        paths, labels = self._files["train"]
        size = self._recipe.batch_size
        order = np.random.default_rng((self._recipe.seed, epoch)).permutation(self.images)
        seeds = np.stack([np.full(self.images, self._recipe.seed), epoch * self.images + np.arange(self.images)], 1)
        places = [shard.of(np.arange(i * size, (i + 1) * size)) for i in range(start, self.images // size)]
        if not places:
            return
        places = np.concatenate(places)
        data = tf.data.Dataset.from_tensor_slices((paths[order][places], labels[order][places], seeds[places]))
        augment = Augment(self._transform, self._recipe.train_size)
        data = data.map(
            lambda path, label, seed: (tf.io.read_file(path), label, seed), num_parallel_calls=tf.data.AUTOTUNE
        )
        yield from batches(data, augment, size // shard.count)

    def test_batches(self, size: int, shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yields central crops."""
        tf = tensorflow()
        paths, labels = self._files["val"]
        total = -(-self.test_images // size) * size
        places = np.concatenate([shard.of(np.arange(i, i + size)) for i in range(0, total, size)])
        weights = (places < self.test_images).astype(np.float32)
        places = np.minimum(places, self.test_images - 1)
        data = tf.data.Dataset.from_tensor_slices((paths[places], labels[places]))
        data = data.map(
            lambda path, label: (tf.io.read_file(path), label, tf.zeros([2], tf.int64)),
            num_parallel_calls=tf.data.AUTOTUNE,
        )
        found = batches(data, CentralCrop(self._transform), size // shard.count)
        for (images, truth, _), weight in zip(found, weights.reshape(-1, size // shard.count), strict=True):
            yield images, truth, weight


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
        found = sorted(str(path) for path in (folder / name).iterdir() if path.suffix.lower() in _SUFFIXES)
        if not found:
            raise ValueError(f"{folder / name} holds no images: {', '.join(_SUFFIXES)}.")
        paths += found
        labels += [label] * len(found)
    return np.array(paths), np.array(labels, np.int64)


def _thinned(files, count):
    paths, labels = files
    if count is None or count >= len(paths):
        return files
    places = np.linspace(0, len(paths) - 1, count).round().astype(int)
    return paths[places], labels[places]
