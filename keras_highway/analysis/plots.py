"""Pictures of gates, patches and derivatives.

Every `plot_*` function draws results of an analysis into a new
`matplotlib.figure.Figure` and returns it. `path` is a file to write, e.g.
`"gates.png"`; `title` is a text above the picture. Without matplotlib, it
raises an ImportError.
"""

import math
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.schema import reworded
from keras_highway._support.terminal import in_figure
from keras_highway.analysis.estimation import EstimationError
from keras_highway.analysis.gates import GateActivity, Routing
from keras_highway.analysis.guided import GuidedGradients, Patches
from keras_highway.analysis.lesions import DropCurve, Latency, LesionCurve, ReshuffleCurve, TrimCurve
from keras_highway.analysis.trace import BlockTrace, stages

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches, of every picture: letters of 10 points are 17 px high on a page of 670 px, and 10 px on a phone of 390.
WIDTH = 5.6
SMALL = 8  # points, of what stands above a panel of many
_WRAP = 4  # maps in a row
_TITLE_CHARACTERS = 62  # in a line


def plot_gates(
    traces: Mapping[str, BlockTrace],
    image: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    gate: str = "t",
    sample: int = 0,
    title: str | None = None,
) -> "Figure":
    """Draw the gate of every block for one image.

    Convolutional nets: one map per block, the mean of the gate over the
    channels at every position. Fully connected nets: one row per block and
    one column per unit, next to the outputs of the blocks, as in the
    rightmost columns of [TVDN, Figure 2].

    Args:
        traces: Result of `trace(model, x)`.
        image: Optional array (height, width) or (height, width, channels),
            drawn next to the gates.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        sample: Int, index of the image in the batch. Defaults to `0`.

    Raises:
        ValueError: If the gates are constant (a plain or residual net), the
            traces are empty or of mixed shapes, or a gate is unknown.
    """
    figure_class()
    gates = spread_gates(traces, gate, sample)
    ranks = {values.ndim for values in gates.values()}
    if ranks == {3}:
        formats = {name: entry.data_format for name, entry in traces.items()}
        figure = draw_maps(gates, f"gate {gate}, mean over channels", image, formats)
    elif ranks == {1} and len({values.shape for values in gates.values()}) == 1:
        outputs = np.stack([entry.y[sample] for entry in traces.values()])
        figure = _stripes(gates, outputs, image, gate)
    else:
        shapes = sorted({values.shape for values in gates.values()})
        raise ValueError(
            f"`traces` must have gates that are all images, or all vectors of one width. Received: shapes {shapes}"
        )
    return write(figure, path, title)


def figure_class() -> Any:
    """Return matplotlib's `Figure`."""
    with reworded('Pictures need matplotlib: pip install "keras-highway[plots]"', ImportError, ImportError):
        from matplotlib.figure import Figure
    return Figure


def new_figure(height: float) -> Any:
    """Return an empty figure of width `WIDTH` and a height in inches."""
    return figure_class()(figsize=(WIDTH, height), layout="constrained")


def write(figure: Any, path: str | os.PathLike[str] | None = None, title: str | None = None) -> Any:
    """Put a title above a figure, write it to a file if `path` is given, and return it."""
    if title:
        lines = [part for line in str(title).split("\n") for part in textwrap.wrap(line, _TITLE_CHARACTERS) or [""]]
        figure.suptitle("\n".join(map(in_figure, lines)), fontsize=11)
    if path is not None:
        # Without the version of matplotlib, equal numbers give equal PNG files; other formats lack this field.
        png = os.fspath(path).lower().endswith(".png")
        figure.savefig(path, dpi=150, **({"metadata": {"Software": None}} if png else {}))
    return figure


def channel_axis(data_format: str | None = None) -> int:
    """Return the channel axis of one image."""
    return 0 if (data_format or keras.config.image_data_format()) == "channels_first" else -1


def spread_gates(traces: Mapping[str, BlockTrace], gate: str, sample: int) -> dict[str, np.ndarray]:
    """Return the gate of one sample in every block, broadcast to the shape of x."""
    known = {name for name in ("t", "c") if all(getattr(entry, name).ndim for entry in traces.values())}
    if gate not in known:
        raise ValueError(
            f"`gate` must not be constant. Gates that vary in every block: {' or '.join(sorted(known)) or 'none'}. "
            f"Received: gate={gate!r}"
        )
    return {name: np.broadcast_to(getattr(entry, gate), entry.x.shape)[sample] for name, entry in traces.items()}


