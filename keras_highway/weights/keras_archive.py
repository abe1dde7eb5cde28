"""Whole models that Keras saved, `.keras` files: described and loaded where they are nets of ours, safely.

Such a file names classes and functions for Keras to import. Only Keras's own
and those of this package are let through, and no code: `safe_mode=True`.
"""

import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import keras

from keras_highway._support.bounded_json import parse_json
from keras_highway._support.scratch import scratch_folder
from keras_highway.data.transforms import Transform
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights import file as weights_file
from keras_highway.weights.info import WeightFileError

SUFFIX = ".keras"
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_LARGEST_CONFIG = 16 * 2**20  # bytes
_DENSEST = 20  # times the file that its contents may be; Keras does not compress
_TENSORS = ("__keras_tensor__", "__tuple__")  # how Keras writes what a layer is called with
_ACTIVATIONS = ("softmax", "linear")
_OURS = "keras_highway"
# All of Keras's that the nets of this package are made of; of ours the registered layers. No function is among them:
# Keras would import and call one.
_CLASSES = {
    "keras": {"DTypePolicy", "Functional"},
    "keras.src.models.functional": {"Functional"},
    "keras.layers": {
        *{"Activation", "Add", "AveragePooling2D", "BatchNormalization", "Conv2D", "Dense", "Dropout", "Flatten"},
        *{"GlobalAveragePooling2D", "GlobalMaxPooling2D", "Identity", "InputLayer", "MaxPooling2D", "ReLU", "Reshape"},
        *{"Softmax", "ZeroPadding2D", "Rescaling"},
    },
}
# Whose classes compute numbers alone.
_MODULES = ("keras.initializers", "keras.regularizers", "keras.constraints", "keras.dtype_policies")
_FUNCTION = "function"


class Archive(NamedTuple):
    """What a `.keras` file says of its model.

    Attributes:
        variant: The architecture, the model's name, `""` where it has another.
        input_shape: `(height, width, channels)`; sides may be `None`.
        classes: Number of classes.
        transform: What images go through before the model, where it has a
            layer that normalizes them: no more than resizing and cropping.
            `None` where nothing says.
    """

    variant: str
    input_shape: tuple[int | None, int | None, int]
    classes: int
    transform: Transform | None


def describe(path: Path) -> Archive:
    """Reads what a file says of its model; nothing is built.

    Raises:
        WeightFileError: If it is no such file, or not one of a net of this
            package that ends in its classifier.
    """
    model = _model_of(path)
    layers, name = model["layers"], str(model.get("name", ""))
    head, first = layers[-1], layers[0]
    if not any(_package(layer) == _OURS for layer in layers) and name not in VARIANTS:
        raise WeightFileError(f"{path} is not a network of keras_highway but another model, {name!r}: Keras loads it.")
    if name in LM_VARIANTS:
        raise WeightFileError(f"{path} is a language model without its words: save it with keras_highway.CharLM.save.")
    try:
        classes, activation = head["config"]["units"], head["config"]["activation"]
        shape = tuple(first["config"]["batch_shape"][1:])
        if head["config"]["name"] != "head" or activation not in _ACTIVATIONS or len(shape) != 3:
            raise ValueError
    except (KeyError, TypeError, ValueError) as error:
        raise WeightFileError(
            f"{path} does not go from images to a classifier named 'head' that gives probabilities (softmax) or "
            "logits: keras.saving.load_model loads it."
        ) from error
    if keras.config.image_data_format() == "channels_first":
        shape = (*shape[1:], shape[0])
    return Archive(name if name in VARIANTS else "", shape, classes, _outside(path, layers, shape))


def load(path: Path, **changes: Any) -> keras.Model:
    """Loads the model as it was saved, without what it was compiled with.

    Args:
        path: The file.
        **changes: `classifier_activation`, `"softmax"` or `None`. Defaults to
            the model's own.

    Raises:
        WeightFileError: As `describe`, or if its weights are damaged or not
            the model's.
        ValueError: For any other change.
    """
    describe(path)
    if others := changes.keys() - {"classifier_activation"}:
        raise ValueError(
            f"{path} is a whole model and is loaded as it was saved: leave out {', '.join(sorted(others))}. Of weights "
            "that keras_highway.save wrote another model can be built."
        )
    _check_weights(path)
    try:
        model: Any = keras.saving.load_model(path, compile=False, safe_mode=True)
    except Exception as error:  # of a damaged file Keras raises nearly anything
        said = " ".join(str(error).split())[:300].rstrip(".")
        raise WeightFileError(f"{path} cannot be loaded by Keras {keras.__version__}: {said}.") from error
    if "classifier_activation" in changes:
        model.get_layer("head").activation = keras.activations.get(changes["classifier_activation"])
    return model


