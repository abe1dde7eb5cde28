"""Weights on the command line at another image size than their variant's."""

import json
from pathlib import Path

import pytest
from miniatures import replace_variants

from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.models.builder import build
from keras_highway.predictions import find_classifier
from keras_highway.specs import override
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.results import _data_and_names, _form
from keras_highway.variants import VARIANTS
from keras_highway.weights import file as weights_file

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture(scope="module")
def file_at_another_size(tmp_path_factory):
    """A run's weights of a fully convolutional network that was trained on images of 64 pixels."""
    path = tmp_path_factory.mktemp("run") / "model.weights.h5"
    small = override(VARIANTS["highway50"], blocks=(1, 1, 1, 1), widths=(4, 4, 4, 4))
    weights_file.save(build(small, classes=3), path, "highway50", 3, transform="imagenet_64")
    return path


@pytest.mark.slow
def test_a_run_at_another_size_than_its_variants(file_at_another_size, monkeypatch):
    small = override(VARIANTS["highway50"], blocks=(1, 1, 1, 1), widths=(4, 4, 4, 4))
    replace_variants(monkeypatch, {**VARIANTS, "highway50": small})
    classifier = find_classifier(str(file_at_another_size))
    assert classifier.model().input_shape == (None, 64, 64, 3)
    assert main(["classify", "--weights", str(file_at_another_size), str(SAMPLES / "digit_7.png")]) == 0


def test_a_run_on_some_of_imagenets_classes_knows_their_names(tmp_path):
    """A recipe of ImageNet on a folder of two: the run calls its data ImageNet, and names its classes."""
    net = create_model("resnet50", classes=2, input_shape=(32, 32, 3), blocks=(1, 1), widths=(2, 3), stem_width=4)
    data, names = _data_and_names(RECIPES["resnet50"], ("n01440764", "n02102040"))
    weights_file.save(net, tmp_path / "model.weights.h5", "resnet50", 2, **_form(net))
    numbers = {"metric": "test_accuracy", "n": 1, "mean": 0.5, "std": None, "seeds": [0], "values": [0.5]}
    result = {"weights": "resnet50.x", "variant": "resnet50", "data": data, "class_names": names, **numbers}
    (tmp_path / "result.json").write_text(json.dumps(result))
    classifier = find_classifier(str(tmp_path))
    assert (data, classifier.classes) == ("imagenet", (("0", "tench"), ("1", "English_springer")))
