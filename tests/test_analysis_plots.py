"""Pictures of the analyses: what is drawn is what was measured."""

import numpy as np
import pytest
from matplotlib.image import imread
from miniatures import batch, miniature

from keras_highway import analysis


@pytest.fixture(scope="module")
def dense():
    model = miniature("dense_stack", depth=6)
    return model, (batch(model, 8), np.arange(8))


def tables(figure):
    """Arrays of the pictures in a figure, by the first words of their titles."""
    return {axis.get_title(): axis.get_images()[0].get_array() for axis in figure.axes if axis.get_title()}


def test_figure_2(dense, tmp_path):
    model, (x, _) = dense
    bias, activity, traces = analysis.gate_bias(model), analysis.gate_activity(model, x), analysis.trace(model, x)
    figure = analysis.plot_gate_summary(bias, activity, traces, tmp_path / "two.png", sample=3, title="net")
    drawn = list(tables(figure).values())
    np.testing.assert_array_equal(drawn[0], list(bias.values()))
    np.testing.assert_array_equal(drawn[1], list(activity.mean.values()))
    np.testing.assert_array_equal(drawn[2], [entry.t[3] for entry in traces.values()])
    np.testing.assert_array_equal(drawn[3], [entry.y[3] for entry in traces.values()])
    assert figure.get_suptitle() == "net" and imread(tmp_path / "two.png").shape[1] > 1500


def test_figure_3(dense):
    model, data = dense
    routing = analysis.gate_routing(model, data)
    drawn = tables(analysis.plot_routing(routing, (0, 7)))
    assert list(drawn) == ["class 0: mean t − overall mean", "class 7: mean t − overall mean"]
    expected = [difference[7] for difference in routing.difference.values()]
    np.testing.assert_array_equal(drawn["class 7: mean t − overall mean"], expected)
    assert len(tables(analysis.plot_routing(routing))) == 2
    with pytest.raises(ValueError, match=r"classes=\[0, 12\]"):
        analysis.plot_routing(routing, (0, 12))


def test_gate_maps_are_means_over_channels():
    model = miniature("conv_stack")
    activity = analysis.gate_activity(model, batch(model, 3))
    drawn = tables(analysis.plot_gate_maps(activity))
    assert [title.split("\n")[0] for title in drawn] == list(activity.mean)
    for array, mean in zip(drawn.values(), activity.mean.values(), strict=True):
        np.testing.assert_allclose(array, mean.mean(-1))
    with pytest.raises(ValueError, match=r"fully connected and of one width.*\(24, 24, 4\)"):
        analysis.plot_gate_summary(activity.mean, activity, analysis.trace(model, batch(model)))


def test_maps_are_not_of_dense_nets(dense):
    model, (x, _) = dense
    with pytest.raises(ValueError, match=r"gates of shapes \[\(6,\)\]"):
        analysis.plot_gate_maps(analysis.gate_activity(model, x))


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_curves(dense, metric):
    model, data = dense

    def shown(values):
        return 100 * (1 - values) if metric == "accuracy" else values

    lesions = analysis.lesion_curve(model, data)
    axis = analysis.plot_lesion_curve({"a": lesions, "b": lesions}, metric=metric).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), shown(getattr(lesions, metric)))
    np.testing.assert_allclose(axis.lines[1].get_ydata(), shown(getattr(lesions, f"intact_{metric}")))
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b"]
    shuffled = analysis.reshuffle_curve(model, data)
    axis = analysis.plot_reshuffle_curve(shuffled, metric=metric).axes[0]
    expected = np.stack([shuffled.tau, shown(getattr(shuffled, metric))], 1)
    np.testing.assert_allclose(axis.collections[0].get_offsets(), expected)
    dropped = analysis.drop_k_curve(model, data)
    axis = analysis.plot_drop_curve(dropped, metric=metric).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), shown(getattr(dropped, metric)).mean(1))


def test_estimation_errors_a_panel_a_stage():
    model = miniature("conv_net", input_shape=(32, 32, 3))
    errors = analysis.estimation_error(model, batch(model, 3))
    figure = analysis.plot_estimation_error(errors)
    assert len(figure.axes) == 2
    for axis, error in zip(figure.axes, errors.values(), strict=True):
        np.testing.assert_allclose(axis.lines[0].get_ydata(), error.mean)
    with pytest.raises(ValueError, match="no stage to draw"):
        analysis.plot_estimation_error({})


def test_depth_with_and_without_latency(dense):
    model, data = dense
    curve = analysis.trim_curve(model, data)
    latency = analysis.latency_curve(model, curve.removed, data[0], depths=(5, 0), repeats=2)
    figure = analysis.plot_trim_curve(curve, latency)
    assert len(figure.axes) == 3 and len(analysis.plot_trim_curve(curve).axes) == 2
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 100 * (1 - curve.accuracy))
    np.testing.assert_allclose(figure.axes[2].lines[0].get_ydata(), 1e3 * latency.median)
    other = curve._replace(depth=curve.depth[:2], accuracy=curve.accuracy[:2], parameters=curve.parameters[:2])
    axis = analysis.plot_trim_curve({"a": curve, "b": other}).axes[0]
    np.testing.assert_allclose(axis.lines[1].get_ydata(), 100 * (1 - other.accuracy))
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["a", "b"]


def test_nothing_to_draw_and_unknown_metrics(dense):
    with pytest.raises(ValueError, match="no curve to draw"):
        analysis.plot_lesion_curve({})
    with pytest.raises(ValueError, match="metric='f1'"):
        analysis.plot_lesion_curve(analysis.lesion_curve(*dense), metric="f1")
