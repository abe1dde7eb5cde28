"""What a layer gets and gives in one model: `layer.input` and `layer.output` are those of its first call anywhere."""

from typing import Any

import keras


def input_in(model: keras.Model, layer: keras.layers.Layer) -> Any:
    """Returns what a model passes to a layer, a Keras tensor or a list of them.

    Args:
        model: A functional or sequential model.
        layer: One of its layers, which other models may share.
    """
    return _alone(_node(model, layer).input_tensors)


def output_in(model: keras.Model, layer: keras.layers.Layer) -> Any:
    """Returns what a layer gives in a model, a Keras tensor or a list of them; of several calls, of the last.

    Args:
        model: A functional or sequential model.
        layer: One of its layers, which other models may share.
    """
    return _alone(_node(model, layer).output_tensors)


def _alone(tensors: list[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tensors


def _node(model: Any, layer: keras.layers.Layer) -> Any:
    by_depth = getattr(model, "_functional", model)._nodes_by_depth  # a sequential model has its graph inside
    return next(node for depth in sorted(by_depth) for node in by_depth[depth] if node.operation is layer)
