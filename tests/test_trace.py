"""A trace re-computes the forward pass exactly, for every gating and family."""

from itertools import pairwise

import keras
import numpy as np
import pytest
from keras import layers
from miniatures import batch, miniature, numpy

from keras_highway import analysis
from keras_highway.analysis import Tracer, blocks, lesion, outputs, rewire, trace
from keras_highway.analysis.scores import Scorer, measure
from keras_highway.equation import mix
from keras_highway.gating import GATINGS, get_gating
from keras_highway.layers import CarriedLSTM, HighwayDense

CHANGES = {
    **{gating: {"gating": gating} for gating in GATINGS},
    "low_rank": {"gate": "low_rank", "gate_rank": 2},
    "channel": {"gate": "channel"},
    "stochastic_depth": {"stochastic_depth": 0.5},
}


def assert_exact(model, x):
    """Output, chain and mix of a trace, all with a difference of 0.0."""
    signals = trace(model, x)
    known = blocks(model)
    assert list(signals) == list(known)
    assert np.array_equal(signals.output, numpy(model(x, training=False)))
    for name, entry in signals.items():
        block = known[name]
        assert entry.x.shape == entry.h.shape == entry.y.shape
        assert np.broadcast_to(entry.t, entry.x.shape).shape == np.broadcast_to(entry.c, entry.x.shape).shape
        c = None if get_gating(block.gating).c == "coupled" else entry.c
        y = block.finish(mix(entry.x, entry.h, entry.t, c, dtype=block.skip_dtype))
        assert np.array_equal(numpy(y), entry.y)
    return signals


@pytest.mark.parametrize(
    ("family", "change"),
    [(f, c) for f in ("conv_net", "conv_stack", "dense_stack") for c in CHANGES] + [("bottleneck", "coupled")],
)
def test_trace_recomputes_the_forward_pass_exactly(family, change):
    model = miniature(family, **CHANGES[change])
    signals = assert_exact(model, batch(model))
    assert all(np.ptp(entry.h) > 0 for entry in signals.values())


def test_output_of_a_block_is_the_input_of_the_next():
    model = miniature("dense_stack")
    signals = list(trace(model, batch(model)).values())
    assert len(signals) == 3
    for block, following in pairwise(signals):
        assert np.array_equal(block.y, following.x)
    head = model.get_layer("head")
    assert np.array_equal(numpy(head(signals[-1].y)), numpy(model(batch(model), training=False)))


def test_gates_are_those_of_the_gating():
    constants = {"plain": (1.0, 0.0), "residual": (1.0, 1.0), "t_only": (None, 1.0), "c_only": (1.0, None)}
    for gating, gates in constants.items():
        model = miniature("conv_stack", gating=gating)
        entry = trace(model, batch(model))["stage1_block1"]
        for value, expected in zip((entry.t, entry.c), gates, strict=True):
            if expected is None:
                assert value.shape == entry.x.shape and 0 < value.min() < value.max() < 1
            else:
                assert value.shape == () and value == expected
    model = miniature("conv_stack", gating="coupled")
    entry = trace(model, batch(model))["stage1_block1"]
    assert np.array_equal(entry.c, 1 - entry.t)


def test_mixed_precision_gives_arrays_numpy_knows():
    model = miniature("conv_stack", dtype="mixed_bfloat16")
    signals = assert_exact(model, batch(model))
    assert {array.dtype for entry in signals.values() for array in entry} == {np.dtype("float32")}


def test_nested_and_sequential_models():
    backbone = miniature("conv_net", include_top=False)
    inputs = keras.Input((32, 32, 3))
    nested = keras.Model(inputs, keras.layers.GlobalMaxPooling2D()(backbone(inputs)))
    assert_exact(nested, batch(nested))
    sequential = keras.Sequential([keras.Input((32, 32, 3)), backbone, keras.layers.Flatten()])
    assert_exact(sequential, batch(sequential))


def encoder_of_words(pooled_inside):
    """A nested model that gets its mask from outside: the mean is over words alone."""
    pool = keras.layers.GlobalAveragePooling1D()
    x = inputs = keras.Input((5, 4))
    for name in ("b1", "b2"):
        x = HighwayDense(name=name)(x)
    encoder = keras.Model(inputs, pool(x) if pooled_inside else x, name="encoder")
    words = keras.Input((5,), dtype="int32")
    y = encoder(keras.layers.Embedding(7, 4, mask_zero=True)(words))
    return keras.Model(words, y if pooled_inside else pool(y))


