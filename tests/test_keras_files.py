"""`.keras` files: our networks load as they were saved; other files and code are refused in a sentence."""

import json
import warnings
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data import load_image
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.export import fold_batch_norm, load_exportable
from keras_highway.predictions import find_classifier
from keras_highway.weights.info import WeightFileError
from keras_highway.weights.keras_archive import describe

SAMPLES = Path(__file__).parents[1] / "samples"
SEVEN = str(SAMPLES / "digit_7.png")
SMALL = {"blocks": (1, 1), "widths": (4, 8), "stem_width": 8}


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """A trained network as `model.save` leaves it, compiled, and of logits."""
    path = tmp_path_factory.mktemp("digits") / "mine.keras"
    model = kh.load("mnist10_w32.tvdn", classifier_activation=None, name="mine")
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.save(path)
    return path


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """One that normalizes photographs of any size itself, of classes that no data set has."""
    path = tmp_path_factory.mktemp("photographs") / "net.keras"
    model = kh.create_model("resnet50", classes=3, include_preprocessing=TRANSFORMS["imagenet_64"], **SMALL)
    model.save(path)
    return path


def rewritten(path, target, change):
    """A copy of a file with another configuration."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            if info.filename == "config.json":
                config = json.loads(content)
                change(config)
                content = json.dumps(config)
            new.writestr(info.filename, content)
    return target


def test_load_gives_what_was_saved(digits):
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    expected = kh.load("mnist10_w32.tvdn", classifier_activation=None)(x)
    model = kh.load(digits)
    np.testing.assert_allclose(model(x), expected, atol=1e-6)
    scores = kh.load(digits, classifier_activation="softmax")(x)
    np.testing.assert_allclose(scores, keras.ops.softmax(expected), atol=1e-6)
    assert kh.get_transform(model) == kh.get_transform(str(digits)) == TRANSFORMS["mnist"]
    assert kh.decode_predictions(np.eye(10), top=1, weights=model)[3][0].name == "3"
    with pytest.raises(ValueError, match="a whole model: leave out classes, include_top"):
        kh.load(digits, include_top=False, classes=3)
    with pytest.raises(WeightFileError, match="a whole model and not weights for 'mnist10_w32'"):
        kh.create_model("mnist10_w32", weights=digits)


@pytest.mark.filterwarnings("default::keras_highway._support.terminal.Notice")
def test_classify_names_its_assumptions(digits, capsys):
    assert main(["classify", SEVEN, "--weights", str(digits), "--top", "1"]) == 0
    output = capsys.readouterr()
    assert output.out.split()[1:] == ["7", "100.00", "%"]  # probabilities, though the model gives logits
    assert output.err.startswith("note: ") and "mnist is assumed" in output.err and "--data-set" in output.err
    assert main(["classify", SEVEN, "--weights", str(digits), "--data-set", "mnist", "--top", "1"]) == 0
    again = capsys.readouterr()
    assert again.out == output.out and not again.err


@pytest.mark.filterwarnings("default::keras_highway._support.terminal.Notice")
def test_evaluate_measures_it(digits, tmp_path, capsys):
    x = np.stack([load_image(SAMPLES / f"digit_{k}.png", TRANSFORMS["mnist"]) for k in range(10)])
    y = np.arange(10)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert main(["evaluate", str(digits), "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == 1.0


def test_a_model_that_normalizes_is_fed_with_pixels(photographs, capsys):
    classifier = find_classifier(str(photographs))
    assert (classifier.transform.size, classifier.transform.scale, classifier.data) == ((64, 64), 1.0, "")
    pixels = load_image(SEVEN, classifier.transform)
    inside = np.asarray(classifier.model()(classifier.transform.apply(pixels[None])))
    outside = np.asarray(kh.load(photographs)(pixels[None].astype("float32")))
    np.testing.assert_allclose(inside, outside, atol=1e-6)
    assert main(["classify", SEVEN, "--weights", str(photographs), "--top", "3"]) == 0
    out, err = capsys.readouterr()
    assert {word for word in out.split()[1:] if word.isdecimal()} == {"0", "1", "2"} and not err


def test_unknown_preprocessing_is_an_error(tmp_path, capsys):
    kh.create_model("resnet50", classes=3, input_shape=(32, 32, 3), **SMALL).save(tmp_path / "x.keras")
    assert main(["classify", SEVEN, "--weights", str(tmp_path / "x.keras")]) == 2
    error = capsys.readouterr().err
    assert "preprocessing for" in error and "x.keras is unknown" in error and "--data-set" in error
    assert main(["classify", SEVEN, "--weights", str(tmp_path / "x.keras"), "--data-set", "cifar10"]) == 0
    out, _ = capsys.readouterr()
    assert {word for word in out.split()[1:] if word.isdecimal()} == {"0", "1", "2"}  # not cifar10's names
    assert main(["classify", SEVEN, "--weights", str(tmp_path / "x.keras"), "--data-set", "mnist"]) == 2
    assert "takes images of 32x32x3, but images of mnist are 28x28x1" in capsys.readouterr().err


def test_it_is_exported(digits):
    part = load_exportable(str(digits))
    assert part.model.layers[-1].activation is keras.activations.softmax and part.spec is None
    assert load_exportable(str(digits), logits=True).model.layers[-1].activation is keras.activations.linear
    with pytest.raises(ValueError, match="leave any_size out"):
        load_exportable(str(digits), any_size=True)
    with pytest.raises(ValueError, match=r"keras_highway\.save"):
        fold_batch_norm(part.model, part.spec)


@pytest.mark.slow
@pytest.mark.filterwarnings("default::keras_highway._support.terminal.Notice")
def test_it_is_reported_on(digits, tmp_path, capsys):
    x = np.stack([load_image(SAMPLES / f"digit_{k}.png", TRANSFORMS["mnist"]) for k in range(10)])
    y = np.arange(10)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    out = str(tmp_path / "report.html")
    assert main(["report", str(digits), "--data", str(tmp_path), "--out", out, "--samples", "10"]) == 0
    assert json.loads((tmp_path / "report.json").read_text())["accuracy"] == 1.0


@pytest.mark.parametrize("name", ["exclusive20", "plain_fc10"])
def test_every_kind_of_net_is_let_through(name, tmp_path):
    model = kh.create_model(name, **({"depth": 2} if name == "plain_fc10" else {}))
    model.save(tmp_path / "net.keras")
    archive = describe(tmp_path / "net.keras")
    assert (archive.info.variant, archive.classes) == (name, model.output_shape[1])
    assert archive.input_shape == model.input_shape[1:]


def plain_keras(path):
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Flatten()(inputs)
    keras.Model(inputs, keras.layers.Dense(2, activation="softmax", name="head")(x), name="theirs").save(path)


def too_dense(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", "[" + " " * 10_000_000 + "]")
        archive.writestr("model.weights.h5", "")


def quantized(path):
    net = kh.create_model("highway_fc10", depth=3, units=4, input_shape=(4, 4, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about layers that stay in float
        net.quantize("int8")
    net.save(path)


@pytest.mark.parametrize(
    "make, message",
    [
        (plain_keras, "is not an image classifier of keras_highway"),
        (quantized, "names 'Int8QuantizationConfig'"),
        (too_dense, "more content than it can hold"),
    ],
)
def test_other_files_are_refused_in_one_line(make, message, tmp_path, capsys):
    path = tmp_path / "x.keras"
    make(path)
    for door in (kh.load, kh.describe_weights):
        with pytest.raises(WeightFileError, match=rf"x\.keras.*{message}|{message}.*x\.keras"):
            door(path)
    assert main(["classify", SEVEN, "--weights", str(path)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("keras_highway: error: ") and output.count("\n") == 1


def change_of(key, value, kind=None):
    """Sets an entry of the last layer's configuration, or of the first layer of a class."""

    def change(config):
        layers = config["config"]["layers"]
        (layer, *_) = layers[-1:] if kind is None else [one for one in layers if one["class_name"] == kind]
        layer["config"][key] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        change_of("name", None),
        change_of("transform", {"size": [200000, 200000], "channels": 3, "scale": 1.0}, "Preprocessing"),
        lambda config: config["config"].pop("layers"),
    ],
)
def test_a_malformed_configuration_is_refused_in_one_line(change, photographs, tmp_path, capsys):
    path = rewritten(photographs, tmp_path / "x.keras", change)
    with pytest.raises(WeightFileError, match=r"x\.keras"):
        kh.load(path)
    assert main(["classify", SEVEN, "--weights", str(path)]) == 2
    output = capsys.readouterr().err
    assert output.startswith("keras_highway: error: ") and output.count("\n") == 1


def test_damaged_weights_and_weights_of_other_networks_are_refused(digits, photographs, tmp_path):
    kh.load("mnist10_w16.tvdn").save(tmp_path / "narrow.keras")
    path = tmp_path / "x.keras"
    for other in (photographs, tmp_path / "narrow.keras"):
        with zipfile.ZipFile(digits) as old, zipfile.ZipFile(other) as donor, zipfile.ZipFile(path, "w") as new:
            new.writestr("metadata.json", old.read("metadata.json"))
            new.writestr("config.json", old.read("config.json"))
            new.writestr("model.weights.h5", donor.read("model.weights.h5"))
        with pytest.raises(WeightFileError, match=r"x\.keras cannot be loaded"):
            kh.load(path)
    content = bytearray(digits.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(WeightFileError, match=r"x\.keras"):
        kh.load(path)
