"""Test sets of photographs: folders of classes, ImageNet-V2, TensorFlow Datasets; their classes and ReaL labels."""

import contextlib
import csv
import importlib
import os
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import read_bounded
from keras_highway._support.schema import reworded
from keras_highway._support.terminal import Notice, some, visible
from keras_highway.data.datasets import DATA_VARIABLE, DATASETS, Dataset
from keras_highway.data.images import EncodedImage, ImageError, load_image
from keras_highway.data.transforms import Transform, default_names, imagenet_classes


def class_labels(
    where: str, names: Sequence[str], classes: int, numbered: bool = False, class_names: Sequence[str] = ()
) -> dict[str, int]:
    """Return the class number of the weights for each class of a test set; arguments as in `folder_test_set`."""
    if numbered:
        return _numbers(where, names, classes)
    numeric = bool(names) and all(name.isdecimal() and int(name) < classes for name in names)
    if classes == 1000 and numeric and sorted(names) != sorted(class_names):
        raise ValueError(f"{where} has folders named by numbers, as ImageNet-V2: pass --v2 if these are class numbers.")
    known = {identifier: i for i, (identifier, _) in enumerate(imagenet_classes())}
    orders = ([], list(known), [name for _, name in imagenet_classes()], [str(i) for i in range(classes)])
    if classes == len(known) and names and set(names) <= set(known) and list(class_names) in orders:
        return {name: known[name] for name in names}
    if len(names) != classes:
        missing = sorted(set(class_names) - set(names))
        which = f" Missing: {some(missing)}." if class_names and set(names) < set(class_names) else ""
        raise ValueError(f"The weights have {classes} classes, {where} has {len(names)}.{which}")
    if set(names) <= set(known) and (labels := _imagenet_labels(where, names, class_names)):
        return labels
    numbers = [str(i) for i in range(classes)]
    unnamed = not class_names or list(class_names) == numbers
    if sorted(names) == sorted(numbers) and (unnamed or sorted(numbers) != sorted(class_names)):
        return _numbers(where, names, classes)
    if unnamed:
        return {name: i for i, name in enumerate(names)}
    _check_same(where, names, class_names)
    if len(set(names)) < len(names):
        raise ValueError(f"{where} has two classes of one name, so their order cannot be matched to the weights.")
    return {name: i for i, name in enumerate(class_names)}


def relabelled(where: str, data: Dataset, class_names: Sequence[str]) -> Dataset:
    """Return a data set with the labels of weights that have its classes; unchanged if `class_names` is empty."""
    if not class_names or tuple(class_names) == tuple(data.classes):
        return data
    labels = class_labels(where, data.classes, len(class_names), class_names=class_names)
    numbers = np.array([labels[name] for name in data.classes])
    return data._replace(y_train=numbers[data.y_train], y_test=numbers[data.y_test], classes=tuple(class_names))


def _numbers(where: str, names: Sequence[str], classes: int) -> dict[str, int]:
    """Return the labels of classes that are named by their numbers."""
    wrong = [name for name in names if not (name.isdecimal() and int(name) < classes)]
    if wrong or not names:
        raise ValueError(f"{where} must have folders named 0 to {classes - 1}. Received: {(*wrong, 'none')[0]}")
    return {name: int(name) for name in names}


def _check_same(where: str, names: Sequence[str], class_names: Sequence[str]) -> None:
    """Raise a ValueError if a test set has other classes than the weights."""
    if sorted(names) != sorted(class_names):
        strange, missing = (
            sorted(set(a) - set(b)) or sorted(a) for a, b in ((names, class_names), (class_names, names))
        )
        raise ValueError(f"{where} must have the classes of the weights: it has {some(strange)} for {some(missing)}.")


def _imagenet_labels(where: str, names: Sequence[str], class_names: Sequence[str]) -> dict[str, int]:
    """Return the labels of folders named by WordNet identifiers, for weights with ImageNet's class names, else `{}`."""
    identified = dict(imagenet_classes())
    if not class_names or not set(class_names) <= set(identified.values()):
        return {}
    _check_same(where, [identified[name] for name in names], class_names)
    free = list(enumerate(class_names))  # two of ImageNet's names stand for two classes each
    labels = {}
    for name in sorted(names):  # in the order of their identifiers, as in ImageNet
        place = next(pair for pair in free if pair[1] == identified[name])
        free.remove(place)
        labels[name] = place[0]
    return labels


