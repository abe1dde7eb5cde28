"""From a weight file that has been read into a model: all that fits, or nothing."""

import dataclasses
import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_highway._support.keras_models import input_in, output_in
from keras_highway._support.terminal import Notice
from keras_highway.layers import Preprocessing
from keras_highway.models.builder import TOP, build, in_format
from keras_highway.specs import CharLMSpec, DenseStackSpec, NetSpec, override
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights.file import UncheckedWeights, WeightFileError, check_finite, set_weights
from keras_highway.weights.language_form import check_size, form_of_words, stated_form, stated_overrides
from keras_highway.weights.overrides import shapes_of_form, trimmed
from keras_highway.weights.resolve import WeightsFile

# Fields that change no trained function: how parameters start, what happens in training alone, precision.
_HARMLESS = {
    *("gate_bias", "stochastic_depth", "dropout_scale", "head_dropout", "zero_init", "skip_dtype"),
    *("stem_init_std", "head_init_std", "kernel_init"),
    *("input_shape", "min_size", "classes", "remat"),
    *("characters", "dropout", "streams", "init_range"),  # of language models, whose shapes determine sizes
}
_MOST_TIMES = 100  # larger a network may be before blocks were left out of it


class FreshHead(Notice):
    """Weights were loaded for another number of classes than theirs: the body is trained, the classifier is random."""


def form_of(file: WeightsFile, variant: str) -> NetSpec:
    """Return the spec of a file's own network: its variant's, with the overrides that it names.

    Raises:
        ValueError: If these are not the variant's, or not those of the
            file's arrays.
    """
    row = VARIANTS[variant]
    if not file.overrides:
        return row
    try:
        known = {f.name for f in dataclasses.fields(row)} - {"name"}
        if unknown := sorted(file.overrides.keys() - known):
            raise ValueError(f"Unknown field {unknown[0]!r}; its fields are {', '.join(sorted(known))}.")
        spec = override(row, **file.overrides)
        needed = shapes_of_form(spec, file.classes)
    except Exception as error:  # of sizes that make no network Keras raises nearly anything
        raise WeightFileError(f"{file.path} names overrides of {variant!r} that make no network: {error}") from error
    if not file.removed and needed != file.shapes:
        raise WeightFileError(
            f"{file.path} does not hold weights of {variant!r} with {_format_overrides(file.overrides)}."
        )
    if _size(needed) > _MOST_TIMES * _size(file.shapes):
        raise WeightFileError(
            f"{file.path} holds only a small part of what {_format_overrides(file.overrides)} would need."
        )
    return spec


