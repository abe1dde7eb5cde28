"""HighwayDenseStack: the same numbers as that many HighwayDense layers."""

import keras
import numpy as np
import pytest
from contracts import array, check_layer, gradients, to_numpy
from keras import ops

from keras_highway import GATINGS
from keras_highway.analysis.cost import cost
from keras_highway.layers import HighwayDenseStack
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS

# Fewer layers than a step of the scan, and two steps with some left over.
DEPTHS = (4, 20)


def built(depth=DEPTHS[1], units=6, **kwargs):
    stack = HighwayDenseStack(depth, activation="tanh", gate_bias=-1.0, **kwargs)
    stack.build((None, units))
    return stack


def chain(stack):
    blocks = [stack.block(i) for i in range(stack.depth)]

    def apply(x):
        for block in blocks:
            x = block(x)
        return x

    return apply


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("gating", "gate"), [*((g, "same") for g in GATINGS), ("coupled", "tied"), ("full", "tied")])
def test_equals_a_chain_of_layers(gating, gate, depth):
    stack, x = built(depth, gating=gating, gate=gate), array(5, 6)
    layers = chain(stack)
    y = to_numpy(layers(x))
    assert (y != x).any()
    np.testing.assert_allclose(to_numpy(stack(x)), y, rtol=1e-5, atol=1e-5)
    (actual,) = gradients(lambda v: ops.sum(stack(v) ** 2), x)
    (expected,) = gradients(lambda v: ops.sum(layers(v) ** 2), x)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gating", GATINGS)
def test_signals_are_those_of_the_layers(gating):
    stack, x = built(gating=gating), array(5, 6)
    stacked = stack.signals(x)
    for i in range(stack.depth):
        block = stack.block(i)
        signals = block.signals(x)
        for name, value in signals._asdict().items():
            actual = getattr(stacked, name)
            if ops.is_tensor(value):
                np.testing.assert_allclose(to_numpy(actual[i]), to_numpy(value), rtol=1e-5, atol=1e-5)
            else:
                assert actual == value
        x = block(x)


def test_keeps_the_contract_of_a_layer():
    check_layer(
        HighwayDenseStack, {"depth": 11, "gating": "full", "gate_bias": -1.0, "activation": "tanh"}, (5, 6), gated=False
    )


def test_the_deep_variants_are_stacks():
    small = override(VARIANTS["highway_fc1000"], depth=12, units=6, input_shape=(4, 4, 1))
    scanned, layers = build(small), build(override(small, scanned=False))
    assert scanned.count_params() == layers.count_params()
    assert cost(scanned) == cost(layers)
    stack = scanned.get_layer("stage1")
    for layer in layers.layers:
        if layer.name.startswith("stage1_block"):
            block = stack.block(int(layer.name.removeprefix("stage1_block")) - 1)
            layer.set_weights(block.get_weights())
        elif layer.weights:
            layer.set_weights(scanned.get_layer(layer.name).get_weights())
    x = array(3, 4, 4, 1)
    np.testing.assert_allclose(to_numpy(scanned(x)), to_numpy(layers(x)), rtol=1e-5, atol=1e-6)


def test_what_a_stack_cannot_do_is_an_error():
    with pytest.raises(ValueError, match="scanned=False"):
        build(override(VARIANTS["highway_fc1000"], stochastic_depth=0.1))
    with pytest.raises(ValueError, match=r"index=20"):
        built().block(20)
    with pytest.raises(ValueError, match="must equal the input width"):
        HighwayDenseStack(3, units=4).build((None, 6))
    with pytest.raises(ValueError, match="depth=0"):
        HighwayDenseStack(0)


@pytest.mark.more
def test_a_thousand_layers_train():
    keras.utils.set_random_seed(1)
    model = build(override(VARIANTS["highway_fc1000"], units=4, input_shape=(4, 4, 1), gate_bias=-4.0))
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    losses = [model.train_on_batch(array(8, 4, 4, 1), np.arange(8) % 2) for _ in range(5)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
