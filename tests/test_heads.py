"""What a classifier ends in: a softmax is found wherever it stands, other ends give logits."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_highway.analysis import lesion_curve
from keras_highway.analysis.scores import cross_entropy, measure
from keras_highway.layers import HighwayDense

X = np.random.default_rng(0).random((6, 8), "float32")
Y = np.arange(6) % 3


def sub_model(*inner, shape=(3,)):
    return keras.Sequential([keras.Input(shape), *inner])


def distributed(z):
    both = layers.RepeatVector(1)(z)
    return layers.Flatten()(layers.TimeDistributed(sub_model(layers.Dropout(0.1), layers.Softmax()))(both))


def functional(z):
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Identity()(ops.softmax(inputs)))(z)


def only_a_shape(z):
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Reshape((3,))(inputs))(layers.Softmax()(z))


PROBABILITIES = {
    "layer": layers.Softmax(),
    "activation": layers.Activation(ops.softmax),
    "activation_layer": layers.Activation(layers.Softmax()),
    "operation": ops.softmax,
    "cast": lambda z: layers.Activation("linear", dtype="float32")(layers.Activation("softmax")(z)),
    "cast_operation": lambda z: ops.cast(ops.softmax(z), "float32"),
    "reshaped": lambda z: layers.Reshape((3,))(layers.Softmax()(z)),
    "operations": lambda z: ops.squeeze(ops.expand_dims(ops.stop_gradient(ops.reshape(ops.softmax(z), (-1, 3))), 1), 1),
    "last_step": lambda z: layers.Softmax()(layers.RepeatVector(2)(z))[:, -1],
    "distributed": distributed,
    "sequential": lambda z: sub_model(layers.Softmax(), layers.Reshape((3,)))(z),
    "functional": functional,
    "shape_of_a_sub_model": only_a_shape,
    "logarithm": lambda z: ops.log(ops.softmax(z)),  # log-probabilities are logits
    "log_softmax": layers.Activation("log_softmax"),
}


def ending_in(head, **kwargs):
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8,))
    x = HighwayDense(name="b1", gate_bias=0.0)(inputs)
    scores = layers.Dense(3, kernel_initializer=keras.initializers.RandomNormal(stddev=2.0), **kwargs)(x)
    return keras.Model(inputs, head(scores))


@pytest.mark.parametrize("end", PROBABILITIES)
def test_a_softmax_is_found_wherever_it_stands(end):
    expected = measure(ending_in(layers.Identity()), (X, Y))
    model = ending_in(PROBABILITIES[end])
    np.testing.assert_allclose(measure(model, (X, Y)), expected, rtol=1e-5)


def test_a_lesion_curve_finds_it_too():
    curves = [lesion_curve(ending_in(head), (X, Y)) for head in (layers.Identity(), ops.softmax)]
    np.testing.assert_allclose(curves[1].loss, curves[0].loss, rtol=1e-5)


@pytest.mark.parametrize(
    "head",
    [
        lambda z: layers.Add()([z, z]),
        lambda z: layers.GlobalAveragePooling1D()(layers.RepeatVector(2)(layers.Activation("relu")(z))),
        lambda z: layers.Flatten()(layers.Activation("relu")(z)),
        lambda z: sub_model(layers.Dense(3))(z),
        lambda z: layers.TimeDistributed(layers.Dense(3))(layers.RepeatVector(1)(z))[:, 0],
    ],
)
def test_other_ends_give_logits(head):
    model = ending_in(head)
    logits = ops.convert_to_numpy(model(X))
    loss = keras.losses.sparse_categorical_crossentropy(Y, logits, from_logits=True)
    np.testing.assert_allclose(measure(model, (X, Y))[1], np.mean(ops.convert_to_numpy(loss)), rtol=1e-5)


@pytest.mark.parametrize(
    "head", [ops.sigmoid, lambda z: layers.Activation("linear", dtype="float32")(layers.Activation("sigmoid")(z))]
)
def test_a_sigmoid_is_refused_wherever_it_stands(head):
    for run in (measure, lesion_curve):
        with pytest.raises(ValueError, match="sigmoid"):
            run(ending_in(head), (X, Y))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_probabilities_of_unknown_origin_are_refused(dtype):
    """Nothing silently wrong: their loss as logits would be that of the softmax of a softmax."""
    mean = ending_in(lambda z: layers.Average(dtype=dtype)([layers.Softmax()(z), layers.Softmax()(2 * z)]))
    for run in (measure, lesion_curve):
        with pytest.raises(ValueError, match="look like probabilities"):
            run(mean, (X, Y))
    logits = keras.Model(mean.input, ops.log(mean.output))
    assert np.isfinite(measure(logits, (X, Y))[1])


@pytest.mark.parametrize("cast", [False, True])
def test_a_probability_that_float16_rounds_to_zero_is_the_smallest_of_float16(cast):
    def head(z):
        p = layers.Softmax(dtype="float16")(z)
        return layers.Activation("linear", dtype="float32")(p) if cast else p

    model = ending_in(head)
    model.layers[2].set_weights([np.zeros((8, 3)), np.array([40.0, 0.0, 0.0])])
    losses = [0.0, 24 * np.log(2), 24 * np.log(2)]  # 2⁻²⁴ is the smallest
    np.testing.assert_allclose(measure(model, (X, Y))[1], np.mean(losses), rtol=1e-6)
    zero = np.array([[1.0, 0.0]])
    for dtype, smallest in (("float16", -24), ("float32", -126), ("float64", -1022)):
        np.testing.assert_allclose(cross_entropy(zero.astype(dtype), np.array([1]), False), -smallest * np.log(2))
