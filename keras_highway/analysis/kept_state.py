"""State that layers carry from batch to batch, e.g. of an LSTM, is after an analysis as it was before."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras import ops


@contextmanager
def kept_state(model: keras.Model) -> Generator[None]:
    """Within it, a model carries its state from batch to batch as ever; after it, the state is that of before.

    State is what is neither trained nor an average of batch normalization:
    of `CarriedLSTM`, of Keras's recurrent layers with `stateful=True`, of
    layers of one's own.

    Args:
        model: A `keras.Model`, or one on the same layers.
    """
    variables = _state(model)
    before = [_copied(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            # Most states do not change, and an assignment costs more than a look.
            if not np.array_equal(_copied(variable), value):
                variable.assign(value)


def _state(model: keras.Model) -> list[keras.Variable]:
    found: dict[int, keras.Variable] = {}
    for layer in model._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        # Averages of batch normalization stay: in inference they do not move, and to read those of a distributed net
        # its processes would have to wait for each other.
        if isinstance(layer, keras.layers.BatchNormalization):
            continue
        own: list[Any] = list(layer._non_trainable_variables)  # pyright: ignore[reportPrivateUsage] (the public list has frozen kernels)
        if isinstance(layer, keras.layers.RNN):
            own += keras.tree.flatten(layer.states or [])  # Keras does not track them
        found.update((id(variable), variable) for variable in own)
    return list(found.values())


def _copied(variable: keras.Variable) -> np.ndarray:
    return np.array(ops.convert_to_numpy(variable))  # PyTorch gives a view
