"""The LSTM's own derivative against that of Keras's LSTM, found by the backend step by step."""

import keras
import numpy as np
import pytest
from contracts import array, to_numpy
from gradients import value_and_gradients
from keras import ops

from keras_highway.layers import CarriedLSTM
from keras_highway.layers.lstm_recurrence import recur

STREAMS, STEPS, FEATURES, UNITS = 2, 6, 4, 3


def weighted(y):
    """A loss to which every output of every step counts another way."""
    return ops.sum(y * ops.convert_to_tensor(array(*y.shape)))


def test_gradients_are_those_of_keras_lstm():
    ours, stock = CarriedLSTM(UNITS, streams=STREAMS), keras.layers.LSTM(UNITS, return_sequences=True)
    x = ops.convert_to_tensor(array(STREAMS, STEPS, FEATURES))
    ours.build(x.shape)
    stock.build(x.shape)
    ours.bias.assign(array(4 * UNITS))
    stock.set_weights([to_numpy(w) for w in ours.weights])
    results = []
    for layer in (ours, stock):
        loss, gradients = value_and_gradients(lambda layer=layer: weighted(layer(x)), layer)
        results.append([loss, *gradients])
    assert len(results[0]) == 4
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("which", ["projected", "kernel", "h", "c"])
def test_gradients_of_inputs_and_of_the_first_state_by_differences(which):
    """Central differences of a loss to which outputs and the last state count."""
    values = {
        "projected": array(STREAMS, STEPS, 4 * UNITS),
        "kernel": array(UNITS, 4 * UNITS),
        "h": array(STREAMS, UNITS),
        "c": array(STREAMS, UNITS),
    }
    layer = Differentiated(values[which])

    def loss():
        inputs = {**values, which: ops.convert_to_tensor(layer.value)}
        y, h, c = recur(*inputs.values())
        return weighted(y) + 2 * weighted(h) - weighted(c)

    _, (gradient,) = value_and_gradients(loss, layer)
    step = np.zeros(values[which].shape, "float32")
    for index in [(0,) * step.ndim, tuple(n - 1 for n in step.shape)]:
        step[:] = 0
        step[index] = 1e-2
        around = []
        for sign in (1, -1):
            layer.value.assign(values[which] + sign * step)
            around.append(float(to_numpy(loss())))
        assert gradient[index] == pytest.approx((around[0] - around[1]) / 2e-2, rel=2e-2, abs=1e-3)


class Differentiated(keras.layers.Layer):
    """A variable to differentiate by."""

    def __init__(self, value):
        super().__init__()
        self.value = self.add_weight(shape=value.shape, initializer="zeros", name="value")
        self.value.assign(value)


def test_a_half_precision_policy_keeps_gates_and_state_in_float32():
    layer = CarriedLSTM(UNITS, streams=STREAMS, dtype="mixed_bfloat16")
    exact = CarriedLSTM(UNITS, streams=STREAMS)
    x = array(STREAMS, STEPS, FEATURES)
    y = layer(x)
    exact.build(x.shape)
    exact.set_weights([to_numpy(w) for w in layer.weights])
    z = exact(x)
    assert keras.backend.standardize_dtype(y.dtype) == "bfloat16"
    assert [v.dtype for v in layer.carried] == ["float32", "float32"]
    np.testing.assert_allclose(to_numpy(ops.cast(y, "float32")), to_numpy(z), atol=0.02)
    # bfloat16 has 8 bits: a state that was rounded to them would be equal to itself rounded.
    state = to_numpy(layer.carried[1])
    assert (state != to_numpy(ops.cast(ops.cast(state, "bfloat16"), "float32"))).any()
