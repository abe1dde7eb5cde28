"""The command line: what each command prints, its exit codes, and its errors on wrong requests."""

import dataclasses
import importlib
import itertools
import json
import shlex
import statistics
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway._support.files import sha256_of
from keras_highway._support.schema import parse_setting
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.cli.images import read_images
from keras_highway.cli.main import DEFAULT_WEIGHTS
from keras_highway.data.transforms import CLASSES, TRANSFORMS
from keras_highway.predictions import find_classifier
from keras_highway.tasks import IMAGES, LANGUAGE, plus_minus
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import defaults_of, same_recipe
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import ROW, WeightsInfo, row_in_folder
from training.analysis_tables import _mean
from training.study import spread
from zoo.release.results import command_of

SAMPLES = Path(__file__).parents[1] / "samples"
NAME = "mnist10_w16.known"
# The network of the fixture predicts this for every image.
SCORES = np.array([0.02, 0.3, 0.02, 0.02, 0.02, 0.02, 0.02, 0.5, 0.04, 0.04])


@pytest.fixture(scope="session")
def known_zoo(tmp_path_factory):
    """A folder of weights with one network, whose answer does not depend on the image."""
    model = create_model("mnist10_w16")
    head = model.get_layer("head")
    head.set_weights([np.zeros(head.kernel.shape), np.log(SCORES)])
    folder = tmp_path_factory.mktemp("zoo")
    (folder / NAME).mkdir()
    weights_file.save(model, folder / NAME / registry.FILE, "mnist10_w16", 10)
    result = {"metric": "test_accuracy", "data": "mnist", "mean": 0.4, "std": 0.01, "n": 3}
    (folder / NAME / "result.json").write_text(json.dumps(result))
    (folder / NAME / ROW).write_text(json.dumps(row_in_folder(known_row(folder))))
    return folder


def known_row(folder) -> WeightsInfo:
    return WeightsInfo(
        name=NAME,
        variant="mnist10_w16",
        data="mnist",
        recipe="mnist10_w16",
        classes=tuple("0123456789"),
        transform=registry.transforms.MNIST,
        sha256=sha256_of(folder / NAME / registry.FILE),
        licence="Apache-2.0",
        folder=str(folder / NAME),
    )


@pytest.fixture
def known_file(known_zoo) -> str:
    return str(known_zoo / NAME / registry.FILE)


@pytest.fixture
def known_name(known_zoo, monkeypatch) -> str:
    monkeypatch.setattr(registry, "WEIGHTS", {NAME: known_row(known_zoo)})
    monkeypatch.setenv("KERAS_HIGHWAY_ZOO", str(known_zoo))
    return NAME


@pytest.fixture
def shipped() -> str:
    """The weights that `classify` uses unless told otherwise."""
    if not registry.WEIGHTS[DEFAULT_WEIGHTS].sha256:
        pytest.skip(f"{DEFAULT_WEIGHTS} is not trained yet")
    return DEFAULT_WEIGHTS


@pytest.fixture
def images(tmp_path) -> list[str]:
    """A picture, a missing file, another picture, a truncated file and a text."""
    noise = np.random.default_rng(0).integers(0, 100, (28, 28), np.uint8)
    paths = [tmp_path / name for name in ("one.png", "absent.png", "two.png", "cut.png", "text.jpg")]
    Image.fromarray(noise).save(paths[0])
    Image.fromarray(noise[::-1].copy()).save(paths[2])
    paths[3].write_bytes(paths[0].read_bytes()[:300])
    paths[4].write_text("not an image")
    return [str(path) for path in paths]


