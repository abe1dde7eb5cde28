"""Gates over a data set: what is measured is what NumPy makes of the traces."""

import keras
import numpy as np
import pytest
from miniatures import MINIATURES, batch, miniature, numpy

from keras_highway.analysis import blocks, estimation_error, gate_activity, gate_bias, gate_routing, lesion_curve, trace
from keras_highway.analysis.trace import Moments
from keras_highway.layers import HighwayConv2D, HighwayDense
from keras_highway.models.builder import build
from keras_highway.specs import override


def test_moments_of_batches_are_those_of_the_whole():
    rng = np.random.default_rng(0)
    values = 1e6 + rng.normal(size=(103, 3, 2))  # the textbook sum of squares loses 5 of 16 digits here
    moments = Moments()
    for part in np.split(values, [1, 2, 40, 40, 90]):
        moments.add(part)
    assert moments.count == 103
    np.testing.assert_allclose(moments.mean, values.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.variance, values.var(0), rtol=1e-9)
    with pytest.raises(ValueError, match="one shape"):
        moments.add(np.zeros((2, 3, 3)))


@pytest.mark.parametrize("family", ["dense_stack", "conv_stack", "conv_net"])
def test_activity_is_that_of_the_traces(family):
    model = miniature(family, input_shape=(32, 32, 3) if family == "conv_net" else None)
    x = batch(model, 7)
    activity = gate_activity(model, x, batch_size=3, threshold=0.4)
    traces = trace(model, x)
    assert activity.samples == 7 and list(activity.mean) == list(traces)
    for name, entry in traces.items():
        t = entry.t.astype("float64")
        assert activity.mean[name].shape == entry.x.shape[1:]
        np.testing.assert_allclose(activity.mean[name], t.mean(0), atol=1e-6)
        np.testing.assert_allclose(activity.variance[name], t.var(0), atol=1e-6)
        np.testing.assert_allclose(activity.highest[name], t.max(0), atol=1e-6)
        near = np.abs(t - 0.4) < 1e-5  # batches of another size may round to the other side
        np.testing.assert_allclose(activity.open_share[name], (t > 0.4).mean(0), atol=near.mean(0).max() + 1e-12)


def test_blocks_are_in_the_networks_order_not_in_that_of_their_names():
    """PyTorch's tree sorts the outputs of a model by name: block 10 before block 2."""
    model = miniature("dense_stack", depth=12)
    names = [f"stage1_block{i + 1}" for i in range(11)]
    assert list(gate_activity(model, batch(model, 2)).mean) == names


def test_activity_of_a_generator_of_pairs_with_a_transform():
    model = miniature("dense_stack")
    pixels = (255 * batch(model, 5)).astype("uint8")
    pairs = ((part, np.zeros(len(part), int)) for part in np.split(pixels, [2]))
    activity = gate_activity(model, pairs, transform=lambda x: x / np.float32(255), blocks="stage1_block2")
    assert list(activity.mean) == ["stage1_block2"] and activity.samples == 5
    t = trace(model, pixels / np.float32(255))["stage1_block2"].t
    np.testing.assert_allclose(activity.mean["stage1_block2"], t.mean(0), atol=1e-6)


def test_a_gate_a_channel_has_one_number_a_channel_and_no_variance():
    model = miniature("conv_net", gate="channel")
    activity = gate_activity(model, batch(model, 3), batch_size=2)
    bias = gate_bias(model)
    for name, mean in activity.mean.items():
        assert mean.shape == (1, 1, len(bias[name]))
        np.testing.assert_allclose(mean[0, 0], 1 / (1 + np.exp(-bias[name])), rtol=1e-6)
        assert (activity.variance[name] < 1e-15).all()


