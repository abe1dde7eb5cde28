"""Shorter networks: removed blocks, their cost, and an ordinary model as the result."""

import itertools

import keras
import numpy as np
import pytest
from miniatures import batch, miniature, numpy

from keras_highway.analysis import (
    Comparison,
    blocks,
    compare,
    gate_activity,
    latency_curve,
    rewire,
    score,
    trim,
    trim_curve,
    without,
)
from keras_highway.analysis.lesions import ORDERS


def labelled(model, n=12):
    return batch(model, n), np.arange(n) % model.output_shape[-1]


def measured(model, x, labels):
    """Accuracy and cross-entropy of logits by Keras."""
    logits = numpy(model(x, training=False))
    loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return (logits.argmax(-1) == labels).mean(), numpy(loss).mean()


@pytest.mark.parametrize(
    "order", [pytest.param(order, marks=() if order == "gates" else pytest.mark.slow) for order in ORDERS]
)
def test_the_curve_is_that_of_the_shorter_networks(order):
    model = miniature("conv_net", blocks=(3, 3), gating="full")
    data = labelled(model)
    curve = trim_curve(model, data, order=order, batch_size=5)
    gone = len(curve.removed)
    assert curve.samples == 12 and curve.depth.tolist() == list(range(6, 5 - gone, -1))
    transitions = {name for name, block in blocks(model).items() if block.is_transition}
    assert transitions and set(curve.removed) == set(blocks(model)) - transitions
    for i in range(gone + 1):
        short = without(model, curve.removed[:i])
        np.testing.assert_allclose([curve.accuracy[i], curve.loss[i]], measured(short, *data), rtol=1e-5)
        assert curve.parameters[i] == short.count_params() and len(blocks(short)) == curve.depth[i]


@pytest.mark.more
def test_the_three_orders():
    model = miniature("dense_stack", depth=5)
    data = labelled(model)
    names = list(blocks(model))
    loss = score(model, [{name: None} for name in names], data).loss
    assert trim_curve(model, data).removed == tuple(names[i] for i in np.argsort(loss))
    mean = gate_activity(model, data[0]).mean
    assert trim_curve(model, data, order="gates").removed == tuple(sorted(names, key=lambda n: mean[n].mean()))
    gone = []
    while len(gone) < len(names):  # by hand: each time the removal that leaves the least loss
        left = [name for name in names if name not in gone]
        gone.append(min(left, key=lambda n: measured(without(model, [*gone, n]), *data)[1]))
    assert trim_curve(model, data, order="greedy").removed == tuple(gone)


