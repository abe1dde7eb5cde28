"""Weights on the command line at another image size than their variant's."""

from pathlib import Path

import pytest
from miniatures import replace_variants

from keras_highway.cli import main
from keras_highway.cli.image_classifier import find_classifier
from keras_highway.models.builder import build
from keras_highway.specs import override
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


def test_a_run_at_another_size_than_its_variants(file_at_another_size, monkeypatch):
    small = override(VARIANTS["highway50"], blocks=(1, 1, 1, 1), widths=(4, 4, 4, 4))
    replace_variants(monkeypatch, {**VARIANTS, "highway50": small})
    classifier = find_classifier(str(file_at_another_size))
    assert classifier.model().input_shape == (None, 64, 64, 3)
    assert main(["classify", "--weights", str(file_at_another_size), str(SAMPLES / "digit_7.png")]) == 0
