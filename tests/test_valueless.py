"""Networks without memory for their weights."""

import keras
import pytest

from keras_highway._support.keras_models import without_values


def test_values_are_not_made_later_either():
    made = []

    def initial(shape, dtype=None):
        made.append(shape)
        return keras.ops.zeros(shape, dtype)

    def network():
        dense = keras.layers.Dense(3, kernel_initializer=initial, use_bias=False)
        return keras.Sequential([keras.Input((5,)), dense])

    model = without_values(network)
    assert [tuple(w.shape) for w in model.weights] == [(5, 3)] and model.weights[0].path.endswith("kernel")
    with keras.StatelessScope():  # at its end Keras gives values to what lacks them
        pass
    assert not made
    network()
    assert made == [(5, 3)]


def test_an_error_is_the_callers_and_leaves_nothing_behind():
    made = []

    def fails():
        keras.Variable(lambda *arguments, **options: made.append(arguments), shape=(2,), dtype="float32")
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        without_values(fails)
    with keras.StatelessScope():
        pass
    assert not made
