"""Test sets of photographs: folders of classes, ImageNet-V2; ImageNet's ReaL labels."""

import contextlib
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_highway._support.schema import read_json
from keras_highway.data.class_folders import SUFFIXES, classes_in, photographs_of
from keras_highway.data.class_labels import class_labels
from keras_highway.data.datasets import DATA_VARIABLE, DATASETS
from keras_highway.data.images import EncodedImage, ImageError, load_image
from keras_highway.data.transforms import Transform

_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})")
_VALIDATION_IMAGES = 50_000


class Photograph(NamedTuple):
    """A test image.

    Attributes:
        file: Where it is, or itself.
        label: Its class, a number.
    """

    file: Path | EncodedImage
    label: int


class PhotographSet(NamedTuple):
    """Labelled photographs.

    Attributes:
        name: What it is called.
        images: Their number.
        photographs: They themselves, read once.
    """

    name: str
    images: int
    photographs: Iterable[Photograph]


def holds_photographs(folder: str | os.PathLike[str] | None) -> bool:
    """Whether a folder holds sub-folders, one per class or `val`, and no data sets of arrays."""
    path = Path(folder or "")
    if not folder or not path.is_dir():
        return False
    if any((path / f"{name}.npz").is_file() for name in DATASETS):
        return False
    return any(entry.is_dir() and not entry.name.startswith(".") for entry in path.iterdir())


def folder_test_set(
    folder: str | os.PathLike[str], classes: int, numbered: bool = False, class_names: Sequence[str] = ()
) -> PhotographSet:
    """Find the photographs of `DIR/val/CLASS/*`, or where there is no `val` of `DIR/CLASS/*`.

    `DIR/val` may also be as Tiny ImageNet's archive has it, see `class_folders`.

    Args:
        folder: DIR.
        classes: Number of classes that the weights have.
        numbered: Whether the names of the class folders are the numbers of
            their classes, as in ImageNet-V2. Defaults to `False`: classes are
            in the order of the names. Of weights that know ImageNet's 1000
            classes the folders may also be some of these, by WordNet's
            identifiers.
        class_names: Names of the weights' classes, in order, if they are
            known. Folders of the same names are these classes, whatever their
            order; of other names, they are refused. Plain numbers count as
            unknown names.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If its sub-folders are not the classes, or Tiny ImageNet's list
            of classes is not of its images.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"No folder {root}.")
    root = root / "val" if (root / "val").is_dir() else root
    names = classes_in(root)
    labels = class_labels(str(root), names, classes, numbered, class_names)
    found = dict(photographs_of(root, list(labels)))
    photographs = [Photograph(path, labels[name]) for name, files in found.items() for path in files]
    if not photographs:
        raise ValueError(f"{root} holds no images: {', '.join(SUFFIXES)} in one sub-folder per class.")
    if empty := [name for name, files in found.items() if not files]:  # a number without them would be of others
        remedy = "put their images there"
        with contextlib.suppress(ValueError):  # where a part of the classes will do
            class_labels(str(root), [name for name in names if name not in empty], classes, numbered, class_names)
            remedy = "remove the folders to leave these out, or " + remedy
        raise ValueError(
            f"{root / empty[0]} holds no images: {', '.join(SUFFIXES)}, not in further folders. Such classes: "
            f"{len(empty)} of {len(found)}; {remedy}."
        )
    return PhotographSet(str(root), len(photographs), photographs)


def data_test_set(
    data: str, data_dir: str | os.PathLike[str] | None, classes: int, class_names: Sequence[str] = ()
) -> PhotographSet:
    """Find the test photographs of a data set by its name."""
    return folder_test_set(data_folder(data, data_dir), classes, class_names=class_names)


def data_folder(data: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a data set of photographs, which contains `val`."""
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    places = [Path(folder) / data, Path(folder)] if folder else []
    found = next((place for place in places if (place / "val").is_dir()), None)
    if found is None:
        looked = f" There is no folder {' nor '.join(str(place / 'val') for place in places)}." if places else ""
        raise FileNotFoundError(
            f"The photographs of {data} are not there.{looked} Name the folder that holds {data}/val/CLASS/*, or set "
            f"{DATA_VARIABLE} to it."
        )
    return found