@pytest.mark.slow
def test_the_result_saves_loads_and_fine_tunes_alone(tmp_path):
    model = miniature("conv_net", blocks=(3, 2))
    data = labelled(model)
    small = trim(model, data, 1.0).model
    before = measured(small, *data), measured(model, *data)
    small.save(tmp_path / "small.keras")
    loaded = keras.models.load_model(tmp_path / "small.keras")
    assert measured(loaded, *data) == before[0]
    small.save_weights(tmp_path / "small.weights.h5")
    loaded.load_weights(tmp_path / "small.weights.h5")
    assert not {id(w) for w in small.weights} & {id(w) for w in model.weights}
    if keras.backend.backend() != "numpy":
        small.compile(keras.optimizers.SGD(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        small.fit(*data, epochs=3, verbose=0)
        assert measured(small, *data)[1] < before[0][1]
    assert measured(model, *data) == before[1]


def test_latency_takes_turns():
    model = miniature("dense_stack", depth=6)
    ticks = itertools.count()
    names = list(blocks(model))
    curve = latency_curve(model, names, batch(model, 3), depths=(5, 2, 0), repeats=4, clock=lambda: 2 ** next(ticks))
    assert curve.depth.tolist() == [5, 2, 0] and curve.batch_size == 3 and curve.seconds.shape == (3, 4)
    np.testing.assert_array_equal(curve.seconds.T.ravel(), [4**i for i in range(12)])  # 2^(2i+1) - 2^(2i)
    real = latency_curve(model, names, batch(model), repeats=1)
    assert real.depth.tolist() == [5, 4, 3, 2, 1, 0] and (real.seconds > 0).all()
    assert latency_curve(model, names, batch(model), depths=iter([3, 2]), repeats=1).depth.tolist() == [3, 2]
    with pytest.raises(ValueError, match="from 0 to 5"):
        latency_curve(model, names, batch(model), depths=(6,))


def test_without_shares_nothing_and_computes_what_rewire_does():
    model = miniature("conv_net", gate="tied", blocks=(4, 2))
    x = batch(model)
    short = without(model, ["stage1_block3", "stage2_block2"])
    wired = rewire(model, {"stage1_block3": None, "stage2_block2": None})
    np.testing.assert_array_equal(numpy(short(x)), numpy(wired(x)))
    for weight in short.weights:
        weight.assign(numpy(weight) * 0)
    assert np.abs(numpy(wired(x))).sum() > 0


def test_wrong_blocks_and_arguments_are_refused():
    model = miniature("conv_net")
    data = labelled(model)
    deep = miniature("bottleneck", blocks=(1, 1))
    for message, call in {
        "budget=2": lambda: trim(model, data, 2),
        "order='depth'": lambda: trim(model, data, order="depth"),
        "not a transition": lambda: trim(deep, labelled(deep)),
        "gating='residual'": lambda: trim(miniature("conv_net", gating="residual"), data, order="gates"),
        "empty": lambda: trim(model, (data[0][:0], data[1][:0])),
        "confidence=0.9": lambda: trim(model, data, confidence=0.9),
        "confidence=1.0": lambda: trim(model, data, choose_on=data, confidence=1.0),
        "confidence=95": lambda: trim(model, data, choose_on=data, confidence=95),
        "block='stage2_block1'": lambda: without(model, ["stage2_block1"]),
        "Did you mean 'stage1_block2'": lambda: without(model, ["stage1_blok2"]),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def by_hand(model, plans, x, labels):
    """Samples lost and gained by each plan against the first, one network at a time."""
    right = [numpy(rewire(model, plan)(x)).argmax(-1) == labels for plan in plans]
    return [int((right[0] & ~r).sum()) for r in right], [int((r & ~right[0]).sum()) for r in right]


def test_a_comparison_counts_pairs():
    model = miniature("dense_stack", depth=5)
    x, labels = labelled(model, 30)
    plans = [{}, *({name: None} for name in blocks(model)), dict.fromkeys(blocks(model))]
    comparison = compare(model, plans, (x, labels), batch_size=7)
    lost, gained = by_hand(model, plans, x, labels)
    assert comparison.lost.tolist() == lost and comparison.gained.tolist() == gained and max(lost) > 0
    np.testing.assert_allclose(comparison.paired.cost, comparison.accuracy[0] - comparison.accuracy, atol=1e-12)
    for i, (a, b) in enumerate(zip(lost, gained, strict=True)):
        differences = np.array([1] * a + [-1] * b + [0] * (30 - a - b))
        assert comparison.paired.standard_error[i] == pytest.approx(differences.std() / np.sqrt(30))
    scores = score(model, plans, (x, labels), batch_size=7)
    np.testing.assert_array_equal(scores.accuracy, comparison.accuracy)
    np.testing.assert_array_equal(scores.loss, comparison.loss)


def test_the_bound_holds_as_often_as_stated():
    """Of 4000 draws of 500 pairs, with a true cost of 0.01, about 95 % have a bound above it; never 0."""
    rng = np.random.default_rng(0)
    draws = rng.multinomial(500, (0.03, 0.02, 0.95), 4000)
    zeros = np.zeros(4000)
    bound = Comparison(zeros, zeros, 500, draws[:, 0], draws[:, 1], 500).paired.highest_cost(0.95)
    assert 0.94 <= (bound >= 0.01).mean() <= 0.97
    none = Comparison(zeros, zeros, 500, np.zeros(1), np.zeros(1), 500).paired.highest_cost(0.95)
    assert 0.002 < none[0] < 0.01  # 500 samples that agree prove that little


def test_depth_is_chosen_on_other_data():
    model = miniature("dense_stack", depth=6)
    x = batch(model, 60)
    labels = numpy(model(x)).argmax(-1)
    ordering, choosing = (x[:20], labels[:20]), (x[20:], labels[20:])
    small = trim(model, ordering, 0.2, choose_on=choosing)
    assert small.curve.removed == trim_curve(model, ordering).removed and small.curve.samples == 40
    plans = [dict.fromkeys(small.curve.removed[:k]) for k in range(6)]
    np.testing.assert_array_equal(small.curve.accuracy, score(model, plans, choosing).accuracy)
    assert len(small.removed) == np.flatnonzero(small.curve.accuracy >= 0.8 - 1e-12).max()


@pytest.mark.slow
def test_with_confidence_depth_stops_at_the_first_that_may_cost_more():
    model = miniature("dense_stack", depth=6)
    x = batch(model, 200)
    labels = numpy(model(x)).argmax(-1)
    labels[::9] = (labels[::9] + 1) % 10  # some that a shorter net can gain
    for budget in (0.0, 0.05, 0.3, 1.0):
        small = trim(model, (x, labels), budget, choose_on=(x, labels), confidence=0.9)
        plans = [dict.fromkeys(small.curve.removed[:k]) for k in range(6)]
        within = compare(model, plans, (x, labels)).paired.highest_cost(0.9) <= budget
        assert len(small.removed) == (1 + [*within[1:], False].index(False)) - 1
        assert len(small.removed) <= len(trim(model, (x, labels), budget).removed)
    assert len(small.removed) == 5
