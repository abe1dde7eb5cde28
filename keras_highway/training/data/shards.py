"""TFRecord shards of a folder of images, written by `keras_highway.training.shards`, read in any order.

A record is a `tf.train.Example` with `image/encoded`, `image/class/label` (from
0) and `image/filename`. `train.npz` and `val.npz` hold the shard, offset and
length of every encoded image in the folder's order, so that a run reads the
images of a batch directly and resumes in the middle of an epoch at no cost.
"""

import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from keras_highway._support.files import read_bounded, read_npz, without_waiting
from keras_highway._support.schema import refuse, reworded
from keras_highway.data.datasets import SHARDS
from keras_highway.data.images import EncodedImage
from keras_highway.data.photographs import Photograph, PhotographSet, class_labels
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.data.folders import FolderSource, check_several
from keras_highway.training.recipe import Recipe

FORMAT = "keras_highway shards 2"
SPLITS = ("train", "val")


class _Manifest(msgspec.Struct):
    format: str
    classes: list[str]
    splits: dict[str, dict]


def read_manifest(folder: Path) -> dict:
    """Return the manifest of a folder of shards."""
    path = folder / SHARDS
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} has no finished shards. Write them: python -m keras_highway.training.shards DIR --out SHARDS"
        )
    with reworded(f"{path} is not a manifest of shards", msgspec.DecodeError):
        manifest = msgspec.json.decode(read_bounded(path), type=_Manifest)
    files = [name for split in manifest.splits.values() for name in split.get("files", [".."])]
    if manifest.format != FORMAT or set(manifest.splits) != set(SPLITS) or any(Path(n).name != n for n in files):
        raise ValueError(f"{path} is not a manifest of shards. Received: format={manifest.format!r}")
    return msgspec.to_builtins(manifest)


class Shards:
    """The shards of a split, opened."""

    def __init__(self, folder: Path, split: str, classes: int):
        index = folder / f"{split}.npz"
        self.paths = sorted(folder.glob(f"{split}-*.tfrecord"))
        arrays = read_npz(index, ("places", "labels", "names"))
        self.places, self.labels, self.names = arrays["places"], arrays["labels"], arrays["names"]
        sizes = np.array([path.stat().st_size for path in self.paths], np.int64)
        n = len(self.labels)
        sound = self.places.shape == (n, 3) and self.labels.shape == self.names.shape == (n,) and n > 0
        sound = sound and self.places.dtype == self.labels.dtype == np.int64
        sound = sound and self.places.min() >= 0 and 0 <= self.labels.min() <= self.labels.max() < classes
        shard, offset, length = self.places.T if sound else np.zeros((3, 1), np.int64)
        refuse(
            (not sound, f"{index} is not an index of shards."),
            (
                shard.max() >= len(sizes) or (offset > sizes[shard] - length).any(),
                f"{index} and the shards differ: `... shards {folder} --check` names damaged files.",
            ),
        )
        self._files = [without_waiting(path, os.O_RDONLY) for path in self.paths]
        weakref.finalize(self, lambda files: [os.close(file) for file in files], self._files)

    def read(self, place: np.ndarray) -> bytes:
        """Return the encoded image at a shard, offset and length."""
        shard, offset, length = map(int, place)
        return os.pread(self._files[shard], length, offset)


class ShardSource(FolderSource):
    """A folder of images in shards: the batches of `FolderSource` over that folder."""

    _REMEDY = "Copy it again: `python -m keras_highway.training.shards SHARDS --check` names all damaged files."

    def __init__(self, recipe: Recipe, data_dir):
        folder = Path(data_dir)
        self.class_names = tuple(read_manifest(folder)["classes"])
        check_several(self.class_names, str(folder))
        self._shards = {split: Shards(folder, split, len(self.class_names)) for split in SPLITS}
        # A place is a row of four numbers: the split, then shard, offset and length.
        files = {
            split: (np.insert(shards.places, 0, i, axis=1), shards.labels)
            for i, (split, shards) in enumerate(self._shards.items())
        }
        self._start(recipe, TRANSFORMS[recipe.transform], files, len(self.class_names))

    def _place(self, path) -> str:
        split, shard, offset, _ = map(int, path)
        return f"{self._shards[SPLITS[split]].paths[shard]}, the image at byte {offset},"

    def _bytes(self, path: Any) -> bytes:
        return self._shards[SPLITS[path[0]]].read(path[1:])


def shard_test_set(
    folder: str | os.PathLike[str], classes: int, numbered: bool = False, class_names: Sequence[str] = ()
) -> PhotographSet:
    """Return the photographs of `val` in shards, in the order of their folder; arguments as `folder_test_set`'s."""
    root = Path(folder)
    names = read_manifest(root)["classes"]
    labels = class_labels(str(root), names, classes, numbered, class_names)
    shards = Shards(root, "val", len(names))

    def photographs() -> Iterator[Photograph]:
        for place, label, name in zip(shards.places, shards.labels, shards.names, strict=True):
            yield Photograph(EncodedImage(shards.read(place), f"{root}: {name}"), labels[names[label]])

    return PhotographSet(str(root), len(shards.places), photographs())
