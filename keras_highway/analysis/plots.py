"""Pictures of traces: arrays in, a matplotlib figure out. matplotlib is imported only when one is drawn."""

import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.terminal import in_figure
from keras_highway.analysis.graph import stages
from keras_highway.analysis.trace import BlockTrace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Inches, of every picture: letters of 10 points are 17 px high on a page of 670 px, and 10 px on a phone of 390.
WIDTH = 5.6
SMALL = 8  # points, of what stands above a panel of many
GATE_SCALE = (0.0, 1.0)
_WRAP = 4  # maps in a row
_TITLE_CHARACTERS = 62  # in a line


def plot_gates(
    traces: Mapping[str, BlockTrace],
    image: Any = None,
    path: str | os.PathLike[str] | None = None,
    *,
    gate: str = "t",
    sample: int = 0,
    scale: tuple[float, float] | None = GATE_SCALE,
    title: str | None = None,
) -> "Figure":
    """Draws the gate of every block for one image.

    Convolutional nets: one map per block, the gate's mean over the channels at
    every position, stages below each other. Fully connected nets: one row per
    block and one column per unit, beside the blocks' outputs, as in the
    rightmost columns of [TVDN, Figure 2].

    Args:
        traces: What `trace(model, x)` returned: a dict from block name to
            `BlockTrace`.
        image: Optional array (height, width) or (height, width, channels),
            drawn beside the gates.
        path: Optional file to write, e.g. `"gates.png"`.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        sample: Int, which image of the batch. Defaults to `0`.
        scale: Pair (lowest, highest) of the colour scale. Defaults to
            `(0, 1)`, shut and open; `None` for the 1st to the 99th percentile
            over all blocks, which shows small differences and no longer how
            far a gate opens.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`; pyplot's state is not touched.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If the gates are constant (a plain or residual net), the
            traces are empty or of mixed shapes, or the batch has no such
            sample.
    """
    figure_class()
    gates = spread_gates(traces, gate, sample)
    ranks = {values.ndim for values in gates.values()}
    if ranks == {3}:
        formats = {name: entry.data_format for name, entry in traces.items()}
        figure = draw_maps(gates, f"gate {gate}, mean over channels", image, scale, formats)
    elif ranks == {1} and len({values.shape for values in gates.values()}) == 1:
        outputs = np.stack([entry.y[sample] for entry in traces.values()])
        figure = _stripes(gates, outputs, image, gate, scale)
    else:
        shapes = sorted({values.shape for values in gates.values()})
        raise ValueError(
            "Either every block's gate is an image with channels, or every one is a vector of the same width. "
            f"Received: gates of shapes {shapes}"
        )
    return write(figure, path, title)


def figure_class() -> Any:
    """Returns matplotlib's `Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('Pictures need matplotlib: pip install "keras-highway[plots]"') from error
    return Figure


def new_figure(height: float) -> Any:
    """Returns an empty figure, as wide as all pictures (`WIDTH`).

    Args:
        height: In inches.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    return figure_class()(figsize=(WIDTH, height), layout="constrained")


def write(figure: Any, path: str | os.PathLike[str] | None = None, title: str | None = None) -> Any:
    """Puts a title above a figure, writes it to a file if one is named, and returns it."""
    if title:
        lines = [part for line in str(title).split("\n") for part in textwrap.wrap(line, _TITLE_CHARACTERS) or [""]]
        figure.suptitle("\n".join(map(in_figure, lines)), fontsize=11)
    if path is not None:
        # Without its program's version a PNG of the same numbers is the same file; other formats have no such field.
        png = os.fspath(path).lower().endswith(".png")
        figure.savefig(path, dpi=150, **({"metadata": {"Software": None}} if png else {}))
    return figure


def channel_axis(data_format: str | None = None) -> int:
    """The channel axis of one image; without a format, in Keras's own."""
    return 0 if (data_format or keras.config.image_data_format()) == "channels_first" else -1


