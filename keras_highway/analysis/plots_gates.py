"""Pictures of the gates over a data set: arrays in, a matplotlib figure out."""

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from keras_highway._support.terminal import in_figure
from keras_highway.analysis.gates import GateActivity, Routing
from keras_highway.analysis.plots import (
    GATE_SCALE,
    Panel,
    bar_below,
    channel_axis,
    draw_maps,
    draw_panels,
    draw_table,
    legend_above,
    new_figure,
    number_blocks,
    robust_limits,
    spread_gates,
    write,
)
from keras_highway.analysis.trace import BlockTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_gate_summary(
    bias: Mapping[str, np.ndarray],
    activity: GateActivity,
    traces: Mapping[str, BlockTrace],
    path: str | os.PathLike[str] | None = None,
    *,
    sample: int = 0,
    title: str | None = None,
) -> "Figure":
    """Draws biases, mean gates, one sample's gates and its outputs, block by unit [TVDN, Figure 2].

    Gates are on a scale from 0 to 1, whose colours follow the square root: most
    gates are nearly shut, and differ. Of convolutional nets a column is a
    channel: the mean over positions, grey where a block has fewer channels
    than the widest.

    Args:
        bias: What `gate_bias(model)` returned: dict from block to `(units,)`
            or `(channels,)`.
        activity: What `gate_activity(model, data)` returned.
        traces: What `trace(model, x)` returned.
        path: Optional file to write.
        sample: Int, which sample of the traces. Defaults to `0`.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are no blocks or no learned `t`, or the traces
            have fewer samples or are of other blocks than `activity`.
    """
    gates = spread_gates(traces, "t", sample)
    outputs = {name: entry.y[sample] for name, entry in traces.items()}
    formats = {name: entry.data_format for name, entry in traces.items()}
    axes = {name: channel_axis(formats[name]) if y.ndim == 3 else -1 for name, y in outputs.items()}
    widths = {name.split(":")[0]: y.shape[axes[name]] for name, y in outputs.items()}
    if activity.mean.keys() != gates.keys() or not {name.split(":")[0] for name in gates} <= bias.keys():
        raise ValueError(
            "`bias`, `activity` and `traces` must be of the same blocks. "
            f"Received: {', '.join(bias)}; {', '.join(activity.mean)}; {', '.join(gates)}"
        )
    of_place = {name: bias[name.split(":")[0]] for name in gates}  # a block may stand in several places
    tables = [_table(part, widths, formats) for part in (of_place, activity.mean, gates, outputs)]
    limit = float(np.percentile(np.abs(tables[3].compressed()), 99)) or 1.0
    alike = {"column": _column(outputs), "numbers": activity.numbers}
    gates_alike = {"low": GATE_SCALE[0], "high": GATE_SCALE[1], "label": "t (0 shut, 1 open)", "power": 0.5, **alike}
    panels = (
        Panel("gate bias", tables[0], *robust_limits(tables[0].compressed()), "bias", extend="both", **alike),
        Panel(f"mean gate t, {activity.samples:,} samples", tables[1], **gates_alike),
        Panel("gate t, one sample", tables[2], **gates_alike),
        Panel("block output y, one sample", tables[3], -limit, limit, "y", "RdBu_r", "both", **alike),
    )
    figure = new_figure(7.0)
    draw_panels(figure, figure.subplots(2, 2).ravel(), panels)
    return write(figure, path, title)


