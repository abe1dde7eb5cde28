"""Build the model of a weight file, and load its arrays: all of them, or none."""

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_highway._support.files import read_bounded
from keras_highway._support.keras_models import input_in, output_in, without_values
from keras_highway._support.schema import refuse, reworded
from keras_highway._support.terminal import Notice, some
from keras_highway.analysis.lesions import without
from keras_highway.data.vocabulary import LONGEST_SPELLING, VOCABULARY, Vocabulary
from keras_highway.layers import Preprocessing
from keras_highway.models.builder import TOP, build, in_format
from keras_highway.models.char_lm import build_char_lm
from keras_highway.specs import CharLMSpec, DenseStackSpec, NetSpec, override, to_dict
from keras_highway.variants import ALL_VARIANTS, LM_VARIANTS
from keras_highway.weights.files import assign, check_finite
from keras_highway.weights.info import UncheckedWeights, WeightFileError
from keras_highway.weights.sources import WeightsFile

# Fields that change no trained function: how parameters start, training alone, precision.
_HARMLESS = {
    *("gate_bias", "stochastic_depth", "dropout_scale", "head_dropout", "zero_init", "skip_dtype"),
    *("stem_init_std", "head_init_std", "kernel_init"),
    *("input_shape", "min_size", "classes", "remat"),
    *("characters", "dropout", "streams", "init_range"),  # of language models, whose shapes determine sizes
}
_OF_TRAINING = ("remat",)  # fields that no weight file states
_MOST_TIMES = 100  # larger a network may be before blocks were left out of it
_LARGEST = 2**28  # bytes of a vocabulary
SIZES = ("classes", "characters", "input_shape")  # fields of the spec that follow from the vocabulary


class FreshHead(Notice):
    """Warning: the weights have other classes than the model, so the classifier is random."""


def reset_head(model: keras.Model) -> None:
    """Reinitialize the weights of a classifier."""
    head = model.get_layer("head")
    again = type(head).from_config(head.get_config())
    again.build(head.input.shape)
    head.set_weights(again.get_weights())


def to_json_values(spec: NetSpec, row: NetSpec) -> dict[str, Any]:
    """Return the fields of a spec that differ from the variant's, as JSON values."""
    own, known = to_dict(spec), to_dict(row)
    changed = {name: value for name, value in own.items() if value != known[name]}
    return {name: _listed(value) for name, value in changed.items() if name not in _OF_TRAINING}