def spread_gates(traces: Mapping[str, BlockTrace], gate: str, sample: int) -> dict[str, np.ndarray]:
    """The gate of one sample in every block, spread to the shape of x."""
    if gate not in ("t", "c"):
        raise ValueError(f"`gate` must be 't' or 'c'. Received: gate={gate!r}")
    if not traces:
        raise ValueError("There are no blocks to draw. Received: traces={}")
    size = len(next(iter(traces.values())).x)
    if not -size <= sample < size:
        raise ValueError(f"The batch has {size} samples. Received: sample={sample}")
    constant = [name for name, entry in traces.items() if getattr(entry, gate).ndim == 0]
    if constant:
        value = float(getattr(traces[constant[0]], gate))
        raise ValueError(
            f"There is no gate {gate} to draw: it is the constant {value:g} in {len(constant)} of {len(traces)} "
            "blocks. Plain and residual nets have no learned gates; with gating='c_only' draw gate='c', with "
            f"'t_only' gate='t'. Received: gate={gate!r}, constant in {', '.join(constant[:4])}"
        )
    return {name: np.broadcast_to(getattr(entry, gate), entry.x.shape)[sample] for name, entry in traces.items()}


def _rows(names: Iterable[str]) -> list[list[str]]:
    """Names by stage, a stage's rows not longer than `_WRAP` and evenly filled."""
    rows = []
    for members in stages(names).values():
        lines = -(-len(members) // _WRAP)
        width = -(-len(members) // lines)
        rows += [members[i : i + width] for i in range(0, len(members), width)]
    return rows


def robust_limits(values: np.ndarray, scale: tuple[float, float] | None = None) -> tuple[float, float]:
    """Ends of the colour scale; never closer than a thousandth, so that equal gates do not show their rounding."""
    if scale is not None:
        return scale
    low, high = (float(v) for v in np.percentile(values, (1, 99)))
    middle = (low + high) / 2
    return min(low, middle - 5e-4), max(high, middle + 5e-4)


def draw_maps(
    gates: Mapping[str, np.ndarray],
    label: str,
    image: Any = None,
    scale: tuple[float, float] | None = GATE_SCALE,
    formats: Mapping[str, str] | None = None,
) -> Any:
    """Draws the mean over channels of one image-shaped array per block, stages below each other.

    Args:
        gates: Dict from block name to array with channels.
        label: What the colours mean.
        image: As in `plot_gates`.
        scale: As in `plot_gates`.
        formats: Dict from block name to its data format. Defaults to Keras's
            own.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    maps = {name: values.mean(channel_axis((formats or {}).get(name))) for name, values in gates.items()}
    rows = _rows(maps)
    columns = max(map(len, rows)) + (image is not None)
    width = WIDTH / max(columns, 4)  # a few maps do not fill the page
    figure = new_figure((width + 0.35) * len(rows) + 0.9)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    low, high = robust_limits(np.concatenate([m.ravel() for m in maps.values()]), scale)
    drawn = None
    for line, names in enumerate(rows):
        for axis in axes[line]:
            axis.axis("off")
        for axis, name in zip(axes[line, int(image is not None) :], names, strict=False):
            drawn = axis.imshow(maps[name], vmin=low, vmax=high, cmap="viridis", interpolation="nearest")
            axis.set_title(f"{in_figure(name)}\nmean {maps[name].mean():.3g}", fontsize=SMALL)
    if image is not None:
        _show_image(axes[0, 0], image)
    bar_below(figure, drawn, axes, f"{label} (0 shut, 1 open)", _extend(scale))
    return figure


def _stripes(
    gates: Mapping[str, np.ndarray], outputs: np.ndarray, image: Any, gate: str, scale: tuple[float, float] | None
):
    table = np.stack(list(gates.values()))
    height = min(max(2.8, 0.09 * len(table) + 1.0), 12.0)
    ratios = ([0.5] if image is not None else []) + [1, 1]
    figure = new_figure(height)
    axes = list(figure.subplots(1, len(ratios), width_ratios=ratios, squeeze=False)[0])
    if image is not None:
        _show_image(axes.pop(0), image)
    limit = float(np.percentile(np.abs(outputs), 99)) or 1.0
    panels = (
        Panel(f"gate {gate}", table, *robust_limits(table, scale), f"{gate} (0 shut, 1 open)", extend=_extend(scale)),
        Panel("block output y", outputs, -limit, limit, "y", "RdBu_r", "both"),
    )
    draw_panels(figure, axes, panels)
    return figure


class Panel(NamedTuple):
    """A table to be drawn.

    Attributes:
        title: Text above it.
        values: Array `(blocks, units)`; what is masked is drawn grey.
        low: Lower end of the colour scale.
        high: Upper end of the colour scale.
        label: What the colours mean.
        cmap: Name of the colour map.
        extend: Which ends of the colour bar have an arrow, since there are
            values beyond: `"neither"`, `"both"`, `"min"` or `"max"`.
        power: Colours follow this power of the value: below 1, small values
            differ more.
        column: What a column is, `"unit"` or `"channel"`.
        numbers: Of its blocks; empty for 1, 2, ...
    """

    title: str
    values: np.ndarray
    low: float
    high: float
    label: str
    cmap: str = "viridis"
    extend: str = "neither"
    power: float = 1.0
    column: str = "unit"
    numbers: tuple[int, ...] = ()


def draw_panels(figure: Any, axes: Any, panels: "Iterable[Panel]") -> None:
    """Draws tables, one row per block and one column per unit, each above a labelled colour bar of its own width.

    Args:
        figure: The figure.
        axes: One for each panel.
        panels: What to draw, each a `Panel`.
    """
    for axis, panel in zip(axes, panels, strict=True):
        drawn = draw_table(axis, panel)
        axis.set_ylabel("block")
        label = panel.label if panel.power == 1 else f"{panel.label}, power scale"
        bar = figure.colorbar(drawn, ax=axis, location="bottom", aspect=25, label=label, extend=panel.extend)
        bar.ax.tick_params(labelsize=SMALL)


def draw_table(axis: Any, panel: Panel) -> Any:
    """Draws a `Panel` without a colour bar; returns what a colour bar needs."""
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
    """Names the rows or columns of a table by the places of its blocks where these are not 1, 2, ...

    Args:
        axis: An `Axis` on which the blocks stand at 1, 2, ...
        numbers: Their places in the network.
    """
    places = range(1, len(numbers) + 1)
    if list(numbers) == list(places) and len(numbers) > 1:  # of one row the locator would name fractions
        axis.get_major_locator().set_params(integer=True)
        return
    kept = places[:: -(-len(numbers) // 12)]  # more would overlap
    axis.set_ticks(list(kept), [str(numbers[place - 1]) for place in kept])


def bar_below(figure: Any, drawn: Any, axes: Any, label: str, extend: str = "neither") -> None:
    """Puts one colour bar below panels, as wide as they are.

    Args:
        figure: The figure.
        drawn: What `imshow` returned.
        axes: The panels.
        label: What the colours mean.
        extend: As in `Panel`.
    """
    from matplotlib.ticker import MaxNLocator

    few = MaxNLocator(6)  # more of long numbers would overlap
    figure.colorbar(drawn, ax=axes, location="bottom", aspect=40, shrink=0.9, label=label, extend=extend, ticks=few)


def legend_above(axis: Any, handles: Sequence[Any] | None = None, columns: int = 2) -> None:
    """Puts a legend above a panel that has no title.

    Args:
        axis: The panel.
        handles: What it explains. Defaults to all that have a label.
        columns: Int, how many entries side by side. Defaults to `2`.
    """
    handles = axis.get_legend_handles_labels()[0] if handles is None else handles
    axis.legend(
        handles=handles,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=min(columns, len(handles)),
        fontsize=9,
        frameon=False,
    )


def _extend(scale: tuple[float, float] | None) -> str:
    """Values outside a robust scale take the colour of its end; the colour bar marks this with arrows."""
    return "both" if scale is None else "neither"


def _show_image(axis: Any, image: Any) -> None:
    """Draws an image of any range of values."""
    image = np.squeeze(np.asarray(image, "float32"))
    if image.ndim not in (2, 3):
        raise ValueError(
            f"`image` must be (height, width) or (height, width, channels). Received: image.shape={image.shape}"
        )
    if image.ndim == 3 and image.shape[-1] not in (3, 4):  # no colours: the mean over the channels
        image = image.mean(-1)
    low, high = float(image.min()), float(image.max())
    axis.imshow((image - low) / (high - low or 1.0), cmap="gray", interpolation="nearest")
    axis.set_title("image", fontsize=SMALL)
    axis.axis("off")