@pytest.mark.parametrize("pooled_inside", [True, False])
@pytest.mark.filterwarnings("ignore:Layer 'encoder' .of type Functional. was passed an input with a mask")  # Keras's
def test_masks_go_through_traced_and_lesioned_blocks(pooled_inside):
    model = encoder_of_words(pooled_inside)
    x = np.array([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0]])
    signals = trace(model, x)
    assert np.array_equal(signals.output, numpy(model(x, training=False)))
    for wiring, y in (({}, signals["b2"].y), (lesion("b2"), signals["b1"].y)):
        words = (x != 0)[..., None]
        by_hand = (y * words).sum(1) / words.sum(1)
        np.testing.assert_allclose(numpy(rewire(model, wiring)(x, training=False)), by_hand, atol=1e-6)


def test_rewired_models_are_traced_by_what_stands_there():
    model = miniature("conv_net")
    x = batch(model)
    swapped = rewire(model, {"stage1_block2": "stage1_block3", "stage1_block3": "stage1_block2"})
    assert list(trace(swapped, x))[:3] == ["stage1_block1", "stage1_block3", "stage1_block2"]
    twice = rewire(model, {"stage1_block2": "stage1_block3"})
    signals = trace(twice, x)
    assert list(signals)[:3] == ["stage1_block1", "stage1_block3", "stage1_block3:2"]
    assert np.array_equal(signals["stage1_block3"].y, signals["stage1_block3:2"].x)
    assert not np.array_equal(signals["stage1_block3"].h, signals["stage1_block3:2"].h)
    lesioned = rewire(model, lesion("stage1_block2"))
    assert "stage1_block2" not in trace(lesioned, x)


def test_a_tracer_follows_the_weights_and_leaves_the_model_alone():
    model = miniature("dense_stack")
    model.compile("adam", "mse")
    optimizer, names = model.optimizer, [w.path for w in model.weights]
    before, config = model.get_layer("stage1_block1").output, model.get_config()
    tracer = Tracer(model)
    x = batch(model)
    first = tracer(x)
    bias = model.get_layer("stage1_block1").transform_gate.bias
    bias.assign(numpy(bias) + 1.0)
    second = tracer(x)
    assert (second["stage1_block1"].t > first["stage1_block1"].t).all()
    assert np.array_equal(second.output, numpy(model(x, training=False)))
    assert model.optimizer is optimizer and [w.path for w in model.weights] == names
    assert model.get_layer("stage1_block1").output is before and model.get_config() == config
    assert tracer(x[:1]).output.shape == (1, 10)


def test_wrong_models_and_names():
    model = miniature("conv_net")
    with pytest.raises(ValueError, match="Did you mean 'stage1_block1'"):
        trace(model, batch(model), blocks=["stage1_blok1"])
    with pytest.raises(ValueError, match="block=3"):
        trace(model, batch(model), blocks=[3])
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="no gated blocks"):
        trace(plain, np.zeros((1, 3)))

    class Subclassed(keras.Model):
        def call(self, x):
            return x

    with pytest.raises(ValueError, match="Subclassed"):
        blocks(Subclassed())


@pytest.mark.parametrize("signal", ["t", "y"])
def test_outputs_are_what_trace_measures(signal):
    model = miniature("conv_net", blocks=(1, 1), widths=(4, 4))
    symbols = outputs(model, signal)
    x = batch(model)
    traced = trace(model, x)
    values = keras.Model(model.input, [symbols.output, dict(symbols)])(x)
    np.testing.assert_array_equal(numpy(values[0]), numpy(model(x)))
    assert list(symbols) == list(traced)
    for name, value in values[1].items():
        np.testing.assert_array_equal(numpy(value), getattr(traced[name], signal))


def test_a_loss_on_the_gates_closes_them():
    model = miniature("dense_stack")
    gates = outputs(model, "t")
    mean = keras.ops.mean(keras.ops.stack(list(gates.values())), axis=(0, 2))
    both = keras.Model(model.input, [gates.output, mean])
    both.compile(keras.optimizers.SGD(0.05), ["mse", lambda y, t: keras.ops.mean(t)], run_eagerly=True)
    x = batch(model, 4)
    predictions, before = (numpy(value) for value in both(x))
    for _ in range(3):
        both.train_on_batch(x, [predictions, np.zeros((4, 1))])
    assert numpy(both(x)[1]).mean() < before.mean()


X = np.random.default_rng(0).random((3, 2, 4, 6), "float32")  # three batches of two streams
LABELS = np.arange(24).reshape(3, 2, 4) % 3
PAIRS = list(zip(X, LABELS, strict=True))


@keras.saving.register_keras_serializable(package="keras_highway_tests")
class Running(layers.Layer):
    """A user's layer that adds the sum of its inputs."""

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


def next_output(model):
    """Outputs of the model for the next batch."""
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
    expected = next_output(network(kind))
    model = network(kind)
    ANALYSES[name](model)
    np.testing.assert_array_equal(next_output(model), expected)


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
