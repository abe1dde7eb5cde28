"""Pictures of gates: what is drawn is what was traced."""

import numpy as np
import pytest
from matplotlib.image import imread
from miniatures import batch, miniature

from keras_highway.analysis import BlockTrace, plot_gates, trace
from keras_highway.analysis.plots import WIDTH


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


def test_a_scale_of_none_shows_small_differences():
    traces = made_up(["stage1_block1"], (4, 4, 2))
    low, high = maps(plot_gates(traces, scale=None))["stage1_block1"].get_clim()
    drawn = traces["stage1_block1"].t[0].mean(-1)
    assert (low, high) == pytest.approx(np.percentile(drawn, (1, 99)))
    low, high = maps(plot_gates(traces, scale=(0.2, 0.4)))["stage1_block1"].get_clim()
    assert (low, high) == (0.2, 0.4)


def test_long_titles_are_broken_into_lines():
    figure = plot_gates(made_up(["stage1_block1"], (4,)), title=f"{'word ' * 20}\n{'x' * 100}")
    lines = figure.get_suptitle().split("\n")
    assert max(map(len, lines)) <= 62 and "".join(lines).replace(" ", "") == "word" * 20 + "x" * 100


@pytest.mark.parametrize(("depths", "rows"), [((2, 3, 3), 3), ((3, 4, 6, 3), 5), ((18, 18, 18), 15)])
def test_at_least_a_row_a_stage_and_at_most_four_maps_a_row(depths, rows):
    names = [f"stage{s}_block{b}" for s, depth in enumerate(depths, 1) for b in range(1, depth + 1)]
    figure = plot_gates(made_up(names, (4, 4, 2)))
    assert list(maps(figure)) == names and figure.get_figwidth() == WIDTH
    assert figure.axes[0].get_gridspec().nrows == rows


def test_gates_a_channel_are_flat_maps():
    t = np.array([0.2, 0.4], "float32").reshape(1, 1, 1, 2)
    drawn = maps(plot_gates(made_up(["stage1_block1"], (4, 4, 2), t)))["stage1_block1"]
    np.testing.assert_allclose(drawn.get_array(), np.full((4, 4), 0.3), rtol=1e-6)


def test_constant_gates_are_refused_by_name():
    model = miniature("dense_stack", gating="c_only")
    traces = trace(model, batch(model))
    with pytest.raises(ValueError, match=r"constant 1 in 3 of 3 blocks.*draw gate='c'"):
        plot_gates(traces)
    drawn = maps(plot_gates(traces, gate="c"))["gate c"]
    np.testing.assert_array_equal(drawn.get_array(), [entry.c[0] for entry in traces.values()])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"gate": "h"}, "Received: gate='h'"),
        ({"sample": 2}, "2 samples. Received: sample=2"),
        ({"image": np.zeros((2, 3, 4, 5))}, r"Received: image.shape=\(2, 3, 4, 5\)"),
    ],
)
def test_wrong_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        plot_gates(made_up(["stage1_block1"], (4, 4, 2)), **kwargs)


def test_nothing_to_draw():
    with pytest.raises(ValueError, match="no blocks to draw"):
        plot_gates({})
    mixed = made_up(["a"], (4,)) | made_up(["b"], (5,))
    with pytest.raises(ValueError, match=r"gates of shapes \[\(4,\), \(5,\)\]"):
        plot_gates(mixed)
