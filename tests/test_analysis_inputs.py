"""What analyses take: blocks as objects, rewired nets, losses that are no numbers, batches of other forms."""

import importlib

import keras
import numpy as np
import pytest

import keras_highway as kh

trimming = importlib.import_module("keras_highway.analysis.trim")  # its door has a function of that name
TINY = {"depth": 4, "units": 6, "classes": 3}
X, Y = np.random.default_rng(0).random((6, 28, 28, 1), "float32"), np.array([0, 1, 2, 0, 1, 2])


@pytest.fixture
def model():
    keras.utils.set_random_seed(0)
    return kh.create_model("highway_fc10", **TINY)


def test_a_block_stands_for_its_name(model):
    block = kh.analysis.blocks(model)["stage1_block2"]
    by_block, by_name = (kh.analysis.lesion_curve(model, (X, Y), blocks=b) for b in (block, "stage1_block2"))
    assert by_block.blocks == by_name.blocks == ["stage1_block2"] or list(by_block.blocks) == ["stage1_block2"]
    np.testing.assert_array_equal(by_block.loss, by_name.loss)


def test_a_block_in_two_places_has_its_bias_in_both_rows(model):
    pytest.importorskip("matplotlib")
    twice = kh.analysis.rewire(model, {"stage1_block2": "stage1_block1"})
    bias = {name: value + k for k, (name, value) in enumerate(kh.analysis.gate_bias(twice).items())}
    activity, traces = kh.analysis.gate_activity(twice, X), kh.analysis.trace(twice, X)
    figure = kh.analysis.plot_gate_summary(bias, activity, traces)
    rows = [
        np.asarray(axis.images[0].get_array() if axis.images else axis.collections[0].get_array())
        for axis in figure.axes[:4]
    ]
    assert len({len(table) for table in rows}) == 1 == len({len(activity.mean), len(rows[0])})
    np.testing.assert_array_equal(rows[0][0], rows[0][1])  # the same block
    some = kh.analysis.gate_activity(twice, X, blocks=["stage1_block3"])
    with pytest.raises(ValueError, match="must be of the same blocks"):
        kh.analysis.plot_gate_summary(bias, some, traces)


def test_a_block_without_which_the_loss_is_no_number_goes_last(model, monkeypatch):
    names = ["stage1_block1", "stage1_block2", "stage1_block3"]

    class Broken:
        """Without the second block all is NaN."""

        def __init__(self, *args, **kwargs):
            self.loss = np.array([0.3, np.nan, 0.2])

        def __call__(self, data, **options):
            return type("Scores", (), {"loss": self.loss.copy()})

        def switch_off(self, name):
            pass

    monkeypatch.setattr(trimming, "Scorer", Broken)
    assert trimming._greedily(model, (X, Y), names, {}) == ["stage1_block3", "stage1_block1", "stage1_block2"]


def test_sample_weights_are_refused_in_words(model):
    batches = [(X, Y, np.ones(6, "float32"))]
    with pytest.raises(ValueError, match="sample weights are not taken"):
        kh.analysis.lesion_curve(model, batches)
