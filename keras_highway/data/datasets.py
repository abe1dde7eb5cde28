"""MNIST, CIFAR-10 and CIFAR-100 as NumPy arrays: from files, TensorFlow Datasets, else `keras.datasets`."""

import contextlib
import importlib
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import read_npz
from keras_highway._support.schema import check_choice
from keras_highway._support.terminal import PRINTED
from keras_highway.data.transforms import CLASSES

_PATIENCE = 30.0  # seconds without a byte of a download
# In a wheel next to the modules of the package, in a checkout next to the package.
_FOLDERS = tuple(Path(__file__).parents[up] / "samples" for up in (1, 2))


DATA_VARIABLE = "KERAS_HIGHWAY_DATA"
DATASETS = ("mnist", "cifar10", "cifar100")
# Photographs in a folder of class sub-folders, or shards of one.
FOLDERS = ("imagenet", "imagenette", "imagewoof", "tiny_imagenet")
# WordNet's identifiers of the classes of sets that share some with ImageNet (github.com/fastai/imagenette).
OWN_CLASSES = {
    "imagenette": frozenset(
        [
            "n01440764",
            "n02102040",
            "n02979186",
            "n03000684",
            "n03028079",
            "n03394916",
            "n03417042",
            "n03425413",
            "n03445777",
            "n03888257",
        ]
    ),
    "imagewoof": frozenset(
        [
            "n02086240",
            "n02087394",
            "n02088364",
            "n02089973",
            "n02093754",
            "n02096294",
            "n02099601",
            "n02105641",
            "n02111889",
            "n02115641",
        ]
    ),
}
SHARDS = "shards.json"  # the manifest of shards
_TFDS_VARIABLE = "TFDS_DATA_DIR"
_ARRAYS = ("x_train", "y_train", "x_test", "y_test", "classes")
_SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3)}


class Dataset(NamedTuple):
    """A data set in memory.

    Attributes:
        x_train: uint8 `(n, height, width, channels)`.
        y_train: int64 `(n,)`.
        x_test: uint8 `(m, height, width, channels)`.
        y_test: int64 `(m,)`.
        classes: Names of the classes.
    """

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    classes: tuple[str, ...]


