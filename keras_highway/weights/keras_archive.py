"""Whole models that Keras saved, `.keras` files: described and loaded where they are nets of ours, safely.

Such a file names classes and functions for Keras to import. Only Keras's own
and those of this package are let through, and no code: `safe_mode=True`. Its
sizes are compared with its weights before a network of them is built. What was
checked is what is built: of the file nothing is read again.
"""

import contextlib
import copy
import io
import operator
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import keras

from keras_highway._support.bounded_json import parse_json
from keras_highway._support.files import read_regular
from keras_highway._support.schema import Anything, Fields, Items, Maybe, Number, Text, refuse
from keras_highway._support.valueless import without_values
from keras_highway.data.transforms import Transform
from keras_highway.layers.frozen import freeze_parts, frozen_parts
from keras_highway.models.lora import has_lora, learns_by_updates, merge_lora
from keras_highway.tasks import LANGUAGE
from keras_highway.variants import VARIANTS, task_of_variant
from keras_highway.weights import file as weights_file
from keras_highway.weights.info import WeightFileError, transform_from_json

SUFFIX = ".keras"
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_LARGEST_CONFIG = 16 * 2**20  # bytes
_DENSEST = 4  # times the file that its contents may be; Keras does not compress
_TENSORS = ("__keras_tensor__", "__tuple__")  # how Keras writes what a layer is called with
_QUANTIZED = ("Int8QuantizationConfig", "Int4QuantizationConfig", "Float8QuantizationConfig", "QuantizedDTypePolicy")
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
_LAYER = Fields(
    {"module": Text(), "class_name": Text(), "config": Fields({"name": Text()}, {"layers": Anything(24)})},
    {"inbound_nodes": Anything(12)},
)
_MODEL = Fields({"layers": Items(_LAYER, 1, 10_000), "name": Text()})
_IMAGES = Items(Maybe(Number(1, 8192, whole=True)), 4, 4)  # a model's `batch_shape`
_UNITS = Number(1, weights_file.MOST_CLASSES, whole=True)
_PLAIN = 1000  # up to here a number in a configuration needs no weights that are as large
_LOOKED_AT = ("class_name", "registered_name", "module", "name")  # by `_is_harmless`; a layer's own name is not one
_NO_SIZES = ("seed", "shared_object_id")


class Archive(NamedTuple):
    """What a `.keras` file describes of its model.

    Attributes:
        variant: The architecture, the model's name, `""` where it has another.
        input_shape: `(height, width, channels)`; sides may be `None`.
        classes: Number of classes.
        transform: What images go through before the model, where it has a
            layer that normalizes them: no more than resizing and cropping.
            `None` where it is unknown.
        path: The file.
        configuration: Of the model, checked, without what it was compiled
            with.
        shapes: Of the file's weights.
        content: The bytes of these, an HDF5 file.
    """

    variant: str
    input_shape: tuple[int | None, int | None, int]
    classes: int
    transform: Transform | None
    path: Path
    configuration: Mapping[str, Any]
    shapes: Counter
    content: bytes


def describe(path: Path) -> Archive:
    """Reads a file's description of its model; nothing is built.

    Raises:
        WeightFileError: If it is not such a file, or not one of a net of this
            package that ends in its classifier, or its configuration or its
            weights are malformed, or are not of each other.
    """
    whole, content = _parts(path)
    configuration = _configuration(path, whole)
    model = configuration["config"]
    layers, name = model["layers"], model["name"]
    head, first = layers[-1]["config"], layers[0]["config"]
    if not any(_package(layer) == _OURS for layer in layers) and name not in VARIANTS:
        raise WeightFileError(f"{path} is not a network of keras_highway but another model, {name!r}: Keras loads it.")
    if task_of_variant(name) is LANGUAGE:
        raise WeightFileError(f"{path} is a language model without its words: save it with keras_highway.CharLM.save.")
    shape, activation = first.get("batch_shape"), head.get("activation")
    if head["name"] != "head" or activation not in _ACTIVATIONS or not isinstance(shape, list) or len(shape) != 4:
        raise WeightFileError(
            f"{path} does not go from images to a classifier named 'head' that gives probabilities (softmax) or "
            "logits: keras.saving.load_model loads it."
        )
    with _one_error(f"{path} has a malformed {_CONFIG}"):
        _IMAGES.check(shape, "`batch_shape`")
        _UNITS.check(head.get("units"), "`units` of the head")
    transform, shapes = _transform(path, model), _shapes(path, content)
    _compare_sizes(path, model, head["units"], shapes, (*shape, *(transform.size if transform else ())))
    shape = tuple(shape[1:])
    if _channels_first(layers):
        shape = (*shape[1:], shape[0])
    outside = None if transform is None else _outside(transform, shape)
    variant = name if name in VARIANTS else ""
    return Archive(variant, shape, head["units"], outside, path, configuration, shapes, content)


