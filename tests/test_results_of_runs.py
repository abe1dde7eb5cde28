"""Results of runs in use: classes, data set, tested images; evaluate, verify, the card and the next commands."""

import dataclasses
import json
import re
import shlex
import shutil

import fake_hub as fake
import numpy as np
import pytest
import yaml
from PIL import Image

import keras_highway as kh
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.data.transforms import CLASSES
from keras_highway.predictions import find_classifier
from keras_highway.tasks import metric_name
from keras_highway.training import shards
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import Run, train
from keras_highway.training.program import ImageProgram, form_of
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder
from keras_highway.training.train import summary
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.card import model_card
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.info import check_result
from keras_highway.weights.publish import Verification, find_publishable, publish
from keras_highway.weights.trained import ClassifierWeights, weights_class

NAME = "mnist10_w16.tvdn"
HELD_OUT = {"holdout_images": 5000}
NUMBERS = {"metric": "test_accuracy", "n": 1, "mean": 0.5, "std": None, "seeds": [0], "values": [0.5]}


def result_in(folder, **changes) -> str:
    (folder / "result.json").write_text(json.dumps({**NUMBERS, **changes}))
    return str(folder)


OWN = ("apple", "pear", "plum")
RECIPE = changed(RECIPES["highway_fc10"], epochs=1, batch_size=3, overrides=(("depth", 2), ("units", 4)))


def data_set(folder, name="mnist", classes=None):
    """Six images of three classes."""
    shape = (28, 28) if name == "mnist" else (32, 32, 3)
    x, y = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8), np.arange(6) % 3
    named = {} if classes is None else {"classes": np.array(classes)}
    np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y, **named)
    return folder


def test_a_run_on_arrays_with_classes_of_ones_own_names_them(tmp_path, capsys):
    folder = data_set(tmp_path, classes=OWN)
    result = train(RECIPE, folder, tmp_path / "run")
    assert (result["data"], result["class_names"]) == ("mnist", list(OWN))
    assert [name for _, name in find_classifier(str(tmp_path / "run")).classes] == list(OWN)
    guess = kh.decode_predictions(np.array([[0.1, 0.2, 0.7]]), weights=tmp_path / "run", top=1)[0][0]
    assert guess.name == "plum"
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "a.png")
    capsys.readouterr()
    assert main(["classify", str(tmp_path / "a.png"), "--weights", str(tmp_path / "run"), "--top", "3"]) == 0
    assert {word for word in capsys.readouterr().out.split() if word.isalpha()} == set(OWN)


def test_a_run_is_measured_by_the_names_of_its_classes(tmp_path, capsys):
    """The same images under the same names, which other numbers stand for; other names are refused."""
    own, other, strange = (tmp_path / name for name in ("own", "other", "strange"))
    for folder in (own, other, strange):
        folder.mkdir()
    data_set(own, classes=OWN)
    train(RECIPE, own, tmp_path / "run")
    with np.load(own / "mnist.npz") as arrays:
        x, y = arrays["x_train"], arrays["y_train"]
    np.savez(other / "mnist.npz", x_train=x, y_train=2 - y, x_test=x, y_test=2 - y, classes=np.array(OWN[::-1]))
    data_set(strange, classes=("a", "b", "c"))
    capsys.readouterr()
    accuracies = []
    for folder in (own, other):
        assert main(["evaluate", str(tmp_path / "run"), "--data", str(folder)]) == 0
        accuracies.append(re.findall(r"accuracy +[0-9.]+ %", capsys.readouterr().out))
        weights = find_publishable(str(tmp_path / "run"))
        accuracies.append(ClassifierWeights.open(weights.row, weights.folder / registry.FILE).measure(folder).value)
    assert accuracies[0] and accuracies[:2] == accuracies[2:]
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(strange)]) == 2
    assert "must have the classes of the weights: it has a, b, c for apple" in capsys.readouterr().err


