"""Pictures of lesions, orders, depths, estimation errors and training. Arguments are as in `plots`."""

import math
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from keras_highway._support.terminal import in_figure
from keras_highway.analysis.estimation import EstimationError
from keras_highway.analysis.lesions import DropCurve, LesionCurve, ReshuffleCurve
from keras_highway.analysis.plots import legend_above, new_figure, write
from keras_highway.analysis.trim import Latency, TrimCurve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    figure, axis = _one_axis()
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
    figure, axis = _one_axis()
    for i, (label, curve) in enumerate(_labelled(curves, "one order").items()):
        dots = axis.scatter(curve.tau, _error(curve.accuracy), s=16, marker=_MARKERS[i % 8], label=label)
        axis.axhline(_error(curve.intact_accuracy), color=dots.get_facecolor()[0], ls="--", lw=1)
    axis.invert_xaxis()
    _finish(axis, "Kendall's tau with the trained order", curves, "trained order")
    return write(figure, path, title)


def plot_drop_curve(
    curves: DropCurve | dict[str, DropCurve],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
) -> "Figure":
    """Draw the error against the number of random blocks lesioned: the mean, and the range over the seeds.

    Args:
        curves: A `DropCurve`, or a dict from label to `DropCurve`.
    """
    figure, axis = _one_axis()
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


def draw_depth(curves: TrimCurve | dict[str, TrimCurve], speed_up: tuple[np.ndarray, np.ndarray] | None = None) -> Any:
    """Draw the panels of `plot_trim_curve`; `speed_up` is a pair: blocks left `(rows,)`, and quartiles `(rows, 3)`."""
    count = 2 if speed_up is None else 3
    figure = new_figure(1.9 * count + 0.8)
    axes = figure.subplots(count, 1, sharex=True)
    labelled = _labelled(curves, "blocks taken out")
    pairs = {pair for curve in labelled.values() for pair in zip(curve.depth, curve.parameters, strict=True)}
    alike = len(pairs) == len({depth for depth, _ in pairs})  # one line for all
    for i, (label, curve) in enumerate(labelled.items()):
        color = "0.3" if alike else f"C{i}"
        axes[0].plot(
            curve.depth,
            _error(curve.accuracy),
            color=f"C{i}",
            marker=_MARKERS[i % 8],
            markersize=3,
            lw=1,
            label=label,
        )
        axes[1].plot(curve.depth, curve.parameters / 1e3, lw=1, color=color)
    axes[0].set_ylabel(f"error, %\n({_samples(curves)} samples)")
    axes[1].set_ylabel("parameters,\nthousands")
    handles = axes[0].get_legend_handles_labels()[0]
    if speed_up is not None:
        depth, (low, middle, high) = speed_up[0], np.transpose(speed_up[1])
        off = (middle - low, high - middle)
        style = {"marker": "s", "markersize": 3, "lw": 1, "capsize": 2, "color": "0.3"}
        handles.append(axes[2].errorbar(depth, middle, off, label="speed-up: median and quartiles", **style))
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
        raise ValueError("There must be something to draw. Received: {}")
    return {None if label is None else in_figure(label): curve for label, curve in by_label.items()}


def _error(accuracy: Any) -> Any:
    return 100 * (1 - accuracy)


def _one_axis():
    figure = new_figure(3.4)
    return figure, figure.subplots()


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
    """A line of a picture of training.

    Attributes:
        x: Epochs or steps.
        y: Values.
        label: Label in the legend, or `None`.
        style: Other arguments of `matplotlib.axes.Axes.plot`.
    """

    x: Any
    y: Any
    label: str | None = None
    style: Mapping[str, Any] = MappingProxyType({})


def training_axes(panels: int, height: float) -> tuple[Any, list[Any]]:
    """Return a matplotlib figure and its panels, below each other."""
    figure = new_figure(height)
    return figure, list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def draw_training(
    axis: Any, curves: Iterable[Curve], *, xlabel: str = "epoch", scale: str = "linear", **options: Any
) -> None:
    """Draw curves into a panel, with a grid, whole epochs and a legend; `options` go to `Axes.set`.

    The scale `"log"` leaves out values that are not above 0.
    """
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
    """Write 0.1 and 20 on a logarithmic axis instead of powers of ten; more numbers on fewer decades.

    A loss often stays within a decade, which may contain no power of ten.
    """
    from matplotlib.ticker import AutoLocator, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    steps = next(steps for limit, steps in _STEPS if decades < limit)
    axis.set_major_locator(LogLocator(subs=steps))
    if sum(low <= tick <= high for tick in axis.get_majorticklocs()) < 2:
        axis.set_major_locator(AutoLocator())
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