def _rows(names: Iterable[str]) -> list[list[str]]:
    rows = []
    for members in stages(names).values():
        lines = -(-len(members) // _WRAP)
        width = -(-len(members) // lines)
        rows += [members[i : i + width] for i in range(0, len(members), width)]
    return rows


def robust_limits(values: np.ndarray) -> tuple[float, float]:
    """Return the ends of the colour scale; never closer than a thousandth, so that equal gates do not show rounding."""
    low, high = (float(v) for v in np.percentile(values, (1, 99)))
    middle = (low + high) / 2
    return min(low, middle - 5e-4), max(high, middle + 5e-4)


def draw_maps(
    gates: Mapping[str, np.ndarray], label: str, image: Any = None, formats: Mapping[str, str] | None = None
) -> Any:
    """Draw the mean over channels of one image-shaped array per block, stages below each other."""
    maps = {name: values.mean(channel_axis((formats or {}).get(name))) for name, values in gates.items()}
    rows = _rows(maps)
    columns = max(map(len, rows)) + (image is not None)
    width = WIDTH / max(columns, 4)  # a few maps do not fill the page
    figure = new_figure((width + 0.35) * len(rows) + 0.9)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    drawn = None
    for line, names in enumerate(rows):
        for axis in axes[line]:
            axis.axis("off")
        for axis, name in zip(axes[line, int(image is not None) :], names, strict=False):
            drawn = axis.imshow(maps[name], vmin=0, vmax=1, cmap="viridis", interpolation="nearest")
            axis.set_title(f"{in_figure(name)}\nmean {maps[name].mean():.3g}", fontsize=SMALL)
    if image is not None:
        _show_image(axes[0, 0], image)
    bar_below(figure, drawn, axes, f"{label} (0 shut, 1 open)")
    return figure


def _stripes(gates: Mapping[str, np.ndarray], outputs: np.ndarray, image: Any, gate: str):
    table = np.stack(list(gates.values()))
    height = min(max(2.8, 0.09 * len(table) + 1.0), 12.0)
    ratios = ([0.5] if image is not None else []) + [1, 1]
    figure = new_figure(height)
    axes = list(figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0])
    if image is not None:
        _show_image(axes.pop(0), image)
    limit = float(np.percentile(np.abs(outputs), 99)) or 1.0
    panels = (
        Panel(f"gate {gate}", table, 0, 1, f"{gate} (0 shut, 1 open)"),
        Panel("block output y", outputs, -limit, limit, "y", "RdBu_r", "both"),
    )
    draw_panels(figure, axes, panels)
    return figure


class Panel(NamedTuple):
    """A table to draw."""

    title: str  # text above it
    values: np.ndarray  # array `(blocks, units)`; masked values are grey
    low: float  # lower end of the colour scale
    high: float  # upper end of the colour scale
    label: str  # meaning of the colours
    cmap: str = "viridis"  # name of the colour map
    # arrows at the colour bar for values beyond its ends: `"neither"`, `"both"`, `"min"` or `"max"`
    extend: str = "neither"
    power: float = 1.0  # colours follow this power of the value: below 1, small values differ more
    column: str = "unit"  # meaning of a column, `"unit"` or `"channel"`
    numbers: tuple[int, ...] = ()  # numbers of the blocks; empty for 1, 2, ...


def draw_panels(figure: Any, axes: Any, panels: "Iterable[Panel]") -> None:
    """Draw tables, one row per block and one column per unit, each above its own colour bar."""
    for axis, panel in zip(axes, panels, strict=True):
        drawn = draw_table(axis, panel)
        axis.set_ylabel("block")
        label = panel.label if panel.power == 1 else f"{panel.label}, power scale"
        bar = figure.colorbar(drawn, ax=axis, location="bottom", aspect=25, label=label, extend=panel.extend)
        bar.ax.tick_params(labelsize=SMALL)


def draw_table(axis: Any, panel: Panel) -> Any:
    """Draw a `Panel` without a colour bar, and return what a colour bar needs."""
    values = panel.values
    edges = (-0.5, values.shape[1] - 0.5, len(values) + 0.5, 0.5)  # blocks count from 1
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(panel.power, panel.low, panel.high)
    drawn = axis.imshow(values, norm=norm, cmap=panel.cmap, aspect="auto", interpolation="nearest", extent=edges)
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.column)
    axis.set_facecolor("0.85")
    number_blocks(axis.yaxis, panel.numbers or range(1, len(values) + 1))
    return drawn


