"""TFRecord shards of a folder of images: what `python -m keras_highway.training.shards` writes, read in any order.

A shard is a TFRecord file of `tf.train.Example`s with the features
`image/encoded`, `image/class/label` (from 0), `image/class/name` and
`image/filename`, as other programs read them. Beside it lies its index: where
each encoded image begins, how long it is, its label and its position in
the folder's order. With it a batch's images are read directly at their offsets, so
that a run over shards has the images, labels and order of one over the
folder, and resumes in the middle of an epoch at no cost.
"""

import hashlib
import os
import weakref
from pathlib import Path

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import read_bounded
from keras_highway._support.schema import CLASS_NAME, Fields, Items, Number, OneOf, Text, parse_json, read_json
from keras_highway.data.datasets import MANIFEST, is_sharded
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.data.folders import FolderSource, check_several
from keras_highway.training.recipe import Recipe

FORMAT = "keras_highway shards 1"
LARGEST_INDEX = 2**30  # bytes, of some ten million images
_SHA256 = Text(pattern="[0-9a-f]{64}", like="64 hexadecimal digits")
FILE_NAMES = Items(Text(10_000, printable=False), most=100_000_000)
_SHARD = Fields(
    {
        # Beside the manifest, nowhere else.
        "file": Text(pattern=r"\w[\w.-]*\.tfrecord", like="the name of a .tfrecord file, no path"),
        "bytes": Number(0, 1e15, whole=True),
        "sha256": _SHA256,
        "index_sha256": _SHA256,
    }
)
_SPLIT = Fields({"shards": Items(_SHARD)}, {"broken": FILE_NAMES})
_MANIFEST = Fields(
    {
        "format": OneOf((FORMAT,)),
        "classes": Items(CLASS_NAME, 1),
        "splits": Fields({"train": _SPLIT, "val": _SPLIT}),
    }
)
_COLUMNS = ("places", "labels", "offsets", "lengths")


def index_of(shard: Path) -> Path:
    """Return where a shard's index is."""
    return shard.with_suffix(".json")


def read_manifest(folder: Path) -> dict:
    """Return the manifest of a folder of shards.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If they are not finished, or of another program, or if it
            names files outside of the folder.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise FileNotFoundError(f"No folder {folder}.")
    if not path.exists() and not is_sharded(folder):
        raise ValueError(
            f"{folder} holds no shards: `python -m keras_highway.training.shards DIR --out SHARDS` writes them."
        )
    if not path.exists():
        raise ValueError(
            f"{folder} holds shards that are not finished: run `python -m keras_highway.training.shards` again."
        )
    return read_json(path, _MANIFEST)


class ShardSource(FolderSource):
    """A folder of images in shards: the batches of `FolderSource` over that folder.

    Args:
        recipe: What to train.
        data_dir: The shards' folder.

    Raises:
        ValueError: If the shards are not finished or not of the lengths that
            their manifest states, or an index is not the one that it names.
        FileNotFoundError: If one is missing.
    """

    def __init__(self, recipe: Recipe, data_dir):
        folder = Path(data_dir)
        manifest = read_manifest(folder)
        self._shards: list[tuple[Path, int]] = []  # files and their descriptors
        weakref.finalize(self, _close, self._shards)
        check_several(manifest["classes"], str(folder))
        splits, classes = manifest["splits"], len(manifest["classes"])
        files = {split: self._opened(folder, splits[split]["shards"], classes) for split in ("train", "val")}
        self._start(recipe, TRANSFORMS[recipe.transform], files, classes)
        self.class_names = tuple(manifest["classes"])

    def _opened(self, folder: Path, shards: list[dict], classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Open a split's shards; returns shard, offset and length of each image, and labels, in the folder's order."""
        rows = []
        for shard in shards:
            path, index = read_shard(folder, shard, classes)
            number = np.full(len(index["places"]), len(self._shards))
            rows.append(np.stack([index["places"], number, index["offsets"], index["lengths"], index["labels"]], 1))
            self._shards.append((path, os.open(path, os.O_RDONLY)))
        table = np.concatenate(rows).astype(np.int64) if rows else np.empty((0, 5), np.int64)
        table = table[np.argsort(table[:, 0])]
        if (np.diff(table[:, 0]) == 0).any() or not len(table):
            raise ValueError(f"{folder / MANIFEST}: its shards have no images, or two of the same position.")
        return table[:, 1:4], table[:, 4]

    _REMEDY = (
        "Copy it anew: `python -m keras_highway.training.shards SHARDS --check` names all that are damaged. Of an "
        "image that is too large, run `... shards DIR --out SHARDS` once more, which leaves it out: a run on these "
        "begins anew, in another folder."
    )

    def _place(self, path) -> str:
        number, offset, _ = map(int, path)
        return f"{self._shards[number][0]}, the image at byte {offset},"

    def _read(self, path):
        """Return an encoded image by its shard, offset and length."""
        tf = tensorflow()
        return tf.ensure_shape(tf.numpy_function(self._bytes, [path], tf.string), ())

    def _bytes(self, location: np.ndarray) -> bytes:
        number, offset, length = map(int, location)
        path, file = self._shards[number]
        content = os.pread(file, length, offset)
        if len(content) != length:
            raise EOFError(f"{path} ends at byte {offset + len(content)}; an image there ends at {offset + length}.")
        return content


def read_shard(folder: Path, shard: dict, classes: int) -> tuple[Path, dict]:
    """Return the file of a shard and its index.

    Args:
        folder: The shards' folder.
        shard: Its row in the manifest.
        classes: Number of classes.

    Raises:
        ValueError: If it is not of the length that the row states, or the
            index is not the one that it names.
        FileNotFoundError: If one is missing.
    """
    path = folder / shard["file"]
    if path.stat().st_size != shard["bytes"]:
        raise ValueError(
            f"{path} has {path.stat().st_size} bytes and should have {shard['bytes']}: remove it and "
            f"{folder / MANIFEST}, and run `python -m keras_highway.training.shards` again."
        )
    return path, _read_index(path, shard["index_sha256"], shard["bytes"], classes)


def _read_index(shard: Path, sha256: str | None, size: int, classes: int) -> dict:
    """Return a shard's index, compared with its hash if there is one: an altered index changes labels."""
    path = index_of(shard)
    content = read_bounded(path, LARGEST_INDEX)
    if sha256 not in (None, hashlib.sha256(content).hexdigest()):
        raise ValueError(
            f"{path} is not the index that was written with {shard.name}: remove both and {shard.parent / MANIFEST}, "
            "and run `python -m keras_highway.training.shards` again."
        )
    index = parse_json(content, str(path))
    columns = [index.get(name) for name in _COLUMNS] if isinstance(index, dict) else [None]
    if not all(isinstance(column, list) and all(type(value) is int for value in column) for column in columns):
        raise ValueError(f"{path} must be a table of lists of whole numbers, {', '.join(_COLUMNS)}.")
    places, labels, offsets, lengths = columns
    if not len(places) == len(labels) == len(offsets) == len(lengths):
        raise ValueError(f"{path} has lists of different lengths.")
    for name, column, most in zip(_COLUMNS, columns, (2**40, classes - 1, size, size), strict=True):
        if column and not 0 <= min(column) <= max(column) <= most:
            raise ValueError(f"{path}: {name} must be from 0 to {most}.")
    if any(offset + length > size for offset, length in zip(offsets, lengths, strict=True)):
        raise ValueError(f"{path} has images that end beyond the end of {shard.name}.")
    return index


def _close(shards) -> None:
    for _, file in shards:
        os.close(file)
