"""How figures are written: aligned columns, shares, shapes."""

from collections.abc import Sequence

from keras_highway._support.tables import table as table


def percent(share: float) -> str:
    """Returns a share in hundredths, e.g. `99.43 %`."""
    return f"{100 * share:.2f} %"


def size(shape: Sequence[int]) -> str:
    """Returns a shape, e.g. `28x28x1`."""
    return "x".join(map(str, shape))
