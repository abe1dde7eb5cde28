"""What classes and data set a finished run is taken for: those that it was trained on."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.cli.image_classifier import find_classifier
from keras_highway.data.transforms import CLASSES
from keras_highway.training.data.source import ArraySource, open_source
from keras_highway.training.loop import train
from keras_highway.training.recipe import Recipe, changed
from keras_highway.training.recipes import RECIPES

OWN = ("apple", "pear", "plum")
RECIPE = changed(RECIPES["highway_fc10"], epochs=1, batch_size=3, overrides=(("depth", 2), ("units", 4)))


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


@pytest.mark.parametrize("classes", [None, CLASSES["mnist"]])
def test_names_that_the_package_knows_are_not_recorded(tmp_path, classes):
    """Results of known data sets stay as they were, and their runs go on."""
    assert source_of(RECIPE, data_set(tmp_path, classes=classes)).class_names == ()
    assert source_of(dataclasses.replace(RECIPE, data="synthetic_mnist"), None).class_names == ()
