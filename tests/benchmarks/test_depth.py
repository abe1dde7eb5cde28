"""The fully connected net of 250, 500 and 1000 layers: time to its first training step, and of a step."""

import statistics
import time

import keras
import numpy as np
import pytest
from comparison import compare, record

import keras_highway as kh

DEPTHS = (250, 500, 1000)
RNG = np.random.default_rng(0)
X, Y = RNG.random((32, 28, 28, 1), "float32"), RNG.integers(0, 10, 32)


def seconds(function) -> tuple[float, float]:
    """Wall-clock and processor seconds of a call."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def net(depth, scanned):
    model = kh.create_model("highway_fc1000", weights=None, depth=depth, scanned=scanned)
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def step(model):
    return lambda: model.train_on_batch(X, Y)


def measure(depth, scanned) -> dict:
    """Wall-clock and processor seconds of building and compiling, of the first step and of a later one."""
    made = []
    build = seconds(lambda: made.append(net(depth, scanned)))
    first = seconds(step(made[0]))
    steps = [seconds(step(made[0])) for _ in range(9)]
    steady = tuple(statistics.median(side) for side in zip(*steps, strict=True))
    keras.backend.clear_session()
    return {"build": build, "first_step": first, "step": steady}


@pytest.fixture(scope="module")
def by_depth():
    net(4, True).train_on_batch(X, Y)  # TensorFlow's and XLA's own start
    return {depth: measure(depth, scanned=True) for depth in DEPTHS}


def test_time_to_the_first_step_grows_no_faster_than_depth(benchmark, by_depth):
    benchmark.pedantic(lambda: net(DEPTHS[0], True), rounds=3)
    record("highway_fc, build, first step and step", **{str(d): figures for d, figures in by_depth.items()})
    cpu = {d: f["build"][1] + f["first_step"][1] for d, f in by_depth.items()}
    # Processor seconds: wall-clock seconds depend on who else is there. 1.25: the spread of repeated runs.
    assert cpu[1000] <= 1.25 * 4 * cpu[250]
    assert cpu[1000] <= 60
    assert by_depth[1000]["step"][1] <= 1.25 * 4 * by_depth[250]["step"][1]


def test_a_graph_of_layers_takes_longer_to_start(benchmark):
    """Why there is a scan at all: the same net as a graph of layers."""
    figures = {depth: measure(depth, scanned=False) for depth in (30, 60, 120)}
    record("highway_fc as a graph of layers, build, first step and step", **{str(d): f for d, f in figures.items()})
    scanned = benchmark.pedantic(lambda: measure(120, True), rounds=1)
    start = {name: f["build"][1] + f["first_step"][1] for name, f in (("layers", figures[120]), ("scan", scanned))}
    assert start["scan"] < start["layers"]


def test_a_step_of_the_scan(benchmark):
    scanned, layers = net(60, True), net(60, False)
    step(scanned)(), step(layers)()
    compare(benchmark, "highway_fc60 scanned / as layers, train", step(scanned), step(layers)).check_at_most(4.0)
