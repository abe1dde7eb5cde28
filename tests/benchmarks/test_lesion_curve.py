"""A lesion curve over 49 blocks against 50 evaluations of the whole network."""

import numpy as np
import pytest
from comparison import compare

from keras_highway.analysis import blocks, lesion
from keras_highway.analysis.rewire import BatchedRewiring
from keras_highway.applications import load

PAIRS, BATCH = 15, 100


@pytest.mark.benchmark
def test_a_lesion_curve_takes_at_most_half_the_time(benchmark):
    model = load("highway_fc50_tanh.tvdn")
    model.jit_compile = False  # as the rewiring
    plans = [{}, *({name: lesion(name)} for name in blocks(model))]
    rewiring = BatchedRewiring(model, plans)
    x = np.random.default_rng(0).random((BATCH, 28, 28, 1), "float32")

    def evaluations():
        for _ in plans:
            model.predict_on_batch(x)

    name = f"highway_fc50_tanh: lesion curve / {len(plans)} evaluations, batch {BATCH}"
    compare(benchmark, name, lambda: rewiring(x), evaluations, rounds=PAIRS).check_at_most(0.5)
