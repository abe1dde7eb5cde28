"""Load networks of this package from the `.keras` files that `model.save` writes.

Load only files that you trust: Keras's safe mode has gaps.
"""

import copy
import io
import operator
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.files import read_bounded
from keras_highway._support.schema import refuse, reworded
from keras_highway.data.transforms import Transform
from keras_highway.models.transfer import without_updates
from keras_highway.variants import VARIANTS
from keras_highway.weights import files
from keras_highway.weights.info import WeightFileError, WeightsInfo, convert, decode, note_info

SUFFIX = ".keras"
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_DENSEST = 4  # times the file's size that its members may have; Keras does not compress
_KINDS = (
    *(keras.layers.Layer, keras.initializers.Initializer, keras.regularizers.Regularizer),
    *(keras.constraints.Constraint, keras.DTypePolicy),
)
_TENSORS = ("__keras_tensor__", "__tuple__")  # arguments of a layer's call


class Archive(NamedTuple):
    """A network in a `.keras` file."""

    input_shape: tuple[int | None, int | None, int]  # `(height, width, channels)`; sides may be `None`
    classes: int  # number of classes
    info: WeightsInfo  # its transform resizes and crops before the model, if the model normalizes images itself
    path: Path  # the file
    configuration: Mapping[str, Any]  # configuration of the model, without `compile`'s
    arrays: Mapping[str, np.ndarray]  # the arrays of its weight file


def describe(path: Path) -> Archive:
    """Read the configuration and the weights of a file; no model is built."""
    if not path.exists():
        raise WeightFileError(f"No file {path}: model.save writes one.")
    with files.one_error(path):
        file = read_bounded(path, files.LARGEST)
    with reworded(f"{path} cannot be loaded as a Keras model", Exception, WeightFileError):
        with zipfile.ZipFile(io.BytesIO(file)) as members:
            dense = sum(member.file_size for member in members.infolist()) > _DENSEST * len(file)
            refuse((dense, "it declares more content than it can hold"))
            configuration = decode(members.read(_CONFIG), dict[str, Any], _CONFIG)
            content = members.read(_WEIGHTS)
        configuration.pop("compile_config", None)
        objects = list(_objects(configuration))
        for entry in objects:
            _check_class(entry)
        arrays = files.read_content(content, _WEIGHTS).arrays
        name, layers = configuration["config"]["name"], configuration["config"]["layers"]
        shape, head = layers[0]["config"].get("batch_shape"), layers[-1]["config"]
        is_ours = name in VARIANTS or any(_is_registered_here(layer) for layer in layers)
        text = "it is not an image classifier of keras_highway, and keras.saving.load_model loads it. "
        text += f"Received: model {name!r} with input shape {shape} and last layer {head['name']!r}"
        refuse((not is_ours or not shape or len(shape) != 4 or head["name"] != "head", text))
        formats = {layer["config"].get("data_format") for layer in layers} - {None}
        if "channels_first" in (formats or {keras.config.image_data_format()}):
            shape = [shape[0], *shape[2:], shape[1]]
        own = [entry["config"]["transform"] for entry in objects if entry["class_name"] == "Preprocessing"]
        transform = _before(convert(own[0], Transform, "its transform"), shape) if own else None
        activation = head["activation"] if head.get("activation") in ("linear", "sigmoid") else "softmax"
        variant = name if name in VARIANTS else ""
        info = WeightsInfo(name=path.stem, variant=variant, transform=transform, activation=activation)
        return Archive(tuple(shape[1:]), int(head["units"]), info, path, configuration, arrays)


def load(archive: Archive, **changes: Any) -> keras.Model:
    """Load the model, not compiled, with low-rank updates merged into its kernels."""
    if others := changes.keys() - {"classifier_activation"}:
        raise ValueError(f"{archive.path} holds a whole model: leave out {', '.join(sorted(others))}.")
    # Keras raises nearly anything for a malformed file.
    with reworded(f"{archive.path} cannot be loaded as a Keras model", Exception, WeightFileError):
        configuration = copy.deepcopy(archive.configuration)  # Keras empties it
        model: Any = keras.saving.deserialize_keras_object(configuration, safe_mode=True)
        files.assign(model, archive.arrays)
    model = without_updates(model)
    if changes.get("classifier_activation", "auto") != "auto":
        model.get_layer("head").activation = keras.activations.get(changes["classifier_activation"])
    note_info(model, archive.info)
    return model


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every part of a configuration that names a class or a function."""
    if isinstance(value, Mapping) and "class_name" in value:
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _objects(item)


def _check_class(entry: Mapping[str, Any]) -> None:
    """Raise for a function, a Lambda layer, and a class of other packages."""
    module, name, registered = str(entry.get("module")), str(entry["class_name"]), entry.get("registered_name")
    if name in _TENSORS or _is_registered_here(entry):
        return
    try:
        cls = operator.attrgetter(f"{module}.{name}".removeprefix("keras."))(keras)
        # Keras looks up the registered name first.
        known = keras.saving.get_registered_object(str(registered or name)) in (None, cls)
        if module.split(".")[0] == "keras" and issubclass(cls, _KINDS) and cls is not keras.layers.Lambda and known:
            return
    except (AttributeError, TypeError):
        pass
    raise ValueError(
        f"it names {name!r} of {module!r}, and kh.load takes only classes of Keras and of keras_highway. "
        "If you trust the file, use keras.saving.load_model"
    )


def _is_registered_here(entry: Mapping[str, Any]) -> bool:
    registered = str(entry.get("registered_name"))
    return registered.startswith("keras_highway") and keras.saving.get_registered_object(registered) is not None


def _before(own: Transform, shape: list[Any]) -> Transform:
    """Return the part of a model's own transform that images need before they enter the model."""
    plain = replace(own, scale=1.0, mean=(0.0,), std=(1.0,), contrast=False, mean_image="")
    if None in shape[1:3] or tuple(shape[1:3]) == tuple(own.size):
        return plain
    return replace(plain, size=tuple(shape[1:3]), crop=1.0)
