"""Images and folders of one's own as they come: numbers for names, CMYK, folders among images, wrong transforms."""

import dataclasses
import io
import json

import keras
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.analysis.lesions import without
from keras_highway.cli import main
from keras_highway.data import load_image
from keras_highway.data.datasets import sample_digits
from keras_highway.data.images import ImageError
from keras_highway.data.photographs import class_labels, photographs_of
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.predictions import find_classifier
from keras_highway.training import shards
from keras_highway.training.data.augment import Augment
from keras_highway.training.data.decoding import decoded
from keras_highway.training.program import _bring_to_classes
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import file as weights_file

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


def digit_folders(folder, names):
    """One photograph of a digit for each class."""
    for path, name in zip(sample_digits(), names, strict=True):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.png").write_bytes(path.read_bytes())
    return folder


# --- Classes by name ----------------------------------------------------------


def test_a_class_that_is_missing_is_named():
    with pytest.raises(ValueError, match=r"have 3 classes, DIR holds 2\. Not there: b\."):
        class_labels("DIR", ["a", "c"], 3, class_names=["a", "b", "c"])


@pytest.mark.slow
def test_names_of_ones_own_stay_where_a_data_set_is_requested(tmp_path, capsys):
    kh.save(kh.load("mnist10_w16.tvdn"), tmp_path / "words", class_names=WORDS)
    folder = digit_folders(tmp_path / "digits", WORDS)
    for more in ([], ["--data-set", "mnist"]):
        command = ["evaluate", str(tmp_path / "words"), "--data", str(folder), "--json", *more]
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)["top1"] == 1.0
    command = ["classify", str(folder / "zero" / "a.png"), "--weights", str(tmp_path / "words"), "--json", *more]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["images"][0]["predictions"][0]["name"] == "zero"


@pytest.mark.slow
def test_names_of_a_thousand_classes_of_ones_own_stay_too(tmp_path):
    net = kh.create_model("highway20", classes=1000)
    transform = dataclasses.replace(TRANSFORMS["imagenet"], size=(32, 32))
    kh.save(net, tmp_path / "mine", [f"mine{i}" for i in range(1000)], transform)
    assert find_classifier(str(tmp_path / "mine"), "imagenet").classes[1] == ("1", "mine1")


@pytest.mark.parametrize(
    ("donor", "names", "kept"),
    [
        ("mnist10_w16.tvdn", list("abcdefghij"), False),  # MNIST's digits are names
        (WORDS, [str(i) for i in range(10)], True),  # nor where the data do not name theirs
        ([str(i) for i in range(10)], WORDS, True),  # nothing is known of the donor's
        (WORDS, WORDS, True),
        ("a run", list("abcdefghij"), False),  # of MNIST; it does not record the digits
        ("a run", [str(i) for i in range(10)], True),
    ],
)
def test_a_head_of_other_classes_is_drawn_anew(tmp_path, donor, names, kept):
    if isinstance(donor, list):
        kh.save(kh.load("mnist10_w16.tvdn"), tmp_path / "donor", class_names=donor)
        donor = tmp_path / "donor"
    if donor == "a run":
        donor = tmp_path
        model = kh.create_model("mnist10_w16")
        weights_file.save(model, tmp_path / "model.weights.h5", "mnist10_w16", 10, transform="mnist")
        result = {"data": "mnist", "metric": "accuracy", "mean": 0.5, "std": None, "n": 1}
        (tmp_path / "result.json").write_text(json.dumps(result))
    net = kh.load(donor)
    before = net.get_layer("head").get_weights()[0]
    _bring_to_classes(net, changed(RECIPES["mnist10_w16"], data="imagenette"), tuple(names))
    assert np.array_equal(net.get_layer("head").get_weights()[0], before) == kept


# --- Files --------------------------------------------------------------------


def test_a_cmyk_image_is_read_in_grey(tmp_path):
    tf = pytest.importorskip("tensorflow")
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 4), "uint8")
    Image.fromarray(pixels, "CMYK").resize((60, 80)).save(tmp_path / "c.jpg", quality=95)
    content = (tmp_path / "c.jpg").read_bytes()
    transform = dataclasses.replace(TRANSFORMS["mnist"], size=(80, 60))
    expected = load_image(tmp_path / "c.jpg", transform, upright=False)
    np.testing.assert_array_equal(np.asarray(decoded(tf.constant(content), 1)), expected)
    augment = Augment((28, 28), channels=1, mean=(0.0,))
    assert np.asarray(augment(tf.constant(content), tf.constant([0, 1], tf.int64))).shape == (28, 28, 1)


def test_a_folder_named_like_an_image_is_none(tmp_path):
    (tmp_path / "a" / "dir.jpg").mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / "B.JPG")
    (tmp_path / "a" / ".jpg").write_bytes(b"")  # a hidden file without a suffix
    (tmp_path / "a" / "self.jpg").symlink_to("self.jpg")  # whatever reads it reports it
    assert [path.name for _, paths in photographs_of(tmp_path, ["a"]) for path in paths] == ["B.JPG", "self.jpg"]


