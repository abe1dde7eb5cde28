"""`outputs(model, "t")`: signals of the blocks as symbolic tensors, to build losses and models with."""

from collections.abc import Mapping
from typing import Any

import keras

from keras_highway.analysis.graph import Blocks
from keras_highway.analysis.trace import Tracer

_SIGNALS = ("x", "h", "t", "c", "y")


class Outputs(dict[str, Any]):
    """Dict from block name to a symbolic tensor, in the order of the network.

    Attributes:
        output: The model's output of the same pass, a symbolic tensor.
    """

    def __init__(self, entries: Mapping[str, Any], output: Any):
        super().__init__(entries)
        self.output = output


def outputs(model: keras.Model, signal: str, blocks: Blocks | None = None) -> Outputs:
    """Returns one signal of every block as symbolic tensors on a model's input.

    For a Keras model that gives the gates along with the predictions, or a
    loss on them. The pass is one of its own through the same layers: take
    its `output`, not the model's, where blocks should run once.

    ```python
    gates = kh.analysis.outputs(model, "t")
    mean = keras.ops.mean(keras.ops.stack([keras.ops.mean(t, axis=-1) for t in gates.values()]), axis=0)  # of fc nets
    both = keras.Model(model.input, [gates.output, mean])
    both.compile("sgd", ["sparse_categorical_crossentropy", lambda y, t: 0.01 * keras.ops.mean(t)])
    ```

    Args:
        model: A functional `keras.Model` with gated blocks.
        signal: `"x"`, `"h"`, `"t"`, `"c"` or `"y"`, see `BlockTrace`. Blocks
            where it is constant are left out; a coupled carry gate, `1 - t`,
            counts as such.
        blocks: Which blocks: names or blocks. Defaults to `None`, all.

    Returns:
        `Outputs`: a dict from block name to symbolic tensor, with the model's
        `output`.

    Raises:
        ValueError: If the model is not functional or has no blocks, or for an
            unknown block or signal.
    """
    if signal not in _SIGNALS:
        raise ValueError(f"`signal` must be one of {', '.join(_SIGNALS)}. Received: signal={signal!r}")
    return Outputs(*Tracer(model, blocks).symbols(signal))
