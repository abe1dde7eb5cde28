"""Pictures of lesions, orders, depths and estimation errors: results in, a matplotlib figure out."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_highway._support.terminal import in_figure
from keras_highway.analysis.estimation import EstimationError
from keras_highway.analysis.lesions import DropCurve, LesionCurve, ReshuffleCurve
from keras_highway.analysis.plots import SMALL, legend_above, new_figure, write
from keras_highway.analysis.trim import Latency, TrimCurve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^v<>P"
_INTACT = "intact network"


def plot_lesion_curve(
    curves: LesionCurve | dict[str, LesionCurve],
    path: str | os.PathLike[str] | None = None,
    *,
    metric: str = "accuracy",
    title: str | None = None,
) -> "Figure":
    """Draws performance against the lesioned block, the intact network dashed [TVDN, Figure 4].

    Blocks have their number in the network; the numbers of those that were not
    lesioned (transitions, or not chosen) are skipped.

    Args:
        curves: A `LesionCurve`, or a dict from label to `LesionCurve` to draw
            nets side by side.
        path: Optional file to write.
        metric: `"accuracy"` (drawn as error, in %) or `"loss"`. Defaults to
            `"accuracy"`.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there is nothing to draw, or the metric is unknown.
    """
    figure, axis = _one_axis()
    for i, (label, curve) in enumerate(_labelled(curves, "one block lesioned").items()):
        numbers = curve.numbers or range(1, len(curve.blocks) + 1)
        line = axis.plot(numbers, _shown(curve, metric), marker=_MARKERS[i % 8], markersize=3, lw=1, label=label)
        axis.axhline(_shown(curve, metric, "intact_"), color=line[0].get_color(), ls="--", lw=1)
    _finish(axis, "lesioned block", _axis_name(metric), curves, _INTACT)
    axis.xaxis.get_major_locator().set_params(integer=True)
    return write(figure, path, title)


def plot_reshuffle_curve(
    curves: ReshuffleCurve | dict[str, ReshuffleCurve],
    path: str | os.PathLike[str] | None = None,
    *,
    metric: str = "accuracy",
    title: str | None = None,
) -> "Figure":
    """Draws performance against the order's Kendall tau, one point per order.

    Args:
        curves: A `ReshuffleCurve`, or a dict from label to `ReshuffleCurve`.
        path: Optional file to write.
        metric: As in `plot_lesion_curve`.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: As in `plot_lesion_curve`.
    """
    figure, axis = _one_axis()
    for i, (label, curve) in enumerate(_labelled(curves, "one order").items()):
        dots = axis.scatter(curve.tau, _shown(curve, metric), s=16, marker=_MARKERS[i % 8], label=label)
        axis.axhline(_shown(curve, metric, "intact_"), color=dots.get_facecolor()[0], ls="--", lw=1)
    axis.invert_xaxis()
    _finish(axis, "Kendall's tau with the trained order", _axis_name(metric), curves, "trained order")
    return write(figure, path, title)


def plot_drop_curve(
    curves: DropCurve | dict[str, DropCurve],
    path: str | os.PathLike[str] | None = None,
    *,
    metric: str = "accuracy",
    title: str | None = None,
) -> "Figure":
    """Draws performance against the number of random blocks lesioned: the mean, and the range over the seeds.

    Args:
        curves: A `DropCurve`, or a dict from label to `DropCurve`.
        path: Optional file to write.
        metric: As in `plot_lesion_curve`.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: As in `plot_lesion_curve`.
    """
    figure, axis = _one_axis()
    from matplotlib.patches import Patch

    labelled = _labelled(curves, "mean of the draws")
    for i, (label, curve) in enumerate(labelled.items()):
        values = _shown(curve, metric)
        line = axis.plot(curve.k, values.mean(1), marker=_MARKERS[i % 8], markersize=4, lw=1, label=label)
        axis.fill_between(curve.k, values.min(1), values.max(1), color=line[0].get_color(), alpha=0.2, lw=0)
        axis.axhline(_shown(curve, metric, "intact_"), color=line[0].get_color(), ls="--", lw=1)
    draws = ", ".join(map(str, sorted({len(curve.seeds) for curve in labelled.values()})))
    band = Patch(color="0.4", alpha=0.2, lw=0, label=f"lowest to highest of {draws} draws")
    _finish(axis, "random blocks lesioned", _axis_name(metric), curves, _INTACT, band)
    axis.xaxis.get_major_locator().set_params(integer=True)
    return write(figure, path, title)


def plot_estimation_error(
    errors: Mapping[str, EstimationError], path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> "Figure":
    """Draws mean and standard deviation of the estimation error, stage beside stage [UIE, Figure 3].

    Args:
        errors: What `estimation_error(model, data)` returned.
        path: Optional file to write.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there is nothing to draw.
    """
    if not errors:
        raise ValueError("There is no stage to draw. Received: errors={}")
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
    """Draws error, parameters and, if it was measured, speed-up against depth.

    Args:
        curves: A `TrimCurve`, or a dict from label to `TrimCurve`.
        latency: Optional `Latency` of the same network.
        path: Optional file to write.
        title: Text above the picture.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there is nothing to draw.
    """
    return write(draw_depth(curves, None if latency is None else (latency.depth, latency.speed_up)), path, title)


def draw_depth(curves: TrimCurve | dict[str, TrimCurve], speed_up: tuple[np.ndarray, np.ndarray] | None = None) -> Any:
    """Draws what `plot_trim_curve` draws.

    Args:
        curves: As there.
        speed_up: Optional pair: blocks left `(rows,)`, and quartiles of the
            speed-up there `(rows, 3)`.

    Returns:
        A `matplotlib.figure.Figure`.
    """
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
            100 * (1 - curve.accuracy),
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


def mark_break(axis: Any, at: float, text: str) -> None:
    """Marks where the scale of a vertical axis changes: two strokes across it, a dotted line, and words below that.

    Args:
        axis: A matplotlib axis.
        at: Where, in data.
        text: The words.
    """
    across = axis.get_yaxis_transform()  # x in parts of the axis, y in data
    stroke = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 9, "color": "k", "linestyle": "none", "clip_on": False}
    axis.plot([0, 0], [at * 0.9, at * 1.1], transform=across, label="_break", **stroke)
    axis.axhline(at, color="0.4", lw=0.8, ls=":", label="_break")
    below = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": SMALL, "color": "0.3"}
    axis.annotate(text, (0.5, at), (0, -2), across, **below)


def _labelled(curves: Any, alone: str | None = None) -> dict[str | None, Any]:
    """Curves by their labels; a single curve without one gets `alone`."""
    by_label = curves if isinstance(curves, dict) else {alone: curves}
    if not by_label:
        raise ValueError("There is no curve to draw. Received: curves={}")
    return {None if label is None else in_figure(label): curve for label, curve in by_label.items()}


def _shown(curve: Any, metric: str, which: str = ""):
    if metric == "accuracy":
        return 100 * (1 - getattr(curve, f"{which}accuracy"))
    if metric == "loss":
        return getattr(curve, f"{which}loss")
    raise ValueError(f"`metric` must be 'accuracy' or 'loss'. Received: metric={metric!r}")


def _axis_name(metric: str) -> str:
    return "error, %" if metric == "accuracy" else "loss, nats"


def _one_axis():
    figure = new_figure(3.4)
    return figure, figure.subplots()


def _finish(axis: Any, x: str, y: str, curves: Any, dashed: str, *others: Any) -> None:
    """Names the axes and explains what is drawn; dashed lines have the colour of what they belong to."""
    from matplotlib.lines import Line2D

    axis.set(xlabel=x, ylabel=f"{y} ({_samples(curves)} samples)")
    axis.grid(alpha=0.3)
    handles = axis.get_legend_handles_labels()[0]
    handles += [Line2D([], [], color="0.4", ls="--", lw=1, label=dashed), *others]
    legend_above(axis, handles, columns=2 if others else 3)


def _samples(curves: Any) -> str:
    return " or ".join(f"{n:,}" for n in sorted({curve.samples for curve in _labelled(curves).values()}))
