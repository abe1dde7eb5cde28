"""Pictures of the analyses: they show the measured values."""

import numpy as np
import pytest
from matplotlib.image import imread
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway import analysis
from keras_highway.analysis import BlockTrace, plot_gates, trace
from keras_highway.analysis.plots import WIDTH, new_figure, write
from keras_highway.cli import main


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


def test_dense_nets_show_blocks_by_units():
    traces = made_up([f"stage1_block{i}" for i in range(1, 49 + 1)], (6,))
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


def test_curves_show_the_error_in_percent(dense):
    model, data = dense
    lesions = analysis.lesion_curve(model, data)
    axis = analysis.plot_lesion_curve({"a": lesions, "b": lesions}).axes[0]
    np.testing.assert_allclose(axis.lines[0].get_ydata(), 100 * (1 - lesions.accuracy))
    np.testing.assert_allclose(axis.lines[1].get_ydata(), 100 * (1 - lesions.intact_accuracy))
    assert legend(axis) == ["a", "b", "intact network"] and has_whole_ticks(axis)
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


@pytest.mark.parametrize("suffix", ["PNG", "svg"])
def test_pictures_of_any_format(suffix, tmp_path):
    figure = new_figure(1)
    figure.subplots().plot([1, 2], [3, 4])
    write(figure, tmp_path / f"x.{suffix}", "title")
    assert (tmp_path / f"x.{suffix}").stat().st_size > 1000


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
    assert main([*command, str(tmp_path / "residual")]) == 2
    assert "constant" in capsys.readouterr().err
