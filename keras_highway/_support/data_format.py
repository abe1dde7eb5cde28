"""The place of the channels."""

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
