"""The LSTM's own derivative against Keras's LSTM, found by the backend step by step."""

import keras
import numpy as np
import pytest
from contracts import array, to_numpy
from gradients import value_and_gradients
from keras import ops

from keras_highway.layers import CarriedLSTM

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


def test_an_open_number_of_steps():
    """TensorFlow's scan over several tensors failed at the second length."""
    inputs = keras.Input(batch_shape=(STREAMS, None, FEATURES))
    model = keras.Model(inputs, CarriedLSTM(UNITS, STREAMS)(inputs))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    for steps in (5, 7, 6):
        x, y = array(STREAMS, steps, FEATURES), np.zeros((STREAMS, steps, UNITS), "float32")
        before = [to_numpy(w) for w in model.weights]
        assert np.isfinite(model.train_on_batch(x, y))
        assert all((a != to_numpy(b)).any() for a, b in zip(before, model.weights, strict=True))


def test_a_rest_of_other_rows_is_an_error():
    """One row was added to the state of every stream, in silence."""
    inputs = keras.Input((STEPS, FEATURES))
    model = keras.Model(inputs, CarriedLSTM(UNITS, streams=3)(inputs))
    with pytest.raises(Exception, match=r"streams=3|expected shape \[3"):
        model.predict(array(3 + 1, STEPS, FEATURES), batch_size=3, verbose=0)