def test_the_data_set_of_a_run_is_the_one_it_was_trained_on(tmp_path, capsys):
    """Not its variant's data set; made-up data have none, and nothing to evaluate on."""
    net = create_model("resnet20", classes=100, blocks=(1, 1), widths=(4, 4), stem_width=4)
    weights_file.save(net, tmp_path / "model.weights.h5", "resnet20", 100, transform="cifar10", **form_of(net))
    run = result_in(tmp_path, weights="resnet20.x", variant="resnet20", data="synthetic_cifar10")
    assert find_classifier(run).data == "cifar10"
    classifier = find_classifier(result_in(tmp_path, weights="resnet20.x", variant="resnet20", data="cifar100"))
    assert classifier.data == "cifar100"
    assert tuple(name for _, name in classifier.classes) == CLASSES["cifar100"]
    data_set(tmp_path, "cifar100")
    assert main(["evaluate", run, "--data", str(tmp_path)]) == 0
    assert "on the 6 test images of cifar100" in capsys.readouterr().out


ROW = {"epoch": 2, "train_loss": 0.5, "test_accuracy": 0.9, "images_per_second": 1.0, "waiting": 0.0}


@pytest.mark.parametrize(
    ("settings", "recorded", "words"),
    [
        ({}, {}, "test accuracy"),
        ({"test_images": 30}, {"test_images": 30}, "test accuracy on 30 of the test images"),
        (
            {"holdout_images": 40, "test_images": 30},
            {"holdout_images": 40, "test_images": 30},
            "accuracy on 30 held-out training images",
        ),
    ],
)
def test_a_result_names_its_images(settings, recorded, words, tmp_path):
    recipe = dataclasses.replace(tiny(RECIPES["highway_fc10"]), **{"test_images": None, **settings})
    source, strategy = open_source(recipe, None), Strategy()
    folder = RunFolder(tmp_path, recipe, strategy)
    folder.begin_session(0, 0)
    run = Run(ImageProgram(recipe, source, source.on_device()), source, strategy, folder)
    run.rows, run.progress = [ROW, ROW], run.progress._replace(epoch=2)
    run.finish()
    result = json.loads((tmp_path / "result.json").read_text())
    check_result(result, "result.json")
    assert {key: result[key] for key in ("holdout_images", "test_images") if key in result} == recorded
    assert metric_name(result) == words
    assert summary(recipe, result, tmp_path, None).startswith(f"{recipe.name}: {words} 90.00 % (n = 1) after 2 epochs")


def _run(folder, result=(), recipe=()):
    """A user's run, made from the shipped one, with some settings."""
    shutil.copytree(registry.folders(NAME)[-1], folder)
    own = {"weights": "mnist10_w16.mine", **dict(result)}
    for name, changes in (("result.json", own), ("recipe.json", dict(recipe))):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))
    return folder


def test_the_card_says_it(tmp_path):
    run = _run(tmp_path / "run", HELD_OUT, HELD_OUT)
    row = find_publishable(str(run)).row
    metrics = {**row.metrics, "top5": 0.99}
    recipe = json.loads((run / "recipe.json").read_text())
    text = model_card(dataclasses.replace(row, metrics=metrics), "org/name", recipe, torch_names=False)
    assert "| metric | accuracy on 5000 held-out training images of the last epoch: **" in text
    assert ", holdout_images 5000: all settings" in text and "test accuracy" not in text
    (result,) = yaml.safe_load(text.split("---")[1])["model-index"][0]["results"]
    assert result["dataset"]["split"] == "train" and result["metrics"][0]["args"]["holdout_images"] == 5000
    assert [one["name"] for one in result["metrics"]] == [
        "accuracy on 5000 held-out training images",
        "top-5 accuracy on 5000 held-out training images",
    ]


@pytest.fixture
def data(tmp_path):
    arrays = {"x_test": np.zeros((4, 28, 28), np.uint8), "y_test": np.zeros(4, np.uint8)}
    np.savez(tmp_path / "mnist.npz", x_train=arrays["x_test"], y_train=arrays["y_test"], **arrays)
    return str(tmp_path)


CASES = [
    (HELD_OUT, "on 5000 held-out training images"),
    ({"test_images": 3}, "on 3 of the test images"),
]