def plot_routing(
    routing: Routing,
    classes: Iterable[int] | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draws how the gates of some classes differ from the mean over all samples [TVDN, Figure 3].

    Of convolutional nets as in `plot_gate_summary`.

    Args:
        routing: What `gate_routing(model, data)` returned.
        classes: Which classes. Defaults to the first two.
        path: Optional file to write.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If a class is not in the data.
    """
    known = routing.classes.tolist()
    chosen = known[:2] if classes is None else list(dict.fromkeys(classes))
    unknown = [k for k in chosen if k not in known]
    if unknown or not chosen:
        raise ValueError(f"The data have the classes {known}. Received: classes={chosen}")
    of_class = {k: {name: d[known.index(k)] for name, d in routing.difference.items()} for k in chosen}
    tables = {k: _table(vectors, formats=routing.data_format) for k, vectors in of_class.items()}
    values = np.concatenate([table.compressed() for table in tables.values()])
    limit = float(np.percentile(np.abs(values), 99.5)) or 1.0
    column = _column({name: difference[0] for name, difference in routing.difference.items()})
    columns = min(2, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = new_figure(3.1 * rows + 0.6)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    drawn = None
    for axis in axes.ravel()[len(chosen) :]:
        axis.axis("off")
    for axis, (k, table) in zip(axes.ravel(), tables.items(), strict=False):
        panel = Panel(f"class {k}", table, -limit, limit, "", "RdBu_r", column=column, numbers=routing.numbers)
        drawn = draw_table(axis, panel)
    for axis in axes[:, 0]:
        axis.set_ylabel("block")
    bar_below(figure, drawn, axes, "gate: mean of the class − mean of all samples", "both")
    return write(figure, path, title)


def plot_gate_profile(
    activity: GateActivity,
    bias: Mapping[str, np.ndarray] | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draws, block by block, the mean gate, the share of open gates and the bias, of any net.

    Args:
        activity: What `gate_activity(model, data)` returned.
        bias: Optional, what `gate_bias(model)` returned.
        path: Optional file to write.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    rows = 1 + (bias is not None)
    figure = new_figure(2.7 * rows)
    axes = figure.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    numbers = activity.numbers or range(1, len(activity.mean) + 1)
    above = f"share above {activity.threshold:g}"
    lines = (
        ("mean gate", "o", [mean.mean() for mean in activity.mean.values()]),
        (f"{above}, one sample", "s", [v.mean() for v in activity.open_share.values()]),
        (f"{above}, any sample", "D", [(top > activity.threshold).mean() for top in activity.highest.values()]),
    )
    for label, marker, values in lines:
        axes[0].plot(numbers, values, marker=marker, markersize=3, lw=1, label=label)
    axes[0].set(ylabel=f"gates, {activity.samples:,} samples", ylim=(0, None))
    legend_above(axes[0])
    if bias is not None:
        values = [bias[name.split(":")[0]] for name in activity.mean]
        low, high = [v.min() for v in values], [v.max() for v in values]
        axes[1].plot(numbers, [v.mean() for v in values], marker="o", markersize=3, lw=1, label="mean of the block")
        axes[1].fill_between(numbers, low, high, alpha=0.2, lw=0, label="its lowest to its highest")
        axes[1].set(ylabel="gate bias")
        legend_above(axes[1])
    for axis in axes:
        axis.grid(alpha=0.3)
    axes[-1].set(xlabel="block")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return write(figure, path, title)


def plot_routing_profile(
    routing: Routing,
    names: Iterable[str] | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draws, class by block, how far a class's gates are from the mean over all samples, of any net.

    Args:
        routing: What `gate_routing(model, data)` returned.
        names: Optional names of `routing.classes`. Defaults to their numbers.
        path: Optional file to write.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are not as many names as classes.
    """
    names = routing.classes.tolist() if names is None else list(names)
    count = len(routing.classes)
    if len(names) != count:
        raise ValueError(f"The data have {count} classes. Received: {len(names)} names")
    table = np.stack([np.abs(d).reshape(count, -1).mean(1) for d in routing.difference.values()], 1)
    figure = new_figure(0.28 * count + 1.6)
    axis = figure.subplots()
    edges = (0.5, table.shape[1] + 0.5, count - 0.5, -0.5)  # blocks count from 1
    drawn = axis.imshow(table, vmin=0, cmap="viridis", aspect="auto", interpolation="nearest", extent=edges)
    axis.set(xlabel="block", ylabel="class", yticks=range(count), yticklabels=list(map(in_figure, names)))
    number_blocks(axis.xaxis, routing.numbers or range(1, table.shape[1] + 1))
    bar_below(figure, drawn, axis, "mean over gates of |mean of the class − mean of all samples|")
    return write(figure, path, title)


def plot_gate_maps(
    activity: GateActivity,
    path: str | os.PathLike[str] | None = None,
    *,
    scale: tuple[float, float] | None = GATE_SCALE,
    title: str | None = None,
) -> "Figure":
    """Draws where in the image the gates of a convolutional net open: the mean over samples and channels.

    Args:
        activity: What `gate_activity(model, data)` returned.
        path: Optional file to write.
        scale: As in `plot_gates`. Defaults to `(0, 1)`.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the blocks are not convolutional.
    """
    shapes = {mean.shape for mean in activity.mean.values()}
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"Maps are of convolutional nets. Received: gates of shapes {sorted(shapes)}")
    label = "gate, mean over samples and channels"
    return write(draw_maps(activity.mean, label, scale=scale, formats=activity.data_format), path, title)


def _table(
    vectors: Mapping[str, np.ndarray],
    widths: Mapping[str, int] | None = None,
    formats: Mapping[str, str] | None = None,
) -> np.ma.MaskedArray:
    """Rows of blocks, columns of units; of maps, channels: means over positions. Masked where a block has fewer.

    A gate of one value per sample or position is that of all of a block's units, if `widths` has these.
    """
    rows = []
    for name, values in vectors.items():
        axis = channel_axis((formats or {}).get(name))
        last = np.moveaxis(values, axis, -1) if np.ndim(values) == 3 else np.asarray(values)
        row = last.reshape(-1, last.shape[-1]).mean(0)
        width = (widths or {}).get(name.split(":")[0], len(row))
        rows.append(np.broadcast_to(row, width) if len(row) == 1 else row)
    table = np.ma.masked_all((len(rows), max(map(len, rows))))
    for i, row in enumerate(rows):
        table[i, : len(row)] = row
    return table


def _column(vectors: Mapping[str, np.ndarray]) -> str:
    """What a column of a table is."""
    return "channel" if any(np.ndim(v) > 1 for v in vectors.values()) else "unit"