def test_shards_leave_out_a_link_to_nothing(tmp_path):
    pytest.importorskip("tensorflow")
    for split in ("train", "val"):
        (tmp_path / "in" / split / "a").mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "in" / split / "a" / "b.jpg")
    (tmp_path / "in" / "train" / "a" / "c.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (tmp_path / "in" / "train" / "a" / "d.jpg").symlink_to("d.jpg")
    times = []
    for _ in range(2):  # and again, of the shards that are there
        manifest = shards.write(tmp_path / "in", tmp_path / "out")
        assert manifest["splits"]["train"]["images"] == 1
        assert manifest["splits"]["train"]["broken"] == ["a/c.jpg", "a/d.jpg"]
        times.append((tmp_path / "out" / manifest["splits"]["train"]["shards"][0]["file"]).stat().st_mtime_ns)
    assert times[0] == times[1]
    Image.new("RGB", (9, 9)).save(tmp_path / "nowhere.jpg")  # what was left out is mended
    assert shards.write(tmp_path / "in", tmp_path / "out")["splits"]["train"]["images"] == 2


@pytest.mark.slow
def test_a_folder_that_is_not_there_or_holds_none_is_named(tmp_path, capsys):
    kh.save(kh.load("mnist10_w16.tvdn"), tmp_path / "words", class_names=WORDS)
    (tmp_path / "flat").mkdir()
    arrays = {
        f"{part}_{split}": np.zeros((1, 28, 28) if part == "x" else 1, "uint8")
        for part in "xy"
        for split in ("train", "test")
    }
    (tmp_path / "arrays").mkdir()
    np.savez(tmp_path / "arrays" / "mnist.npz", **arrays)
    digit_folders(tmp_path / "arrays" / "val", WORDS)
    not_named = r"words does not name its data set: pass --data-set"
    for folder, message in (("nope", "nope is not a folder"), ("flat", not_named), ("arrays", not_named)):
        assert main(["evaluate", str(tmp_path / "words"), "--data", str(tmp_path / folder)]) == 2
        assert message in capsys.readouterr().err
    command = ["evaluate", str(tmp_path / "words"), "--data", str(tmp_path / "arrays"), "--data-set", "mnist", "--json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 1  # of the arrays, not of the folders beside them
    folder = digit_folders(tmp_path / "data" / "val", WORDS).parent
    (folder / "features.npz").write_bytes(b"")  # somebody's, not a data set's
    assert main(["evaluate", str(tmp_path / "words"), "--data", str(folder)]) == 0


# --- Arguments ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interpolation": "lanczos"}, "`interpolation` of a transform must be 'bicubic' or 'bilinear'"),
        ({"channels": 4}, "`channels` of a transform must be 1 or 3"),
        ({"crop": 0.0}, "`crop` of a transform must be a number in"),
        ({"channels": 3, "mean": (0.5, 0.5)}, "`mean` of a transform must be numbers"),
        ({"std": ()}, "`std` of a transform"),
        ({"size": (28,)}, "`size` of a transform must be height and width"),
        ({"size": 28}, "`size` of a transform must be height and width"),
        ({"size": (28.5, 28)}, "`size` of a transform must be height and width, whole numbers"),
        ({"channels": 3.0}, "`channels` of a transform must be 1 or 3"),
        ({"scale": float("nan")}, "`scale` of a transform must be a positive number"),
        ({"crop": "0.9"}, "`crop` of a transform must be a number in"),
        ({"mean": 0.5}, "`mean` of a transform must be numbers"),
        ({"std": (0.0,)}, "`std` of a transform must be positive numbers"),
        (
            {"mean_image": "nope", "contrast": True},
            "`mean_image` of a transform must be one of cifar10, cifar100, or ''",
        ),
    ],
)
def test_a_transform_that_no_image_could_go_through(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TRANSFORMS["mnist"], **changes)


def test_an_image_may_be_its_content(tmp_path):
    Image.fromarray(np.arange(784, dtype="uint16").reshape(28, 28).astype("uint8")).save(tmp_path / "a.png")
    content = (tmp_path / "a.png").read_bytes()
    expected = load_image(tmp_path / "a.png", TRANSFORMS["mnist"])
    for same in (content, io.BytesIO(content)):
        np.testing.assert_array_equal(load_image(same, TRANSFORMS["mnist"]), expected)
    with pytest.raises(ImageError, match=r"^an image: not an image file"):
        load_image(b"nothing", TRANSFORMS["mnist"])
    with (tmp_path / "a.png").open("rb") as file, pytest.raises(TypeError, match=r"or its content.*BufferedReader"):
        load_image(file, TRANSFORMS["mnist"])
    with pytest.raises(TypeError, match=r"keras_highway\.get_transform\('mnist'\)"):
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
        with pytest.raises(ValueError, match=r"is not that of weights that it was loaded from.*pass classes="):
            kh.decode_predictions(np.eye(n), weights=net)
    trimmed = without(kh.load("mnist10_w16.tvdn"), ["stage1_block2"])
    assert kh.decode_predictions(np.eye(10), 1, weights=trimmed)[3][0].name == "3"
    names = np.array(["a", "b", "c"])
    assert kh.decode_predictions(np.eye(3), 1, weights=names)[1][0].name == "b"
    assert kh.decode_predictions(np.eye(10), 1, weights=kh.load("mnist10_w16.tvdn"))[3][0].name == "3"


@pytest.mark.slow
def test_what_to_change_where_a_model_has_other_channels(tmp_path):
    with pytest.warns(kh.FreshHead):
        net = kh.load("highway20.blog", input_shape=(32, 32, 1), classes=3)
    with pytest.raises(ValueError, match=r"dataclasses\.replace\(transform, channels=1, mean=\(m,\), std=\(s,\)\)"):
        kh.save(net, tmp_path / "grey")
    for channels, message in ((3, "channels=3, mean="), (2, "are for images of 1 or 3 channels, and the model takes")):
        with pytest.warns(kh.FreshHead):
            other = kh.load("mnist10_w16.tvdn", input_shape=(28, 28, channels), classes=3)
        with pytest.raises(ValueError, match=message):
            kh.save(other, tmp_path / "other")
    grey = dataclasses.replace(kh.get_transform("highway20.blog"), channels=1, mean=(0.5,), std=(0.25,))
    kh.save(net, tmp_path / "grey", transform=grey)
    assert keras.ops.shape(kh.load(tmp_path / "grey").input)[-1] == 1
