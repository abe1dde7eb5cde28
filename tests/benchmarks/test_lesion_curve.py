"""A lesion curve over 49 blocks against 50 evaluations of the whole network."""

import statistics
import time

import numpy as np
import pytest

from keras_highway.analysis import blocks, lesion
from keras_highway.analysis.fan import Fan
from keras_highway.applications import load

PAIRS, BATCH = 15, 100


@pytest.mark.benchmark
def test_a_lesion_curve_takes_at_most_half_the_time(capsys):
    model = load("highway_fc50_tanh.tvdn")
    model.jit_compile = False  # as the fan
    fan = Fan(model, [{}, *({name: lesion(name)} for name in blocks(model))])
    x = np.random.default_rng(0).random((BATCH, 28, 28, 1), "float32")
    fan(x)
    model.predict_on_batch(x)
    ratios = []
    for _ in range(PAIRS):
        start = time.process_time()
        fan(x)
        middle = time.process_time()
        for _ in range(50):
            model.predict_on_batch(x)
        ratios.append((middle - start) / (time.process_time() - middle))
    low, median, high = statistics.quantiles(ratios, n=4)
    with capsys.disabled():
        print(f"\nlesion curve / 50 evaluations: {median:.3f} ({low:.3f} to {high:.3f}, n = {PAIRS})")
    assert median <= 0.5
