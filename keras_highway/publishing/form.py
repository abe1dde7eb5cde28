"""Which network a Keras model is: a variant, overrides of its spec, blocks that were left out."""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras

from keras_highway.analysis.lesions import without
from keras_highway.analysis.trace import blocks as blocks_of
from keras_highway.applications import build_with, get_spec
from keras_highway.data.transforms import Transform
from keras_highway.models.origin import Origin, origin_of
from keras_highway.specs import NetSpec, override
from keras_highway.tasks import IMAGES
from keras_highway.variants import ALL_VARIANTS
from keras_highway.weights.overrides import from_json_values, to_json_values

_HEAD = "head"
_ACTIVATIONS = ("softmax", "linear")
_ELSEWHERE = "Save it with model.save('model.keras') instead."
# Of a layer's configuration what changes no trained function: how weights start, precision, what is frozen or kept.
_FREE = ("initializer", "seed", "trainable", "dtype", "gate_bias", "build_config", "remat")


class Form(NamedTuple):
    """What a model is, in words and numbers.

    Attributes:
        variant: The architecture.
        overrides: Fields of its spec that differ, as JSON values.
        removed: Names of blocks that were left out.
        classes: Number of classes.
        input_shape: `(height, width, channels)`; sides may be `None`.
        transform: What images of its weights go through, if that is known.
        class_names: Names of its classes, if they are known.
    """

    variant: str
    overrides: dict[str, Any]
    removed: tuple[str, ...]
    classes: int
    input_shape: tuple[int | None, int | None, int]
    transform: Transform | None
    class_names: tuple[str, ...]


def form_of_model(model: keras.Model, variant: str | None = None, overrides: Mapping[str, Any] | None = None) -> Form:
    """Return what a model is, after comparing it layer by layer with the network so described.

    Args:
        model: An image classifier.
        variant: The architecture. Defaults to what the model was built as,
            else to its name.
        overrides: Fields of its spec. Defaults to those it was built with.

    Raises:
        ValueError: If no variant describes it.
    """
    _check_classifier(model)
    origin = _origin(model, variant, overrides)
    row, classes = get_spec(origin.variant), model.layers[-1].units
    if row.task is not IMAGES:
        raise ValueError(f"Variant {row.name!r} is a language model: save it with keras_highway.CharLM.save.")
    spec = override(row, **from_json_values(origin.overrides))
    spec = dataclasses.replace(spec, classes=row.classes)  # one class per name
    input_shape = image_shape(model)
    if None not in input_shape:
        spec = override(spec, input_shape=input_shape)
    own = to_json_values(spec, row)
    removed = _removed(model, spec, classes)
    return Form(row.name, own, removed, classes, input_shape, origin.transform, origin.class_names)


def _check_classifier(model) -> None:
    if not isinstance(model, keras.Model) or not hasattr(model, "operations") or len(model.inputs) != 1:
        raise ValueError(
            "kh.save takes a functional keras.Model of one input, as kh.create_model and kh.load make it. "
            f"Received: {type(model).__name__}"
        )
    last = model.layers[-1]
    if last.name != _HEAD or not isinstance(last, keras.layers.Dense):
        raise ValueError(
            f"Model {model.name!r} does not end in a classifier named 'head' but in {last.name!r}: "
            f"kh.reset_classifier puts one on a body. {_ELSEWHERE}"
        )
    activation = keras.activations.serialize(last.activation)
    if activation not in _ACTIVATIONS:
        raise ValueError(
            f"The classifier must give probabilities (softmax) or logits. Received: activation {activation!r}. "
            f"{_ELSEWHERE}"
        )


def _origin(model, variant, overrides) -> Origin:
    origin = origin_of(model)
    if variant is None and origin is None and model.name not in ALL_VARIANTS:
        raise ValueError(
            f"The variant of model {model.name!r} is unknown: pass variant='...' (see kh.list_models()), and "
            "overrides={...} where its spec differs."
        )
    if origin is None or variant not in (None, origin.variant):
        origin = Origin(variant or model.name, {})
    return origin if overrides is None else origin._replace(overrides=dict(overrides))


def image_shape(model: keras.Model) -> tuple[int | None, int | None, int]:
    """Return (height, width, channels) of what a model takes, built in Keras's data format."""
    shape = model.input_shape[1:]
    if len(shape) == 3 and keras.config.image_data_format() == "channels_first":
        shape = (*shape[1:], shape[0])
    return shape


def _removed(model, spec: NetSpec, classes) -> tuple[str, ...]:
    """Return the blocks that are missing, so that what is left is the model.

    Raises:
        ValueError: If it is another network.
    """
    overrides = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name != "name"}
    overrides.pop("classes")
    shape = model.input_shape[1:]
    overrides.pop("input_shape")
    whole = build_with(spec.name, None, input_shape=shape, classes=classes, **overrides)
    names = {layer.name for layer in model.layers}
    removed = tuple(name for name in _blocks(whole) if name not in names)
    difference = ""
    if removed:
        try:
            whole = without(whole, removed)
        except ValueError as error:  # a transition: the rest needs it
            difference = str(error).split(":")[0]
    difference = difference or _difference(model, whole)
    if difference:
        raise ValueError(
            f"Model {model.name!r} is not variant {spec.name!r} as it was built, or with blocks left out: "
            f"{difference}. Give its variant=... and overrides={{...}} if it is another. {_ELSEWHERE}"
        )
    return removed


def _blocks(model) -> list[str]:
    try:
        return list(blocks_of(model))
    except ValueError:  # the nets of 1000 layers have one layer for all
        return []


def _difference(model, other) -> str:
    """In words the first layer in which two networks differ, `""` if they do not."""
    for operation in model.operations:
        if not isinstance(operation, keras.layers.Layer):
            return f"it has an operation {operation.name!r}"
    ours, theirs = (
        {layer.name: layer for layer in one.layers if not isinstance(layer, keras.layers.InputLayer)}
        for one in (model, other)
    )
    for name in (*ours, *theirs):
        if name not in ours:
            return f"it lacks layer {name!r}"
        if name not in theirs:
            return f"it has a layer {name!r}"
        if type(ours[name]) is not type(theirs[name]) or _fixed(ours[name]) != _fixed(theirs[name]):
            return f"layer {name!r} is another"
        if [tuple(w.shape) for w in ours[name].weights] != [tuple(w.shape) for w in theirs[name].weights]:
            return f"layer {name!r} has weights of other shapes"
    return ""


def _fixed(layer) -> Any:
    config = layer.get_config()
    return _without_free({**config, "activation": None} if layer.name == _HEAD else config)


def _without_free(value):
    if isinstance(value, Mapping):
        return {key: _without_free(item) for key, item in value.items() if not str(key).endswith(_FREE)}
    return [_without_free(item) for item in value] if isinstance(value, list | tuple) else value