def _channels_first(layers: list[Any]) -> bool:
    """Whether its layers have the channels first; where none says so, as Keras has it now."""
    stated = {layer["config"].get("data_format") for layer in layers} - {None}
    return "channels_first" in (stated or {keras.config.image_data_format()})


def load(archive: Archive, **changes: Any) -> keras.Model:
    """Loads the model as it was saved, without what it was compiled with, its low-rank updates in its kernels.

    Args:
        archive: What `describe` read.
        **changes: `classifier_activation`, `"softmax"` or `None`. Defaults to
            the model's own.

    Raises:
        WeightFileError: If its weights are not the model's, or Keras cannot
            load it.
        ValueError: For any other change.
    """
    path, shapes = archive.path, archive.shapes
    if others := changes.keys() - {"classifier_activation"}:
        raise ValueError(
            f"{path} is a whole model and is loaded as it was saved: leave out {', '.join(sorted(others))}. Of weights "
            "that keras_highway.save wrote another model can be built."
        )
    with _one_error(f"{path} cannot be loaded by Keras {keras.__version__}"):
        expected = _expected_shapes(archive.configuration)
        if expected != shapes:
            more, fewer = (sorted((a - b).elements())[:3] for a, b in ((expected, shapes), (shapes, expected)))
            raise WeightFileError(
                f"{path} has weights of another network: of this one it lacks arrays of shapes {more or 'none'}, and "
                f"it has others of {fewer or 'none'}. Get the file anew."
            )
        model = _built(archive.configuration)
        weights_file.set_weights(model, archive.content)
        if has_lora(model):  # Keras saves merged kernels, and makes updates of zero beside them
            frozen = [] if learns_by_updates(model) else frozen_parts(model)
            model = merge_lora(model)
            freeze_parts(model, frozen)
    if "classifier_activation" in changes:
        model.get_layer("head").activation = keras.activations.get(changes["classifier_activation"])
    return model


def _expected_shapes(configuration) -> Counter:
    """The shapes of the weights of a configuration, of which none is made."""
    weights = without_values(lambda: _built(configuration).weights)
    return Counter(tuple(w.shape) for w in weights if not w.name.startswith("lora_kernel"))


def _built(configuration) -> keras.Model:
    """Keras empties the configuration that it builds: it gets a copy."""
    model: Any = keras.saving.deserialize_keras_object(copy.deepcopy(configuration), safe_mode=True)
    return model


def _configuration(path: Path, whole: Any) -> dict[str, Any]:
    """The configuration of the functional model in a file, of harmless classes, without what it was compiled with."""
    model = whole.get("config") if isinstance(whole, Mapping) else None
    if not isinstance(model, Mapping) or whole.get("class_name") not in ("Functional", "Model"):
        raise WeightFileError(f"{path} is not a network of keras_highway: it holds no functional Keras model.")
    layers = model.get("layers")
    if not isinstance(layers, list) or not layers or not all(isinstance(layer, Mapping) for layer in layers):
        raise WeightFileError(f"{path} is not a network of keras_highway: its model has no layers.")
    built = {key: value for key, value in whole.items() if key != "compile_config"}
    for entry in _objects(built):
        class_name = str(entry.get("class_name"))
        if class_name in ("Lambda", "__lambda__"):
            raise WeightFileError(
                f"{path} holds a Lambda layer or function, which is code that came with the file: it is not loaded."
            )
        if class_name in _QUANTIZED and str(entry.get("module")).startswith("keras"):
            raise WeightFileError(f"{path} is a quantized network: keras.saving.load_model reads it.")
        if class_name not in _TENSORS and not _is_harmless(entry):
            raise WeightFileError(
                f"{path} is not a network of keras_highway: it needs {class_name!r} of {str(entry.get('module'))!r}"
                f"{_alias(entry, class_name)}."
            )
    for key, text in _values(built):
        if isinstance(text, str) and key not in _LOOKED_AT and _registered(text) is not None:
            raise WeightFileError(f"{path} is not a network of keras_highway: it needs {text!r}, as its {key!r}.")
    with _one_error(f"{path} has a malformed {_CONFIG}"):
        _MODEL.check(model, "`config`")
    return built


def _alias(entry, class_name) -> str:
    registered = entry.get("registered_name")
    return "" if registered in (None, class_name) else f", registered as {str(registered)[:100]!r}"