@pytest.mark.parametrize(("limits", "where"), CASES)
def test_evaluate_compares_with_no_other_images(limits, where, data, tmp_path, capsys):
    run = str(_run(tmp_path / "run", {"mean": 0.5, **limits}))
    assert main(["evaluate", run, "--data", data]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"recorded {where}: 50.00 % (n = 1); not compared"
    assert main(["evaluate", run, "--data", data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recorded"].items() >= {"mean": 0.5, **limits}.items()


@pytest.mark.parametrize(("limits", "where"), [CASES[0], pytest.param(*CASES[1], marks=pytest.mark.more)])
def test_verify_compares_with_no_other_images(limits, where, data, tmp_path, fake_hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", fake.TOKEN)
    publish(str(_run(tmp_path / "run", {"values": [0.5], **limits})), "org/mine")
    assert describe_weights("hf://org/mine").metrics.items() >= limits.items()
    assert main(["verify", "org/mine", "--data", data]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("accuracy on the 4 test images of mnist: ")
    assert line.endswith(f" %, recorded {where}: 50.00 %; not compared")


NAMES = ("cat", "dog")
SMALL = {"blocks": (1, 1), "widths": (2, 3), "stem_width": 4, "input_shape": (32, 32, 3)}
PETS = dataclasses.replace(RECIPES["resnet50"], weights="resnet50.mine", transform="cifar10")
FACTS = {"weights": "resnet50.mine", "variant": "resnet50", "data": "", "class_names": list(NAMES)}
METRIC = {**NUMBERS, "mean": 0.75, "values": [0.75], "epochs": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Photographs of two classes, three cats to one dog, and their shards."""
    root, draw = tmp_path_factory.mktemp("pets"), np.random.default_rng(0)
    for split in ("train", "val"):
        for name, count in zip(NAMES, (3, 1), strict=True):
            (root / "photographs" / split / name).mkdir(parents=True)
            for i in range(count):
                image = Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8))
                image.save(root / "photographs" / split / name / f"ILSVRC2012_val_{i + 1:08d}.JPEG")
    shards.write(root / "photographs", root / "shards", images=2)
    return root


@pytest.fixture(scope="module")
def pets(tmp_path_factory):
    """A finished run, whose net takes all for cats."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    folder.mkdir()
    net = create_model("resnet50", classes=2, **SMALL)
    head = net.get_layer("head")
    head.set_weights([np.zeros(head.kernel.shape), np.array([3.0, 0.0])])
    weights_file.save(net, folder / "model.weights.h5", "resnet50", 2, transform="cifar10", **form_of(net))
    result_in(folder, **FACTS, **METRIC)
    return folder


def evaluate(pets, data_dir) -> list[str]:
    """The words of the command that the end of the run prints."""
    lines = summary(PETS, METRIC, pets, data_dir).splitlines()
    return next(shlex.split(line)[3:] for line in lines if " evaluate " in line)


@pytest.mark.parametrize("data", ["photographs", "shards"])
@pytest.mark.parametrize("named", [True, False])
def test_the_command_that_is_printed_measures_the_photographs(folders, pets, data, named, monkeypatch, capsys):
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    if not named:
        monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(folders / data))
    command = evaluate(pets, str(folders / data) if named else None)
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["top1"]) == (4, 0.75)
    assert report["data"] == str(folders / data / ("val" if data == "photographs" else ""))


@pytest.fixture
def weights(pets):
    """As `verify` opens them."""
    row = dataclasses.replace(describe_weights(pets), data="")
    return weights_class("resnet50").open(row, pets / "model.weights.h5")


def test_verify_measures_photographs_of_ones_own(folders, weights, monkeypatch, capsys):
    monkeypatch.setattr("keras_highway.weights.publish.verify", lambda repository: Verification(weights, 0.0))
    root = folders / "photographs"
    for folder, where in ((root, root / "val"), (root / "val", root / "val")):
        assert main(["verify", "org/pets", "--data", str(folder)]) == 0
        line = capsys.readouterr().out.splitlines()[-1]
        assert line == f"accuracy on the 4 test photographs of {where}: 75.00 %, recorded: 75.00 %"
    assert main(["verify", "org/pets", "--data", str(folders / "none")]) == 2
    assert "name no known data set: pass the folder of their test photographs" in capsys.readouterr().err