def some_of(test_set: PhotographSet, samples: int, seed: int = 0) -> PhotographSet:
    """Draw photographs at random, in the order of the set; none is read."""
    chosen = np.sort(np.random.default_rng(seed).permutation(test_set.images)[:samples])
    photographs = list(test_set.photographs)
    return PhotographSet(test_set.name, len(chosen), [photographs[i] for i in chosen])


class Batch(NamedTuple):
    """Test images as they go into a network.

    Attributes:
        pixels: uint8 `(n, height, width, channels)`.
        labels: int64 `(n,)`.
        names: Of their files.
        errors: Messages about files that could not be read; these files are
            in no other field.
    """

    pixels: np.ndarray
    labels: np.ndarray
    names: list[str]
    errors: list[str]


def read_batches(
    photographs: Iterable[Photograph], transform: Transform, size: int, workers: int | None = None
) -> Iterator[Batch]:
    """Yield the photographs in batches, in order; two are read ahead, on several threads."""
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        waiting: deque[tuple[Photograph, Future[np.ndarray | str]]] = deque()
        ahead = 2 * size
        images = iter(photographs)
        done = False
        while waiting or not done:
            while not done and len(waiting) < ahead + size:
                photograph = next(images, None)
                done = photograph is None
                if photograph is not None:
                    waiting.append((photograph, pool.submit(_pixels, photograph, transform)))
            batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
            if batch:
                yield _batch([(photograph, future.result()) for photograph, future in batch])


def read_all(test_set: PhotographSet, transform: Transform, size: int) -> Iterator[Batch]:
    """Yield the photographs in batches, as `read_batches`; raise an ImageError for an unreadable one."""
    for batch in read_batches(test_set.photographs, transform, size):
        if batch.errors:
            raise ImageError(f"{test_set.name}: {batch.errors[0]}")
        yield batch


def _pixels(photograph: Photograph, transform: Transform) -> np.ndarray | str:
    """Return a photograph's pixels as stored (as training, timm and torchvision do), or the error message."""
    try:
        return load_image(photograph.file, transform, upright=False)
    except ImageError as error:
        return str(error)


def _batch(decoded: list[tuple[Photograph, np.ndarray | str]]) -> Batch:
    good = [(photograph, pixels) for photograph, pixels in decoded if not isinstance(pixels, str)]
    pixels = np.stack([pixels for _, pixels in good]) if good else np.empty((0,), np.uint8)
    labels = np.array([photograph.label for photograph, _ in good], np.int64)
    return Batch(
        pixels, labels, [str(p.file) for p, _ in good], [pixels for _, pixels in decoded if isinstance(pixels, str)]
    )


def read_real_labels(path: str | os.PathLike[str]) -> list[list[int]]:
    """Read ImageNet's reassessed labels [Beyer et al. 2020], `real.json`: a list of classes per validation image."""
    labels = read_json(path)
    if not isinstance(labels, list) or len(labels) != _VALIDATION_IMAGES or not all(map(_are_classes, labels)):
        raise ValueError(f"{path} must be a list of {_VALIDATION_IMAGES} lists of numbers of classes, 0 to 999.")
    return labels


def _are_classes(labels: Any) -> bool:
    return isinstance(labels, list) and all(isinstance(label, int) and 0 <= label < 1000 for label in labels)


def real_labels_of(name: str, labels: list[list[int]]) -> list[int]:
    """Return the ReaL labels of a validation image, by the number in its file name."""
    number = _VALIDATION.search(Path(name).name)
    if not number or not 1 <= int(number[1]) <= len(labels):
        raise ValueError(f"ReaL labels are of ImageNet's validation images, ILSVRC2012_val_00000001. Received: {name}")
    return labels[int(number[1]) - 1]
