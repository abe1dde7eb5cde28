"""State that layers carry from batch to batch: an analysis goes on from it, and leaves it as it was."""

import keras
import numpy as np
import pytest
from keras import layers
from miniatures import numpy

from keras_highway import analysis
from keras_highway.analysis.scores import Scorer, measure
from keras_highway.layers import CarriedLSTM, HighwayDense

X = np.random.default_rng(0).random((3, 2, 4, 6), "float32")  # three batches of two streams
LABELS = np.arange(24).reshape(3, 2, 4) % 3
PAIRS = list(zip(X, LABELS, strict=True))


@keras.saving.register_keras_serializable(package="keras_highway_tests")
class Running(layers.Layer):
    """A layer of one's own that adds the sum of what it has seen."""

    def build(self, input_shape):
        self.total = self.add_weight((), "zeros", trainable=False, name="total")

    def call(self, x):
        y = x + keras.ops.convert_to_tensor(self.total)
        self.total.assign(keras.ops.mean(y))
        return y


KINDS = {
    "carried": lambda: CarriedLSTM(6, 2),
    "keras": lambda: layers.LSTM(6, stateful=True, return_sequences=True),
    "own": Running,
}


def network(kind):
    """A net that has read one batch."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input(batch_shape=(2, 4, 6))
    x = KINDS[kind]()(inputs)
    for name in ("stage1_block1", "stage1_block2"):
        x = HighwayDense(gate_bias=0.0, name=name)(x)
    model = keras.Model(inputs, layers.Dense(3)(x))
    model(X[0], training=False)
    return model


def goes_on(model):
    """What the model says to the next batch."""
    return numpy(model(X[1], training=False))


ANALYSES = {
    "trace": lambda m: analysis.trace(m, X[2]),
    "gate_activity": lambda m: analysis.gate_activity(m, list(X)),
    "gate_routing": lambda m: analysis.gate_routing(m, [(x, np.array([0, 1])) for x in X]),
    "estimation_error": lambda m: analysis.estimation_error(m, list(X)),
    "measure": lambda m: measure(m, PAIRS),
    "score": lambda m: analysis.score(m, [{}, {"stage1_block1": None}], PAIRS),
    "latency_curve": lambda m: analysis.latency_curve(m, ["stage1_block1"], X[2], repeats=1),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, "trace") for kind in KINDS] + [("own", name) for name in ANALYSES if name != "trace"]
)
def test_an_analysis_leaves_the_state_as_it_was(kind, name):
    expected = goes_on(network(kind))
    model = network(kind)
    ANALYSES[name](model)
    np.testing.assert_array_equal(goes_on(model), expected)


def test_gate_stats_leave_the_state_as_it_was(tmp_path):
    expected = goes_on(network("own"))
    model = network("own")
    stats = analysis.GateStats(X[2], tmp_path, tensorboard=False)
    stats.set_model(model)
    stats.record(0, 0)
    np.testing.assert_array_equal(goes_on(model), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trace_goes_on_from_the_state(kind):
    model = network(kind)
    first, again = (analysis.trace(model, X[1]).output for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_allclose(first, goes_on(model), rtol=1e-6)


def test_state_is_carried_within_an_analysis():
    outputs, model = [], network("own")
    for x in X:
        outputs.append(analysis.Tracer(model)(x, carry=True))
    t = np.concatenate([trace["stage1_block2"].t for trace in outputs])
    activity = analysis.gate_activity(network("own"), list(X))
    np.testing.assert_allclose(activity.mean["stage1_block2"], t.mean(0), atol=1e-6)
    logits = np.stack([trace.output for trace in outputs])
    loss = numpy(keras.losses.sparse_categorical_crossentropy(LABELS, logits, from_logits=True)).mean()
    model = network("own")
    for _ in range(2):  # each pass of a `Scorer` begins where the model stands
        np.testing.assert_allclose(measure(model, PAIRS)[1], loss, rtol=1e-5)
        many = Scorer(model, [{}] * 65 + [{"stage1_block1": None}])(PAIRS)  # two rewirings, which share the layer
        np.testing.assert_allclose(many.loss[:65], loss, rtol=1e-5)


def test_state_is_kept_where_an_analysis_fails():
    expected = goes_on(network("own"))
    model = network("own")
    with pytest.raises(ValueError, match=r"x\.shape"):
        analysis.gate_activity(model, [X[0], X[1][..., :5]])
    np.testing.assert_array_equal(goes_on(model), expected)
