"""What a classifier's outputs are: logits or probabilities, however the last layers reshape or cast them."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers

from keras_highway.analysis.graph import is_functional

# Layers and operations of Keras behind which, in inference, the numbers are those before, in another shape or dtype.
_SAME_NUMBERS = (
    layers.Reshape,
    layers.Flatten,
    layers.Permute,
    layers.RepeatVector,
    layers.Identity,
    layers.ActivityRegularization,
    layers.Dropout,
    layers.SpatialDropout1D,
    layers.SpatialDropout2D,
    layers.SpatialDropout3D,
    layers.GaussianDropout,
    layers.GaussianNoise,
    layers.AlphaDropout,
)
_SAME_NUMBERS_OPERATIONS = ("Cast", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "GetItem")
_WRAPPERS = (layers.TimeDistributed, layers.SpectralNormalization)
_SOFTMAX = (keras.activations.softmax, keras.ops.softmax)
_SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid)
_ROWS = 64  # samples whose outputs are looked at
_ROUNDING = {"float16": 2**-8, "bfloat16": 2**-5}  # of a sum of probabilities; 1e-5 in wider dtypes


class Head(NamedTuple):
    """What a classifier ends in.

    Attributes:
        logits: Whether the outputs are logits; else they are probabilities.
        dtype: The dtype in which the softmax gives them, which a cast behind
            it does not make finer.
    """

    logits: bool
    dtype: str


def head_of(model: keras.Model) -> Head:
    """Finds whether a classifier ends in a softmax; every other end gives logits.

    The softmax is a layer, an activation or an operation, of the model or of
    a model nested at its end. Layers behind it that only reshape or cast are
    looked through.

    Args:
        model: A functional or sequential `keras.Model`.

    Raises:
        ValueError: If it has several outputs or ends in another activation.
    """
    if is_functional(model) and len(model.outputs) != 1:
        raise ValueError(f"Accuracy needs one output. Received: {model.name!r} with {len(model.outputs)} outputs")
    if not is_functional(model):
        raise ValueError(
            "What a classifier ends in is known of a functional or built sequential keras.Model. "
            f"Received: model of type {type(model).__name__}"
        )
    operation, tensor, behind = _last(model)
    activation = getattr(operation, "activation", None)
    if _is(operation, "Softmax", _SOFTMAX) or isinstance(activation, layers.Softmax):
        return Head(False, keras.backend.standardize_dtype(tensor.dtype))
    # What a reshaping layer has before it may be features of any kind: as logits they are only not what a sigmoid made.
    as_logits = (None, keras.activations.linear, keras.activations.log_softmax)  # a softmax leaves the last as it is
    other = activation not in as_logits and not behind
    if other or _is(operation, "Sigmoid", _SIGMOID):
        name = getattr(activation, "__name__", type(activation or operation).__name__.lower())
        raise ValueError(
            "Loss and accuracy are of a classifier that ends in a softmax or, built with classifier_activation=None, "
            f"in logits. Received: {model.name!r}, which ends in {name}"
        )
    return Head(True, keras.backend.standardize_dtype(tensor.dtype))


def check_head(head: Head, outputs: np.ndarray, model: keras.Model) -> None:
    """Raises a ValueError if outputs taken for logits look like probabilities, e.g. of a layer of one's own.

    Args:
        head: What `head_of` found.
        outputs: Array `(..., classes)` of some samples.
        model: Their model, for the message.
    """
    rows = outputs.reshape(-1, outputs.shape[-1])[:_ROWS].astype(np.float64)
    if not head.logits or rows.shape[1] < 2:
        return
    if (rows >= 0).all() and (np.abs(rows.sum(1) - 1) <= _ROUNDING.get(outputs.dtype.name, 1e-5)).all():
        raise ValueError(
            "The outputs are taken for logits, as no softmax is found at the end of the model, but they look like "
            "probabilities: none is negative and each sample's sum to 1. If so, measure keras.Model(model.input, "
            f"keras.ops.log(model.output)), whose outputs are logits. Received: model {model.name!r}, which ends in "
            f"{_last(model)[0].name!r}"
        )


def _last(model: keras.Model) -> tuple[Any, Any, bool]:
    """What makes a model's numbers: the layer or operation, its output, and whether another reshapes or casts that."""
    tensor, behind, outer = model.outputs[0], False, []
    operation, node, place = tensor._keras_history
    while True:
        inputs = operation._inbound_nodes[node].input_tensors
        while isinstance(operation, _WRAPPERS):  # they call another layer, which has no node of its own
            operation, behind, place = operation.layer, True, 0
        if is_functional(operation):
            outer.append((operation, inputs))
            tensor = operation.outputs[place]
        elif isinstance(operation, layers.InputLayer) and outer:
            nested, inputs = outer.pop()
            tensor = inputs[[id(known) for known in nested.inputs].index(id(tensor))]
        elif _keeps_numbers(operation):
            tensor, behind = inputs[0], True
        else:
            return operation, tensor, behind
        operation, node, place = tensor._keras_history


def _keeps_numbers(operation: Any) -> bool:
    if isinstance(operation, layers.Activation):
        return operation.activation is keras.activations.linear
    if isinstance(operation, layers.Layer):
        return isinstance(operation, _SAME_NUMBERS)
    return type(operation).__name__ in _SAME_NUMBERS_OPERATIONS


def _is(operation: Any, name: str, functions: tuple[Any, ...]) -> bool:
    """Whether it is a layer or operation of Keras of that name, or a layer with that activation."""
    if isinstance(operation, layers.Layer):
        named = isinstance(operation, layers.Softmax) and name == "Softmax"
        return named or getattr(operation, "activation", None) in functions
    return type(operation).__name__ == name
