"""How figures are written: aligned columns, shares, shapes."""

from collections.abc import Sequence

from keras_highway._support.terminal import table as table
from keras_highway.tasks import IMAGES


def percent(share: float) -> str:
    """Returns a share in hundredths, as accuracies are written, e.g. `99.43 %`."""
    return IMAGES.metric.format(share)


def size(shape: Sequence[int]) -> str:
    """Returns a shape, e.g. `28x28x1`."""
    return "x".join(map(str, shape))
