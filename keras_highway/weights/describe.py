"""Records, transforms and class names of weights: by a name, a variant, a path, a repository on the Hub or a model."""

import dataclasses
import os
from collections.abc import Sequence

import keras

from keras_highway._support.keras_models import model_data_format
from keras_highway.data.transforms import CLASSES, TRANSFORMS, Transform, default_names, imagenet_classes
from keras_highway.layers import Preprocessing
from keras_highway.specs import NetSpec
from keras_highway.tasks import IMAGES
from keras_highway.variants import ALL_VARIANTS, VARIANTS
from keras_highway.weights import registry
from keras_highway.weights.info import WeightsInfo, described, info_of
from keras_highway.weights.sources import WeightsFile, checked_word, describe, is_path, resolve

_NUMBER_OF_CLASSES = {**{data: len(names) for data, names in CLASSES.items()}, "imagenet": 1000}

Weights = str | os.PathLike[str] | keras.Model


def describe_weights(weights: Weights) -> WeightsInfo:
    """Return the record of weights: their network, their images and classes, and what was measured.

    Args:
        weights: A weights name; the name of a variant, for the first of its weights, of the data set that it was
            published for before others; a `.weights.h5` file, or the folder of one, of the zoo or of a run;
            `hf://org/name[@revision]` (its `weights.json` is downloaded, or timm's `config.json`); or a model that was
            loaded from any of these.

    Raises:
        ValueError: If there are no such weights, or the record is malformed.
        HubError: If it is on the Hub and cannot be downloaded.
    """
    if isinstance(weights, keras.Model):
        info = info_of(weights)
        if info is None or not (info.name or info.transform):
            raise ValueError(
                f"Model {weights.name!r} was not loaded from weights by keras_highway, so its preprocessing and its "
                "classes are unknown: name the weights or the data set."
            )
        units = getattr(weights.layers[-1], "units", None)
        return guessed(info, units, image_shape(weights)) if info.name else info
    weights = checked_word(weights)
    if is_path(weights):
        return _of_file(resolve(weights))
    if weights not in registry.WEIGHTS and weights in ALL_VARIANTS:
        row = _of_variant(weights)
        if row is None:
            raise ValueError(
                f"No weights of variant {weights!r} are published. See keras_highway.list_weights(). "
                f"Received: weights={weights!r}"
            )
        return described(row)
    return describe(weights)


def transform_of(weights: Weights) -> Transform:
    """Return the transform of weights, see `keras_highway.get_transform`."""
    if isinstance(weights, keras.Model):
        for layer in weights.layers:
            if isinstance(layer, Preprocessing):
                return layer.transform
        return describe_weights(weights).images
    if checked_word(weights) in TRANSFORMS:
        return TRANSFORMS[str(weights)]
    if data := _data_of_variant(weights):
        return TRANSFORMS[data]
    return describe_weights(weights).images


def classes_of(weights: Weights) -> tuple[tuple[str, str], ...]:
    """Return identifier and name of each class of weights or of a data set."""
    if isinstance(weights, str) and weights in _NUMBER_OF_CLASSES:
        return identified(weights, CLASSES.get(weights, ()))
    if not isinstance(weights, keras.Model) and (data := _data_of_variant(weights)):
        return classes_of(data)
    row = describe_weights(weights)
    if isinstance(weights, keras.Model) and not row.classes:
        raise ValueError(
            f"The names of the classes of model {weights.name!r} are unknown: pass classes=, the names in order."
        )
    return identified(row.data, row.classes)


def published_for(spec: NetSpec) -> str | None:
    """Return the data set of a spec's input shape and number of classes, or None."""
    return data_of(spec.input_shape, spec.classes)


def data_of(input_shape: Sequence[int | None], classes: int) -> str | None:
    """Return the data set of an input shape (height, width, channels) and number of classes, or None."""
    for data, transform in TRANSFORMS.items():
        if (*transform.size, transform.channels, _NUMBER_OF_CLASSES.get(data)) == (*input_shape, classes):
            return data
    return None


def _of_variant(variant: str) -> WeightsInfo | None:
    """Return a variant's weights; of several, the first of the data set that it was published for."""
    rows = [row for row in registry.WEIGHTS.values() if row.variant == variant]
    own = published_for(VARIANTS[variant]) if variant in VARIANTS else None
    return min(rows, key=lambda row: row.data != own, default=None)


def _data_of_variant(weights: Weights) -> str:
    """Return the data set under a variant's name if none of its weights is of it, else `""`."""
    if checked_word(weights) not in VARIANTS:
        return ""
    row, own = _of_variant(str(weights)), published_for(VARIANTS[str(weights)])
    if row is None:
        return own or "imagenet"
    return own if own and row.data != own else ""


def identified(data: str, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return identifier and name of each class: WordNet's identifiers for ImageNet's thousand, else numbers."""
    if data == "imagenet" and len(names) in (0, len(imagenet_classes())):
        return imagenet_classes()
    return tuple((str(i), name) for i, name in enumerate(names))


def _of_file(file: WeightsFile) -> WeightsInfo:
    if file.archive is not None:
        return guessed(file.info, file.classes, file.archive.input_shape)
    return guessed(dataclasses.replace(file.info, variant=file.variant), file.classes, ())


def guessed(info: WeightsInfo, classes: int | None, shape: Sequence[int | None]) -> WeightsInfo:
    """Return a record with its measurements, and with data set, classes and transform where the variant tells them."""
    info, spec = described(info), ALL_VARIANTS.get(info.variant)
    if spec is not None and spec.task is not IMAGES:
        return info
    data = info.data or (published_for(spec) if spec and info.folder else data_of(shape, classes or 0)) or ""
    names = info.classes or class_names(data, classes)
    return dataclasses.replace(info, data=data, classes=names, transform=info.transform or TRANSFORMS.get(data))


def image_shape(model: keras.Model) -> tuple[int | None, ...]:
    """Return (height, width, channels) of the images of a model."""
    shape = tuple(model.input_shape[1:]) if isinstance(model.input_shape, tuple) else ()
    if len(shape) == 3 and model_data_format(model) == "channels_first":
        return (*shape[1:], shape[0])
    return shape


def class_names(data: str, classes: int | None) -> tuple[str, ...]:
    """Return a data set's names of the classes if there are as many, else numbers."""
    names = tuple(name for _, name in imagenet_classes()) if data == "imagenet" else CLASSES.get(data, ())
    return names if len(names) == classes else default_names(classes or 0)
