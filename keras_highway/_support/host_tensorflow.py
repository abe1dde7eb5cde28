"""TensorFlow as a reader of data on the CPU, whatever backend computes."""

import contextlib
import functools
from typing import Any


@functools.cache
def tensorflow() -> Any:
    """Returns TensorFlow; where another backend computes, without the GPUs, which it would fill.

    To be called before anything of TensorFlow or TensorFlow Datasets is read:
    with its first operation TensorFlow takes the GPUs that it sees. What the
    user's own program has used of it before stays as it is.

    Raises:
        ImportError: If it is not installed.
    """
    import keras  # here: commands that only list do not wait for it; not below, where its errors are its own

    try:
        import tensorflow as tf

        if keras.backend.backend() != "tensorflow":
            with contextlib.suppress(RuntimeError):  # it has been used: too late to hide them
                tf.config.set_visible_devices([], "GPU")
    except ImportError as error:
        raise ImportError(
            'TensorFlow reads photographs, whatever backend trains: pip install "keras-highway[tensorflow]".'
        ) from error
    return tf