SUFFIXES = (".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
ANNOTATIONS = "val_annotations.txt"
LABELS = "labels.csv"
_IMAGES = "images"


def classes_in(folder: Path) -> list[str]:
    """Return the classes of a folder, in order: its sub-folders, or those in Tiny ImageNet's `val_annotations.txt`."""
    if (folder / LABELS).is_file():
        raise ValueError(f"{folder / LABELS} is for heads that end in a sigmoid: move it away to use sub-folders.")
    if annotated := _annotated(folder):
        return sorted(set(annotated.values()))
    # Hidden folders are other programs', such as .ipynb_checkpoints; Keras's image_dataset_from_directory skips them.
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    moved = (folder / ANNOTATIONS).is_file()
    if names == [_IMAGES] and _images(folder / _IMAGES):
        raise ValueError(f"{folder} needs one sub-folder per class, or {ANNOTATIONS} next to {_IMAGES}/*.")
    return [name for name in names if not (moved and name == _IMAGES)]


def read_labels(folder: Path) -> dict[Path, list[str]]:
    """Return the labels of each image in a folder's `labels.csv`: a line `image,labels`, then e.g. `a.jpg,cat;dog`."""
    lines = read_bounded(folder / LABELS).decode("utf-8-sig").splitlines()
    header, *rows = [row for row in csv.reader(lines) if row] or [[]]
    wrong = [row for row in rows if len(row) != 2]
    if header != ["image", "labels"] or wrong or not rows:
        raise ValueError(
            f"{folder / LABELS} must begin with image,labels and have lines such as a.jpg,cat;dog. "
            f"Received: {(wrong or [header])[0]}"
        )
    return {folder / file: [name.strip() for name in labels.split(";") if name.strip()] for file, labels in rows}


def as_targets(where: object, labels: Iterable[Sequence[str]], names: Sequence[str]) -> list[tuple[int, ...]]:
    """Return 0 or 1 for each of the names, for each image."""
    labels = list(labels)
    if strange := sorted({name for row in labels for name in row} - set(names)):
        raise ValueError(f"{where} has other labels than {some(names)}. Received: {some(strange)}")
    return [tuple(int(name in row) for name in names) for row in labels]


def photographs_of(folder: Path, names: list[str]) -> Iterator[tuple[str, list[Path]]]:
    """Yield classes with their photographs, sorted by name: `CLASS/*` or, without any, `CLASS/images/*`.

    A `Notice` counts other files and folders between the photographs.
    """
    if annotated := _annotated(folder):
        files: dict[str, list[Path]] = {name: [] for name in names}
        for file, name in sorted(annotated.items()):
            if name in files:
                files[name].append(folder / _IMAGES / file)
        yield from files.items()
        return
    left_out: list[Path] = []
    for name in names:
        images, others = _listed(folder / name)
        left_out += others if images else []
        yield name, images or _images(folder / name / _IMAGES)
    if left_out:
        warnings.warn(
            f"{len(left_out)} files or folders in the classes of {folder} were left out, e.g. {visible(left_out[0])}: "
            f"photographs are {', '.join(SUFFIXES)} directly in the folder of their class.",
            Notice,
            stacklevel=2,
        )


def _images(folder: Path) -> list[Path]:
    """Return the images in a folder, which may not exist, sorted as their paths are."""
    return _listed(folder)[0]


def _listed(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the images in a folder, which may not exist, and what else is in it."""
    if not folder.is_dir():
        return [], []
    with os.scandir(folder) as entries:  # for all but links, `is_dir` needs no other system call
        # Hidden files are no photographs: macOS keeps metadata of 0.jpg in ._0.jpg.
        seen = {
            folder / e.name: os.path.splitext(e.name)[1].lower() in SUFFIXES and not os.path.isdir(e.path)
            for e in entries
            if not e.name.startswith(".")
        }
    ordered = sorted(seen, key=str)
    return [path for path in ordered if seen[path]], [path for path in ordered if not seen[path]]


def _annotated(folder: Path) -> dict[str, str]:
    """Return the class of each file in `images` by Tiny ImageNet's list; nothing for other layouts."""
    path = folder / ANNOTATIONS
    if not path.is_file():
        return {}
    images = {image.name for image in _images(folder / _IMAGES)}
    if not images:
        return {}
    classes: dict[str, str] = {}
    is_right = False
    with contextlib.suppress(UnicodeDecodeError):
        lines = [line for line in read_bounded(path).decode("utf-8-sig").splitlines() if line.strip()]
        pairs = [(*line.split("\t"), "")[:2] for line in lines]
        classes = {file: name for file, name in pairs if file and name}
        is_right = len(classes) == len(pairs) and set(classes) == images
    if not is_right:
        raise ValueError(
            f"{path} must have a UTF-8 line for each image in {folder / _IMAGES} and no others: its name, a tab, its "
            "class. Unpack the archive again."
        )
    return classes


_VALIDATION = re.compile(r"ILSVRC2012_val_(\d{8})")
_VALIDATION_IMAGES = 50_000
_RealLabels = Annotated[
    list[list[Annotated[int, Meta(ge=0, le=999)]]], Meta(min_length=_VALIDATION_IMAGES, max_length=_VALIDATION_IMAGES)
]


class Photograph(NamedTuple):
    """A test image."""

    file: Path | EncodedImage  # path or content
    label: int | tuple[int, ...]  # class number; for a sigmoid, 0 or 1 for each class


class PhotographSet(NamedTuple):
    """Labelled photographs."""

    name: str  # name in messages
    images: int  # number of photographs
    photographs: Iterable[Photograph]  # iterable of photographs; can be consumed once


def holds_photographs(folder: str | os.PathLike[str] | None) -> bool:
    """Whether a folder has sub-folders, one per class or `val`, and no data sets of arrays."""
    path = Path(folder or "")
    if not folder or not path.is_dir() or any((path / f"{name}.npz").is_file() for name in DATASETS):
        return False
    return (path / LABELS).is_file() or any(
        entry.is_dir() and not entry.name.startswith(".") for entry in path.iterdir()
    )


def folder_test_set(
    folder: str | os.PathLike[str],
    classes: int,
    numbered: bool = False,
    class_names: Sequence[str] = (),
    sigmoid: bool = False,
) -> PhotographSet:
    """Find the photographs of `DIR/val/CLASS/*` or, without `val`, of `DIR/CLASS/*`; also Tiny ImageNet's archive.

    For a sigmoid, `labels.csv` in that folder may hold the labels instead.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"No folder {root}.")
    root = root / "val" if (root / "val").is_dir() else root
    if sigmoid:
        return _labelled_test_set(root, classes, class_names)
    names = classes_in(root)
    labels = class_labels(str(root), names, classes, numbered, class_names)
    found = dict(photographs_of(root, list(labels)))
    photographs = [Photograph(path, labels[name]) for name, files in found.items() for path in files]
    # Results without some of the classes would not be comparable.
    empty = [root / name for name, files in found.items() if not files]
    if empty or not photographs:
        where = empty[0] if empty else root
        raise ValueError(f"{where} contains no images ({', '.join(SUFFIXES)}): put them there, or remove the folder.")
    return PhotographSet(str(root), len(photographs), photographs)


def _labelled_test_set(root: Path, classes: int, class_names: Sequence[str]) -> PhotographSet:
    """Find the photographs of a sigmoid head: by their labels, or by folders, of which one output has two."""
    listed = (root / LABELS).is_file()
    if listed:
        files = read_labels(root)
    else:
        files = {path: [name] for name, paths in photographs_of(root, classes_in(root)) for path in paths}
    found = sorted({name for row in files.values() for name in row})
    known = tuple(class_names or default_names(classes))
    of_two = not listed and classes == 1 and len(found) == 2
    if known == default_names(classes) and not set(found) <= set(known) and len(found) == classes + of_two:
        known = tuple(found[of_two:])  # the weights do not name their classes
    if of_two and known[0] in found:
        files = {path: [name for name in row if name in known] for path, row in files.items()}
    targets = as_targets(root, files.values(), known)
    photographs = [Photograph(path, target) for path, target in zip(files, targets, strict=True)]
    if not photographs:
        raise ValueError(f"{root} contains no images.")
    return PhotographSet(str(root), len(photographs), photographs)


def data_test_set(
    data: str, data_dir: str | os.PathLike[str] | None, classes: int, class_names: Sequence[str] = ()
) -> PhotographSet:
    """Find the test photographs of one of `FOLDERS`, in `data_dir` or `KERAS_HIGHWAY_DATA` or their sub-folder."""
    return folder_test_set(data_folder(data, data_dir), classes, class_names=class_names)


def data_folder(data: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a data set of photographs, which contains `val`."""
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    places = [Path(folder) / data, Path(folder)] if folder else []
    found = next((place for place in places if (place / "val").is_dir()), None)
    if found is None:
        places = [str(place / "val") for place in places]
        raise FileNotFoundError(
            f"The photographs of {data} were not found in {' or '.join(places) or 'any folder'}: name the folder of "
            f"{data}/val/CLASS/*, or set {DATA_VARIABLE}."
        )
    return found


def some_of(test_set: PhotographSet, samples: int, seed: int = 0) -> PhotographSet:
    """Draw photographs at random and keep their order, without reading them."""
    chosen = np.sort(np.random.default_rng(seed).permutation(test_set.images)[:samples])
    photographs = list(test_set.photographs)
    return PhotographSet(test_set.name, len(chosen), [photographs[i] for i in chosen])


class Batch(NamedTuple):
    """Decoded test images."""

    pixels: np.ndarray  # uint8 `(n, height, width, channels)`
    labels: np.ndarray  # int64 `(n,)`; for a sigmoid `(n, classes)`
    names: list[str]  # file names
    errors: list[str]  # messages about unreadable files, which are in no other field


def read_batches(
    photographs: Iterable[Photograph], transform: Transform, size: int, workers: int | None = None
) -> Iterator[Batch]:
    """Yield the photographs in batches, in order; two are read ahead, on several threads."""
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        waiting: deque[tuple[Photograph, Future[np.ndarray | str]]] = deque()
        images = iter(photographs)
        while True:
            for photograph in islice(images, 3 * size - len(waiting)):
                waiting.append((photograph, pool.submit(_pixels, photograph, transform)))
            if not waiting:
                return
            batch = [waiting.popleft() for _ in range(min(size, len(waiting)))]
            decoded = [(photograph, future.result()) for photograph, future in batch]
            good = [(photograph, pixels) for photograph, pixels in decoded if not isinstance(pixels, str)]
            yield Batch(
                np.stack([pixels for _, pixels in good]) if good else np.empty((0,), np.uint8),
                np.array([photograph.label for photograph, _ in good], np.int64),
                [str(photograph.file) for photograph, _ in good],
                [pixels for _, pixels in decoded if isinstance(pixels, str)],
            )


def read_all(test_set: PhotographSet, transform: Transform, size: int) -> Iterator[Batch]:
    """Yield the photographs in batches, as `read_batches`; raise an ImageError for an unreadable one."""
    for batch in read_batches(test_set.photographs, transform, size):
        if batch.errors:
            raise ImageError(f"{test_set.name}: {batch.errors[0]}")
        yield batch


def _pixels(photograph: Photograph, transform: Transform) -> np.ndarray | str:
    """Return the pixels, or the error message."""
    try:
        return load_image(photograph.file, transform)
    except ImageError as error:
        return str(error)


def read_real_labels(path: str | os.PathLike[str]) -> list[list[int]]:
    """Read ImageNet's reassessed labels [Beyer et al. 2020], `real.json`: a list of classes per validation image."""
    with reworded(f"{path} must be a list of {_VALIDATION_IMAGES} lists of class numbers from 0 to 999"):
        return msgspec.json.decode(read_bounded(path), type=_RealLabels)


def real_labels_of(name: str, labels: list[list[int]]) -> list[int]:
    """Return the ReaL labels of a validation image, by the number in its file name."""
    number = _VALIDATION.search(Path(name).name)
    if not number or not 1 <= int(number[1]) <= len(labels):
        raise ValueError(f"ReaL labels are for ImageNet's validation images, ILSVRC2012_val_00000001. Received: {name}")
    return labels[int(number[1]) - 1]


def labelled_split(builder: Any) -> str | None:
    """Return the first of the splits `test` and `validation` with labels; competitions mark missing ones by -1."""
    for split in ("test", "validation"):
        if split in builder.info.splits:
            rows = encoded_rows(builder, f"{split}[:1]").as_numpy_iterator()
            if all(int(row["label"]) >= 0 for row in rows):
                return split
    return None


def encoded_rows(builder: Any, split: str) -> Any:
    """Return a split's examples in the order of its files, as a `tf.data.Dataset`; images are not decoded."""
    decoders = {"image": _tfds("data").decode.SkipDecoding()}
    return builder.as_dataset(split, shuffle_files=False, decoders=decoders)


def check_features(name: str, builder: Any) -> Any:
    """Return the label feature of a set of images with one class each."""
    features, kinds = dict(builder.info.features or {}), _tfds("data").features
    known = (("image", kinds.Image), ("label", kinds.ClassLabel))
    if not all(isinstance(features.get(key), kind) for key, kind in known):
        raise ValueError(f"{name} must have an Image `image` and a ClassLabel `label`. Received: {features}")
    return features["label"]


def tfds_builder(name: str, data_dir: str | None, option: str) -> Any:
    """Return the builder of a prepared set; errors name `option`, the user's argument."""
    tfds = _tfds(option)
    unknown = (tfds.core.registered.DatasetNotFoundError, ValueError, AssertionError)  # or no such version
    with reworded(f"TensorFlow Datasets has no set {name!r}", unknown):
        builder = tfds.builder(name, data_dir=data_dir)
    if not builder.is_prepared():
        raise FileNotFoundError(
            f"TensorFlow Datasets has not prepared {name} in {builder.data_path}: run "
            f"python -c \"import tensorflow_datasets as t; t.load('{name}')\""
        )
    return builder


def _tfds(option: str) -> Any:
    with reworded(f'{option} needs TensorFlow Datasets: pip install "keras-highway[tfds]"', ImportError, ImportError):
        library = importlib.import_module("tensorflow_datasets")  # an extra
    tensorflow()
    return library


def tfds_test_set(name: str, data_dir: str | None, classes: int, class_names: Sequence[str] = ()) -> PhotographSet:
    """Open the labelled split `test` or `validation` of a set of TensorFlow Datasets, e.g. `"imagenette/160px-v2"`."""
    builder = tfds_builder(name, data_dir, "--tfds")
    info = builder.info
    label = check_features(name, builder)
    split = labelled_split(builder)
    if split is None:
        raise ValueError(f"{name} must have a labelled split test or validation. Received: {list(info.splits)}")
    labels = _labels(name, label, classes, class_names)
    rows = encoded_rows(builder, split)

    def photographs() -> Iterator[Photograph]:
        for i, row in enumerate(rows.as_numpy_iterator()):
            file = row["file_name"].decode() if "file_name" in row else f"{name} {split} {i}"
            yield Photograph(EncodedImage(row["image"], file), labels[int(row["label"])])

    return PhotographSet(f"{name} {split}", info.splits[split].num_examples, photographs())


def _labels(name: str, feature: Any, classes: int, class_names: Sequence[str]) -> Sequence[int]:
    """Return the class of the weights for each label."""
    names = list(getattr(feature, "names", None) or ())
    numbers = [str(i) for i in range(len(names))]
    if names != numbers:
        numbered = sorted(names) == sorted(numbers) != sorted(class_names)
        known = class_labels(name, names, classes, numbered, class_names)
        return [known[one] for one in names]
    if feature.num_classes != classes:
        raise ValueError(f"The weights have {classes} classes, {name} has {feature.num_classes}.")
    return list(range(classes))