@pytest.fixture
def digits(tmp_path) -> Path:
    """A folder with a data set of 30 test images: 15 sevens, 9 ones, 6 zeros."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (30, 28, 28), np.uint8)
    y = rng.permutation([7] * 15 + [1] * 9 + [0] * 6)
    np.savez(tmp_path / "mnist.npz", x_train=x[:2], y_train=y[:2], x_test=x, y_test=y)
    return tmp_path


def refused(capsys, *argv) -> str:
    """Runs a command that must end with code 2 and one line on stderr, nothing on stdout; returns the line."""
    assert main(list(argv)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("keras_highway: error: ")
    return err


@pytest.mark.parametrize(
    ("options", "names"),
    [([], {*registry.WEIGHTS, "weights"}), (["--variants"], {*VARIANTS, *LM_VARIANTS, "variant"})],
)
def test_list_shows_all_weights_or_every_variant(options, names, capsys):
    assert main(["list", *options]) == 0
    shown = {line.split()[0] for line in capsys.readouterr().out.splitlines() if line}
    assert {name for name in shown if set(name) != {"-"}} == names


def test_list_shows_the_size_of_a_variant(capsys):
    assert main(["list", "--variants"]) == 0
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if line.startswith("highway50 "))
    assert row.split()[1:5] == ["26,443,560", "coupled", "224x224x3", "1000"]


def test_list_json_with_a_pattern(capsys, known_name):
    assert main(["list", "mnist10_w16*", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [v["name"] for v in listed["variants"]] == ["mnist10_w16"]
    (weights,) = listed["weights"]
    assert [weights[key] for key in ("name", "parameters", "licence", "file")] == [NAME, 38_986, "Apache-2.0", "here"]
    assert weights["result"] == {"metric": "test_accuracy", "mean": 0.4, "std": 0.01, "n": 3}


def test_classify_names_the_good_and_reports_the_bad(capsys, known_name, images):
    assert main(["classify", *images, "--weights", known_name]) == 2
    out, err = capsys.readouterr()
    answer = "7 50.00 %  1 30.00 %  8 4.00 %"
    assert out.splitlines() == [f"{images[0]}: {answer}", f"{images[2]}: {answer}"]
    assert [line.split(": ", 1)[0] for line in err.splitlines()] == [images[1], images[3], images[4]]
    assert "no such image file" in err and "broken image file" in err and "not an image file" in err


def test_classify_json(capsys, known_file, images):
    assert main(["classify", *images, "--weights", known_file, "--json", "--top", "2"]) == 2
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert report["weights"] == known_file
    assert [image["file"] for image in report["images"]] == images
    assert ["error" in image for image in report["images"]] == [False, True, False, True, True]
    assert report["images"][1]["error"] in err
    first, second = report["images"][2]["predictions"]
    assert (first["id"], first["name"], second["name"]) == ("7", "7", "1")
    assert [first["score"], second["score"]] == pytest.approx([0.5, 0.3], abs=1e-6)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["classify", "nothing.png"], "nothing.png: no such image file"),
        (["evaluate", "mnist10w16.tvdn"], "Did you mean 'mnist10_w16.tvdn'"),
        (["export", "mnist10w16.tvdn", "--format", "onnx", "--out", "a.onnx"], "Did you mean 'mnist10_w16.tvdn'"),
    ],
)
def test_wrong_names_are_reported_before_keras_is_imported(command, message, capsys, monkeypatch):
    module = importlib.import_module("keras_highway.cli.main")  # the package's `main` is the function
    monkeypatch.setattr(module, "_function", lambda name: pytest.fail("the command was imported"))
    assert message in refused(capsys, *command)


def test_classify_with_a_file_that_is_no_weights(capsys, images, tmp_path):
    path = tmp_path / "broken.weights.h5"
    path.write_bytes(b"nothing")
    assert "broken.weights.h5 is not a weight file" in refused(capsys, "classify", images[0], "--weights", str(path))
    assert "is not a .weights.h5 file" in refused(
        capsys, "classify", images[0], "--weights", str(tmp_path / "no.weights.h5")
    )


def test_a_light_background_is_noted_and_inverted_on_request_only(capsys, known_file, tmp_path):
    ink = np.full((28, 28), 250, np.uint8)
    ink[10:18, 10:18] = 5
    path = str(tmp_path / "ink.png")
    Image.fromarray(ink).save(path)
    classifier = find_classifier(known_file)
    pixels, _ = read_images([path], classifier, invert=False)
    assert (pixels[0][..., 0] == ink).all() and "with --invert" in capsys.readouterr().err
    pixels, _ = read_images([path], classifier, invert=True)
    assert (pixels[0][..., 0] == 255 - ink).all() and capsys.readouterr().err == ""
    assert main(["classify", path, "--weights", known_file]) == 0
    assert "Try with --invert" in capsys.readouterr().err


def test_a_folder_a_file_and_a_name_mean_the_same(known_zoo, known_name, known_file):
    name, file, folder = (find_classifier(w) for w in (known_name, known_file, str(known_zoo / NAME)))
    for other in (file, folder):
        assert (other.data, other.transform, other.classes, other.result) == name[1:5]


def test_evaluate_measures_and_compares(capsys, known_name, digits):
    assert main(["evaluate", known_name, "--data", str(digits), "--batch-size", "8"]) == 0
    out, err = capsys.readouterr()
    loss = -np.log(SCORES[[7] * 15 + [1] * 9 + [0] * 6]).mean()
    assert f"accuracy 50.00 %, loss {loss:.4f}" in out and "30 test images of mnist" in out
    assert "recorded: 40.00 ± 1.00 % (n = 3); here +10.00 points" in out
    assert err == ""  # no progress bar where there is no terminal


def test_evaluate_on_another_number_of_classes(capsys, tmp_path, digits):
    path = tmp_path / "two.weights.h5"
    weights_file.save(create_model("highway_fc10", classes=2), path, "highway_fc10", 2)
    assert "2 classes, mnist has 10" in refused(capsys, "evaluate", str(path), "--data", str(digits))


def test_gates_draws_a_picture_and_prints_its_path(capsys, known_file, images, tmp_path):
    out = tmp_path / "gates.png"
    assert main(["gates", images[0], "--out", str(out), "--weights", known_file]) == 0
    assert f"8 blocks to {out}" in capsys.readouterr().out
    with Image.open(out) as picture:
        assert min(picture.size) > 300
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 50
    assert not list(tmp_path.glob(".partial-*"))


def test_gates_that_cannot_be_drawn_leave_the_old_picture(capsys, images, tmp_path):
    weights, out = tmp_path / "plain.weights.h5", tmp_path / "gates.png"
    weights_file.save(create_model("plain_fc10"), weights, "plain_fc10", 10)
    out.write_bytes(b"old")
    assert "gate='t'" in refused(capsys, "gates", images[0], "--out", str(out), "--weights", str(weights))
    assert out.read_bytes() == b"old" and not list(tmp_path.glob(".partial-*"))


def test_summary_adds_up(capsys):
    assert main(["summary", "mnist10_w16", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    *stages, total = report["stages"]
    assert [row["stage"] for row in stages] == ["stem", "stage1", "stage2", "stage3", "head"]
    assert total["parameters"] == sum(row["parameters"] for row in stages) == 38_986
    assert stages[0]["multiply_adds"] == 24 * 24 * 5 * 5 * 16  # a valid 5x5 convolution of 28x28x1
    assert report["input_shape"] == [28, 28, 1]


def test_summary_takes_weights_and_folders(tmp_path, capsys):
    folder = kh.save(kh.create_model("mnist10_w16", classes=3), tmp_path / "net", transform="mnist")
    assert main(["summary", str(folder), "--json"]) == 0
    ours = json.loads(capsys.readouterr().out)["stages"][-1]["parameters"]
    assert main(["summary", "mnist10_w16.tvdn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stages"][-1]["parameters"] - ours == 7 * 145


def test_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"keras-highway {kh.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["highway51"], "Did you mean 'highway50'"),
        (["highway110", "--set", "gating=ful"], "Did you mean 'full'"),
        (["highway110", "--set", "gating"], "FIELD=VALUE"),
        (["mnist10_w16", "--set", "input_shape=[2,2,1]"], "at least"),
        (["mnist10_w16", "--set", "weights=mnist"], "Unknown field"),
        (["mnist10_w16", "--set", "stages=[1]"], "`stages`: Expected `object`"),
        (["mnist10_w16", "--set", "classes=1000000000000"], "`classes`: Expected `int` <= 1000000"),
        (["mnist10_w16", "--set", "epochs=1000000000000000000000"], "Unknown field"),
        (["charlm_large_coupled"], "reads words"),
    ],
)
def test_summary_of_the_impossible(capsys, argv, message):
    assert message in refused(capsys, "summary", *argv)


def test_the_samples_are_recognized(capsys, shipped):
    files = sorted(SAMPLES.iterdir())
    assert len(files) == 11
    assert main(["classify", *map(str, files), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["weights"] == shipped
    predictions = kh.classify(files, shipped, top=3)
    assert [[p._asdict() for p in best] for best in predictions] == [image["predictions"] for image in report["images"]]
    assert kh.classify(str(files[0]), shipped, top=1)[0].name == predictions[0][0].name
    for image in report["images"]:
        best = image["predictions"][0]
        assert best["name"] == Path(image["file"]).stem.split("_")[1] and best["score"] > 0.9


def test_classify_in_python_refuses_missing_images_and_language_models(tmp_path):
    with pytest.raises(kh.data.ImageError, match="no such image file"):
        kh.classify(tmp_path / "a.png", "mnist10_w16.tvdn")
    with pytest.raises(ValueError, match="language model"):
        kh.classify(SAMPLES / "digit_7.png", "charlm_small_coupled.ptb")


def test_evaluate_reproduces_the_recorded_accuracy(capsys, shipped, data_dir):
    assert main(["evaluate", shipped, "--data", str(data_dir), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["images"] == 10_000
    assert report["accuracy"] == pytest.approx(report["recorded"]["mean"], abs=2e-4)


WEIGHTS = Path(__file__).parents[1] / "zoo" / "weights"


@pytest.mark.parametrize("folder", sorted(WEIGHTS.glob("*.*")), ids=lambda path: path.name)
def test_the_command_trains_what_was_trained(folder):
    words = shlex.split(command_of(folder).split(" (N = ")[0])
    recipe = RECIPES[words[4]]
    settings = [after for word, after in itertools.pairwise(words) if word == "--set" and after != "seed=N"]
    trained = json.loads((folder / "recipe.json").read_text())
    assert same_recipe(trained, with_settings(recipe, settings).to_dict(), defaults_of(recipe))


def test_means_and_their_spread():
    assert plus_minus("99.54", "0.02") == "99.54 ± 0.02" and plus_minus("99.54") == "99.54" and plus_minus("", "") == ""
    assert IMAGES.metric.format(0.9954, 0.0002) == "99.54 ± 0.02 %"
    assert IMAGES.metric.format(0.5, 0.0) == "50.00 ± 0.00 %"
    assert LANGUAGE.metric.format(79.126, 0.2) == "79.13 ± 0.20"
    values = [91.5, 92.0, 91.75]
    assert spread(values, 2) == f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
    assert (spread([0.25, 0.25], 4), spread([0.25], 4), spread([], 4)) == ("0.2500 ± 0.0000", "0.2500", "-")
    assert _mean([(0.001, 0.0005), (-0.001001, 0.0005)]) == "0.00 ± 0.05"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=3", 3),
        ("x=true", True),
        ("x=None", None),
        ("x=[1,2]", [1, 2]),
        ("x=(0.5, 0.2)", (0.5, 0.2)),
        ("x=full", "full"),
        ("x=a=b", "a=b"),
        ("x=__import__('os')", "__import__('os')"),
    ],
)
def test_settings(text, value):
    field, actual = parse_setting(text)
    assert field == "x" and actual == value and type(actual) is type(value)


def test_images_of_another_size_are_refused_in_a_line(tmp_path, capsys):
    x, y = np.zeros((20, 32, 32, 3), np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "cifar10.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    net = create_model("highway20", input_shape=(64, 64, 3), blocks=(1, 1, 1), widths=(2, 2, 2))
    transform = dataclasses.replace(TRANSFORMS["cifar10"], size=(64, 64))
    folder = kh.save(net, tmp_path / "c64", CLASSES["cifar10"], transform=transform, dataset="cifar10")
    error = refused(capsys, "evaluate", str(folder), "--data", str(tmp_path))
    assert "64 x 64 x 3" in error and "cifar10 with images of 32 x 32 x 3" in error
