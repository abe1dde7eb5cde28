"""Data sets: from files, TensorFlow Datasets and Keras, and every way in which they can be missing or wrong."""

import io
import sys
import types

import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.analysis.lesions import without
from keras_highway.data import images as image_files
from keras_highway.data import load_dataset, load_image
from keras_highway.data.images import ImageError
from keras_highway.data.photographs import class_labels, folder_test_set, photographs_of
from keras_highway.data.ptb import load_corpus, load_split
from keras_highway.data.transforms import CLASSES, TRANSFORMS, imagenet_classes

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


def test_names_of_classes(tmp_path):
    write(tmp_path, "cifar10")
    assert load_dataset("cifar10", tmp_path).classes == CLASSES["cifar10"]
    assert CLASSES["cifar10"][3] == "cat"
    write(tmp_path, "cifar100", classes=np.array([f"kind\u200c\u00a0{i}" for i in range(100)]))
    assert load_dataset("cifar100", tmp_path).classes[42] == "kind\u200c\u00a042"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "x_test"),
        ({"x_train": np.zeros((5, 28, 28), np.float32)}, "float32"),
        ({"y_test": np.arange(4)}, "each of 3 images"),
        ({"y_train": np.array(list("abcde"))}, "is not a mnist data set"),
        ({"y_test": np.array([0, 1, -1])}, "from 0 to 9"),
    ],
)
def test_files_that_are_no_such_data_set(tmp_path, changes, message):
    write(tmp_path, "mnist", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        load_dataset("mnist", tmp_path)
    assert "mnist.npz" in str(caught.value)


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


def test_without_a_folder_keras_downloads(monkeypatch, no_folder, tmp_path, capsys):
    values, requested = write(tmp_path, "mnist"), []

    def get_file(*args, **kwargs):
        requested.append(kwargs)
        print("Downloading data from ...")
        return str(tmp_path / "mnist.npz")

    monkeypatch.setattr("keras.src.datasets.mnist.get_file", get_file)
    data = load_dataset("mnist")
    assert len(requested) == 1 and len(requested[0]["file_hash"]) == 64  # compared by Keras
    np.testing.assert_array_equal(data.x_test.reshape(values["x_test"].shape), values["x_test"])
    assert data.y_train.dtype == data.y_test.dtype == np.int64 and data.classes == CLASSES["mnist"]
    output = capsys.readouterr()
    assert "Downloading" in output.err and not output.out


def test_without_folder_and_network_the_message_states_what_to_do(monkeypatch, no_folder):
    def get_file(*args, **kwargs):
        raise Exception("URL fetch failure on https://somewhere/mnist.npz: None -- [Errno -2] Name not known")

    monkeypatch.setattr("keras.src.datasets.mnist.get_file", get_file)
    with pytest.raises(FileNotFoundError) as error:
        load_dataset("mnist")
    message = str(error.value)
    assert "\n" not in message and "the download failed (URL fetch failure on https://somewhere" in message
    for remedy in ("--data DIR", "KERAS_HIGHWAY_DATA", "keras.datasets.mnist.load_data()", "~/.keras/datasets"):
        assert remedy in message


def test_mnist_itself(data_dir):
    if not (data_dir / "mnist.npz").exists():
        pytest.skip("needs mnist.npz in KERAS_HIGHWAY_DATA")
    data = load_dataset("mnist", data_dir)
    assert data.x_train.shape == (60_000, 28, 28, 1) and data.x_test.shape == (10_000, 28, 28, 1)
    assert np.bincount(data.y_test).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.x_train.mean() == pytest.approx(33.3184, abs=1e-3)  # the published mean, 0.1307 * 255


DRAW = np.random.default_rng(0)
IMAGENET = kh.get_transform("imagenet")


def picture(path, size=(12, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(DRAW.integers(0, 256, (*size, 3), np.uint8)).save(path)


def folder(root, files):
    for file in files:
        picture(root / file)
    return root


def test_a_jpeg_that_is_too_large_is_so_in_training_as_well(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    from keras_highway.training.data import augment as decoding
    from keras_highway.training.data.augment import Augment

    file = io.BytesIO()
    Image.fromarray(DRAW.integers(0, 256, (70, 90, 3), np.uint8)).save(file, "JPEG")
    content = file.getvalue()
    assert decoding.decoded(content, 3).shape == (70, 90, 3)
    for module in (decoding, image_files):
        monkeypatch.setattr(module, "MOST_PIXELS", 70 * 90 - 1)
    with pytest.raises(image_files.ImageError, match="too large: images of at most"):
        load_image(content, IMAGENET)
    for read in (lambda: decoding.decoded(content, 3), lambda: Augment((8, 8))(tf.constant(content), [1, 2])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large: images of at most 6,299 pixels"):
            read()


def test_a_class_without_photographs_is_named(tmp_path):
    root = folder(tmp_path, ["val/cat/a.png", "val/dog/monday/a.png", "val/eel/b.png"])
    with pytest.raises(ValueError, match="val/dog contains no images"):
        folder_test_set(root, 3)
    with pytest.raises(ValueError, match="The weights have 3 classes"):  # nor would it do without the folder
        folder_test_set(folder(tmp_path / "rest", ["val/cat/a.png", "val/eel/b.png"]), 3)
    numbers = folder(tmp_path / "numbers", ["0/a.png", "1/none/a.png", "2/b.png"])
    with pytest.raises(ValueError, match=r"1 contains no images.*remove the folder"):
        folder_test_set(numbers, 3, numbered=True)
    (numbers / "1" / "none" / "a.png").unlink()
    (numbers / "1" / "none").rmdir()
    (numbers / "1").rmdir()
    assert folder_test_set(numbers, 3, numbered=True).images == 2


def test_a_thousand_classes_of_ones_own_are_not_imagenets():
    identifiers = [identifier for identifier, _ in imagenet_classes()]
    own = [f"own {i}" for i in range(1000)]
    with pytest.raises(ValueError, match="it has "):
        class_labels("it", identifiers, 1000, class_names=own)
    with pytest.raises(ValueError, match="The weights have 1000 classes, it has 10"):
        class_labels("it", identifiers[:10], 1000, class_names=own)
    words = [name for _, name in imagenet_classes()]
    order = np.random.default_rng(2).permutation(1000)
    labels = class_labels("it", identifiers, 1000, class_names=[words[i] for i in order])
    assert all(words[order[label]] == words[identifiers.index(name)] for name, label in labels.items())
    assert sorted(labels.values()) == list(range(1000))
    for names in ((), [name for _, name in imagenet_classes()], identifiers, list(map(str, range(1000)))):
        assert class_labels("it", identifiers[5:7], 1000, class_names=names) == {identifiers[5]: 5, identifiers[6]: 6}


@pytest.mark.parametrize("class_names", [(), tuple(map(str, range(12))), tuple(f"class {i}" for i in range(12))])
def test_folders_named_by_numbers_are_matched_by_number(class_names):
    numbers = {str(i): i for i in range(12)}
    assert class_labels("it", sorted(numbers), 12, class_names=class_names) == numbers


def test_weights_trained_in_text_order_are_matched_by_name():
    names = sorted(map(str, range(12)))
    assert class_labels("it", names, 12, class_names=names) == {name: i for i, name in enumerate(names)}


def test_a_folder_is_a_corpus_before_one_in_it(tmp_path):
    def write(root, prefix, words, splits=("train", "valid", "test")):
        root.mkdir(exist_ok=True)
        for split in splits:
            (root / f"{prefix}{split}.txt").write_text(words)

    write(tmp_path / "ptb", "ptb.", "treebank sentence\n")
    write(tmp_path, "", "my own\n", ["test"])  # no corpus
    assert load_corpus(tmp_path).vocabulary.words[2:] == ("treebank", "sentence")
    assert load_split("test", tmp_path)[:2] == ["treebank", "sentence"]
    (tmp_path / "ptb" / "ptb.test.txt").unlink()
    assert load_split("test", tmp_path)[:2] == ["my", "own"]  # what is asked for is there
    assert load_split("train", tmp_path)[:2] == ["treebank", "sentence"]
    with pytest.raises(FileNotFoundError, match=rf"No file {tmp_path}/ptb/test\.txt"):
        load_corpus(tmp_path)
    write(tmp_path / "ptb", "ptb.", "treebank sentence\n")
    write(tmp_path, "", "my own words\n")
    assert load_corpus(tmp_path).vocabulary.words[2:] == ("my", "own", "words")
    assert load_split("test", tmp_path)[:3] == ["my", "own", "words"]


def test_a_folder_named_like_an_image_is_left_out(tmp_path):
    (tmp_path / "a" / "dir.jpg").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / "B.JPG")
    (tmp_path / "a" / ".jpg").write_bytes(b"")  # a hidden file without a suffix
    (tmp_path / "a" / "self.jpg").symlink_to("self.jpg")  # whatever reads it reports it
    (tmp_path / "a" / "notes.txt").write_bytes(b"")
    (tmp_path / "a" / "scan.tiff").write_bytes(b"")
    with pytest.warns(kh.Notice, match=r"2 files or folders in the classes of .* were left out, e.g. .*dir\.jpg"):
        names = [path.name for _, paths in photographs_of(tmp_path, ["a"]) for path in paths]
    assert names == ["B.JPG", "scan.tiff", "self.jpg"]


def test_an_image_may_be_its_content(tmp_path):
    Image.fromarray(np.arange(784, dtype="uint16").reshape(28, 28).astype("uint8")).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    expected = load_image(tmp_path / "a.png", TRANSFORMS["mnist"])
    for same in (content, io.BytesIO(content)):
        np.testing.assert_array_equal(load_image(same, TRANSFORMS["mnist"]), expected)
    with pytest.raises(ImageError, match=r"^an image: not an image file"):
        load_image(b"nothing", TRANSFORMS["mnist"])
    with (tmp_path / "a.png").open("rb") as file, pytest.raises(TypeError, match="BufferedReader"):
        load_image(file, TRANSFORMS["mnist"])
    with pytest.raises(TypeError, match="`transform` a Transform"):
        load_image(tmp_path / "a.png", "mnist")
    with pytest.raises(TypeError, match="`transform` must be a Transform"):
        kh.layers.Preprocessing("mnist")


def test_predictions_of_nets_that_were_made_of_loaded_ones():
    digits = np.zeros((2, 28, 28, 1), "uint8")
    with pytest.warns(kh.FreshHead):
        fresh = kh.load("mnist10_w16.tvdn", classes=3)
    again = kh.reset_classifier(kh.load("mnist10_w16.tvdn"), 10)
    for net in (fresh, again):
        expected = kh.preprocess_input(digits, weights="mnist10_w16.tvdn")
        np.testing.assert_array_equal(kh.preprocess_input(digits, weights=net), expected)
    for net, n in ((fresh, 3), (again, 10)):
        with pytest.raises(ValueError, match=r"are unknown: pass classes="):
            kh.decode_predictions(np.eye(n), weights=net)
    trimmed = without(kh.load("mnist10_w16.tvdn"), ["stage1_block2"])
    assert kh.decode_predictions(np.eye(10), 1, weights=trimmed)[3][0].name == "3"
    names = np.array(["a", "b", "c"])
    assert kh.decode_predictions(np.eye(3), 1, weights=names)[1][0].name == "b"
    assert kh.decode_predictions(np.eye(10), 1, weights=kh.load("mnist10_w16.tvdn"))[3][0].name == "3"
