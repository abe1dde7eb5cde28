"""Iterative estimation: errors by NumPy from the traces, and the best combination of estimates by drawing them."""

import keras
import numpy as np
import pytest
from miniatures import batch, miniature

from keras_highway.analysis import estimation_error, minimum_variance, trace
from keras_highway.layers import HighwayDense


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


def test_one_stage_without_transitions_and_wrong_stages():
    model = miniature("dense_stack")
    x = batch(model, 3)
    assert estimation_error(model, x)["stage1"].unit_std.shape == (3, 6)
    with pytest.raises(ValueError, match="stage='stage2'"):
        estimation_error(model, x, "stage2")
    inputs = keras.Input((8,))
    narrow = HighwayDense(name="stage1_block1")(inputs)
    wide = HighwayDense(name="stage1_block2")(keras.layers.Dense(9)(narrow))
    with pytest.raises(ValueError, match="one shape"):
        estimation_error(keras.Model(inputs, wide), np.zeros((3, 8), "float32"))


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
    """No other weights give less variance, and this variance is what a million draws show."""
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


def test_arrays_broadcast():
    best = minimum_variance(np.array([1.0, 2.0]), np.ones((3, 1)))
    assert best.weight_a.shape == best.weight_b.shape == best.variance.shape == (3, 2)
    np.testing.assert_allclose(best.weight_a + best.weight_b, 1)


@pytest.mark.parametrize("arguments", [(-1.0, 1.0), (1.0, 1.0, 1.5), (1.0, 1.0, 1.0), (0.0, 0.0)])
def test_impossible_variances_are_refused(arguments):
    with pytest.raises(ValueError, match="cov="):
        minimum_variance(*arguments)