def _listed(value: Any) -> Any:
    """Return a value with lists in place of tuples."""
    if isinstance(value, Mapping):
        return {name: _listed(item) for name, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def trimmed(model: keras.Model, removed: Sequence[str]) -> keras.Model:
    """Return a model without some of its blocks; the model itself where none are named."""
    return without(model, removed) if removed else model


def form_of(file: WeightsFile, variant: str) -> NetSpec:
    """Return the spec of the network in a file: the spec of its variant, with the file's overrides."""
    row, stated = ALL_VARIANTS[variant], file.info.overrides
    if not stated:
        return form_of_words(variant, {}) if isinstance(row, CharLMSpec) else row
    # Keras raises nearly any error for sizes that make no network.
    with reworded(f"{file.path} names overrides of {variant!r} that make no network", Exception, WeightFileError):
        unknown = sorted(stated.keys() - ({field.name for field in dataclasses.fields(row)} - {"name"}))
        refuse((unknown, f"unknown field {', '.join(map(repr, unknown))}"))
        if isinstance(row, CharLMSpec):
            return form_of_words(variant, stated)
        spec = override(row, **stated)
        needed = Counter(tuple(w.shape) for w in without_values(lambda: build(spec, classes=file.classes).weights))
    wrong = _size(needed) > _MOST_TIMES * _size(file.shapes) if file.info.removed else needed != file.shapes
    text = f"{file.path} does not hold weights of {variant!r} with {dict(stated)}."
    refuse((wrong, text), error=WeightFileError)
    return spec


def own_form(variant: str, file: WeightsFile, passed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec that a weight file sets."""
    form_of(file, variant)  # before anything of a size that a file states is built
    own = dict(file.info.overrides)
    sized = variant not in LM_VARIANTS or all(passed.get(name) is not None for name in SIZES)
    if not sized and file.info.vocabulary and file.path.with_name(VOCABULARY).is_file():
        own |= vocabulary_of(file, variant).sizes
    return own


def load_into(model: keras.Model, file: WeightsFile, spec: NetSpec, names: tuple[str, ...] = ()) -> None:
    """Set a model's weights from a file. If the model differs from the file's network, copy layer by layer.

    Layers that the model does not have are ignored. The classifier is fresh for another number of classes, or if
    `names` are other classes. The first convolution is adapted to the number of input channels.
    """
    row = form_of(file, spec.name)
    head = next((layer for layer in model.layers if layer.name == "head"), None)
    same_head = head is not None and file.classes in (None, head.units)
    if file.stated:
        _check_pixels(model, file, row)
    # A file without metadata, as Keras writes it, may also come from a model without a head.
    may_be_it = (same_head and spec == row) or ((same_head or head is None) and not file.stated)
    if may_be_it and file.shapes == _shapes_of(model):
        _set(model, file)
        donor = model
    else:
        _check_function(file, spec, row)
        donor = without_removed(_donor(file, row), file)
        load_exactly(donor, file)
        _copy(donor, model, file)
    other_names = bool(names) and names != file.info.classes and file.classes is not None
    theirs = head and donor.get_layer("head").units
    if head is None or (theirs == head.units and not other_names):
        return
    if theirs == head.units:
        reset_head(model)
    ours = some(names) if names else f"{head.units} classes"
    warnings.warn(
        f"The head for {ours} is fresh: {file.path} has one for {theirs if theirs != head.units else 'other'} classes. "
        "Train it before its predictions mean anything.",
        FreshHead,
        stacklevel=4,
    )


def _check_pixels(model: keras.Model, file: WeightsFile, row: NetSpec) -> None:
    """Refuse images of another shape where a layer flattens them: behind it, each weight is of one pixel."""
    flattened = _flattened(model)
    prepared = next((layer for layer in model.layers if isinstance(layer, Preprocessing)), None)
    images = model.inputs[0] if prepared is None else output_in(model, prepared)
    if flattened is None or tuple(images.shape[1:]) == in_format(row.input_shape):
        return
    dense = isinstance(row, DenseStackSpec)  # which flattens the images themselves
    theirs = in_format(row.input_shape) if dense else _flattened(build(row, classes=file.classes, dtype="float32"))
    advice = f"Use the input shape of the weights, {in_format(row.input_shape)}"
    _refuse_misfit(flattened != theirs, row.name, f"its layer 'flatten' gets {flattened}, not {theirs}. {advice}")


def _refuse_misfit(misfit: bool, variant: str, reason: str) -> None:
    text = f"Trained weights of {variant!r} do not fit the requested model: {reason}, or pass weights=None."
    refuse((misfit, text))


def _flattened(model: keras.Model) -> tuple[int | None, ...] | None:
    layer = next((layer for layer in model.layers if layer.name == "flatten"), None)
    return None if layer is None else tuple(input_in(model, layer).shape[1:])


def _donor(file: WeightsFile, row: NetSpec) -> keras.Model:
    """Return a model of the file's own form, in float32, whatever the global policy.

    A file that does not name its number of classes has it in its head: where it fits but for that, the kernel's and the
    bias's shapes tell.
    """
    donor = build(row, classes=file.classes, dtype="float32")
    if file.classes is None and file.shapes != _shapes_of(donor):
        kernel, bias = (tuple(w.shape) for w in donor.get_layer("head").weights)
        body = _shapes_of(donor) - Counter([kernel, bias])
        for features, classes in (shape for shape in file.shapes if len(shape) == 2 and shape[0] == kernel[0]):
            if file.shapes == body + Counter([(features, classes), (classes,)]):
                return build(row, classes=classes, dtype="float32")
    return donor


def without_removed(model: keras.Model, file: WeightsFile) -> keras.Model:
    """Return a model without the blocks that a file lists as removed."""
    text = f"{file.path} lists removed blocks that do not fit {model.name!r}"
    with reworded(text, Exception, WeightFileError):  # the names are the file's, and any text
        return trimmed(model, file.info.removed)


def load_exactly(model: keras.Model, file: WeightsFile) -> None:
    """Set a model's weights from a file with exactly the same shapes, or raise a `WeightFileError`."""
    actual, expected = file.shapes, _shapes_of(model)
    text = (
        f"{file.path} does not hold weights of variant {file.info.variant!r} (model {model.name!r}). "
        f"Missing shapes: {_first(expected - actual)}. Unexpected shapes: {_first(actual - expected)}."
    )
    refuse((actual != expected, text), error=WeightFileError)
    _set(model, file)


def _set(model: keras.Model, file: WeightsFile) -> None:
    # Keras raises nearly any error for a file with wrong contents.
    with reworded(f"{file.path} does not fit variant {file.info.variant!r}", Exception, WeightFileError):
        assign(model, file.arrays)
    if not file.checked:
        warnings.warn(
            f"{file.path} has no hash, so its content was not checked. It is assumed to hold {file.info.variant!r}. "
            "Save it again with keras_highway.weights.files.save.",
            UncheckedWeights,
            stacklevel=2,
        )


def _check_function(file: WeightsFile, spec: NetSpec, row: NetSpec) -> None:
    """Refuse overrides under which the trained numbers would mean something else."""
    changed = [
        f.name
        for f in dataclasses.fields(row)
        if f.name not in _HARMLESS and getattr(spec, f.name) != getattr(row, f.name)
    ]
    received = ", ".join(f"{name}={getattr(spec, name)!r}" for name in changed)
    _refuse_misfit(bool(changed), spec.name, f"it overrides {received}. Leave the overrides out")


def _copy(donor: keras.Model, model: keras.Model, file: WeightsFile) -> None:
    """Set every layer but a head of another number of classes; nothing is set unless all shapes fit."""
    pairs = []
    has_top = any(layer.name == "head" for layer in model.layers)
    for layer in donor.layers:
        if layer.name in TOP and not has_top:
            continue
        target = next((t for t in model.layers if t.name == layer.name), None)
        if layer.name == "head" and target is not None and target.units != layer.units:
            continue
        if not layer.weights:
            continue
        expected = None if target is None else [tuple(w.shape) for w in target.weights]
        values = layer.get_weights()
        if not pairs and target is not None:  # the first layer with weights sees the channels
            values = [_for_channels(value, w.shape) for value, w in zip(values, target.weights, strict=True)]
        actual = [value.shape for value in values]
        reason = f"layer {layer.name!r} has shapes {actual} in {file.path} and {expected} in the model. Use the input"
        reason += f" shape of the weights, {donor.input_shape[1:]}"
        _refuse_misfit(actual != expected, file.info.variant, reason)
        pairs += zip(target.weights, values, strict=True)
    for variable, value in pairs:
        variable.assign(value)
    with reworded(f"{file.path} does not fit the requested model", WeightFileError, WeightFileError):
        check_finite([variable for variable, _ in pairs])


def _size(shapes: Counter[tuple[int, ...]]) -> int:
    return sum(n * math.prod(shape) for shape, n in shapes.items())


def _for_channels(value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return a kernel for images with other channels: one gets the sum, several repeat the kernel [timm].

    In turn they are scaled by the ratio of the channels: images of equal channels give what they gave where it is
    whole, about that where it is not. Other arrays stay the same.
    """
    channels = shape[-2] if value.ndim == 4 else None
    if value.shape == tuple(shape) or (*value.shape[:-2], channels, value.shape[-1]) != tuple(shape):
        return value
    if channels == 1:
        return value.sum(axis=-2, keepdims=True)
    known = value.shape[-2]
    return value[..., np.arange(channels) % known, :] * np.float32(known / channels)


def _shapes_of(model: keras.Model) -> Counter[tuple[int, ...]]:
    return Counter(tuple(w.shape) for w in model.weights)


def _first(shapes: Counter[tuple[int, ...]]) -> str:
    first = ", ".join(f"{n} of {shape}" for shape, n in list(shapes.items())[:4])
    return first + (", ..." if len(shapes) > 4 else "") or "none"


def form_of_words(variant: str, overrides: Mapping[str, Any]) -> CharLMSpec:
    """Return the spec of a language model with overrides. By default, words may have `LONGEST_SPELLING` characters."""
    return override(LM_VARIANTS[variant], **{"input_shape": (LONGEST_SPELLING,), **overrides})


def check_language_model(file: WeightsFile, spec: CharLMSpec) -> None:
    """Raise a `WeightFileError` if a language model does not match its file, before it is built."""
    if file.stated:
        _check_function(file, spec, form_of(file, spec.name))
    if spec == LM_VARIANTS[spec.name]:
        return
    layers = spec.highways + spec.lstms + len(spec.kernels)  # each has an array at least
    # Keras raises nearly any error for sizes that make no network.
    with reworded(f"{file.path} does not fit the requested {spec.name!r}", Exception, WeightFileError):
        few = layers <= sum(file.shapes.values())  # else do not even describe them
        shapes = [tuple(w.shape) for w in without_values(lambda: build_char_lm(spec).weights)] if few else []
        refuse((not few or _size(Counter(shapes)) > _size(file.shapes), "the network is larger than the file"))


def vocabulary_of(file: WeightsFile, variant: str, passed: Vocabulary | None = None) -> Vocabulary:
    """Return the vocabulary of a weight file, after comparing its hash with the file."""
    path = file.path.with_name(VOCABULARY)
    if passed is not None:
        vocabulary, path = passed.padded(max(form_of(file, variant).kernels)), "the vocabulary that was passed"
    else:
        text = f"{path} does not exist: pass `vocabulary`, made from the training corpus."
        refuse((not path.is_file(), text))
        with reworded(f"{path} is malformed"):
            vocabulary = Vocabulary.from_json(read_bounded(path, _LARGEST))
    text = (
        f"{path} does not match the weights {file.path}: they were trained with other words or characters. "
        f"Received: {len(vocabulary.words)} words, fingerprint {vocabulary.fingerprint[:12]}; "
        f"expected {file.info.vocabulary[:12]}"
    )
    refuse((file.info.vocabulary not in ("", vocabulary.fingerprint), text))
    return vocabulary


def stated_overrides(file: WeightsFile, variant: str) -> dict[str, Any]:
    """Return the checked spec fields of a file of a language model."""
    form_of(file, variant)
    return dict(file.info.overrides)
