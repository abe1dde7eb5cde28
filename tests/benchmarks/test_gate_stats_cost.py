"""What `GateStats` costs: one record over one step of training; its share of an epoch is that over the steps."""

import keras
import numpy as np
import pytest
from comparison import compare

from keras_highway.analysis import GateStats
from keras_highway.applications import create_model

STEPS, BATCH = 50, 64  # of the shortest epoch for which 2 % is promised


@pytest.mark.parametrize("variant", ["highway_fc50", "mnist10_w16"])
def test_gate_stats_cost_under_two_percent(benchmark, tmp_path, variant):
    model = create_model(variant)
    model.compile(keras.optimizers.SGD(0.001), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH, 28, 28, 1), "float32"), rng.integers(0, 10, BATCH)
    stats = GateStats(x, tmp_path)
    stats.set_model(model)
    name = f"{variant}: a record of GateStats / a step"
    result = compare(benchmark, name, lambda: stats.record(0, 0), lambda: model.train_on_batch(x, y))
    assert (result.judged.ratio - result.judged.margin) / STEPS <= 0.02, result
