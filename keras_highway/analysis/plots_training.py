"""Pictures of training: what a log reports, against epochs or steps."""

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from keras_highway._support.terminal import in_figure
from keras_highway.analysis.plots import new_figure

_STEPS = (  # the numbers in each decade of an axis of fewer decades than the first
    (0.5, range(1, 10)),
    (1, (1, 2, 3, 5, 7)),
    (2, (1, 2, 5)),
    (math.inf, (1,)),
)


class Curve(NamedTuple):
    """A line of such a picture.

    Attributes:
        x: Epochs or steps.
        y: One value each.
        label: In the legend; `None` for a line that is not in it.
        style: What else `matplotlib.axes.Axes.plot` takes.
    """

    x: Any
    y: Any
    label: str | None = None
    style: Mapping[str, Any] = MappingProxyType({})


def training_axes(panels: int, height: float) -> tuple[Any, list[Any]]:
    """Returns a matplotlib figure, as wide as all pictures, and its panels, below each other.

    Args:
        panels: Int, how many.
        height: Of the figure in inches.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    figure = new_figure(height)
    return figure, list(figure.subplots(panels, 1, squeeze=False)[:, 0])


def draw_training(
    axis: Any, curves: Iterable[Curve], *, xlabel: str = "epoch", scale: str = "linear", **options: Any
) -> None:
    """Draws curves into a panel, with a grid, whole epochs, and a legend of those that have a label.

    Args:
        axis: The panel.
        curves: What to draw.
        xlabel: Text below. Defaults to `"epoch"`.
        scale: `"linear"` or `"log"`, in which values that are not above 0 are
            gaps. Defaults to `"linear"`.
        **options: As in `matplotlib.axes.Axes.set`: `ylabel`, `title`.
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
    """Writes 0.1 and 20 where a logarithmic axis would write powers of ten; the fewer decades, the more of them.

    A loss often stays within a decade, where a power of ten may not occur.
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
