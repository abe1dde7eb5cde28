"""Pictures of the analyses: what is drawn is what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread
from miniatures import batch, miniature

from keras_highway import analysis
from keras_highway.analysis import plots_gates
from keras_highway.analysis.plots import WIDTH, new_figure, write
from keras_highway.analysis.plots_training import Curve, draw_training, training_axes
from keras_highway.variants import VARIANTS
from training.figure4 import mark_break


@pytest.fixture(scope="module")
def dense():
    model = miniature("dense_stack", depth=6)
    return model, (batch(model, 8), np.arange(8))


def legend(axis):
    """Texts of a legend."""
    return [text.get_text() for text in axis.get_legend().get_texts()]


def has_whole_ticks(axis):
    """Whether all ticks of the horizontal axis are whole numbers."""
    return len(axis.get_xticks()) > 1 and all(float(tick).is_integer() for tick in axis.get_xticks())


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
    assert figure.get_suptitle() == "net" and imread(tmp_path / "two.png").shape[1] == 150 * WIDTH
    panels = [axis for axis in figure.axes if axis.get_title()]
    bars = [axis for axis in figure.axes if not axis.get_title()]
    gate = "t (0 shut, 1 open), power scale"
    assert [bar.get_xlabel() for bar in bars] == ["bias", gate, gate, "y"]
    assert [panel.get_ylabel() for panel in panels] == ["block"] * 4  # with nothing of a neighbour's beside it
    assert [panel.get_images()[0].get_clim() for panel in panels[1:3]] == [(0, 1), (0, 1)]
    for panel, bar in zip(panels, bars, strict=True):
        below, above = bar.get_position(), panel.get_position()
        assert below.y1 < above.y0 and (below.x0 + below.x1) == pytest.approx(above.x0 + above.x1)
        assert 0.8 * above.width < below.width <= above.width * 1.001  # arrows at the ends are beside it


def test_figure_3(dense):
    model, data = dense
    routing = analysis.gate_routing(model, data)
    figure = analysis.plot_routing(routing, (0, 7))
    drawn = tables(figure)
    assert list(drawn) == ["class 0", "class 7"]
    assert figure.axes[-1].get_xlabel() == "gate: mean of the class − mean of all samples"
    assert len({axis.get_images()[0].get_clim() for axis in figure.axes[:2]}) == 1
    expected = [difference[7] for difference in routing.difference.values()]
    np.testing.assert_array_equal(drawn["class 7"], expected)
    assert len(tables(analysis.plot_routing(routing))) == 2
    with pytest.raises(ValueError, match=r"classes=\[0, 12\]"):
        analysis.plot_routing(routing, (0, 12))


def test_gate_maps_are_means_over_channels():
    model = miniature("conv_stack")
    activity = analysis.gate_activity(model, batch(model, 3))
    figure = analysis.plot_gate_maps(activity)
    drawn = tables(figure)
    assert {axis.get_images()[0].get_clim() for axis in figure.axes[:-1] if axis.get_images()} == {(0, 1)}
    assert [title.split("\n")[0] for title in drawn] == list(activity.mean)
    for array, mean in zip(drawn.values(), activity.mean.values(), strict=True):
        np.testing.assert_allclose(array, mean.mean(-1))


def test_of_maps_a_column_is_a_channel_and_what_a_narrower_block_lacks_is_empty():
    stage = VARIANTS["mnist10_w16"].stages[0]
    stages = [replace(stage, filters=filters, highways=(3, 3)) for filters in (4, 6)]
    model = miniature("conv_stack", stages=stages)
    x = batch(model, 8)
    activity, traces = analysis.gate_activity(model, x), analysis.trace(model, x)
    figure = analysis.plot_gate_summary(analysis.gate_bias(model), activity, traces, sample=2)
    bias, mean, gates, outputs = (np.ma.filled(array, np.nan) for array in tables(figure).values())
    assert len(activity.mean) == len(mean) and {array.shape[1] for array in (bias, mean, gates, outputs)} == {6}
    for i, block in enumerate(activity.mean):
        width = activity.mean[block].shape[-1]
        np.testing.assert_array_equal(bias[i, :width], analysis.gate_bias(model)[block])
        np.testing.assert_allclose(mean[i, :width], activity.mean[block].mean((0, 1)), rtol=1e-5)
        np.testing.assert_allclose(outputs[i, :width], traces[block].y[2].mean((0, 1)), rtol=1e-5, atol=1e-6)
        assert np.isnan(np.stack([array[i, width:] for array in (bias, mean, gates, outputs)])).all()
    assert {axis.get_xlabel() for axis in figure.axes if axis.get_title()} == {"channel"}
    routing = analysis.gate_routing(model, (x, np.arange(8) % 2))
    figure = analysis.plot_routing(routing)
    assert all(float(tick).is_integer() for tick in figure.axes[0].get_yticks())
    drawn = tables(figure)
    first = next(iter(routing.difference.values()))
    np.testing.assert_allclose(drawn["class 1"][0, : first.shape[-1]], first[1].mean((0, 1)), rtol=1e-4, atol=1e-7)


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
    assert legend(axis) == ["a", "b", "intact network"] and has_whole_ticks(axis)
    gaps = lesions._replace(numbers=tuple(2 * number for number in lesions.numbers))  # blocks between are transitions
    axis = analysis.plot_lesion_curve(gaps, metric=metric).axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), gaps.numbers)
    alone = analysis.plot_lesion_curve(lesions, metric=metric).axes[0]
    assert legend(alone) == ["one block lesioned", "intact network"]
    shuffled = analysis.reshuffle_curve(model, data)
    axis = analysis.plot_reshuffle_curve(shuffled, metric=metric).axes[0]
    expected = np.stack([shuffled.tau, shown(getattr(shuffled, metric))], 1)
    np.testing.assert_allclose(axis.collections[0].get_offsets(), expected)
    assert legend(axis) == ["one order", "trained order"]
    dropped = analysis.drop_k_curve(model, data)
    axis = analysis.plot_drop_curve(dropped, metric=metric).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), shown(getattr(dropped, metric)).mean(1))
    draws = f"lowest to highest of {len(dropped.seeds)} draws"
    assert legend(axis) == ["mean of the draws", "intact network", draws] and has_whole_ticks(axis)


def test_estimation_errors_a_panel_a_stage():
    model = miniature("conv_net", input_shape=(32, 32, 3))
    errors = analysis.estimation_error(model, batch(model, 3))
    figure = analysis.plot_estimation_error(errors)
    assert len(figure.axes) == 2
    for axis, (stage, error) in zip(figure.axes, errors.items(), strict=True):
        np.testing.assert_allclose(axis.lines[0].get_ydata(), error.mean)
        assert axis.get_title() == f"{stage}: σ(A) = {error.scale:.2g}" and has_whole_ticks(axis)
    label = figure.get_supxlabel()
    assert (
        "a: a block's output" in label
        and "A: the last output of its stage" in label
        and "σ(A): the standard deviation" in label
    )
    with pytest.raises(ValueError, match="no stage to draw"):
        analysis.plot_estimation_error({})


def test_depth_with_and_without_latency(dense):
    model, data = dense
    curve = analysis.trim_curve(model, data)
    latency = analysis.latency_curve(model, curve.removed, data[0], depths=(5, 0), repeats=2)
    figure = analysis.plot_trim_curve(curve, latency)
    assert len(figure.axes) == 3 and len(analysis.plot_trim_curve(curve).axes) == 2
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), 100 * (1 - curve.accuracy))
    ratios = latency.seconds[0] / latency.seconds
    np.testing.assert_allclose(figure.axes[2].lines[0].get_ydata(), np.median(ratios, 1))
    np.testing.assert_allclose(latency.speed_up, np.quantile(ratios, (0.25, 0.5, 0.75), axis=1).T)
    assert [bool(axis.get_legend()) for axis in figure.axes] == [True, False, False]  # one for all
    assert legend(figure.axes[0]) == ["blocks taken out", "speed-up: median and quartiles"]
    other = curve._replace(depth=curve.depth[:2], accuracy=curve.accuracy[:2], parameters=curve.parameters[:2])
    axis = analysis.plot_trim_curve({"a": curve, "b": other}).axes[0]
    np.testing.assert_allclose(axis.lines[1].get_ydata(), 100 * (1 - other.accuracy))
    assert legend(axis) == ["a", "b"]


def test_a_break_of_the_scale_is_marked():
    axis = new_figure(3).subplots()
    axis.plot([1, 2], [0, 50])
    axis.set_yscale("symlog", linthresh=0.01)
    mark_break(axis, 0.01, "linear below")
    strokes, line = axis.lines[1:]
    assert line.get_ydata() == [0.01, 0.01] and [text.get_text() for text in axis.texts] == ["linear below"]
    low, high = strokes.get_ydata()
    assert low < 0.01 < high and list(strokes.get_xdata()) == [0, 0] and not strokes.get_clip_on()


@pytest.mark.parametrize("suffix", ["png", "PNG", "svg", "jpg", "pdf"])
def test_pictures_of_any_format(suffix, tmp_path):
    figure = new_figure(1)
    figure.subplots().plot([1, 2], [3, 4])
    write(figure, tmp_path / f"x.{suffix}", "title")
    assert (tmp_path / f"x.{suffix}").stat().st_size > 1000


def test_epochs_are_whole():
    _, (axis,) = training_axes(1, 3)
    draw_training(axis, [Curve([1, 2, 3], [0.3, 0.2, 0.1], "a")])
    assert has_whole_ticks(axis) and 2 in axis.get_xticks()
    draw_training(axis, [Curve([1, 2], [0.02, 30])], scale="log")
    axis.figure.canvas.draw()
    assert {"0.1", "1", "10"} <= {label.get_text() for label in axis.get_yticklabels()}


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        ([3.7, 6.1], ["4", "5", "6"]),  # a language model's loss: no power of ten among them
        ([0.47, 2.0], ["0.5", "0.7", "1", "2"]),
        ([0.12, 4.0], ["0.2", "0.5", "1", "2"]),
        ([0.02, 1.2], ["0.02", "0.05", "0.1", "0.2", "0.5", "1"]),
        ([0.02, 30], ["0.1", "1", "10"]),
        # One number or none of these: those of a linear axis.
        ([0.95, 1.8], ["1", "1.2", "1.4", "1.6", "1.8"]),
        ([0.95, 1.05], ["0.96", "0.98", "1", "1.02", "1.04"]),
        ([1.21, 1.39], ["1.225", "1.25", "1.275", "1.3", "1.325", "1.35", "1.375"]),
    ],
)
def test_a_logarithmic_axis_has_numbers_and_a_grid_at_each(values, numbers):
    _, (axis,) = training_axes(1, 2.4)
    draw_training(axis, [Curve([1, 2], values)], scale="log")
    low, high = axis.get_ylim()
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert [x for at, x in zip(axis.get_yticks(), labels, strict=True) if low <= at <= high] == numbers
    assert all(line.get_visible() for line in axis.get_ygridlines())
    assert not any(label.get_text() for label in axis.get_yticklabels(minor=True))


def test_nothing_to_draw_and_unknown_metrics(dense):
    with pytest.raises(ValueError, match="no curve to draw"):
        analysis.plot_lesion_curve({})
    with pytest.raises(ValueError, match="metric='f1'"):
        analysis.plot_lesion_curve(analysis.lesion_curve(*dense), metric="f1")


@pytest.mark.parametrize(("family", "gate"), [("conv_stack", "channel"), ("dense_stack", "tied")])
def test_a_gate_shared_by_units_or_samples_is_that_of_each(family, gate):
    model = miniature(family, gate=gate)
    x = batch(model, 4)
    activity, traces = analysis.gate_activity(model, x), analysis.trace(model, x)
    figure = analysis.plot_gate_summary(analysis.gate_bias(model), activity, traces, sample=2)
    _, _, gates, outputs = tables(figure).values()
    assert gates.shape == outputs.shape and not np.ma.getmaskarray(gates).any()
    expected = [np.broadcast_to(e.t if len(e.t) == 4 else e.t[:1], e.x.shape)[2] for e in traces.values()]
    expected = [values.reshape(-1, values.shape[-1]).mean(0) for values in expected]
    np.testing.assert_allclose(gates, expected, rtol=1e-5)


def test_channels_may_come_first(monkeypatch):
    values = np.arange(24.0).reshape(4, 3, 2)
    monkeypatch.setattr("keras.config.image_data_format", lambda: "channels_first")
    np.testing.assert_array_equal(plots_gates._table({"a": values})[0], values.mean((1, 2)))
