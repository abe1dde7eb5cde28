"""The recurrent part of a language model with its state in hand: any number of texts, started and left at will."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_highway.layers import CarriedLSTM, HierarchicalSoftmax

State = list[np.ndarray]


class Reader(keras.Model):
    """LSTMs and softmax of a network, sharing its weights and not its carried state.

    Inputs: what the words add to the gates of the first LSTM, `(texts, steps,
    4 * units)`; the number of each next word, `(texts, steps)`; h and c of
    every LSTM, each `(texts, units)`. Outputs: the log-probability of each
    next word, `(texts, steps)`; the log-probabilities of all words after the
    last step, `(texts, classes)`; h and c after the last step.

    Args:
        network: A network of `build_char_lm`.
    """

    def __init__(self, network: keras.Model, **kwargs: Any):
        # Whatever the global policy: what is passed on from call to call is not rounded, and layers know their own.
        super().__init__(dtype="float32", autocast=False, **kwargs)
        self.lstms = [layer for layer in network.layers if isinstance(layer, CarriedLSTM)]
        self.head = network.get_layer("head")
        # `build` of a subclassed model would make weights; ours are there already.
        self.built = True

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        projected, targets, *before = inputs
        after, x = [], None
        for i, lstm in enumerate(self.lstms):
            z = projected if x is None else lstm.project(x)
            x, *state = lstm.recur(z, *before[2 * i : 2 * i + 2])
            after += state
        if isinstance(self.head, HierarchicalSoftmax):
            return [self.head.target_log_probabilities(x, targets), self.head(x[:, -1]), *after]
        log_p = ops.log_softmax(ops.cast(self.head(x), "float32"))  # not rounded to a small dtype first
        own = ops.take_along_axis(log_p, ops.cast(targets, "int32")[..., None], axis=-1)
        return [own[..., 0], log_p[:, -1], *after]

    def start(self, texts: int = 1) -> State:
        """Return the state at the start of texts: zeros."""
        return [np.zeros((texts, lstm.units), np.float32) for lstm in self.lstms for _ in range(2)]

    def read(self, projected: np.ndarray, targets: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray, State]:
        """Return log-probabilities of `targets`, those of all words after the last step, and the state there."""
        own, last, *after = self.predict_on_batch([projected, targets, *state])
        return own, last, after
