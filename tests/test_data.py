"""Data sets: from files, TensorFlow Datasets and Keras, and every way in which they can be missing or wrong."""

import importlib
import pickle
import sys
import types

import keras
import numpy as np
import pytest

from keras_highway.data import load_dataset
from keras_highway.data.transforms import CLASSES

SHAPES = {"mnist": (28, 28), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3)}


def arrays(name, train=5, test=3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    classes = 100 if name == "cifar100" else 10
    return {
        "x_train": rng.integers(0, 256, (train, *SHAPES[name]), np.uint8),
        "y_train": rng.integers(0, classes, train),
        "x_test": rng.integers(0, 256, (test, *SHAPES[name]), np.uint8),
        "y_test": rng.integers(0, classes, test),
    }


def write(folder, name, **changes) -> dict[str, np.ndarray]:
    values = {key: value for key, value in (arrays(name) | changes).items() if value is not None}
    np.savez(folder / f"{name}.npz", **values)
    return values


@pytest.mark.parametrize("name", SHAPES)
def test_npz(tmp_path, name):
    values = write(tmp_path, name)
    data = load_dataset(name, tmp_path)
    channels = 1 if name == "mnist" else 3
    assert data.x_train.shape == (5, *SHAPES[name][:2], channels) and data.x_train.dtype == np.uint8
    assert data.y_test.shape == (3,) and data.y_test.dtype == np.int64
    np.testing.assert_array_equal(data.x_test.reshape(values["x_test"].shape), values["x_test"])
    np.testing.assert_array_equal(data.y_train, values["y_train"])
    assert len(data.classes) == (100 if name == "cifar100" else 10)


def test_npz_in_other_forms(tmp_path):
    """Channels on MNIST, a column of labels, as Keras's and the original archives have them."""
    plain = arrays("mnist")
    write(tmp_path, "mnist", x_train=plain["x_train"][..., None], y_train=plain["y_train"].astype(np.uint8)[:, None])
    data = load_dataset("mnist", str(tmp_path))
    np.testing.assert_array_equal(data.x_train[..., 0], plain["x_train"])
    np.testing.assert_array_equal(data.y_train, plain["y_train"])


def test_names_of_classes(tmp_path):
    write(tmp_path, "cifar10")
    assert load_dataset("cifar10", tmp_path).classes == CLASSES["cifar10"]
    assert CLASSES["cifar10"][3] == "cat"
    write(tmp_path, "cifar100", classes=np.array([f"kind {i}" for i in range(100)]))
    assert load_dataset("cifar100", tmp_path).classes[42] == "kind 42"


def test_the_environment_names_the_folder_and_an_argument_wins(tmp_path, monkeypatch):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    write(first, "mnist", y_test=np.array([1, 1, 1]))
    write(second, "mnist", y_test=np.array([2, 2, 2]))
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(first))
    assert load_dataset("mnist").y_test.tolist() == [1, 1, 1]
    assert load_dataset("mnist", second).y_test.tolist() == [2, 2, 2]


