"""MNIST, CIFAR-10 and CIFAR-100 as NumPy arrays: from files, TensorFlow Datasets, else `keras.datasets`."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import read_npz
from keras_highway._support.schema import CLASS_NAME, Items
from keras_highway._support.terminal import did_you_mean
from keras_highway.data.downloads import download
from keras_highway.data.transforms import CLASSES

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
_MOST_CLASSES = 100_000
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
    """Return the folder of a data set of photographs, or of shards of them; whether it is one is not looked at.

    Args:
        data: One of `FOLDERS`.
        data_dir: The folder. Defaults to what the environment variable
            `KERAS_HIGHWAY_DATA` names, or the folder of that name in it.

    Raises:
        FileNotFoundError: If neither is given.
    """
    if data_dir:
        return Path(data_dir)
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            f"The photographs of {data} lie in no place known: name the folder of train/CLASS/* and val/CLASS/*, or of "
            f"shards of them (--data DIR), or set {DATA_VARIABLE}."
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
            holds out; that of Keras is the original archives'.

    Raises:
        ValueError: If the name is unknown, or a file is not such a data set.
        FileNotFoundError: If there are no such data; the message lists the
            places searched.
    """
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS)
        if name in FOLDERS:
            hint = f" {name} is a folder of photographs: name it, DIR/val/CLASS/*, with --data DIR."
        raise ValueError(f"Unknown data set.{hint} Known: {', '.join(DATASETS)}. Received: name={name!r}")
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    if folder:
        return _from_npz(name, Path(folder) / f"{name}.npz")
    return _from_tfds(name) or _downloaded(name)


def _from_npz(name: str, path: Path) -> Dataset:
    if not path.is_file():
        raise FileNotFoundError(
            f"No file {path}. A data folder holds {', '.join(f'{n}.npz' for n in DATASETS)}, each with the arrays "
            "x_train, y_train, x_test, y_test."
        )
    try:
        arrays = read_npz(path, _ARRAYS)
        images = {key: _images(arrays[key], name) for key in ("x_train", "x_test")}
        labels = {key: _labels(arrays[key]) for key in ("y_train", "y_test")}
        classes = _names(arrays["classes"]) if "classes" in arrays else CLASSES[name]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is not a {name} data set: it needs x_train and x_test (uint8 images of shape "
            f"{_SHAPES[name]}), y_train and y_test. Reading it gave: {error}"
        ) from error
    for split in ("train", "test"):
        n, m = len(images[f"x_{split}"]), len(labels[f"y_{split}"])
        if n != m or not n:
            raise ValueError(f"{path} has {n} {split} images but {m} {split} labels.")
    for key, values in labels.items():
        if values.size and not 0 <= values.min() <= values.max() < len(classes):
            label_range = f"{key} from {values.min()} to {values.max()}"
            raise ValueError(f"{path} has {len(classes)} classes, numbered from 0. Received: {label_range}")
    return Dataset(images["x_train"], labels["y_train"], images["x_test"], labels["y_test"], classes)


def _images(x: np.ndarray, name: str) -> np.ndarray:
    shape = _SHAPES[name]
    if x.dtype != np.uint8 or x.shape[1:] not in (shape, shape[:2] if shape[2] == 1 else shape):
        raise ValueError(f"images of dtype {x.dtype} and shape {x.shape}")
    return x.reshape(-1, *shape)


def _labels(y: np.ndarray) -> np.ndarray:
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels of dtype {y.dtype}")
    return y.astype(np.int64).reshape(-1)


def _names(classes: np.ndarray) -> tuple[str, ...]:
    classes = classes.reshape(-1)[: _MOST_CLASSES + 1]
    if classes.dtype.kind == "S":  # as the archives have them, read as bytes
        classes = np.char.decode(classes, "utf-8")
    names = tuple(map(str, classes))
    Items(CLASS_NAME, 1, _MOST_CLASSES).check(names, "classes")
    for i, name in enumerate(names):
        if not name.strip():
            raise ValueError(f"`classes` must be names. Received: {name!r} as the name of class {i}")
    return names


def _downloaded(name: str) -> Dataset:
    """From `keras.datasets`, whose images are channels first where Keras's data format is."""
    try:
        (x_train, y_train), (x_test, y_test) = download(name)
    except OSError as error:
        raise FileNotFoundError(
            f"No data folder for {name}, and it cannot be downloaded ({error}): pass a folder (--data DIR, "
            f'data_dir=...) or set {DATA_VARIABLE}; where there is a network, python -c "import keras; '
            f'keras.datasets.{name}.load_data()" fills ~/.keras/datasets, which can be copied.'
        ) from error
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
    except (ImportError, AssertionError):  # it raises an AssertionError for data that are not prepared
        return None
    (train, test), info = loaded
    (x_train, y_train), (x_test, y_test) = (tuple(np.asarray(a) for a in pair) for pair in (train, test))
    classes = tuple(info.features["label"].names)
    return Dataset(x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), classes)
