"""Scores of classifiers: ranks, cross-entropy, heads and values that are not finite."""

import json

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_highway._support.numerics import cross_entropy, input_gradient, rank_of
from keras_highway.analysis import lesion_curve, score
from keras_highway.analysis.scores import PhotographScores, measure
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.layers import HighwayDense
from keras_highway.training.program import _sums
from keras_highway.weights import files as weights_file

NAN, INF = np.nan, np.inf
# Scores of six classes, a label, and whether it is the likeliest and among the five likeliest.
CASES = [
    ([5, 4, 3, 2, 1, 0], 0, 1, 1),
    ([5, 4, 3, 2, 1, 0], 4, 0, 1),
    ([5, 4, 3, 2, 1, 0], 5, 0, 0),
    ([7, 7, 7, 7, 7, 7], 0, 1, 1),  # of equal ones the first is the likelier
    ([7, 7, 7, 7, 7, 7], 1, 0, 1),
    ([7, 7, 7, 7, 7, 7], 5, 0, 0),
    ([-INF, 4, -INF, 2, 1, 0], 1, 1, 1),
    ([NAN, 9, 3, 2, 1, 0], 1, 0, 0),
    ([NAN, 9, 3, 2, 1, 0], 0, 0, 0),
    ([NAN] * 6, 0, 0, 0),
    ([INF, 4, 3, 2, 1, 0], 0, 0, 0),
]
SCORES = np.array([scores for scores, *_ in CASES], np.float32)
LABELS = np.array([label for _, label, *_ in CASES])
TOP1, TOP5 = (np.array([case[i] for case in CASES]) for i in (2, 3))


def test_rank_of():
    rank = ops.convert_to_numpy(rank_of(LABELS, SCORES))
    assert rank.dtype == np.int32
    assert (rank < 1).tolist() == TOP1.astype(bool).tolist() and (rank < 5).tolist() == TOP5.astype(bool).tolist()
    assert rank[:6].tolist() == [0, 4, 5, 0, 1, 5]


def test_training_photographs_and_wirings_count_by_it():
    weight = np.ones(len(LABELS), np.float32)
    sums = ops.convert_to_numpy(_sums(weight, ops.convert_to_tensor(LABELS), weight, ops.convert_to_tensor(SCORES)))
    assert sums.tolist() == [len(LABELS), TOP1.sum(), TOP5.sum(), len(LABELS)]

    with np.errstate(invalid="ignore"):  # of losses
        photographs = PhotographScores()
        photographs.add(SCORES, LABELS)
        assert (photographs.top1, photographs.top5) == (TOP1.sum(), TOP5.sum())

        x = keras.Input((), dtype="int32")
        net = keras.Model(x, keras.layers.Activation("linear")(keras.layers.Embedding(len(SCORES), 6)(x)))
        net.set_weights([SCORES])
        assert measure(net, (np.arange(len(SCORES)), LABELS))[0] == pytest.approx(TOP1.mean())


LOGITS = np.random.default_rng(0).normal(0.0, 3.0, (4, 3, 11)).astype(np.float32)
TARGETS = np.random.default_rng(1).integers(0, 11, (4, 3)).astype(np.int32)


def by_definition(logits, targets):
    """In float64: minus the log-probabilities, and the derivative of their sum."""
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], -1)[..., 0], np.exp(log_p) - np.eye(shifted.shape[-1])[
        targets
    ]


def test_values_and_derivative():
    losses, derivative = by_definition(LOGITS, TARGETS)
    np.testing.assert_allclose(ops.convert_to_numpy(cross_entropy(LOGITS, TARGETS)), losses, rtol=1e-5)
    mine = input_gradient(lambda x: cross_entropy(x, TARGETS), LOGITS)
    np.testing.assert_allclose(ops.convert_to_numpy(mine), derivative, atol=1e-6)


LARGE = np.array(
    [[1e4, 1e4, -1e4], [1e6, 1e6 - 1, 0.0], [1e8, 1e8, 1e8], [1e4, 0.0, -1e4], [-3e38, 3e38, 0.0], [0.0, -np.inf, 1.0]],
    np.float32,
)


def test_large_logits_lose_no_digits():
    """Sums with such logits would: log(2) + 1e8 - 1e8 is 0 in float32."""
    targets = np.array([0, 1, 2, 1, 1, 0])
    losses, derivative = by_definition(LARGE, targets)
    assert losses[:4] == pytest.approx([np.log(2), 1 + np.log1p(np.exp(-1)), np.log(3), 1e4])
    np.testing.assert_allclose(ops.convert_to_numpy(cross_entropy(LARGE, targets)), losses, rtol=1e-6)
    mine = input_gradient(lambda x: cross_entropy(x, targets), LARGE)
    np.testing.assert_allclose(ops.convert_to_numpy(mine), derivative, atol=1e-6)


X = np.random.default_rng(0).random((6, 8), "float32")
Y = np.arange(6) % 3


def functional(z):
    inputs = keras.Input((3,))
    return keras.Model(inputs, layers.Identity()(ops.softmax(inputs)))(z)


PROBABILITIES = {
    "layer": layers.Softmax(),
    "cast": lambda z: layers.Activation("linear", dtype="float32")(layers.Activation("softmax")(z)),
    "last_step": lambda z: layers.Softmax()(layers.RepeatVector(2)(z))[:, -1],
    "functional": functional,
    "logarithm": lambda z: ops.log(ops.softmax(z)),
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


@pytest.mark.parametrize("head", [ops.sigmoid])
def test_a_sigmoid_is_refused_wherever_it_stands(head):
    for run in (measure, lesion_curve):
        with pytest.raises(ValueError, match="sigmoid"):
            run(ending_in(head), (X, Y))


def test_probabilities_of_unknown_origin_are_refused():
    """Nothing silently wrong: their loss as logits would be of a softmax of a softmax."""
    mean = ending_in(lambda z: layers.Average(dtype="float32")([layers.Softmax()(z), layers.Softmax()(2 * z)]))
    for run in (measure, lesion_curve):
        with pytest.raises(ValueError, match="look like probabilities"):
            run(mean, (X, Y))
    logits = keras.Model(mean.input, ops.log(mean.output))
    assert np.isfinite(measure(logits, (X, Y))[1])


@pytest.mark.parametrize("run", [measure, lesion_curve, lambda model, data: score(model, [{}], data)])
def test_samples_that_are_not_finite_are_refused(run):
    model, x = create_model("highway_fc10", depth=2), np.zeros((4, 28, 28, 1), "float32")
    x[-1] = np.nan
    with pytest.raises(ValueError, match=r"finite numbers\. Received: NaN"):
        run(model, (x, np.zeros(4, int)))


def spoilt(model):
    """Its weights are finite, as in every file, and its first class overflows."""
    for weight in model.layers[-1].weights:
        first = np.arange(weight.shape[-1]) == 0
        weight.assign(np.where(first, 3e38, keras.ops.convert_to_numpy(weight)))
    return model


def test_evaluate(tmp_path, capsys):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (20, 28, 28), np.uint8), rng.integers(1, 10, 20)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    weights_file.save(spoilt(create_model("highway_fc10")), tmp_path / "net.weights.h5", "highway_fc10", 10)
    assert main(["evaluate", str(tmp_path / "net.weights.h5"), "--data", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["loss"] is None and report["images"] == 20 and report["accuracy"] == 0
