"""Pictures of lesions, orders, depths and estimation errors: results in, a matplotlib figure out."""

import numpy as np

from keras_highway._support.outside_text import in_figure
from keras_highway.analysis.plots import figure_class, write

_MARKERS = "osD^v<>P"


def plot_lesion_curve(curves, path=None, *, metric="accuracy", title=None):
    """Draws performance against the lesioned block, the intact network dashed [TVDN, Figure 4].

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
    figure, axis = _one_axis(7.0)
    for i, (label, curve) in enumerate(_labelled(curves).items()):
        places = np.arange(1, len(curve.blocks) + 1)
        line = axis.plot(places, _shown(curve, metric), marker=_MARKERS[i % 8], markersize=3, lw=1, label=label)
        axis.axhline(_shown(curve, metric, "intact_"), color=line[0].get_color(), ls="--", lw=1)
    _finish(axis, "lesioned block", _axis_name(metric), curves)
    return write(figure, path, title)


def plot_reshuffle_curve(curves, path=None, *, metric="accuracy", title=None):
    """Draws performance against the order's Kendall tau, a point an order.

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
    figure, axis = _one_axis(5.0)
    for i, (label, curve) in enumerate(_labelled(curves).items()):
        dots = axis.scatter(curve.tau, _shown(curve, metric), s=16, marker=_MARKERS[i % 8], label=label)
        axis.axhline(_shown(curve, metric, "intact_"), color=dots.get_facecolor()[0], ls="--", lw=1)
    axis.invert_xaxis()
    _finish(axis, "Kendall's tau with the trained order", _axis_name(metric), curves)
    return write(figure, path, title)


def plot_drop_curve(curves, path=None, *, metric="accuracy", title=None):
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
    figure, axis = _one_axis(5.0)
    for i, (label, curve) in enumerate(_labelled(curves).items()):
        values = _shown(curve, metric)
        line = axis.plot(curve.k, values.mean(1), marker=_MARKERS[i % 8], markersize=4, lw=1, label=label)
        axis.fill_between(curve.k, values.min(1), values.max(1), color=line[0].get_color(), alpha=0.2, lw=0)
        axis.axhline(_shown(curve, metric, "intact_"), color=line[0].get_color(), ls="--", lw=1)
    _finish(axis, "random blocks lesioned", _axis_name(metric), curves)
    return write(figure, path, title)


def plot_estimation_error(errors, path=None, *, title=None):
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
    figure = figure_class()(figsize=(3.2 * len(errors) + 1, 3.2), layout="constrained")
    for axis, (stage, error) in zip(figure.subplots(1, len(errors), squeeze=False)[0], errors.items(), strict=True):
        places = np.arange(1, len(error.blocks) + 1)
        axis.errorbar(places, error.mean, error.std, marker="o", markersize=3, lw=1, capsize=2)
        axis.axhline(0, color="0.5", lw=0.8)
        axis.set(xlabel="block", title=f"{in_figure(stage)} (std of A: {error.scale:.2g})")
        axis.xaxis.get_major_locator().set_params(integer=True)
    figure.axes[0].set_ylabel("estimation error a − A, mean ± std")
    return write(figure, path, title)


def plot_trim_curve(curves, latency=None, path=None, *, title=None):
    """Draws error, parameters and, if it was measured, latency against depth.

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
    count = 2 if latency is None else 3
    figure = figure_class()(figsize=(3.6 * count, 3.2), layout="constrained")
    axes = figure.subplots(1, count)
    for i, (label, curve) in enumerate(_labelled(curves).items()):
        axes[0].plot(curve.depth, 100 * (1 - curve.accuracy), marker=_MARKERS[i % 8], markersize=3, lw=1, label=label)
        axes[1].plot(curve.depth, curve.parameters / 1e3, lw=1)
    axes[0].set_ylabel(f"error, % of {_samples(curves)}")
    if isinstance(curves, dict):
        axes[0].legend(fontsize=8)
    axes[1].set_ylabel("parameters, thousands")
    if latency is not None:
        low, middle, high = 1e3 * np.percentile(latency.seconds, (25, 50, 75), axis=1)
        axes[2].errorbar(
            latency.depth, middle, (middle - low, high - middle), marker="o", markersize=3, lw=1, capsize=2
        )
        axes[2].set_ylabel(f"ms for {latency.batch_size} samples, quartiles")
    for axis in axes:
        axis.set(xlabel="blocks left", ylim=(0, None))
        axis.invert_xaxis()
        axis.grid(alpha=0.3)
    return write(figure, path, title)


def _labelled(curves) -> dict:
    found = curves if isinstance(curves, dict) else {None: curves}
    if not found:
        raise ValueError("There is no curve to draw. Received: curves={}")
    return {None if label is None else in_figure(label): curve for label, curve in found.items()}


def _shown(curve, metric, which=""):
    if metric == "accuracy":
        return 100 * (1 - getattr(curve, f"{which}accuracy"))
    if metric == "loss":
        return getattr(curve, f"{which}loss")
    raise ValueError(f"`metric` must be 'accuracy' or 'loss'. Received: metric={metric!r}")


def _axis_name(metric) -> str:
    return "error, %" if metric == "accuracy" else "loss, nats"


def _one_axis(width):
    figure = figure_class()(figsize=(width, 3.4), layout="constrained")
    return figure, figure.subplots()


def _finish(axis, x, y, curves) -> None:
    axis.set(xlabel=x, ylabel=f"{y} ({_samples(curves)} samples)")
    axis.grid(alpha=0.3)
    if isinstance(curves, dict):
        axis.legend()


def _samples(curves) -> str:
    return ", ".join(map(str, sorted({curve.samples for curve in _labelled(curves).values()})))
