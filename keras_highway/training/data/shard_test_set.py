"""The test photographs in shards, as `evaluate` reads them: by Pillow, one after the other, in their folder's order."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from keras_highway.data.images import EncodedImage
from keras_highway.data.photographs import Photograph, PhotographSet, class_labels
from keras_highway.training.data.shards import FILE_NAMES, index_of, read_manifest, read_shard


class _Place(NamedTuple):
    """Where an image is: its position in the folder's order, which orders places, and the rest."""

    position: int
    shard: Path
    offset: int
    length: int
    label: int
    name: str


def shard_test_set(
    folder: str | os.PathLike[str], classes: int, numbered: bool = False, class_names: Sequence[str] = ()
) -> PhotographSet:
    """Find the photographs of `val` in shards of a folder; what was broken there is not among them.

    Args:
        folder: The shards' folder.
        classes: As in `photographs.folder_test_set`.
        numbered: As there.
        class_names: As there.

    Raises:
        ValueError: If the shards are not finished or not as they were
            written, or their classes are not the weights'.
        FileNotFoundError: If one is missing.
    """
    root = Path(folder)
    manifest = read_manifest(root)
    names, shards = manifest["classes"], manifest["splits"]["val"]["shards"]
    labels = class_labels(str(root), names, classes, numbered, class_names)
    places = sorted(place for shard in shards for place in _places(*read_shard(root, shard, len(names))))
    if not places:
        raise ValueError(f"{root} holds no test images: its manifest names none of `val`.")

    def photographs() -> Iterator[Photograph]:
        with contextlib.ExitStack() as files:
            opened = {path: files.enter_context(path.open("rb")) for path in {place.shard for place in places}}
            for place in places:
                file = opened[place.shard]
                file.seek(place.offset)
                image = EncodedImage(file.read(place.length), f"{place.shard}: {place.name}")
                yield Photograph(image, labels[names[place.label]])

    return PhotographSet(str(root), len(places), photographs())


def _places(shard: Path, index: dict) -> list[_Place]:
    """Return the places of a shard's images, with the names of their files."""
    for column in ("files", "broken"):
        FILE_NAMES.check(index.get(column), f"{index_of(shard)}: {column}")
    broken = set(index["broken"])
    names = [name for name in index["files"] if name not in broken]
    if len(names) != len(index["places"]):
        raise ValueError(f"{index_of(shard)} names {len(names)} images and places {len(index['places'])}.")
    columns = (index["places"], [shard] * len(names), index["offsets"], index["lengths"], index["labels"], names)
    return list(map(_Place, *columns))
