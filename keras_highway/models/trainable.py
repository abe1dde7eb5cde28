"""What of a model is trained, set so that it is the same on every backend, and a compiled model that follows."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras

from keras_highway._support.backend import scope_of


def set_trainable(layer: keras.layers.Layer, value: bool) -> None:
    """Make a layer or model, all layers inside of it and their weights trainable or frozen.

    `layer.trainable = value` is not enough: TensorFlow's layers skip an
    assignment that changes nothing, so that what is frozen inside of a
    trainable block would stay so, where JAX's and PyTorch's reach it.
    """
    for part in layer._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        part.trainable = value
        for weight in part._trainable_variables:  # pyright: ignore[reportPrivateUsage] (the public list lacks frozen ones)
            weight.trainable = value


def admit(model: keras.Model) -> None:
    """Lets the layers of a model decide what is trainable: under a frozen model Keras counts none of them."""
    model._trainable = True  # pyright: ignore[reportAttributeAccessIssue] (`trainable` would set the layers, too)


@contextlib.contextmanager
def compiled_again(model: keras.Model) -> Iterator[None]:
    """Compiles a compiled model again after the body, which changes what is trainable.

    With the very losses and metrics that it was compiled with, so that these
    may be functions that Keras could not save, and a new optimizer of the
    same settings. All of it within the strategy that the model was made in:
    variables of another would not be the same on each replica.
    """
    with scope_of(model):
        arguments = _arguments(model) if model.compiled else None  # what can fail fails before the model is changed
        yield
        if arguments is None:
            return
        model.compile(**arguments)
        if model.optimizer is not None:
            _build(model)


@contextlib.contextmanager
def cloned_without_compiling(model: keras.Model) -> Iterator[None]:
    """Within it `keras.models.clone_model` does not compile the copies of a model and of those nested in it.

    Keras would from what it can save of the arguments: an optimizer for
    nothing, and an error where a loss is a function of the user's own.
    """
    parts: Any = model._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
    compiled = [part for part in parts if getattr(part, "compiled", False)]
    try:
        for part in compiled:
            part.compiled = False
        yield
    finally:
        for part in compiled:
            part.compiled = True


def _arguments(model: keras.Model) -> dict[str, Any]:
    if type(model).compile is not keras.Model.compile:
        raise ValueError(
            f"Model {model.name!r} has a compile() of its own, whose arguments are not known: change what is "
            "trainable before it is compiled."
        )
    arguments = dict(model._compile_config.config)  # pyright: ignore[reportAttributeAccessIssue] (the live ones)
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)  # not kept among the arguments
    optimizer = arguments["optimizer"]  # None where the model was compiled to be evaluated alone
    return {**arguments, "optimizer": optimizer and _fresh(optimizer), "auto_scale_loss": scaled}


def _build(model: Any) -> None:
    """Give the optimizer its variables, as `fit` would."""
    try:
        model.optimizer.build(model.trainable_variables)
    except ValueError as error:  # an optimizer that is particular about what it trains
        raise ValueError(
            f"What is trainable of {model.name!r} has changed, and its optimizer is not for that: compile the model "
            f"again. {error}"
        ) from error


def _fresh(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return an optimizer of the same settings, whose class and schedule may be a user's own."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    parts = (optimizer, inner, getattr(inner, "_learning_rate", None))
    try:
        with keras.saving.custom_object_scope({type(part).__name__: type(part) for part in parts}):
            copy = optimizer.from_config(optimizer.get_config())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"An optimizer {type(optimizer).__name__} made of a function cannot be made again: change what is "
            "trainable first, and compile then. Nothing was changed."
        ) from error
    _exclude_from_decay(getattr(copy, "inner_optimizer", copy), inner)
    return copy


def _exclude_from_decay(optimizer: Any, source: Any) -> None:
    """Copy the exclusions from weight decay, which are not in an optimizer's configuration."""
    for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
        if hasattr(source, name):
            setattr(optimizer, name, getattr(source, name))
