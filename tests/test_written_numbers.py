"""How accuracies, perplexities and their spread are written, wherever they are."""

import statistics

import numpy as np
import pytest

from keras_highway import report
from keras_highway.cli.images import percent
from keras_highway.tasks import IMAGES, LANGUAGE, plus_minus
from keras_highway.training.language import LanguageProgram
from keras_highway.training.program import ImageProgram
from training.analysis_tables import _mean
from training.study import spread


@pytest.mark.parametrize("kind", [float, np.float32, np.float64])
def test_shares_in_hundredths(kind):
    for share in map(kind, (0.0, 1.0, 0.99354, 0.12345, 0.00005, 2 / 3, float("nan"))):
        assert percent(share) == IMAGES.metric.format(share) == f"{100 * share:.2f} %"
        assert report._value("accuracy", share) == f"{100 * share:.2f} %"


def test_epochs_of_runs():
    images = ImageProgram.__new__(ImageProgram)
    assert images.bar({"loss": 0.12345, "accuracy": 0.98765}) == {"loss": "0.1235", "accuracy": "98.77 %"}
    row = {"train_accuracy": 0.98765, "test_accuracy": 0.9, "test_loss": 0.25}
    assert images.line(row) == "train 98.77 %  test 0.2500 90.00 %"
    language = LanguageProgram.__new__(LanguageProgram)
    assert language.bar({"loss": 4.5}) == {"loss": "4.5000", "perplexity": "90.02"}
    row = {"train_perplexity": 90.017, "valid_perplexity": 101.5}
    assert language.line(row) == "perplexity train 90.02 valid 101.50"


def test_means_and_their_spread():
    assert plus_minus("99.54", "0.02") == "99.54 ± 0.02" and plus_minus("99.54") == "99.54" and plus_minus("", "") == ""
    assert IMAGES.metric.format(0.9954, 0.0002) == "99.54 ± 0.02 %"
    assert IMAGES.metric.format(0.5, 0.0) == "50.00 ± 0.00 %"
    assert LANGUAGE.metric.format(79.126, 0.2) == "79.13 ± 0.20"
    values = [91.5, 92.0, 91.75]
    assert spread(values, 2) == f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f}"
    assert (spread([0.25, 0.25], 4), spread([0.25], 4), spread([], 4)) == ("0.2500 ± 0.0000", "0.2500", "-")
    assert _mean([(0.001, 0.0005), (-0.001001, 0.0005)]) == "0.00 ± 0.05"
