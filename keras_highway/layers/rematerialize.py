"""Rematerialization: a block's inside is computed again for its gradient instead of being kept.

Keras's own, `keras.RematScope` (3.15), is not enough for blocks that hold
batch normalization and dropout: on JAX what they assign leaks out of
`jax.checkpoint`, on TensorFlow and PyTorch the moving averages move twice a
step, and the second pass no longer knows that it is training; it wraps every
sublayer as well as the block, and a saved model forgets it. Here the function
that is run twice is pure: variables are arguments, what they become is a
result, and is assigned once.
"""

import contextvars
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

_RUNNING: contextvars.ContextVar[tuple[int, ...]] = contextvars.ContextVar("rematerializing", default=())


def runs(layer: keras.layers.Layer) -> bool:
    """Whether a call of the layer is one that `rematerialized` makes, which computes and wraps nothing."""
    return id(layer) in _RUNNING.get()


def rematerialized(layer: keras.layers.Layer, *inputs: Any) -> Any:
    """Calls a built layer in training, with gradients that keep its inputs and compute the rest again.

    Args:
        layer: A built layer whose `call` takes `training` and checks `runs`.
        *inputs: What it takes: tensors, lists of tensors or `None`.

    Returns:
        What the layer gives: a tensor. What layers inside add to the loss is
        the layer's own.
    """
    learned, others = layer.trainable_variables, layer.non_trainable_variables
    # Copies of now: the second run reads them when the variables have moved on, and seeds must be the first's.
    state = [ops.copy(v.value) for v in others]
    kept = [x for x in keras.tree.flatten(list(inputs)) if x is not None]
    # On JAX what leaves the function is a result of it. Elsewhere it is put aside in the first of the two runs: a
    # result would go into the gradient, and seeds have none.
    returned = keras.backend.backend() == "jax"
    aside: list[Any] = []

    def function(*tensors: Any) -> Any:
        mapping = [*zip(learned, tensors[len(kept) :], strict=True), *zip(others, state, strict=True)]
        with keras.StatelessScope(state_mapping=mapping, collect_losses=True) as scope:
            y = _straight(layer, _packed(inputs, tensors))
        _disown(layer, scope.losses)
        became = [scope.get_current_value(v) for v in others]
        if returned:
            return y, scope.losses, became
        if not aside:
            aside.append(became)
        return y, scope.losses

    result = keras.remat(function)(*kept, *[ops.convert_to_tensor(v.value) for v in learned])
    y, losses, became = result if returned else (*result, aside[0])
    layer.add_loss(losses)
    for variable, old, new in zip(others, state, became, strict=True):
        if new is not None and new is not old:
            variable.assign(ops.stop_gradient(new))
    return y


def _packed(inputs: Sequence[Any], tensors: Sequence[Any]) -> Any:
    """The inputs, with their tensors replaced."""
    rest = iter(tensors)
    return keras.tree.map_structure(lambda x: None if x is None else next(rest), list(inputs), none_is_leaf=True)


def _straight(layer: Any, inputs: Sequence[Any]) -> Any:
    token = _RUNNING.set((*_RUNNING.get(), id(layer)))
    # The call around this one regularizes the output, and the second run, outside of any, would clear its losses.
    regularizer, losses = layer.activity_regularizer, layer._losses[:]
    layer.activity_regularizer = None
    try:
        return layer(*inputs, training=True)
    finally:
        layer.activity_regularizer = regularizer
        layer._losses[:] = losses
        _RUNNING.reset(token)


def _disown(layer: Any, losses: Sequence[Any]) -> None:
    """Has the layers inside forget losses that are results now: Keras knows them by id, which others may get later."""
    ids = {id(loss) for loss in losses}
    for inner in layer._flatten_layers():
        inner._loss_ids -= ids
