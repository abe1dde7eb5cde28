"""What layers ask of arguments and of the shapes of their inputs."""

from typing import Any

import keras

from keras_highway._support.keras_models import Shape


def is_rate(value: Any) -> bool:
    """Whether a value is a number in [0, 1)."""
    try:
        return not isinstance(value, bool | str | bytes) and 0.0 <= float(value) < 1.0
    except (TypeError, ValueError, OverflowError):
        return False


def broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether a tensor of a shape may be one that broadcasts to another's; `None` is any size."""
    pairs = zip(reversed(shape), reversed(to), strict=False)
    return len(shape) <= len(to) and all(size in (1, None, full) or full is None for size, full in pairs)


def check_images(layer: keras.layers.Layer, input_shape: Shape) -> None:
    """Raises a ValueError for an input that is not of rank 4."""
    if len(input_shape) != 4:
        raise ValueError(
            f"{type(layer).__name__} {layer.name!r} needs an input of rank 4: (batch, height, width, channels). "
            f"Received: input shape {tuple(input_shape)}"
        )


def check_padding(input_shape: Shape, axis: int, filters: int) -> int:
    """Returns the channels of an input, to which a shortcut of option A adds some.

    Raises:
        ValueError: If they are unknown, or more than `filters`.
    """
    channels = input_shape[axis]
    if channels is None or channels > filters:
        raise ValueError(
            "Shortcut option A pads a known number of channels and cannot remove any: use projection='B'. "
            f"Received: input shape {tuple(input_shape)}, filters={filters}"
        )
    return channels


def check_same_width(
    layer: keras.layers.Layer, argument: str, output_width: int | None, input_shape: Shape, axis: int = -1
) -> int:
    """Returns the width of a layer whose skip needs input and output of equal width.

    Args:
        layer: The layer, for the message.
        argument: The name of its width argument (`"units"` or `"filters"`).
        output_width: Its value, or `None` for the input's width.
        input_shape: Shape of the input.
        axis: The axis of the width.

    Raises:
        ValueError: If the width of the input is unknown or is not `output_width`.
    """
    width = input_shape[axis]
    if width is None:
        raise ValueError(
            f"{type(layer).__name__} {layer.name!r} needs an input whose axis {axis} has a known size. "
            f"Received: input shape {tuple(input_shape)}"
        )
    if output_width not in (None, width):
        output_shape = list(input_shape)
        output_shape[axis] = output_width
        plain = "keras.layers.Dense" if argument == "units" else "keras.layers.Conv2D"
        raise ValueError(
            f"{type(layer).__name__} {layer.name!r} adds its input to its output, so both need the same width. "
            f"Received: input shape {tuple(input_shape)}, output shape {tuple(output_shape)} "
            f"({argument}={output_width}). Leave {argument}=None, or change the width first with a plain layer "
            f"({plain}) or a block with a projection (BasicBlock, BottleneckBlock)."
        )
    return width