def own_form(variant: str, file: WeightsFile | None, passed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a spec that a weight file states of its own network.

    Args:
        variant: The architecture.
        file: The file; with `None` there are no such fields.
        passed: Fields that are requested, see `stated_form`.

    Raises:
        ValueError: If a field is no variant's, or an image net's file has
            other arrays, a language model's another vocabulary.
    """
    if file is None:
        return {}
    if variant in LM_VARIANTS:
        return stated_form(file, variant, passed)
    if file.overrides:
        form_of(file, variant)  # before anything of a size that a file names is built
    return dict(file.overrides)


def load_into(model: keras.Model, file: WeightsFile, spec: NetSpec) -> None:
    """Set a model's weights from a file; layer by layer, through a model of the file's own form, if the two differ.

    A file without metadata, as Keras writes it, may be of the requested
    network. A classifier of another number of classes keeps its values; layers
    that the model lacks are ignored. The first convolution is brought to the
    channels of the model's input.

    Args:
        model: The model that `spec` describes, with or without its head.
        file: What `resolve` returned for the spec's variant.
        spec: The variant's row with the overrides of this model.

    Raises:
        ValueError: If the file does not fit. The model is unchanged.
    """
    row = form_of(file, spec.name)
    head = next((layer for layer in model.layers if layer.name == "head"), None)
    same_head = head is not None and file.classes in (None, head.units)
    if _states_its_form(file):
        _check_pixels(model, file, row)
    # Of a file that says nothing of itself, as Keras writes it, also what was saved without a head.
    may_be_it = (same_head and spec == row) or ((same_head or head is None) and not _states_its_form(file))
    if may_be_it and file.shapes == _shapes_of(model):
        _set(model, file)
        return
    _check_function(file, spec, row)
    donor = without_removed(_donor(file, row), file)
    load_exactly(donor, file)
    _copy(donor, model, file)


def _check_pixels(model: keras.Model, file: WeightsFile, row: NetSpec) -> None:
    """Refuses images of another shape where a layer flattens them: behind it, each weight is of one pixel."""
    flattened = _flattened(model)
    if flattened is None or _images(model) == in_format(row.input_shape):
        return
    dense = isinstance(row, DenseStackSpec)  # which flattens the images themselves
    theirs = in_format(row.input_shape) if dense else _flattened(build(row, classes=file.classes, dtype="float32"))
    if flattened != theirs:
        raise ValueError(
            f"Trained weights of {file.variant!r} do not fit the requested model: layer 'flatten' makes vectors of "
            f"{flattened}, and each weight behind it is of one of {theirs}. Use the input shape of the weights, "
            f"{in_format(row.input_shape)}, or pass weights=None."
        )


def _images(model: keras.Model) -> tuple[int | None, ...]:
    """Return the shape of what the network itself sees, behind a layer that prepares images."""
    prepared = next((layer for layer in model.layers if isinstance(layer, Preprocessing)), None)
    return tuple((model.inputs[0] if prepared is None else output_in(model, prepared)).shape[1:])


def _flattened(model: keras.Model) -> tuple[int | None, ...] | None:
    layer = next((layer for layer in model.layers if layer.name == "flatten"), None)
    return None if layer is None else tuple(input_in(model, layer).shape[1:])


def _donor(file: WeightsFile, row: NetSpec) -> keras.Model:
    """Return a model of the file's own form, in float32, whatever the global policy.

    A file that does not name its number of classes has it in its head: where
    it fits but for that, the kernel's and the bias's shapes tell.
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
    """Return a model without the blocks that a file names as left out; the model itself where it names none.

    Raises:
        WeightFileError: If there are no such blocks, or they cannot go.
    """
    try:
        return trimmed(model, file.removed)
    except Exception as error:  # the names are the file's, and any text
        raise WeightFileError(f"{file.path} names blocks that were left out of {file.variant!r}: {error}") from error


def load_exactly(model: keras.Model, file: WeightsFile) -> None:
    """Set a model's weights from a file of its very shapes.

    Args:
        model: The model.
        file: What `resolve` returned.

    Raises:
        ValueError: If the file does not fit. The model is unchanged.
    """
    actual, expected = file.shapes, _shapes_of(model)
    if actual != expected:  # Keras itself accepts a file that has more layers than the model
        raise WeightFileError(
            f"{file.path} does not hold weights of variant {file.variant!r} (model {model.name!r}): of the shapes the "
            f"model needs, the file lacks {_listed(expected - actual)}; it has besides {_listed(actual - expected)}."
        )
    _set(model, file)


def _set(model: keras.Model, file: WeightsFile) -> None:
    before = model.get_weights()
    try:
        set_weights(model, file.content)
    except Exception as error:  # of a file with other contents than it should have Keras raises nearly anything
        model.set_weights(before)  # Keras sets what it can before it raises
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise WeightFileError(f"{file.path} does not fit variant {file.variant!r}: {reason}.") from error
    if not file.checked:
        named = file.row is not None or "variant" in file.stamp
        whose = "" if named else f" Nor does it name its variant: by its shapes alone it is taken for {file.variant!r}."
        warnings.warn(
            f"{file.path} has no digest, so its content was not checked.{whose} "
            "keras_highway.weights.file.save writes both.",
            UncheckedWeights,
            stacklevel=2,
        )


def check_language_model(file: WeightsFile, spec: CharLMSpec) -> None:
    """Raise a `ValueError` for a language model that is larger than its file, or computes something else.

    The second are overrides under which the trained numbers would mean
    something else. To be called before the network is built.
    """
    if _states_its_form(file):
        _check_function(file, spec, form_of_words(spec.name, stated_overrides(file, spec.name)))
    check_size(file, spec)


def _states_its_form(file: WeightsFile) -> bool:
    """Whether a row or the file itself states all of its network; files that Keras wrote state nothing."""
    return file.published or file.row is not None or "overrides" in file.stamp


def _check_function(file: WeightsFile, spec: NetSpec, row: NetSpec) -> None:
    """Refuses overrides under which the trained numbers would mean something else."""
    changed = [
        f.name
        for f in dataclasses.fields(row)
        if f.name not in _HARMLESS and getattr(spec, f.name) != getattr(row, f.name)
    ]
    if changed:
        raise ValueError(
            f"Trained weights of {file.variant!r} do not fit the requested model: it overrides "
            f"{', '.join(f'{name}={getattr(spec, name)!r}' for name in changed)}. Leave the overrides out, or pass "
            "weights=None."
        )


def _copy(donor: keras.Model, model: keras.Model, file: WeightsFile) -> None:
    """Set every layer but a fresh head; nothing is set unless everything fits."""
    pairs = []
    has_top = any(layer.name == "head" for layer in model.layers)
    for layer in donor.layers:
        if layer.name in TOP and not has_top:
            continue
        target = next((t for t in model.layers if t.name == layer.name), None)
        if layer.name == "head" and target is not None and target.units != layer.units:
            warnings.warn(
                f"The head for {target.units} classes is fresh: {file.path} has one for {layer.units}. Train it before "
                "its predictions mean anything.",
                FreshHead,
                stacklevel=2,
            )
        if not layer.weights or (layer.name == "head" and target.units != layer.units):
            continue
        expected = None if target is None else [tuple(w.shape) for w in target.weights]
        values = layer.get_weights()
        if not pairs and target is not None:  # the first layer with weights sees the channels
            values = [_for_channels(value, w.shape) for value, w in zip(values, target.weights, strict=True)]
        actual = [value.shape for value in values]
        if actual != expected:
            raise ValueError(
                f"Trained weights of {file.variant!r} do not fit the requested model: layer "
                f"{layer.name!r} has shapes {actual} in {file.path} and {expected} in the model. Use the input shape "
                f"of the weights, {donor.input_shape[1:]}, or pass weights=None."
            )
        pairs += zip(target.weights, values, strict=True)
    for variable, value in pairs:
        try:
            check_finite(value, variable)
        except WeightFileError as error:
            raise WeightFileError(f"{file.path} does not fit the requested model: {error}.") from error
    for variable, value in pairs:
        variable.assign(value)


def _format_overrides(overrides: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in overrides.items())


def _size(shapes: Counter[tuple[int, ...]]) -> int:
    return sum(n * math.prod(shape) for shape, n in shapes.items())


def _for_channels(value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Return a kernel for images with other channels: one gets the sum, several repeat the kernel [timm].

    In turn they are scaled by the ratio of the channels: images of equal channels
    give what they gave where it is whole, about that where it is not. What is not
    a kernel, or differs in more, stays as it is.
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


def _listed(shapes: Counter[tuple[int, ...]]) -> str:
    if not shapes:
        return "none"
    first = ", ".join(f"{n} of {shape}" for shape, n in list(shapes.items())[:4])
    return first + (", ..." if len(shapes) > 4 else "")
