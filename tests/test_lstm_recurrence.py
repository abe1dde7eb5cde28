"""The LSTM's own derivative against that of Keras's LSTM, found by the backend step by step."""

import keras
import numpy as np
import pytest
from contracts import array, to_numpy
from gradients import value_and_gradients
from keras import ops

from keras_highway import create_model
from keras_highway.layers import CarriedLSTM
from keras_highway.layers.language import recur

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


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="JAX has float64 by a switch of its own, and `keras.ops.matmul` on PyTorch makes it float32 (Keras 3.15)",
)
def test_a_float64_layer_computes_in_float64():
    ours = CarriedLSTM(UNITS, STREAMS, dtype="float64")
    stock = keras.layers.LSTM(UNITS, return_sequences=True, dtype="float64")
    x = array(STREAMS, STEPS, FEATURES).astype("float64")
    ours.build(x.shape)
    stock.build(x.shape)
    stock.set_weights([ops.convert_to_numpy(w) for w in ours.weights])
    y, expected = (ops.convert_to_numpy(layer(x)) for layer in (ours, stock))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)


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


@pytest.mark.parametrize("rows", [1, 2])
def test_a_rest_of_other_rows_is_an_error(rows):
    """One row was added to the state of every stream, in silence."""
    inputs = keras.Input((STEPS, FEATURES))
    model = keras.Model(inputs, CarriedLSTM(UNITS, streams=3)(inputs))
    with pytest.raises(Exception, match=r"3 streams|expected shape \[3"):
        model.predict(array(3 + rows, STEPS, FEATURES), batch_size=3, verbose=0)


@pytest.mark.more
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a SavedModel is TensorFlow's")
def test_a_language_model_is_exported(tmp_path):
    """Its number of steps is open."""
    import tensorflow as tf

    small = {"characters": 9, "units": 4, "lstms": 1, "streams": 2, "classes": 20}
    model = create_model("charlm_small_coupled", **small)
    spelled, positions = np.arange(3 * 21).reshape(3, 21) % 9, np.array([[0, 1, 2], [2, 2, 0]])
    expected = to_numpy(model([spelled, positions]))
    for layer in model.layers:
        if isinstance(layer, CarriedLSTM):
            layer.reset_state()
    model.export(tmp_path / "served", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    actual = served.serve([tf.constant(spelled, "int32"), tf.constant(positions, "int32")])
    np.testing.assert_allclose(np.array(actual), expected, atol=1e-6)
