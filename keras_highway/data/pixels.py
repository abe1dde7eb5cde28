"""What pixels can be: values that cannot be pixels are refused, and a range that is not theirs is warned of."""

import warnings
from typing import Any

import numpy as np

from keras_highway._support.terminal import Notice
from keras_highway.data.libraries import Library, values_of


class PixelRange(Notice):
    """Values that may be pixels, and are more likely something else: scaled or normalized before, or of 16 bits."""


def check_pixels(x: Any, library: Library | None) -> None:
    """Refuses what cannot be pixels; warns of values outside of [0, 255], and of floats that are all in [0, 1].

    Values are checked where there are any: inside of `tf.data.Dataset.map`
    or of a compiled function there is a dtype alone.
    """
    name = _dtype_name(x)
    if not name.startswith(("int", "uint", "float", "bfloat")):
        raise ValueError(f"Pixels are whole or floating-point numbers in [0, 255]. Received: dtype {name}")
    if name == "uint8":
        return
    values = values_of(x, library)
    if values is None or not values.size:
        return
    low, high = (float(bound) for bound in (values.min(), values.max()))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("Pixels are finite numbers in [0, 255]. Received: NaN or infinite values")
    if suspicion := _suspicion(low, high, "float" in name):
        warnings.warn(f"Pixels are in [0, 255]. {suspicion} Received: values from {low:g} to {high:g}", PixelRange, 3)


def _dtype_name(x: Any) -> str:
    """`float32` of NumPy's, TensorFlow's `<dtype: 'float32'>` and PyTorch's `torch.float32` alike."""
    return str(getattr(x.dtype, "name", x.dtype)).removeprefix("torch.")


def _suspicion(low: float, high: float, floating: bool) -> str:
    if low < 0:
        return "Negative ones look normalized before: leave one of the two normalizations out."
    if high > 255:
        return "Larger ones look like 16 bits: divide by 257."
    if floating and 0 < high <= 1:
        return "These look scaled to [0, 1] before: multiply by 255, or all images will be nearly black."
    return ""
