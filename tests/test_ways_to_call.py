"""Blocks and nested models called by keyword or with a tied gate in second place: analyses see the same network."""

import keras
import numpy as np
import pytest
from miniatures import numpy

from keras_highway.analysis import lesion, rewire, trace
from keras_highway.analysis.cost import cost
from keras_highway.analysis.gates import gate_bias
from keras_highway.analysis.guided import receptive_field
from keras_highway.analysis.lesions import lesion_curve, trim, without
from keras_highway.layers import HighwayConv2D, HighwayDense

DATA = np.random.default_rng(0).random((6, 4), "float32"), np.arange(6) % 2
WAYS = {
    "x": ("same", lambda block, x, gate: block(x=x)),
    "training": ("same", lambda block, x, gate: block(x, training=False)),
    "gate second": ("tied", lambda block, x, gate: block(x, gate(x))),
    "gate first": ("tied", lambda block, x, gate: block(gate=gate(inputs=x), x=x)),
}


class Scaled(keras.layers.Layer):
    """Takes its input by name only."""

    def call(self, *, pixels):
        return pixels / 255.0


def usual(block, x, gate):
    return block(x, gate=gate(x)) if block.gate == "tied" else block(x)


def dense_net(gate, call, nested):
    """Two blocks and a head, of seeded weights; `nested` makes a model of the blocks and calls it."""
    keras.utils.set_random_seed(1)
    x = inputs = keras.Input((4,))
    shared = keras.layers.Dense(4, name="gate")
    for name in ("b1", "b2"):
        x = call(HighwayDense(gate=gate, name=name), x, shared)
    if nested is not None:
        body, inputs = keras.Model(inputs, x, name="body"), keras.Input((4,))
        x = nested(body, inputs)
    return keras.Model(inputs, keras.layers.Dense(2, name="head")(x))


def findings(model):
    """What analyses say of it, as arrays."""
    x = DATA[0]
    signals = trace(model, x)
    yield from (array for entry in signals.values() for array in entry)
    yield signals.output
    wirings = ({}, lesion("b1"), {"b1": "b2"}, {"b2": None})
    yield from (numpy(rewire(model, plan)(x, training=False)) for plan in wirings)
    yield numpy(without(model, ["b1"])(x, training=False))
    yield lesion_curve(model, DATA).loss
    yield trim(model, DATA, 1.0).curve.loss
    yield from gate_bias(model).values()
    yield np.array([row[1:] for row in cost(model)])


@pytest.mark.parametrize("way", WAYS)
def test_blocks_however_they_are_called(way):
    gate, call = WAYS[way]
    for ours, theirs in zip(findings(dense_net(gate, call, None)), findings(dense_net(gate, usual, None)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_nested_models_called_by_keyword():
    called = (lambda body, x: body(inputs=x), lambda body, x: body(x))
    for ours, theirs in zip(*(findings(dense_net("same", usual, nested)) for nested in called), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_other_layers_called_by_keyword():
    inputs = keras.Input((8, 8, 3))
    x = keras.layers.Conv2D(4, 3, name="stem")(inputs=inputs)
    x = HighwayConv2D(name="b1")(x=x)
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(inputs=keras.layers.Flatten()(inputs=x)))
    stem, body, head = cost(model)
    assert (stem.stage, body.stage, head.stage) == ("stem", "body", "head")
    assert stem.multiply_adds == 6 * 6 * 9 * 3 * 4 and head.multiply_adds == 6 * 6 * 4 * 2
    assert tuple(receptive_field(model, "b1").size) == (5, 5)
    pixels = keras.Input((8, 8, 3))
    assert cost(keras.Model(pixels, model(Scaled()(pixels=pixels)))) == cost(model)


def test_layers_that_are_told_of_training_and_do_not_take_it():
    inputs = keras.Input((4,))
    x = HighwayDense(name="b1")(keras.layers.Flatten()(inputs=inputs, training=False))
    model = keras.Model(inputs, keras.layers.Dense(2, name="head")(x))
    assert [layer.name for layer in without(model, ["b1"]).layers] != [layer.name for layer in model.layers]
    same = rewire(model, {})
    np.testing.assert_array_equal(numpy(same(DATA[0], training=False)), numpy(model(DATA[0], training=False)))
