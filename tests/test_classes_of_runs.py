"""What classes and data set a finished run is taken for: those that it was trained on."""

import dataclasses
import json
import re

import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.data.datasets import load_dataset
from keras_highway.data.photographs import relabelled
from keras_highway.data.transforms import CLASSES
from keras_highway.predictions import find_classifier
from keras_highway.publishing import find_publishable
from keras_highway.publishing.images import ClassifierWeights
from keras_highway.training.data.source import ArraySource, open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import train
from keras_highway.training.recipe import Recipe, changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.results import _form
from keras_highway.training.runs.run_folder import RunFolder
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry

OWN = ("apple", "pear", "plum")
RECIPE = changed(RECIPES["highway_fc10"], epochs=1, batch_size=3, overrides=(("depth", 2), ("units", 4)))
NUMBERS = {"metric": "test_accuracy", "n": 1, "mean": 0.5, "std": None, "seeds": [0], "values": [0.5]}


def data_set(folder, name="mnist", classes=None):
    """Six images of three classes."""
    shape = (28, 28) if name == "mnist" else (32, 32, 3)
    x, y = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8), np.arange(6) % 3
    named = {} if classes is None else {"classes": np.array(classes)}
    np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y, **named)
    return folder


def source_of(recipe: Recipe, folder) -> ArraySource:
    source = open_source(recipe, folder)
    assert isinstance(source, ArraySource)
    return source


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
    assert "classes are not those of mnist.npz: it has a, b, c, they have apple" in capsys.readouterr().err


def test_labels_of_the_same_classes_stay_as_they_are(tmp_path):
    """Of two of one name, too."""
    names = ("a", "other", "other")
    data = load_dataset("mnist", data_set(tmp_path, classes=names))
    assert relabelled("mnist.npz", data, names) is data is relabelled("mnist.npz", data, ())


@pytest.mark.parametrize("classes", [None, CLASSES["mnist"]])
def test_names_that_the_package_knows_are_not_recorded(tmp_path, classes):
    """Results of known data sets stay as they were, and their runs go on."""
    assert source_of(RECIPE, data_set(tmp_path, classes=classes)).class_names == ()
    assert source_of(dataclasses.replace(RECIPE, data="synthetic_mnist"), None).class_names == ()


def test_class_names_of_a_run_do_not_change(tmp_path):
    folder = RunFolder(tmp_path, {}, Strategy())
    (tmp_path / "checkpoint.npz").write_bytes(b"begun")
    (tmp_path / "data.json").write_text(json.dumps({"steps": 3, "class_names": ["a", "c"]}))
    with pytest.raises(ValueError, match="begun with other data: class_names"):
        folder.check_data({"steps": 3, "class_names": ["a", "b"]})


def run_of(folder, data):
    """A finished run of a small net of a variant for CIFAR-10, on data of a hundred classes without names."""
    net = create_model("resnet20", classes=100, blocks=(1, 1), widths=(4, 4), stem_width=4)
    weights_file.save(net, folder / "model.weights.h5", "resnet20", 100, transform="cifar10", **_form(net))
    result = {"weights": "resnet20.x", "variant": "resnet20", "data": data, **NUMBERS}
    (folder / "result.json").write_text(json.dumps(result))
    return str(folder)


def test_the_data_set_of_a_run_is_the_one_it_was_trained_on(tmp_path, capsys):
    """Not the one that its variant was published for."""
    classifier = find_classifier(run_of(tmp_path, "cifar100"))
    assert classifier.data == "cifar100"
    assert tuple(name for _, name in classifier.classes) == CLASSES["cifar100"]
    data_set(tmp_path, "cifar100")
    assert main(["evaluate", str(tmp_path), "--data", str(tmp_path)]) == 0
    assert "on the 6 test images of cifar100" in capsys.readouterr().out


def test_made_up_data_are_those_that_the_variant_is_for(tmp_path):
    """There is nothing of that name to evaluate on."""
    assert find_classifier(run_of(tmp_path, "synthetic_cifar10")).data == "cifar10"