def number_blocks(axis: Any, numbers: Sequence[int]) -> None:
    """Label the rows or columns of a table with the numbers of its blocks, if these are not 1, 2, ..."""
    places = range(1, len(numbers) + 1)
    if list(numbers) == list(places) and len(numbers) > 1:  # of one row the locator would name fractions
        axis.get_major_locator().set_params(integer=True)
        return
    kept = places[:: -(-len(numbers) // 12)]  # more would overlap
    axis.set_ticks(list(kept), [str(numbers[place - 1]) for place in kept])


def bar_below(figure: Any, drawn: Any, axes: Any, label: str, extend: str = "neither") -> None:
    """Put one colour bar below panels, as wide as they are; `drawn` is a result of `imshow`."""
    from matplotlib.ticker import MaxNLocator

    few = MaxNLocator(6)  # more of long numbers would overlap
    figure.colorbar(drawn, ax=axes, location="bottom", aspect=40, shrink=0.9, label=label, extend=extend, ticks=few)


def legend_above(axis: Any, handles: Sequence[Any] | None = None, columns: int = 2) -> None:
    """Put a legend above a panel without a title."""
    handles = axis.get_legend_handles_labels()[0] if handles is None else handles
    axis.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(columns, len(handles)),
        fontsize=9,
        frameon=False,
    )


def _show_image(axis: Any, image: Any) -> None:
    draw_image(axis, np.squeeze(np.asarray(image, "float32")), "channels_last")
    axis.set_title("image", fontsize=SMALL)
    axis.axis("off")


def plot_gate_summary(
    bias: Mapping[str, np.ndarray],
    activity: GateActivity,
    traces: Mapping[str, BlockTrace],
    path: str | os.PathLike[str] | None = None,
    *,
    sample: int = 0,
    title: str | None = None,
) -> "Figure":
    """Draw biases, mean gates, and gates and outputs of one sample, block by unit [TVDN, Figure 2].

    The colours of gates follow the square root of a scale from 0 to 1: most
    gates are nearly closed. In convolutional nets a column is a channel, the
    mean over positions; grey where a block has fewer channels than the
    widest.

    Args:
        bias: Result of `gate_bias(model)`.
        activity: Result of `gate_activity(model, data)`.
        traces: Result of `trace(model, x)`.
        sample: Int, index of the sample in the traces. Defaults to `0`.

    Raises:
        ValueError: If no block learns `t`, or the traces have fewer samples or
            other blocks than `activity`.
    """
    gates = spread_gates(traces, "t", sample)
    outputs = {name: entry.y[sample] for name, entry in traces.items()}
    formats = {name: entry.data_format for name, entry in traces.items()}
    axes = {name: channel_axis(formats[name]) if y.ndim == 3 else -1 for name, y in outputs.items()}
    widths = {name.split(":")[0]: y.shape[axes[name]] for name, y in outputs.items()}
    if activity.mean.keys() != gates.keys() or not {name.split(":")[0] for name in gates} <= bias.keys():
        raise ValueError(
            "`bias`, `activity` and `traces` must have the same blocks. "
            f"Received: {', '.join(bias)}; {', '.join(activity.mean)}; {', '.join(gates)}"
        )
    of_place = {name: bias[name.split(":")[0]] for name in gates}  # a block may stand in several places
    tables = [_table(part, widths, formats) for part in (of_place, activity.mean, gates, outputs)]
    limit = float(np.percentile(np.abs(tables[3].compressed()), 99)) or 1.0
    alike = {"column": "channel" if any(y.ndim > 1 for y in outputs.values()) else "unit", "numbers": activity.numbers}
    gates_alike = {"low": 0, "high": 1, "label": "t (0 shut, 1 open)", "power": 0.5, **alike}
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
    """Draw the difference of the gates of some classes from the mean over all samples [TVDN, Figure 3].

    Convolutional nets are drawn as in `plot_gate_summary`.

    Args:
        routing: Result of `gate_routing(model, data)`.
        classes: Class numbers. Defaults to the first two.

    Raises:
        ValueError: If a class is not in the data.
    """
    known = routing.classes.tolist()
    chosen = known[:2] if classes is None else list(dict.fromkeys(classes))
    unknown = [k for k in chosen if k not in known]
    if unknown or not chosen:
        raise ValueError(f"`classes` must be from {known}. Received: classes={chosen}")
    of_class = {k: {name: d[known.index(k)] for name, d in routing.difference.items()} for k in chosen}
    tables = {k: _table(vectors, formats=routing.data_format) for k, vectors in of_class.items()}
    values = np.concatenate([table.compressed() for table in tables.values()])
    limit = float(np.percentile(np.abs(values), 99.5)) or 1.0
    column = "channel" if any(d.ndim > 2 for d in routing.difference.values()) else "unit"
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
    """Draw the mean gate, the share of open gates and the bias of every block of any net.

    Args:
        activity: Result of `gate_activity(model, data)`.
        bias: Optional, result of `gate_bias(model)`.
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
    """Draw the distance of the gates of each class from the mean over all samples, for every block of any net.

    Args:
        routing: Result of `gate_routing(model, data)`.
        names: Optional names of `routing.classes`. Defaults to their numbers.

    """
    names = routing.classes.tolist() if names is None else list(names)
    count = len(routing.classes)
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
    activity: GateActivity, path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> "Figure":
    """Draw where in the image the gates of a convolutional net open: the mean over samples and channels.

    Args:
        activity: Result of `gate_activity(model, data)`.

    Raises:
        ValueError: If the blocks are not convolutional.
    """
    shapes = {mean.shape for mean in activity.mean.values()}
    if any(len(shape) != 3 for shape in shapes):
        raise ValueError(f"`activity` must be of a convolutional net. Received: gates of shapes {sorted(shapes)}")
    label = "gate, mean over samples and channels"
    return write(draw_maps(activity.mean, label, formats=activity.data_format), path, title)


def _table(
    vectors: Mapping[str, np.ndarray], widths: Mapping[str, int] | None = None, formats: Mapping[str, str] | None = None
) -> np.ma.MaskedArray:
    """Return blocks by units or channels (means over positions), masked where a block has fewer than the widest."""
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


def plot_guided(
    guided: GuidedGradients, images: Any = None, path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> "Figure":
    """Draw guided derivatives: one column per image, one row per block, the images above [UIE, Figure 4].

    Grey images: red where a brighter pixel raises the activation, blue where
    it lowers it. Colour images: the derivative of each colour around grey.
    Each panel has its own scale: 1 is its largest absolute derivative. Above
    it is the activation y of the unit.

    Args:
        guided: Result of `guided_backprop(model, images, ...)`.
        images: Optional array `(n, height, width, channels)`, the images.
        title: Text above the picture. Defaults to the channel.

    Raises:
        ValueError: If there are not as many images as derivatives.
    """
    count = guided.value.shape[1]
    if images is not None and len(images) != count:
        raise ValueError(f"`images` must be the {count} images of `guided`. Received: {len(images)} images")
    top = int(images is not None)
    shape = (len(guided.blocks) + top, count)
    figure = new_figure((WIDTH / max(count, 3) + 0.2) * shape[0] + 1.2)
    axes = figure.subplots(*shape, squeeze=False)
    drawn = None
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    for column in range(count):
        if images is not None:
            draw_image(axes[0, column], images[column], guided.data_format)
        for row, name in enumerate(guided.blocks):
            axis = axes[row + top, column]
            drawn = _draw_derivative(axis, guided.gradient[row, column], guided.data_format)
            axis.set_title(f"y {guided.value[row, column]:#.3g}", fontsize=SMALL)
            if column == 0:
                axis.set_ylabel("\n".join(map(in_figure, name.split("_"))), fontsize=SMALL)
    note = "y: the unit's activation where it is strongest in the image"
    if _is_grey(guided.gradient[0, 0], guided.data_format):
        bar_below(figure, drawn, axes, "guided derivative of y, relative to the largest of its panel")
    else:
        note += (
            "\ncolours: guided derivative of y by red, green and blue, relative to the largest of\n"
            "its panel: grey is 0, bright colours raise y, dark colours lower it"
        )
    figure.supxlabel(note, fontsize=9)
    return write(figure, path, title or f"guided derivative of channel {guided.channel}")


def plot_patches(patches: Patches, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> "Figure":
    """Draw the patches that excite a unit most, in rows of three, with its activation y.

    Args:
        patches: Result of `top_patches(model, data, ...)`.
        title: Text above the picture. Defaults to block and channel.
    """
    count = len(patches.patches)
    rows = -(-count // 3)
    figure = new_figure((WIDTH / 3 + 0.1) * rows + 1.2)
    axes = figure.subplots(rows, 3, squeeze=False)
    drawn = None
    for axis in axes.ravel():
        axis.axis("off")
    for axis, patch, value in zip(axes.ravel(), patches.patches, patches.value, strict=False):
        drawn = draw_image(axis, patch, patches.data_format)
        axis.set_title(f"y {value:#.3g}", fontsize=9)
    if _is_grey(patches.patches[0], patches.data_format):
        whole = patches.patches.dtype == np.uint8
        label = "value of a pixel" if whole else "value of a pixel, from the lowest to the highest of its patch"
        bar_below(figure, drawn, axes, label)
    figure.supxlabel("y: activation of the unit that sees the patch", fontsize=9)
    return write(figure, path, title or f"{patches.block}, channel {patches.channel}")


def draw_image(axis: Any, image: Any, data_format: str | None = None) -> Any:
    """Draw a grey or colour image with any range of values (uint8 unchanged), and return what a colour bar needs."""
    image = _channels_last(image, data_format)
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = (image - low) / (high - low or 1.0)
    scale = {"vmin": 0, "vmax": 255 if image.dtype == np.uint8 else 1}
    if image.shape[-1] not in (1, 3, 4):  # no colours: the mean over the channels
        image = image.mean(-1, keepdims=True)
    image = image.squeeze(-1) if image.shape[-1] == 1 else image
    return axis.imshow(image, cmap="gray", interpolation="nearest", **scale)


def _draw_derivative(axis: Any, gradient: np.ndarray, data_format: str | None):
    grey, gradient = _is_grey(gradient, data_format), _channels_last(gradient, data_format)
    limit = float(np.abs(gradient).max()) or 1.0
    if not grey:
        return axis.imshow(0.5 + 0.5 * gradient / limit, interpolation="nearest")
    return axis.imshow(gradient.mean(-1) / limit, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")


def _is_grey(image: np.ndarray, data_format: str | None) -> bool:
    """Return whether an image has no colours, so that a colour bar can show its values."""
    return _channels_last(image, data_format).shape[-1] != 3


def _channels_last(image: np.ndarray, data_format: str | None) -> np.ndarray:
    image = np.asarray(image)
    if image.ndim == 2:
        return image[..., None]
    return np.moveaxis(image, channel_axis(data_format), -1)


_MARKERS = "osD^v<>P"
_INTACT = "intact network"


def plot_lesion_curve(
    curves: LesionCurve | dict[str, LesionCurve],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draw the error against the lesioned block, the intact network dashed [TVDN, Figure 4].

    The horizontal axis has the numbers of the blocks in the network, without
    those that were not lesioned.

    Args:
        curves: A `LesionCurve`, or a dict from label to `LesionCurve` for
            several nets.

    Raises:
        ValueError: If there is nothing to draw.
    """
    axis = (figure := new_figure(3.4)).subplots()
    for i, (label, curve) in enumerate(_labelled(curves, "one block lesioned").items()):
        numbers = curve.numbers or range(1, len(curve.blocks) + 1)
        line = axis.plot(numbers, _error(curve.accuracy), marker=_MARKERS[i % 8], markersize=3, lw=1, label=label)
        axis.axhline(_error(curve.intact_accuracy), color=line[0].get_color(), ls="--", lw=1)
    _finish(axis, "lesioned block", curves, _INTACT)
    axis.xaxis.get_major_locator().set_params(integer=True)
    return write(figure, path, title)


def plot_reshuffle_curve(
    curves: ReshuffleCurve | dict[str, ReshuffleCurve],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draw the error against Kendall's tau of the order, one point per order.

    Args:
        curves: A `ReshuffleCurve`, or a dict from label to `ReshuffleCurve`.
    """
    axis = (figure := new_figure(3.4)).subplots()
    for i, (label, curve) in enumerate(_labelled(curves, "one order").items()):
        dots = axis.scatter(curve.tau, _error(curve.accuracy), s=16, marker=_MARKERS[i % 8], label=label)
        axis.axhline(_error(curve.intact_accuracy), color=dots.get_facecolor()[0], ls="--", lw=1)
    axis.invert_xaxis()
    _finish(axis, "Kendall's tau with the trained order", curves, "trained order")
    return write(figure, path, title)


def plot_drop_curve(
    curves: DropCurve | dict[str, DropCurve], path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> "Figure":
    """Draw the error against the number of random blocks lesioned: the mean, and the range over the seeds.

    Args:
        curves: A `DropCurve`, or a dict from label to `DropCurve`.
    """
    axis = (figure := new_figure(3.4)).subplots()
    from matplotlib.patches import Patch

    labelled = _labelled(curves, "mean of the draws")
    for i, (label, curve) in enumerate(labelled.items()):
        values = _error(curve.accuracy)
        line = axis.plot(curve.k, values.mean(1), marker=_MARKERS[i % 8], markersize=4, lw=1, label=label)
        axis.fill_between(curve.k, values.min(1), values.max(1), color=line[0].get_color(), alpha=0.2, lw=0)
        axis.axhline(_error(curve.intact_accuracy), color=line[0].get_color(), ls="--", lw=1)
    draws = ", ".join(map(str, sorted({len(curve.seeds) for curve in labelled.values()})))
    band = Patch(color="0.4", alpha=0.2, lw=0, label=f"lowest to highest of {draws} draws")
    _finish(axis, "random blocks lesioned", curves, _INTACT, band)
    axis.xaxis.get_major_locator().set_params(integer=True)
    return write(figure, path, title)


def plot_estimation_error(
    errors: Mapping[str, EstimationError], path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> "Figure":
    """Draw mean and standard deviation of the estimation error, one panel per stage [UIE, Figure 3].

    Args:
        errors: Result of `estimation_error(model, data)`.

    Raises:
        ValueError: If there is nothing to draw.
    """
    _labelled(errors)
    columns = len(errors) if len(errors) < 4 else 2
    rows = -(-len(errors) // columns)
    figure = new_figure(2.4 * rows + 1.0)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel()[len(errors) :]:
        axis.axis("off")
    for axis, (stage, error) in zip(axes.ravel(), errors.items(), strict=False):
        numbers = np.arange(1, len(error.blocks) + 1)
        axis.errorbar(numbers, error.mean, error.std, marker="o", markersize=3, lw=1, capsize=2)
        axis.axhline(0, color="0.5", lw=0.8)
        axis.set_title(f"{in_figure(stage)}: σ(A) = {error.scale:.2g}", fontsize=10)
        axis.set_xlabel("block")
        axis.xaxis.get_major_locator().set_params(integer=True)
    for axis in axes[:, 0]:
        axis.set_ylabel("error a − A")
    legend = (
        "a: a block's output; A: the last output of its stage; σ(A): the standard deviation of A;\n"
        "points and bars: mean and standard deviation of a − A"
    )
    figure.supxlabel(legend, fontsize=9)
    return write(figure, path, title)


def plot_trim_curve(
    curves: TrimCurve | dict[str, TrimCurve],
    latency: Latency | None = None,
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draw error, parameters and, if measured, speed-up against depth.

    Args:
        curves: A `TrimCurve`, or a dict from label to `TrimCurve`.
        latency: Optional `Latency` of the same network.
    """
    return write(draw_depth(curves, None if latency is None else (latency.depth, latency.speed_up)), path, title)


def draw_depth(curves: TrimCurve | dict[str, TrimCurve], speed_up: tuple[Any, np.ndarray] | None = None) -> Any:
    """Draw the panels of `plot_trim_curve`; `speed_up` is a pair: blocks left `(rows,)`, and quartiles `(rows, 3)`."""
    count = 2 if speed_up is None else 3
    figure = new_figure(1.9 * count + 0.8)
    axes = figure.subplots(count, 1, sharex=True)
    labelled = _labelled(curves, "blocks taken out")
    pairs = {pair for curve in labelled.values() for pair in zip(curve.depth, curve.parameters, strict=True)}
    alike = len(pairs) == len({depth for depth, _ in pairs})  # one line for all
    for i, (label, curve) in enumerate(labelled.items()):
        color = "0.3" if alike else f"C{i}"
        style = {"color": f"C{i}", "marker": _MARKERS[i % 8], "markersize": 3, "lw": 1}
        axes[0].plot(curve.depth, _error(curve.accuracy), label=label, **style)
        axes[1].plot(curve.depth, curve.parameters / 1e3, lw=1, color=color)
    axes[0].set_ylabel(f"error, %\n({_samples(curves)} samples)")
    axes[1].set_ylabel("parameters,\nthousands")
    handles = axes[0].get_legend_handles_labels()[0]
    if speed_up is not None:
        low, middle, high = np.transpose(speed_up[1])
        off = (middle - low, high - middle)
        style = {"marker": "s", "markersize": 3, "lw": 1, "capsize": 2, "color": "0.3"}
        handles.append(axes[2].errorbar(speed_up[0], middle, off, label="speed-up: median and quartiles", **style))
        axes[2].set_ylabel("speed-up")
    legend_above(axes[0], handles)
    for axis in axes:
        axis.set_ylim(0, None)
        axis.grid(alpha=0.3)
    axes[-1].invert_xaxis()
    axes[-1].set_xlabel("blocks left")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    return figure


def _labelled(curves: Any, alone: str | None = None) -> dict[str | None, Any]:
    """Return the curves by label; a single curve gets the label `alone`."""
    by_label = curves if isinstance(curves, dict) else {alone: curves}
    if not by_label:
        raise ValueError("There is nothing to draw. Received: an empty dict")
    return {None if label is None else in_figure(label): curve for label, curve in by_label.items()}


def _error(accuracy: Any) -> Any:
    return 100 * (1 - accuracy)


def _finish(axis: Any, x: str, curves: Any, dashed: str, *others: Any) -> None:
    """Name the axes and add a legend; dashed lines have the colour of their curve."""
    from matplotlib.lines import Line2D

    axis.set(xlabel=x, ylabel=f"error, % ({_samples(curves)} samples)")
    axis.grid(alpha=0.3)
    handles = axis.get_legend_handles_labels()[0]
    handles += [Line2D([], [], color="0.4", ls="--", lw=1, label=dashed), *others]
    legend_above(axis, handles, columns=2 if others else 3)


def _samples(curves: Any) -> str:
    return " or ".join(f"{n:,}" for n in sorted({curve.samples for curve in _labelled(curves).values()}))


_STEPS = (  # the numbers in each decade of an axis of fewer decades than the first
    (0.5, range(1, 10)),
    (1, (1, 2, 3, 5, 7)),
    (2, (1, 2, 5)),
    (math.inf, (1,)),
)


class Curve(NamedTuple):
    """A line of a picture of training."""

    x: Any  # epochs or steps
    y: Any  # values
    label: str | None = None  # label in the legend, or `None`
    style: Mapping[str, Any] = MappingProxyType({})  # other arguments of `matplotlib.axes.Axes.plot`


def training_axes(panels: int, height: float) -> tuple[Any, list[Any]]:
    """Return a matplotlib figure and its panels, below each other."""
    figure = new_figure(height)
    return figure, list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def draw_training(
    axis: Any, curves: Iterable[Curve], *, xlabel: str = "epoch", scale: str = "linear", **options: Any
) -> None:
    """Draw curves into a panel; scale `"log"` leaves out values that are not above 0; `options` go to `Axes.set`."""
    curves = list(curves)
    for x, y, label, style in curves:
        axis.plot(x, y, label="_" if label is None else in_figure(label), **style)
    axis.set(xlabel=xlabel, **options)
    if scale == "log" and curves:
        axis.set_yscale("log", nonpositive="mask")
        _write_plain_numbers(axis.yaxis)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
    if any(curve.label is not None for curve in curves):
        axis.legend(frameon=False)


def _write_plain_numbers(axis: Any) -> None:
    """Write 0.1 and 20 on a logarithmic axis: a loss often stays within a decade, without a power of ten."""
    from matplotlib.ticker import AutoLocator, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    steps = next(steps for limit, steps in _STEPS if decades < limit)
    axis.set_major_locator(LogLocator(subs=steps))
    if sum(low <= tick <= high for tick in axis.get_majorticklocs()) < 2:
        axis.set_major_locator(AutoLocator())
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
