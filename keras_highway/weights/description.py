"""What is known of trained weights, by a name, a variant, a path, a repository on the Hub or a model."""

import os
from collections.abc import Sequence

import keras

from keras_highway.data.transforms import CLASSES, TRANSFORMS, Transform, imagenet_classes
from keras_highway.layers import Preprocessing
from keras_highway.models.origin import file_of, origin_of
from keras_highway.specs import NetSpec
from keras_highway.tasks import IMAGES
from keras_highway.variants import ALL_VARIANTS, VARIANTS, task_of_variant
from keras_highway.weights import registry
from keras_highway.weights.info import FILE, ROW, WeightsInfo, read_row
from keras_highway.weights.resolve import WeightsFile, is_path, resolve, result_beside, row_of

_NUMBER_OF_CLASSES = {**{data: len(names) for data, names in CLASSES.items()}, "imagenet": 1000}

_UNNAMED = (
    "The classifier of model {!r} is not that of weights that it was loaded from, so the names of its classes are "
    "unknown: pass classes=, their names in order."
)

Weights = str | os.PathLike[str] | keras.Model


def describe_weights(weights: Weights) -> WeightsInfo:
    """Return all that is known of weights: what they are, how they are fed, what was measured.

    Args:
        weights: A weights name; a variant's, for the first of its weights,
            those of the data set that it was published for before others; a
            `.weights.h5` file, or the folder of one, of the zoo or of a run;
            `hf://org/name[@revision]` (its `weights.json` is downloaded, or
            timm's `config.json`); or a model that was loaded from any of
            these.

    Raises:
        ValueError: If there are none, or the description is malformed.
        HubError: If it is on the Hub and cannot be downloaded.
    """
    if isinstance(weights, keras.Model):
        return _of_file(_loaded(weights))
    weights = os.fspath(weights)
    if is_path(weights):
        return _of_file(resolve(weights))
    if weights not in registry.WEIGHTS and weights in ALL_VARIANTS:
        row = _of_variant(weights)
        if row is None:
            raise ValueError(
                f"No weights of variant {weights!r} are published. See keras_highway.list_weights(). "
                f"Received: weights={weights!r}"
            )
        return registry.described(row)
    return row_of(weights)


def transform_of(weights: Weights) -> Transform:
    """Return the transform of weights, see `keras_highway.get_transform`."""
    if isinstance(weights, keras.Model):
        for layer in weights.layers:
            if isinstance(layer, Preprocessing):
                return layer.transform
        origin = origin_of(weights)
        if file_of(weights) is None and origin is not None and origin.transform is not None:
            return origin.transform  # of a net that was made of a loaded one, e.g. by `reset_classifier`
        return describe_weights(weights).images
    if weights in TRANSFORMS:
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
    origin = origin_of(weights) if isinstance(weights, keras.Model) else None
    if isinstance(weights, keras.Model) and file_of(weights) is None and origin is not None:
        if not origin.class_names:
            raise ValueError(_UNNAMED.format(weights.name))
        return identified("", origin.class_names)  # of a net that was made of a loaded one, e.g. by `trim`
    row = describe_weights(weights)
    heads = [layer for layer in weights.layers if layer.name == "head"] if isinstance(weights, keras.Model) else []
    if row.classes and any(getattr(head, "units", len(row.classes)) != len(row.classes) for head in heads):
        raise ValueError(_UNNAMED.format(weights.name))
    return identified(row.data, row.classes)


def published_for(spec: NetSpec) -> str | None:
    """Return the data set of a spec's input shape and number of classes, None if there is none."""
    return data_of(spec.input_shape, spec.classes)


def data_of(input_shape: Sequence[int | None], classes: int) -> str | None:
    """Return the data set of an input shape (height, width, channels) and number of classes, None if there is none."""
    for data, transform in TRANSFORMS.items():
        if (*transform.size, transform.channels, _NUMBER_OF_CLASSES.get(data)) == (*input_shape, classes):
            return data
    return None


def _of_variant(variant: str) -> WeightsInfo | None:
    """Return the first of a variant's weights, those of the data set that it was published for before others."""
    rows = [row for row in registry.WEIGHTS.values() if row.variant == variant]
    own = published_for(VARIANTS[variant]) if variant in VARIANTS else None
    return min(rows, key=lambda row: row.data != own, default=None)


def _data_of_variant(weights: Weights) -> str:
    """Return the data set under a variant's name if none of its weights is of it, else `""`."""
    if weights not in VARIANTS:
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


def _loaded(model: keras.Model) -> WeightsFile:
    file = file_of(model)
    if file is None:
        raise ValueError(
            f"Model {model.name!r} was not loaded from weights by keras_highway, so its preprocessing and its classes "
            "are unknown: name the weights or the data set."
        )
    return file


def _of_file(file: WeightsFile) -> WeightsInfo:
    """Return the row beside a file, or else its stamp and the result beside it."""
    if file.archive is not None:
        return _of_model(file)
    if not file.variant:
        raise ValueError(f"{file.path} does not name its variant: keras_highway.weights.file.save records it.")
    beside = file.path.with_name(ROW)
    if file.path.name == FILE and beside.is_file():
        return registry.described(read_row(beside))
    if file.row is not None:
        return registry.described(file.row)
    result = result_beside(file.path)
    spec = ALL_VARIANTS.get(file.variant)
    data = result.get("data") or (published_for(spec) if spec else "") or ""
    images = task_of_variant(file.variant) is IMAGES
    return WeightsInfo(
        name=file.path.parent.name,
        variant=file.variant,
        data=data,
        recipe=result.get("recipe", ""),
        classes=file.class_names or (class_names(data, file.classes) if images else ()),
        transform=(file.transform or TRANSFORMS.get(data)) if images else None,
        sha256="",
        licence="",
        metrics=result,
    )


def _of_model(file: WeightsFile) -> WeightsInfo:
    """Return a `.keras` file's description; without a data set, the one of its image size and classes."""
    assert file.archive is not None
    data = data_of(file.archive.input_shape, file.archive.classes) or ""
    return WeightsInfo(
        name=file.path.stem,
        variant=file.variant,
        data=data,
        recipe="",
        classes=class_names(data, file.classes),
        transform=file.transform or TRANSFORMS.get(data),
        sha256="",
        licence="",
    )


def class_names(data: str, classes: int | None) -> tuple[str, ...]:
    """Return a data set's names of the classes, where their number is that of a file's classes, else numbers."""
    names = tuple(name for _, name in imagenet_classes()) if data == "imagenet" else CLASSES.get(data, ())
    return names if len(names) == classes else tuple(map(str, range(classes or 0)))