def _parts(path: Path) -> tuple[Any, bytes]:
    """The configuration in a file and the bytes of its weights, both of one reading of it."""
    if not path.is_file():
        raise WeightFileError(f"No file {path}: model.save writes one.")
    with _one_error(f"{path} is not a file of a Keras model, or is damaged"):
        try:
            content = read_regular(path, weights_file.LARGEST)
        except PermissionError as error:
            raise WeightFileError(f"{path} may not be read (permission denied): make it readable for you.") from error
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            inside = {info.filename: info for info in archive.infolist()}
            if sum(info.file_size for info in inside.values()) > min(_DENSEST * len(content), weights_file.LARGEST):
                raise WeightFileError(f"{path} declares far more content than it can hold.")
            if not {_CONFIG, _WEIGHTS} <= inside.keys() or inside[_CONFIG].file_size > _LARGEST_CONFIG:
                raise WeightFileError(f"{path} is not a file of a Keras model: it lacks {_CONFIG} or {_WEIGHTS}.")
            whole = parse_json(archive.read(_CONFIG), f"{path}: {_CONFIG}")
            with _one_error(f"{path} is damaged"):
                return whole, archive.read(_WEIGHTS)


@contextlib.contextmanager
def _one_error(what: str) -> Iterator[None]:
    """Of what is malformed Keras, zipfile and h5py raise nearly anything: here it is one sentence."""
    try:
        yield
    except WeightFileError:
        raise
    except Exception as error:
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        raise WeightFileError(f"{what}: {reason}.") from error


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    """Everything in a configuration, each with the key that it or its list is under."""
    waiting = [("", value)]
    while waiting:
        key, one = waiting.pop()
        yield key, one
        if isinstance(one, Mapping):
            waiting += one.items()
        elif isinstance(one, list):
            waiting += ((key, item) for item in one)


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Everything in a configuration that names a class or a function."""
    return (one for _, one in _values(value) if isinstance(one, Mapping) and "class_name" in one)


def _is_harmless(entry: Mapping[str, Any]) -> bool:
    module, class_name = str(entry.get("module")), str(entry["class_name"])
    if class_name == _FUNCTION:
        return False
    if _package(entry) == _OURS:
        registered = str(entry.get("registered_name"))
        return registered == f"{_OURS}>{class_name}" and _registered(registered) is not None
    if class_name not in _CLASSES.get(module, ()) and module not in _MODULES:
        return False
    # Keras looks up the registered name before it looks into the module.
    return entry.get("registered_name") in (None, class_name) and _is_from_keras(module, class_name)


def _is_from_keras(module, class_name) -> bool:
    """Whether a name is of a class of Keras, and of no other that is registered under it."""
    with contextlib.suppress(AttributeError):
        own = operator.attrgetter(f"{module}.{class_name}".removeprefix("keras."))(keras)
        return isinstance(own, type) and _registered(class_name) in (None, own)
    return module in _CLASSES and _registered(class_name) is None  # keras.src, as Keras itself writes it


def _registered(name: str) -> Any:
    return keras.saving.get_registered_object(name)


def _package(entry: Mapping[str, Any]) -> str:
    return str(entry.get("module")).split(".")[0]


def _transform(path, model) -> Transform | None:
    """The transform of the layer that normalizes, `None` where there is none."""
    own = None
    for entry in _objects(model):
        if entry["class_name"] == "Preprocessing":
            with _one_error(f"{path} has a malformed {_CONFIG}"):
                own = transform_from_json(entry["config"].get("transform"), "the transform")
    return own


def _outside(own: Transform, shape) -> Transform:
    """What is left to do to images before a model that normalizes them itself."""
    plain = replace(own, scale=1.0, mean=(0.0,), std=(1.0,), contrast=False, mean_image="")
    if None in shape[:2] or tuple(shape[:2]) == tuple(own.size):
        return plain
    return replace(plain, size=tuple(shape[:2]), crop=1.0)


def _shapes(path: Path, content: bytes) -> Counter:
    """The shapes of a file's weights, after the checks of any weight file."""
    try:
        return weights_file.read_content(content, _WEIGHTS).shapes
    except WeightFileError as error:
        raise WeightFileError(f"{path} is damaged: {error}") from error


def _compare_sizes(path, model, units, shapes: Counter, images) -> None:
    """What can be compared before anything is built: numbers of the configuration with sides of the weights."""
    if not any(len(shape) == 2 and shape[1] == units for shape in shapes):
        raise WeightFileError(
            f"{path} has weights of another network: none has the shape of a head of {units} classes."
        )
    most = max([_PLAIN, *(side for shape in (*shapes, images) for side in shape if side)])
    with _one_error(f"{path} has a malformed {_CONFIG}"):
        for key, value in _values(model):
            if type(value) is int and abs(value) > most and key not in _NO_SIZES:
                refuse(f"`{key}`", f"at most {most}, as the weights are", value)