def test_unknown_names_have_near_names():
    with pytest.raises(ValueError, match=r"Did you mean 'cifar10.*Received: name='cifar_10'"):
        load_dataset("cifar_10")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"cifar10\.npz.*x_train, y_train, x_test, y_test"):
        load_dataset("cifar10", tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "x_test"),
        ({"x_train": np.zeros((5, 28, 28), np.float32)}, "float32"),
        ({"x_train": np.zeros((5, 32, 32, 3), np.uint8)}, r"\(5, 32, 32, 3\)"),
        ({"y_test": np.arange(4)}, "3 test images but 4 test labels"),
        ({"y_train": np.array(list("abcde"))}, "is not a mnist data set"),
        ({"y_train": np.array([None] * 5)}, "is not a mnist data set"),
        ({"y_train": np.array([0, 1, 2, 3, 10])}, "10 classes"),
        ({"y_test": np.array([0, 1, -1])}, "10 classes"),
    ],
)
def test_files_that_are_no_such_data_set(tmp_path, changes, message):
    write(tmp_path, "mnist", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_dataset("mnist", tmp_path)
    assert "mnist.npz" in str(caught.value)


@pytest.mark.parametrize("kind", ["text", "empty", "truncated", "flipped", "array"])
def test_damaged_files(tmp_path, kind):
    path = tmp_path / "mnist.npz"
    np.savez_compressed(path, **arrays("mnist", 50, 20))
    whole = bytearray(path.read_bytes())
    if kind == "flipped":
        middle = len(whole) // 2
        whole[middle : middle + 40] = bytes(255 - b for b in whole[middle : middle + 40])
    contents = {"text": b"no archive", "empty": b"", "truncated": whole[: len(whole) // 2], "flipped": whole}
    if kind == "array":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        path.write_bytes(contents[kind])
    with pytest.raises(ValueError, match=r"mnist\.npz is not a mnist data set"):
        load_dataset("mnist", tmp_path)


# --- TensorFlow Datasets ----------------------------------------------------------


@pytest.fixture
def no_folder(monkeypatch, tmp_path):
    """Nothing names a folder, and TensorFlow Datasets has prepared nothing."""
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))


def fake_tfds(monkeypatch, load):
    module = types.ModuleType("tensorflow_datasets")
    module.load = load
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", module)


def test_tfds_is_called_without_downloading(monkeypatch, no_folder, tmp_path):
    (tmp_path / "cifar100").mkdir()
    values, requested = arrays("cifar100"), []

    def load(name, **kwargs):
        requested.append((name, kwargs["split"], kwargs["download"]))
        label = types.SimpleNamespace(names=[f"kind {i}" for i in range(100)])
        split = [(values["x_train"], values["y_train"]), (values["x_test"], values["y_test"])]
        return split, types.SimpleNamespace(features={"label": label})

    fake_tfds(monkeypatch, load)
    hidden = []  # the GPUs, from TensorFlow, before it reads
    monkeypatch.setattr("keras_highway.data.datasets.tensorflow", lambda: hidden.append(len(requested)))
    data = load_dataset("cifar100")
    assert requested == [("cifar100", ["train", "test"], False)] and hidden == [0]
    np.testing.assert_array_equal(data.x_test, values["x_test"])
    assert data.y_train.dtype == np.int64 and data.classes[7] == "kind 7"


# --- Keras's downloads ---------------------------------------------------------------


def keras_files(folder, name) -> dict[str, np.ndarray]:
    """What Keras would download, as it lies on the disk once it is there; images of a few distinct pixels."""
    rng = np.random.default_rng(2)
    if name == "mnist":
        values = arrays(name)
        np.savez(folder / "mnist.npz", **values)
        return values

    def split(n, labels):
        x = rng.integers(0, 256, (n, 32, 32, 3), np.uint8)
        y = rng.integers(0, labels, n)
        return x, y

    def write_batch(path, x, y, key):
        rows = {b"data": x.transpose(0, 3, 1, 2).reshape(len(x), -1), key: y.tolist()}
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(pickle.dumps(rows))

    if name == "cifar100":
        splits = {"train": split(5, 100), "test": split(3, 100)}
        for part, (x, y) in splits.items():
            write_batch(folder / "cifar-100-python" / part, x, y, b"fine_labels")
    else:  # of 10,000 images each, which Keras takes for granted
        splits = {"train": split(5, 10), "test": split(3, 10)}
        batches = folder / "cifar-10-batches-py"
        x, y = splits["train"]
        for i in range(5):
            images = np.broadcast_to(x[i], (10_000, 32, 32, 3))
            write_batch(batches / f"data_batch_{i + 1}", images, np.full(10_000, y[i]), b"labels")
        write_batch(batches / "test_batch", *splits["test"], b"labels")
    return {f"{k}_{part}": v for part, pair in splits.items() for k, v in zip("xy", pair, strict=True)}


@pytest.mark.parametrize("name", ["mnist", "cifar100", pytest.param("cifar10", marks=pytest.mark.slow)])
@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_without_a_folder_keras_downloads(monkeypatch, no_folder, tmp_path, name, data_format, capsys):
    values = keras_files(tmp_path, name)
    requested = []

    def get_file(*args, **kwargs):
        requested.append(kwargs)
        print("Downloading data from ...")
        return str(tmp_path / "mnist.npz" if name == "mnist" else tmp_path)

    monkeypatch.setattr(importlib.import_module(f"keras.src.datasets.{name}"), "get_file", get_file)
    before = keras.config.image_data_format()
    keras.config.set_image_data_format(data_format)
    try:
        data = load_dataset(name)
    finally:
        keras.config.set_image_data_format(before)
    assert len(requested) == 1 and len(requested[0]["file_hash"]) == 64  # compared by Keras
    np.testing.assert_array_equal(data.x_test.reshape(values["x_test"].shape), values["x_test"])
    step = 10_000 if name == "cifar10" else 1  # the five training files, one after the other
    np.testing.assert_array_equal(data.x_train[::step].reshape(values["x_train"].shape), values["x_train"])
    np.testing.assert_array_equal(data.y_train[::step], values["y_train"])
    assert data.y_train.dtype == data.y_test.dtype == np.int64 and data.y_test.shape == (3,)
    assert data.classes == CLASSES[name] and data.x_train.flags["C_CONTIGUOUS"] == data.x_test.flags["C_CONTIGUOUS"]
    output = capsys.readouterr()
    assert "Downloading" in output.err and not output.out


def test_without_folder_and_network_the_message_states_what_to_do(monkeypatch, no_folder):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on https://somewhere/mnist.npz: None -- [Errno -2] Name not known")

    monkeypatch.setattr("keras.src.datasets.mnist.get_file", get_file)
    with pytest.raises(FileNotFoundError) as error:
        load_dataset("mnist")
    message = str(error.value)
    assert "\n" not in message and "cannot be downloaded (URL fetch failure on https://somewhere" in message
    for remedy in ("--data DIR", "KERAS_HIGHWAY_DATA", "keras.datasets.mnist.load_data()", "~/.keras/datasets"):
        assert remedy in message


# --- The real thing ----------------------------------------------------------------


def test_mnist_itself(data_dir):
    if not (data_dir / "mnist.npz").exists():
        pytest.skip("needs mnist.npz in KERAS_HIGHWAY_DATA")
    data = load_dataset("mnist", data_dir)
    assert data.x_train.shape == (60_000, 28, 28, 1) and data.x_test.shape == (10_000, 28, 28, 1)
    assert np.bincount(data.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.x_train.mean() == pytest.approx(33.3184, abs=1e-3)  # the published mean, 0.1307 * 255
