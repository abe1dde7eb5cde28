"""The place of the channels."""

import contextlib
from collections.abc import Iterator

import keras


def checked_data_format(value: str | None) -> str:
    """Returns `"channels_last"` or `"channels_first"`, for `None` Keras's own.

    Raises:
        ValueError: If it is another word.
    """
    data_format = keras.config.image_data_format() if value is None else value
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(f"`data_format` must be 'channels_last' or 'channels_first'. Received: data_format={value!r}")
    return data_format


def model_data_format(model: keras.Model) -> str:
    """Returns where a model's layers have their channels, which need not be where Keras's setting says.

    A saved model keeps its own; without layers that have one, it is the
    setting.
    """
    formats = (getattr(layer, "data_format", None) for layer in model.layers)
    return next((known for known in formats if known), keras.config.image_data_format())


@contextlib.contextmanager
def channels_last() -> Iterator[None]:
    """Networks are built channels last inside, whatever the user's keras.json says.

    For programs that read images themselves: weights are the same for both. The
    setting is Keras's own, for the whole process: threads share it.
    """
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_last")
    try:
        yield
    finally:
        keras.config.set_image_data_format(before)
