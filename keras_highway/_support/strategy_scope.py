"""The `tf.distribute` strategy that a model was made in, on TensorFlow."""

import contextlib
from typing import Any

import keras


def scope_of(model: keras.Model) -> contextlib.AbstractContextManager[Any]:
    """Returns the scope that a model was made in; where there was none, a context that does nothing.

    Raises:
        ValueError: If the scope of another strategy is open.
    """
    if keras.config.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    own = getattr(model, "_distribute_strategy", None)
    if tf.distribute.has_strategy() and tf.distribute.get_strategy() is not own:
        raise ValueError(
            f"Model {model.name!r} was made {'outside of' if own is None else 'in the scope of another strategy than'} "
            "the strategy whose scope is open: change what is trainable outside of that scope."
        )
    return contextlib.nullcontext() if own is None else own.scope()