def test_routing_is_class_mean_minus_overall_mean():
    model = miniature("dense_stack")
    x, labels = batch(model, 9), np.array([3, 1, 1, 3, 3, 1, 7, 1, 3])
    routing = gate_routing(model, (x, labels), batch_size=4)
    assert routing.classes.tolist() == [1, 3, 7] and routing.samples.tolist() == [4, 4, 1]
    for name, entry in trace(model, x).items():
        np.testing.assert_allclose(routing.mean[name], entry.t.mean(0), atol=1e-6)
        expected = [entry.t[labels == k].mean(0) - entry.t.mean(0) for k in (1, 3, 7)]
        np.testing.assert_allclose(routing.difference[name], expected, atol=1e-6)
        weighted = (routing.difference[name] * routing.samples[:, None]).sum(0)
        np.testing.assert_allclose(weighted, 0, atol=1e-12)  # the class means average to the overall mean


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("dense_stack", {}),
        ("dense_stack", {"gate": "low_rank", "gate_rank": 2}),
        ("dense_stack", {"gate": "channel"}),
        ("conv_stack", {}),
        ("conv_stack", {"gate": "low_rank", "gate_rank": 2}),
        ("conv_net", {}),
        ("conv_net", {"gate": "pointwise"}),
        ("conv_net", {"gate": "tied"}),
        ("conv_net", {"batch_norm": False}),
        ("bottleneck", {}),
    ],
)
def test_the_bias_of_every_kind_of_gate_starts_at_the_specs_value(family, changes):
    model = build(override(MINIATURES[family], gate_bias=-3.25, **changes))
    actual = gate_bias(model)
    assert list(actual) == list(blocks(model))
    assert all((bias == -3.25).all() and bias.ndim == 1 for bias in actual.values())


def test_the_bias_is_that_of_the_weights_and_of_the_carry_gate():
    model = miniature("dense_stack", gating="full", gate_bias=-2.0)
    block = blocks(model)["stage1_block2"]
    np.testing.assert_array_equal(gate_bias(model)["stage1_block2"], numpy(block.transform_gate.bias))
    np.testing.assert_array_equal(gate_bias(model, "c")["stage1_block2"], numpy(block.carry_gate.bias))
    inputs = keras.Input(model.input_shape[1:])
    nested = keras.Model(inputs, keras.layers.Rescaling(2.0)(model(inputs)))
    np.testing.assert_array_equal(gate_bias(nested)["stage1_block2"], numpy(block.transform_gate.bias))


@pytest.mark.parametrize("analysis", [gate_bias, lambda m, **k: gate_activity(m, batch(m), **k)])
@pytest.mark.parametrize(
    ("gating", "gate", "message"),
    [
        ("residual", "t", "lesion_curve"),
        ("plain", "c", "lesion_curve"),
        ("c_only", "t", "use gate='c'"),
        ("coupled", "c", "use gate='t'"),
        ("coupled", "h", "gate='h'"),
    ],
)
def test_constant_gates_are_an_error(analysis, gating, gate, message):
    with pytest.raises(ValueError, match=message):
        analysis(miniature("dense_stack", gating=gating), gate=gate)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((0, 28, 28, 1)), "empty"),
        ([], "empty"),
        (np.zeros((28, 28, 1)), "batch axis"),
        (np.zeros((3, 32, 32, 3)), "x.shape"),
        ((np.zeros((3, 28, 28, 1)), np.zeros(2)), "equal length"),
        (None, "NoneType"),
        ("mnist", "str"),
        ([1, 2], "Each batch"),
        ([(np.zeros((2, 28, 28, 1)), np.zeros(2), np.ones(2))], "sample weights"),
    ],
)
def test_wrong_data(data, message):
    with pytest.raises(ValueError, match=message):
        gate_activity(miniature("dense_stack"), data)


WRONG_LABELS = {
    "floats": np.zeros((2, 10)),
    "negative": np.array([0, -1]),
    "one-hot": np.eye(2, 10, dtype=int),
    "one per pixel": np.zeros((2, 28, 28), int),
}


@pytest.mark.parametrize("kind", WRONG_LABELS)
def test_routing_needs_one_class_number_per_sample(kind):
    model = miniature("dense_stack")
    with pytest.raises(ValueError, match="class numbers"):
        gate_routing(model, (batch(model), WRONG_LABELS[kind]))
    with pytest.raises(ValueError, match="no labels"):
        gate_routing(model, batch(model))


def test_labels_of_a_column_are_those_of_a_row():
    """As `keras.datasets.cifar10.load_data()` returns them."""
    model = miniature("dense_stack")
    x, labels = batch(model, 5), np.array([2, 0, 2, 1, 0])
    row, column = (gate_routing(model, (x, y), batch_size=2) for y in (labels, labels[:, None]))
    np.testing.assert_array_equal(row.classes, column.classes)
    np.testing.assert_array_equal(row.samples, column.samples)
    for name, difference in row.difference.items():
        np.testing.assert_array_equal(difference, column.difference[name])


