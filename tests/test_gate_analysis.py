"""Gates and iterative estimation over a data set: NumPy gives the same values from the traces."""

import keras
import numpy as np
import pytest
from miniatures import MINIATURES, batch, miniature, numpy

from keras_highway.analysis import (
    blocks,
    estimation_error,
    gate_activity,
    gate_bias,
    gate_routing,
    lesion_curve,
    minimum_variance,
    trace,
)
from keras_highway.layers import HighwayDense
from keras_highway.models.builder import build
from keras_highway.specs import override


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
        ("dense_stack", {"gate": "low_rank", "gate_rank": 2}),
        ("dense_stack", {"gate": "channel"}),
        ("conv_stack", {}),
        ("conv_net", {"gate": "tied"}),
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
    [("residual", "t", "lesion_curve"), ("c_only", "t", "use gate='c'"), ("coupled", "c", "use gate='t'")],
)
def test_constant_gates_are_an_error(analysis, gating, gate, message):
    with pytest.raises(ValueError, match=message):
        analysis(miniature("dense_stack", gating=gating), gate=gate)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros((0, 28, 28, 1)), "empty"),
        (np.zeros((28, 28, 1)), "batch axis"),
        (np.zeros((3, 32, 32, 3)), "x.shape"),
        ([(np.zeros((2, 28, 28, 1)), np.zeros(2), np.ones(2))], "sample weights"),
    ],
)
def test_wrong_data(data, message):
    with pytest.raises(ValueError, match=message):
        gate_activity(miniature("dense_stack"), data)


def test_unknown_blocks_and_models_without_blocks():
    model = miniature("dense_stack")
    with pytest.raises(ValueError, match="Did you mean 'stage1_block1'"):
        gate_activity(model, batch(model), blocks=["stage1_blok1"])
    with pytest.raises(ValueError, match="batch_size=0"):
        gate_activity(model, batch(model), batch_size=0)
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    for analysis in (gate_bias, lambda m: gate_activity(m, np.zeros((1, 3)))):
        with pytest.raises(ValueError, match="no gated blocks"):
            analysis(plain)


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


@pytest.mark.parametrize("gating", ["residual", "coupled"])
def test_errors_are_those_of_the_traces(gating):
    model = miniature("conv_net", gating=gating, input_shape=(32, 32, 3))
    x = batch(model, 5)
    actual = estimation_error(model, x, batch_size=2)
    traces = trace(model, x)
    assert list(actual) == ["stage1", "stage2"] and actual["stage1"].blocks == tuple(list(traces)[:3])
    for stage, error in actual.items():
        last = traces[error.blocks[-1]].y.astype("float64")
        assert error.samples == 5 and error.unit_mean.shape == (len(error.blocks), *last.shape[1:])
        np.testing.assert_allclose(error.scale, last.std(0).mean(), rtol=1e-4)
        for k, name in enumerate(error.blocks):
            difference = traces[name].y - last
            np.testing.assert_allclose(error.unit_mean[k], difference.mean(0), atol=1e-4)
            np.testing.assert_allclose(error.mean[k], difference.mean(), atol=1e-4)
            np.testing.assert_allclose(error.std[k], difference.std(0).mean(), atol=1e-4)
        assert error.mean[-1] == error.std[-1] == 0 and (error.std[:-1] > 0).all()
        assert list(estimation_error(model, x, stage)) == [stage]


def test_the_estimator_by_hand():
    best = minimum_variance(4.0, 1.0)
    assert (best.weight_a, best.weight_b, best.variance) == (0.2, 0.8, 0.8)
    assert np.log(best.weight_b / best.weight_a) == pytest.approx(np.log(4.0 / 1.0))  # the gate's logit [UIE, Eq. 12]
    same = minimum_variance(1.0, 1.0, -0.5)
    assert (same.weight_a, same.weight_b, same.variance) == (0.5, 0.5, 0.25)
    beyond = minimum_variance(1.0, 4.0, 1.5)  # b's error follows a's: subtract some of b
    assert beyond.weight_b == -0.25 and beyond.variance == 0.875


@pytest.mark.parametrize("cov", [-0.9, 0.0, 0.7, 1.3])
def test_the_estimator_by_monte_carlo(cov):
    """No other weights give less variance, and a million draws show this variance."""
    var_a, var_b = 1.0, 2.5
    rng = np.random.default_rng(7)
    truth = rng.normal(3.0, 2.0, 1_000_000)
    noise = np.linalg.cholesky([[var_a, cov], [cov, var_b]]) @ rng.normal(size=(2, truth.size))
    a, b = truth + noise
    best = minimum_variance(var_a, var_b, cov)

    def error(weight_b):
        return (1 - weight_b) * a + weight_b * b - truth

    drawn = error(best.weight_b)
    assert abs(drawn.mean()) < 5 * np.sqrt(best.variance / truth.size)
    assert drawn.var() == pytest.approx(best.variance, rel=0.01)
    tried = np.linspace(best.weight_b - 1, best.weight_b + 1, 21)
    variances = [error(weight).var() for weight in tried]
    assert np.argmin(variances) == 10
    assert best.variance <= min(var_a, var_b)


@pytest.mark.parametrize("arguments", [(-1.0, 1.0), (1.0, 1.0, 1.5), (1.0, 1.0, 1.0), (0.0, 0.0)])
def test_impossible_variances_are_refused(arguments):
    with pytest.raises(ValueError, match="cov="):
        minimum_variance(*arguments)
