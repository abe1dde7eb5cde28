"""Data as users have them: odd tags, empty and hidden files, others' files beside ours, names as bytes."""

import dataclasses
import io
import json
import struct

import keras
import numpy as np
import pytest
from miniatures import batch, miniature
from PIL import Image, ImageOps

import keras_highway as kh
from keras_highway.data import images as image_files
from keras_highway.data import load_dataset, load_image
from keras_highway.data.datasets import holds_shards, is_shard, is_sharded
from keras_highway.data.photographs import class_labels, folder_test_set
from keras_highway.data.ptb import load_corpus, load_split
from keras_highway.data.transforms import imagenet_classes
from keras_highway.report import make_report, write_report
from keras_highway.training import shards
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.shards import ShardSource, read_manifest
from keras_highway.training.recipes import RECIPES

DRAW = np.random.default_rng(0)
IMAGENET = kh.get_transform("imagenet")


def picture(path, size=(12, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(DRAW.integers(0, 256, (*size, 3), np.uint8)).save(path)


def folder(root, files):
    for file in files:
        picture(root / file)
    return root


# --- Images ---------------------------------------------------------------------


def jpeg(orientation, resolution):
    """Of 90x70 pixels, with two tags: the orientation, and a resolution of a type and a value."""
    tags = struct.pack("<HHHI4s", 2, 0x112, 3, 1, struct.pack("<HH", orientation, 0))
    tags += struct.pack("<HHI4s", 0x11A, *resolution)
    content = io.BytesIO()
    exif = b"Exif\0\0II*\0\x08\0\0\0" + tags + b"\0" * 4
    Image.fromarray(DRAW.integers(0, 256, (70, 90, 3), np.uint8)).save(content, "JPEG", exif=exif)
    return content.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations_are_pillows(orientation):
    content = jpeg(orientation, (3, 1, b"\1\0\0\0"))
    with Image.open(io.BytesIO(content)) as image:
        expected = io.BytesIO()
        ImageOps.exif_transpose(image).save(expected, "PNG")
    np.testing.assert_array_equal(load_image(content, IMAGENET), load_image(expected.getvalue(), IMAGENET))


@pytest.mark.parametrize("orientation", [6, 0, 9])
def test_an_odd_tag_beside_the_orientation_is_passed_over(orientation):
    content = jpeg(orientation, (2, 4, b"abc\0"))
    stored = io.BytesIO()
    with Image.open(io.BytesIO(content)) as image:
        (image.transpose(Image.Transpose.ROTATE_270) if orientation == 6 else image.convert("RGB")).save(stored, "PNG")
    np.testing.assert_array_equal(load_image(content, IMAGENET), load_image(stored.getvalue(), IMAGENET))


def test_a_jpeg_that_is_too_large_is_so_in_training_as_well(monkeypatch):
    tf = pytest.importorskip("tensorflow")
    from keras_highway.training.data import decoding
    from keras_highway.training.data.augment import Augment

    content = jpeg(1, (3, 1, b"\1\0\0\0"))
    assert decoding.decoded(content, 3).shape == (70, 90, 3)
    for module in (decoding, image_files):
        monkeypatch.setattr(module, "MOST_PIXELS", 70 * 90 - 1)
    with pytest.raises(image_files.ImageError, match="too large: images of at most 6,299 pixels"):
        load_image(content, IMAGENET, upright=False)
    for read in (lambda: decoding.decoded(content, 3), lambda: Augment((8, 8))(tf.constant(content), [1, 2])):
        with pytest.raises(tf.errors.InvalidArgumentError, match="too large: images of at most 6,299 pixels"):
            read()


def test_images_of_another_size_than_the_mean_image():
    for shape in ((2, 64, 64, 3), (1, 1, 3)):
        with pytest.raises(ValueError, match=r"images of 32x32 pixels, of which a mean image is subtracted.*Received"):
            kh.preprocess_input(np.zeros(shape, "uint8"), "cifar10_19layer.fast")
    with pytest.raises(ValueError, match="images of 32x32 pixels"):
        kh.preprocess_input(np.zeros((3, 64, 32), "uint8"), "cifar10_19layer.fast", data_format="channels_first")
    assert kh.preprocess_input(np.zeros((2, 32, 32, 3), "uint8"), "cifar10_19layer.fast").shape == (2, 32, 32, 3)


# --- Folders --------------------------------------------------------------------


def test_hidden_files_are_no_photographs(tmp_path):
    root = folder(tmp_path, ["val/cat/a.png", "val/eel/b.png"])
    (root / "val" / "cat" / "._a.png").write_bytes(b"what macOS knows of a.png")
    assert [photograph.file.name for photograph in folder_test_set(root, 2).photographs] == ["a.png", "b.png"]


def test_a_class_without_photographs_is_named(tmp_path):
    root = folder(tmp_path, ["val/cat/a.png", "val/dog/monday/a.png", "val/eel/b.png"])
    message = r"val/dog holds no images: .*not in further folders\. Such classes: 1 of 3; put their images there\.$"
    with pytest.raises(ValueError, match=message):
        folder_test_set(root, 3)
    with pytest.raises(ValueError, match="The weights have 3 classes"):  # nor would it do without the folder
        folder_test_set(folder(tmp_path / "rest", ["val/cat/a.png", "val/eel/b.png"]), 3)
    numbers = folder(tmp_path / "numbers", ["0/a.png", "1/none/a.png", "2/b.png"])
    with pytest.raises(ValueError, match="1 of 3; remove the folders to leave these out, or put"):
        folder_test_set(numbers, 3, numbered=True)
    (numbers / "1" / "none" / "a.png").unlink()
    (numbers / "1" / "none").rmdir()
    (numbers / "1").rmdir()
    assert folder_test_set(numbers, 3, numbered=True).images == 2


def test_a_thousand_classes_of_ones_own_are_not_imagenets():
    identifiers = [identifier for identifier, _ in imagenet_classes()]
    own = [f"own {i}" for i in range(1000)]
    with pytest.raises(ValueError, match="The weights' classes are not those of it: it has n01440764"):
        class_labels("it", identifiers, 1000, class_names=own)
    with pytest.raises(ValueError, match="The weights have 1000 classes, it holds 10"):
        class_labels("it", identifiers[:10], 1000, class_names=own)
    words = [name for _, name in imagenet_classes()]
    order = np.random.default_rng(2).permutation(1000)
    labels = class_labels("it", identifiers, 1000, class_names=[words[i] for i in order])
    assert all(words[order[label]] == words[identifiers.index(name)] for name, label in labels.items())
    assert sorted(labels.values()) == list(range(1000))
    for names in ((), [name for _, name in imagenet_classes()], identifiers, list(map(str, range(1000)))):
        assert class_labels("it", identifiers[5:7], 1000, class_names=names) == {identifiers[5]: 5, identifiers[6]: 6}


# --- Shards ---------------------------------------------------------------------


@pytest.fixture
def photographs(tmp_path):
    pytest.importorskip("tensorflow")
    return folder(tmp_path / "in", ["train/a/1.png", "train/b/2.png", "val/a/3.png", "val/b/4.png"])


def test_another_programs_manifest_is_not_replaced(photographs, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    for content in ('{"mine": 1}', "[]", "no JSON"):
        (out / "manifest.json").write_text(content)
        with pytest.raises(ValueError, match=r"manifest\.json is not a manifest of shards but another program's file"):
            shards.write(photographs, out)
        assert (out / "manifest.json").read_text() == content and len(list(out.iterdir())) == 1
    (out / "manifest.json").unlink()
    (out / "annotations.tfrecord").write_bytes(b"another program's, too")
    for _ in range(2):  # its own is replaced
        shards.write(photographs, out)
    assert (out / "annotations.tfrecord").read_bytes() == b"another program's, too"
    assert json.loads((out / "manifest.json").read_text())["classes"] == ["a", "b"]


def test_shards_with_an_image_that_is_too_large_are_made_again_without_it(photographs, tmp_path, monkeypatch, capsys):
    from keras_highway.training.data import decoding

    for split in ("train", "val"):  # written by a version that took any size
        Image.fromarray(np.zeros((50, 40, 3), np.uint8)).save(photographs / split / "a" / "large.jpg")
    assert shards.write(photographs, tmp_path / "out")["splits"]["train"]["images"] == 3
    recipe = dataclasses.replace(RECIPES["resnet50"], batch_size=1, transform="imagenet_64")
    monkeypatch.setattr(decoding, "MOST_PIXELS", 1999)
    with pytest.raises(
        ValueError, match=r"too large: images of at most 1,999 pixels are read.*once more, which leaves it"
    ):
        list(ShardSource(recipe, tmp_path / "out").test_batches(1, Shard()))
    manifest = shards.write(photographs, tmp_path / "out")
    assert manifest["splits"]["train"]["images"] == 2 and manifest["splits"]["val"]["broken"] == ["a/large.jpg"]
    assert len(list(ShardSource(recipe, tmp_path / "out").test_batches(1, Shard()))) == 2


def test_shards_of_one_class_have_nothing_to_tell_apart(tmp_path):
    pytest.importorskip("tensorflow")
    shards.write(folder(tmp_path / "in", ["train/a/1.png", "val/a/3.png"]), tmp_path / "out")
    with pytest.raises(ValueError, match="one class, a: there is nothing to tell apart"):
        ShardSource(RECIPES["resnet50"], tmp_path / "out")


def test_records_of_others_are_no_shards(photographs, tmp_path):
    (photographs / "annotations.tfrecord").write_bytes(b"")
    assert not is_sharded(photographs) and not holds_shards(photographs)
    assert len(folder_test_set(photographs, 2).photographs) == 2
    (tmp_path / "train-00000-of-00001.tfrecord").write_bytes(b"")
    assert is_sharded(tmp_path) and holds_shards(tmp_path)
    assert is_shard("val-00000-of-100001.tfrecord") and not is_shard("val-0-of-1.tfrecord")


def test_what_is_missing_of_shards_is_said(photographs, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No folder .*typo"):
        read_manifest(tmp_path / "typo")
    with pytest.raises(ValueError, match=r"in holds no shards: .*shards DIR --out SHARDS` writes them"):
        read_manifest(photographs)
    (tmp_path / "val-00000-of-00001.tfrecord").write_bytes(b"")
    with pytest.raises(ValueError, match="holds shards that are not finished"):
        read_manifest(tmp_path)


# --- Arrays and corpora ---------------------------------------------------------


def cifar(path, classes):
    x, y = np.zeros((4, 32, 32, 3), np.uint8), np.zeros(4, np.int64)
    np.savez(path / "cifar10.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=classes)


def test_names_of_classes_as_bytes(tmp_path):
    cifar(tmp_path, np.array(["airplane", "café"]).astype("U").view(np.ndarray))
    known = load_dataset("cifar10", tmp_path).classes
    cifar(tmp_path, np.array([b"airplane", "café".encode()]))
    assert load_dataset("cifar10", tmp_path).classes == known == ("airplane", "café")


@pytest.mark.parametrize("classes", [["cat", ""], ["cat", " "], [b"cat", b"\xff"]])
def test_names_that_name_nothing(tmp_path, classes):
    cifar(tmp_path, np.array(classes))
    with pytest.raises(ValueError, match=r"not a cifar10 data set.*(must be names\. Received: '|can't decode)"):
        load_dataset("cifar10", tmp_path)


def test_classes_of_one_name_in_another_order_cannot_be_told_apart():
    with pytest.raises(ValueError, match="it has two classes of the name 'a' in another order"):
        class_labels("it", ["b", "a", "a"], 3, class_names=["a", "a", "b"])


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
    for path in (tmp_path / "ptb").iterdir():
        path.unlink()
    (tmp_path / "valid.txt").unlink()
    assert load_split("train", tmp_path)[:2] == ["my", "own"]
    with pytest.raises(FileNotFoundError, match=rf"No file {tmp_path}/valid\.txt"):
        load_corpus(tmp_path)


# --- Reports --------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_of_lists_and_tensors_into_a_path_of_text(tmp_path):
    model = miniature("dense_stack")
    images, labels = batch(model, 8), np.arange(8) % 4
    given = [
        (keras.ops.convert_to_tensor(images), keras.ops.convert_to_tensor(labels)),
        (images.tolist(), list(labels)),
    ]
    known = make_report(model, (images, labels), "it", samples=8)
    for data in given:
        assert make_report(model, data, "it", samples=8).facts == known.facts
    for wrong in ("it.json", "it", tmp_path / "it.htm"):
        with pytest.raises(ValueError, match=r"\.html file"):
            write_report(known, wrong)
    assert write_report(known, str(tmp_path / "it.html")) == tmp_path / "it.json"