def _model_of(path: Path) -> Mapping[str, Any]:
    """The configuration of the functional model in a file, of harmless classes."""
    whole = _config(path)
    model = whole.get("config") if isinstance(whole, Mapping) else None
    if not isinstance(model, Mapping) or whole.get("class_name") not in ("Functional", "Model"):
        raise WeightFileError(f"{path} is not a network of keras_highway: it holds no functional Keras model.")
    layers = model.get("layers")
    if not isinstance(layers, list) or not layers or not all(isinstance(layer, Mapping) for layer in layers):
        raise WeightFileError(f"{path} is not a network of keras_highway: its model has no layers.")
    for found in _objects({key: value for key, value in whole.items() if key != "compile_config"}):
        kind = str(found.get("class_name"))
        if kind in ("Lambda", "__lambda__"):
            raise WeightFileError(
                f"{path} holds a Lambda layer or function, which is code of whoever wrote the file: it is not loaded."
            )
        if kind not in _TENSORS and not _is_harmless(found):
            raise WeightFileError(
                f"{path} is not a network of keras_highway: it needs {kind!r} of {str(found.get('module'))!r}."
            )
    return model


def _config(path: Path) -> Any:
    if not path.is_file():
        raise WeightFileError(f"No file {path}: model.save writes one.")
    try:
        with zipfile.ZipFile(path) as archive:
            inside = {info.filename: info for info in archive.infolist()}
            if sum(info.file_size for info in inside.values()) > _DENSEST * path.stat().st_size:
                raise WeightFileError(f"{path} says that it holds far more than it can.")
            if not {_CONFIG, _WEIGHTS} <= inside.keys() or inside[_CONFIG].file_size > _LARGEST_CONFIG:
                raise WeightFileError(f"{path} is no file of a Keras model: it lacks {_CONFIG} or {_WEIGHTS}.")
            return parse_json(archive.read(_CONFIG), f"{path}: {_CONFIG}")
    except WeightFileError:
        raise
    except PermissionError as error:
        raise WeightFileError(f"{path} may not be read (permission denied): make it readable for you.") from error
    except Exception as error:  # of a damaged archive zipfile raises several
        said = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise WeightFileError(f"{path} is no file of a Keras model, or is damaged: {said}.") from error


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Everything in a configuration that names a class or a function."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            if "class_name" in one:
                yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def _is_harmless(found: Mapping[str, Any]) -> bool:
    module, kind = str(found.get("module")), str(found["class_name"])
    if kind == _FUNCTION:
        return False
    if _package(found) == _OURS:
        registered = str(found.get("registered_name"))
        return registered == f"{_OURS}>{kind}" and keras.saving.get_registered_object(registered) is not None
    return kind in _CLASSES.get(module, ()) or module in _MODULES


def _package(found: Mapping[str, Any]) -> str:
    return str(found.get("module")).split(".")[0]


def _outside(path, layers, shape) -> Transform | None:
    """What is left to do to images before a model that normalizes them itself."""
    fields = next((layer["config"]["transform"] for layer in layers if layer["class_name"] == "Preprocessing"), None)
    if fields is None:
        return None
    try:
        own = Transform(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})
    except (TypeError, ValueError) as error:
        raise WeightFileError(f"{path} names a transform that is none: {error}") from error
    plain = replace(own, scale=1.0, mean=(0.0,), std=(1.0,), contrast=False, mean_image="")
    if None in shape[:2] or tuple(shape[:2]) == tuple(own.size):
        return plain
    return replace(plain, size=tuple(shape[:2]), crop=1.0)


def _check_weights(path: Path) -> Counter:
    """The shapes of a file's weights, after the checks of any weight file."""
    with scratch_folder("keras") as folder, zipfile.ZipFile(path) as archive:
        try:
            return weights_file.read(Path(archive.extract(_WEIGHTS, folder))).shapes
        except (zipfile.BadZipFile, WeightFileError) as error:
            said = str(error).replace(str(folder / _WEIGHTS), _WEIGHTS)
            raise WeightFileError(f"{path} is damaged: {said}") from error