def folder_of(data: str, data_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of a data set of photographs or shards: `data_dir`, or the one in `KERAS_HIGHWAY_DATA`."""
    if data_dir:
        return Path(data_dir)
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            f"The folder of {data} is unknown. Pass --data DIR, a folder with train/CLASS/* and val/CLASS/* "
            f"or with shards, or set {DATA_VARIABLE}."
        )
    return Path(folder) / data if (Path(folder) / data).is_dir() else Path(folder)


def is_sharded(folder: str | os.PathLike[str] | None) -> bool:
    """Return whether a folder holds shards of photographs."""
    return bool(folder) and (Path(folder) / SHARDS).is_file()


def load_dataset(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set.

    Args:
        name: `"mnist"`, `"cifar10"` or `"cifar100"`.
        data_dir: Folder of `mnist.npz`, `cifar10.npz`, `cifar100.npz` with the
            arrays x_train, y_train, x_test, y_test (images uint8) and, for
            CIFAR, `classes`. Defaults to the environment variable
            `KERAS_HIGHWAY_DATA`. If neither is set, what TensorFlow Datasets
            has prepared is taken, else `keras.datasets`, which downloads a set
            once, compares its SHA-256 and keeps it in `~/.keras/datasets`. Each
            has an order of its own, which determines the images that a recipe
            holds out; Keras keeps the order of the original archives.

    Raises:
        ValueError: If the name is unknown, or a file is not such a data set.
        FileNotFoundError: If there are no such data; the message lists the
            places searched.
    """
    hint = f" {name} is a folder of photographs: pass it with --data DIR." if name in FOLDERS else ""
    check_choice("name", name, DATASETS, hint)
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    if folder:
        return _from_npz(name, Path(folder) / f"{name}.npz")
    return _from_tfds(name) or _downloaded(name)


def _from_npz(name: str, path: Path) -> Dataset:
    if not path.is_file():
        raise FileNotFoundError(f"No file {path}. A data folder contains {', '.join(f'{n}.npz' for n in DATASETS)}.")
    try:
        arrays = read_npz(path, _ARRAYS)
        images = {split: _images(arrays[f"x_{split}"], name) for split in ("train", "test")}
        labels = {split: _labels(arrays[f"y_{split}"]) for split in images}
        classes = CLASSES[name]
        if "classes" in arrays:
            names = arrays["classes"].reshape(-1)
            if names.dtype.kind == "S":  # as in the archives, read as bytes
                names = np.char.decode(names, "utf-8")
            classes = tuple(map(str, names))
            check_class_names(classes, "classes")
        for split, values in labels.items():
            if (
                len(values) != len(images[split])
                or not len(values)
                or not 0 <= values.min() <= values.max() < len(classes)
            ):
                raise ValueError(
                    f"y_{split} needs a label from 0 to {len(classes) - 1} for each of {len(images[split])} images"
                )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a {name} data set: it needs x_train and x_test (uint8 images of shape "
            f"{_SHAPES[name]}), y_train and y_test. Received: {error}"
        ) from error
    return Dataset(images["train"], labels["train"], images["test"], labels["test"], classes)


def check_class_names(names: Sequence[str], where: str) -> None:
    """Raise a ValueError for names that a result could not hold at the end of a run."""
    if strange := [name for name in names if len(name) > 255 or not re.match(PRINTED, name)]:
        raise ValueError(f"{where} needs short, printable names of classes. Received: {strange[0][:255]!r}")


def _images(x: np.ndarray, name: str) -> np.ndarray:
    shape = _SHAPES[name]
    if x.dtype != np.uint8 or x.shape[1:] not in (shape, shape[:2] if shape[2] == 1 else shape):
        raise ValueError(f"images of dtype {x.dtype} and shape {x.shape}")
    return x.reshape(-1, *shape)


def _labels(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels of dtype {y.dtype}")
    return y.astype(np.int64).reshape(-1)


def _downloaded(name: str) -> Dataset:
    """Download a data set with `keras.datasets`, which returns images in Keras's data format."""
    patience = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_PATIENCE)  # Keras would wait for a download that has stopped
    try:
        with contextlib.redirect_stdout(sys.stderr):  # stdout is for results
            datasets = importlib.import_module("keras.datasets")  # here: Keras takes seconds
            (x_train, y_train), (x_test, y_test) = getattr(datasets, name).load_data()
    except MemoryError:
        raise
    except Exception as error:  # Keras's own are bare Exceptions
        raise FileNotFoundError(
            f"No data folder for {name}, and the download failed ({' '.join(str(error).split()).rstrip('.')}): pass a "
            f'folder (--data DIR, data_dir=...) or set {DATA_VARIABLE}. With a network, python -c "import keras; '
            f'keras.datasets.{name}.load_data()" fills ~/.keras/datasets, which can be copied.'
        ) from error
    finally:
        socket.setdefaulttimeout(patience)
    first = _SHAPES[name][2] > 1 and x_train.shape[1] == _SHAPES[name][2]
    images = (np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if first else x for x in (x_train, x_test))
    x_train, x_test = (_images(x, name) for x in images)
    return Dataset(x_train, _labels(y_train), x_test, _labels(y_test), CLASSES[name])


def _from_tfds(name: str) -> Dataset | None:
    """Return the data set that TensorFlow Datasets has prepared, if any."""
    prepared = Path(os.environ.get(_TFDS_VARIABLE) or Path.home() / "tensorflow_datasets") / name
    if not prepared.is_dir():
        return None
    try:
        import tensorflow_datasets as tfds  # pyright: ignore[reportMissingImports] (an extra)

        tensorflow()
        loaded: Any = tfds.load(
            name, split=["train", "test"], batch_size=-1, as_supervised=True, download=False, with_info=True
        )
    except (ImportError, AssertionError):  # an AssertionError for data that are not prepared
        return None
    (train, test), info = loaded
    (x_train, y_train), (x_test, y_test) = (tuple(np.asarray(a) for a in pair) for pair in (train, test))
    classes = tuple(info.features["label"].names)
    return Dataset(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), classes)


def sample_digits() -> tuple[Path, ...]:
    """Return the files of ten handwritten digits, 0 to 9: 28x28 pixels, PNG, from MNIST's test set.

    ```python
    pixels = np.stack([load_image(path, kh.get_transform("mnist")) for path in sample_digits()])
    ```
    """
    folder = next(folder for folder in _FOLDERS if folder.is_dir())
    return tuple(folder / f"digit_{k}.png" for k in range(10))