def test_unknown_blocks_and_models_without_blocks():
    model = miniature("dense_stack")
    with pytest.raises(ValueError, match="Did you mean 'stage1_block1'"):
        gate_activity(model, batch(model), blocks=["stage1_blok1"])
    with pytest.raises(ValueError, match="batch_size=0"):
        gate_activity(model, batch(model), batch_size=0)
    with pytest.raises(ValueError, match="timedelta64"):
        gate_activity(model, batch(model), batch_size=np.timedelta64(3))
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for analysis in (gate_bias, lambda m: gate_activity(m, np.zeros((1, 3)))):
        with pytest.raises(ValueError, match="no gated blocks"):
            analysis(plain)


def test_all_samples_are_measured_in_batches_of_numpys_small_numbers():
    """200 + np.uint8(100) is 44: the last batch was empty, without a word."""
    model = miniature("dense_stack")
    x = batch(model, 300)
    measured, expected = (gate_activity(model, x, batch_size=size) for size in (np.uint8(100), 100))
    assert measured.samples == 300
    np.testing.assert_array_equal(measured.mean["stage1_block1"], expected.mean["stage1_block1"])


def test_a_tied_gate_that_a_batch_normalization_makes_last():
    inputs = keras.Input((5, 5, 4))
    norm = keras.layers.BatchNormalization(beta_initializer=keras.initializers.Constant(-1.5))
    gate = norm(keras.layers.Conv2D(4, 1)(inputs))
    model = keras.Model(inputs, HighwayConv2D(gate="tied", name="b")(inputs, gate=gate))
    np.testing.assert_array_equal(gate_bias(model)["b"], np.full(4, -1.5))


def test_models_of_several_inputs():
    """Samples are counted, not inputs."""
    inputs = [keras.Input((8,)), keras.Input((3,))]
    x = keras.layers.Dense(8)(keras.layers.Concatenate()(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(HighwayDense(gate="channel", name="stage1_block1")(x)))
    rng = np.random.default_rng(0)
    arrays = tuple(rng.normal(size=(6, n)).astype("float32") for n in (8, 3))
    data = [(arrays, np.arange(6) % 2)]
    assert gate_activity(model, data).samples == 6
    (error,) = estimation_error(model, data).values()
    assert error.samples == 6


# --- Forms of batches ---------------------------------------------------------


X, Y = np.random.default_rng(0).random((20, 5), "float32"), np.arange(20) % 3


def net(wrap=lambda x: x):
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((5,), name="features")
    for i in (1, 2):
        x = HighwayDense(name=f"stage1_block{i}")(x)
    return keras.Model(wrap(inputs), keras.layers.Dense(3, name="head")(x))


FORMS = {
    "one part": (lambda x: x, [(X[:8],), (X[8:],)]),  # as of `tf.data.Dataset.from_tensor_slices((x,))`
    "list": (lambda x: [x], [([X[:8]], Y[:8]), ([X[8:]], Y[8:])]),
    "dict": (lambda x: {"features": x}, [({"features": X[:8]}, Y[:8]), ({"features": X[8:]}, Y[8:])]),
}


@pytest.mark.parametrize("form", FORMS)
def test_batches_of_any_form_give_the_same_activity_and_losses(form):
    wrap, parts = FORMS[form]
    actual, expected = gate_activity(net(wrap), parts), gate_activity(net(), X)
    assert actual.samples == 20
    np.testing.assert_allclose(actual.mean["stage1_block2"], expected.mean["stage1_block2"], rtol=1e-6)
    if len(parts[0]) == 2:
        losses = [lesion_curve(net(w), data).loss for w, data in ((wrap, parts), (lambda x: x, (X, Y)))]
        np.testing.assert_allclose(*losses, rtol=1e-5)
    (error,) = estimation_error(net(wrap), parts).values()
    assert error.samples == 20


def test_a_last_batch_of_one_sample_may_be_lists():
    parts = [(X[:8].tolist(), Y[:8].tolist()), (X[8:9].tolist(), Y[8:9].tolist())]
    np.testing.assert_allclose(lesion_curve(net(), parts).loss, lesion_curve(net(), (X[:9], Y[:9])).loss, rtol=1e-5)


def test_batches_of_a_model_of_two_inputs_may_have_more_than_these():
    a, b = keras.Input((5,), name="a"), keras.Input((5,), name="b")
    x = HighwayDense(name="stage1_block1")(a + b)
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(3, name="head")(x))
    with pytest.warns(UserWarning, match="structure of `inputs`"):  # as in `predict`
        activity = gate_activity(model, [{"a": X, "b": X, "id": np.arange(20)}])
    assert activity.samples == 20
    with pytest.raises(ValueError, match="one input"):
        lesion_curve(keras.Model([a, b], keras.layers.Dense(3)(x)), [([X, X], Y)])
