"""Pictures of the analyses: what is drawn is what was measured."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from matplotlib.image import imread
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway import analysis
from keras_highway.analysis import BlockTrace, plot_gates, trace
from keras_highway.analysis.plots import WIDTH, new_figure, write
from keras_highway.cli import main
from keras_highway.variants import VARIANTS


def made_up(blocks, shape, t=None):
    """Traces of a batch of 2 with the given gate, random by default."""
    rng = np.random.default_rng(0)
    traces = {}
    for name in blocks:
        x = rng.normal(size=(2, *shape)).astype("float32")
        gate = rng.random(x.shape, "float32") if t is None else t
        traces[name] = BlockTrace(x, x, gate, 1 - gate, x)
    return traces


def maps(figure):
    """Titled panels with an image in them: {first line of the title: its array}."""
    panels = [axis for axis in figure.axes if axis.get_images() and axis.get_title()]
    return {axis.get_title().split("\n")[0]: axis.get_images()[0] for axis in panels}


def test_conv_nets_show_the_mean_over_channels_on_one_scale(tmp_path):
    model = miniature("conv_net", input_shape=(32, 32, 3))
    x = batch(model)
    traces = trace(model, x)
    figure = plot_gates(traces, image=x[1], path=tmp_path / "gates.png", sample=1)
    panels = maps(figure)
    assert list(panels) == ["image", *traces]
    for name, entry in traces.items():
        np.testing.assert_allclose(panels[name].get_array(), entry.t[1].mean(-1), rtol=1e-6)
    assert {panels[name].get_clim() for name in traces} == {(0, 1)}  # whatever the gates: dark is shut, bright is open
    assert labels_of_bars(figure) == ["gate t, mean over channels (0 shut, 1 open)"]
    drawn = imread(tmp_path / "gates.png")
    assert drawn.shape[0] > 200 and np.unique(drawn[::4, ::4].reshape(-1, 4), axis=0).shape[0] > 50


def labels_of_bars(figure):
    """Labels of the colour bars."""
    bars = [*figure.axes, *(child for axis in figure.axes for child in axis.child_axes)]
    colour_bars = [axis for axis in bars if hasattr(axis, "_colorbar")]
    return [axis.get_ylabel() or axis.get_xlabel() for axis in colour_bars]


@pytest.mark.parametrize("depth", [4, 49])
def test_dense_nets_show_blocks_by_units(depth):
    traces = made_up([f"stage1_block{i}" for i in range(1, depth + 1)], (6,))
    figure = plot_gates(traces)
    panels = maps(figure)
    assert list(panels) == ["gate t", "block output y"]
    np.testing.assert_array_equal(panels["gate t"].get_array(), [entry.t[0] for entry in traces.values()])
    np.testing.assert_array_equal(panels["block output y"].get_array(), [entry.y[0] for entry in traces.values()])
    assert panels["gate t"].get_clim() == (0, 1)
    assert labels_of_bars(figure) == ["t (0 shut, 1 open)", "y"]


def test_constant_gates_are_refused_by_name():
    model = miniature("dense_stack", gating="c_only")
    traces = trace(model, batch(model))
    with pytest.raises(ValueError, match="constant"):
        plot_gates(traces)
    drawn = maps(plot_gates(traces, gate="c"))["gate c"]
    np.testing.assert_array_equal(drawn.get_array(), [entry.c[0] for entry in traces.values()])


def test_wrong_gates_and_traces_are_refused():
    maps_of_one = made_up(["stage1_block1"], (4, 4, 2))
    mixed = made_up(["a"], (4,)) | made_up(["b"], (5,))
    for traces, gate, message in ((maps_of_one, "h", "gate='h'"), ({}, "t", "traces"), (mixed, "t", "one width")):
        with pytest.raises(ValueError, match=message):
            plot_gates(traces, gate=gate)


# --- Data sets ----------------------------------------------------------------


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


def test_curves_show_the_error_in_percent(dense):
    model, data = dense
    lesions = analysis.lesion_curve(model, data)
    axis = analysis.plot_lesion_curve({"a": lesions, "b": lesions}).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), 100 * (1 - lesions.accuracy))
    np.testing.assert_allclose(axis.lines[1].get_ydata(), 100 * (1 - lesions.intact_accuracy))
    assert legend(axis) == ["a", "b", "intact network"] and has_whole_ticks(axis)
    gaps = lesions._replace(numbers=tuple(2 * number for number in lesions.numbers))  # blocks between are transitions
    axis = analysis.plot_lesion_curve(gaps).axes[0]
    np.testing.assert_array_equal(axis.lines[0].get_xdata(), gaps.numbers)
    alone = analysis.plot_lesion_curve(lesions).axes[0]
    assert legend(alone) == ["one block lesioned", "intact network"]
    shuffled = analysis.reshuffle_curve(model, data)
    axis = analysis.plot_reshuffle_curve(shuffled).axes[0]
    expected = np.stack([shuffled.tau, 100 * (1 - shuffled.accuracy)], 1)
    np.testing.assert_allclose(axis.collections[0].get_offsets(), expected)
    assert legend(axis) == ["one order", "trained order"]
    dropped = analysis.drop_k_curve(model, data)
    axis = analysis.plot_drop_curve(dropped).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), 100 * (1 - dropped.accuracy).mean(1))
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


@pytest.mark.parametrize("suffix", ["png", "PNG", "svg", "jpg", "pdf"])
def test_pictures_of_any_format(suffix, tmp_path):
    figure = new_figure(1)
    figure.subplots().plot([1, 2], [3, 4])
    write(figure, tmp_path / f"x.{suffix}", "title")
    assert (tmp_path / f"x.{suffix}").stat().st_size > 1000


def test_results_of_other_nets_are_refused(dense):
    model, (x, _) = dense
    activity = analysis.gate_activity(model, x)
    some = analysis.gate_activity(model, x, blocks="stage1_block3")
    for message, call in {
        "convolutional": lambda: analysis.plot_gate_maps(activity),
        "nothing to draw": lambda: analysis.plot_lesion_curve({}),
        "an empty dict": lambda: analysis.plot_estimation_error({}),
        "same blocks": lambda: analysis.plot_gate_summary(analysis.gate_bias(model), some, trace(model, x)),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


# --- Blocks without gates, blocks used twice, images without colours ----------


X, Y = np.random.default_rng(0).random((20, 5), "float32"), np.arange(20) % 3


def net(gatings=("coupled", "coupled", "coupled")):
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((5,))
    x = keras.layers.Dense(6)(x)
    for i, gating in enumerate(gatings, start=1):
        x = kh.layers.HighwayDense(gating=gating, name=f"stage1_block{i}")(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(x))


def test_pictures_count_blocks_as_the_network_does():
    model = net(("residual", "coupled", "coupled"))
    activity = analysis.gate_activity(model, X)
    assert activity.numbers == (2, 3) and analysis.lesion_curve(model, (X, Y)).numbers == (1, 2, 3)
    profile = analysis.plot_gate_profile(activity, analysis.gate_bias(model))
    assert [list(axis.lines[0].get_xdata()) for axis in profile.axes] == [[2, 3], [2, 3]]
    routing = analysis.gate_routing(model, (X, Y), blocks=["stage1_block3"])
    assert routing.numbers == (3,)
    for figure, which in ((analysis.plot_routing_profile(routing), "x"), (analysis.plot_routing(routing), "y")):
        axis = getattr(figure.axes[0], f"{which}axis")
        assert [(tick.get_loc(), tick.label1.get_text()) for tick in axis.get_major_ticks()] == [(1, "3")]
    twice = analysis.rewire(model, {"stage1_block3": "stage1_block2"})
    assert analysis.gate_activity(twice, X).numbers == ()
    assert len(analysis.plot_routing(routing, classes=[0, 0]).axes) == 2  # one panel and its colour bar
    one = analysis.plot_gates(analysis.trace(net(), X, blocks=["stage1_block1"])).axes[0].yaxis
    assert [tick.get_loc() for tick in one.get_major_ticks()] == [1]


@pytest.mark.slow
def test_the_gates_command_draws_what_is_learned(tmp_path, capsys, monkeypatch):
    from PIL import Image

    Image.fromarray(np.full((28, 28), 9, "uint8")).save(tmp_path / "a.png")
    digits = [str(i) for i in range(10)]
    for gating in ("c_only", "residual"):
        model = kh.create_model("mnist10_w16", gating=gating, classifier_activation=None)
        kh.save(model, tmp_path / gating, digits, "mnist")
    command = ["gates", str(tmp_path / "a.png"), "--out", str(tmp_path / "gates.png"), "--weights"]
    assert main([*command, str(tmp_path / "c_only")]) == 0
    assert "wrote the carry gates of 8 blocks" in capsys.readouterr().out
    assert (tmp_path / "gates.png").stat().st_size > 0
    drawn = {}
    monkeypatch.setattr("keras_highway.cli.images.plot_gates", lambda *a, **options: drawn.update(options))
    main([*command, str(tmp_path / "c_only")])
    assert drawn["gate"] == "c"
    monkeypatch.undo()
    assert main([*command, str(tmp_path / "residual")]) == 2
    assert "constant" in capsys.readouterr().err
