"""Save a user's own trained model: a folder that describes it completely, and the same on the Hub."""

import contextlib
import dataclasses
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, get_args

import keras
import numpy as np

from keras_highway._support.files import atomic_write_json, partial_folder, written
from keras_highway._support.keras_models import input_in, output_in
from keras_highway._support.schema import refuse
from keras_highway._support.terminal import Notice, some
from keras_highway.analysis.trace import blocks as blocks_of
from keras_highway.applications import build_with, get_spec
from keras_highway.data.transforms import Transform, default_names
from keras_highway.layers import Preprocessing
from keras_highway.models.transfer import without_updates
from keras_highway.predictions import get_transform
from keras_highway.specs import NetSpec, override
from keras_highway.tasks import IMAGES
from keras_highway.variants import ALL_VARIANTS
from keras_highway.weights import files
from keras_highway.weights.describe import image_shape
from keras_highway.weights.hub import Pushed, parse_target
from keras_highway.weights.info import (
    FILE,
    RESULT,
    ROW,
    Activation,
    ClassNames,
    WeightsInfo,
    check_field,
    convert,
    info_of,
    note_info,
    read_row,
    to_json,
)
from keras_highway.weights.load import to_json_values, trimmed
from keras_highway.weights.publish import publish

_HEAD = "head"
_SUFFIXES = (".keras", ".h5", ".safetensors")
_ELSEWHERE = "Save it with model.save('model.keras') instead."
# Fields of a layer's configuration that change no trained function: initial weights, precision, what is frozen or kept.
_FREE = ("initializer", "seed", "trainable", "dtype", "gate_bias", "build_config", "remat")


def save(
    model: keras.Model,
    folder: str | os.PathLike[str],
    class_names: Sequence[str] | None = None,
    transform: Transform | str | None = None,
    *,
    name: str | None = None,
    dataset: str = "",
    license: str = "",
    variant: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Path:
    """Save a trained image classifier with all that is needed to use it.

    It may be trained in any way: by `fit`, by a custom loop, by `keras_highway.training.train`; fine-tuned, trimmed or
    made of a ResNet. `kh.load`, `classify`, `evaluate`, `export` and `publish` take the folder. It holds the weights
    (`model.weights.h5`) and their record (`weights.json`); `publish` adds the other files of a repository.

    Args:
        model: A model of `keras_highway` with its classifier, `head`. Low-rank updates (`kh.enable_lora`) are merged
            into the kernels that are saved; the model keeps them. A layer `preprocessing`
            (`include_preprocessing=True`) is saved as its transform: `kh.load(FOLDER, include_preprocessing=True)`
            builds it again.
        folder: Made if it does not exist. An earlier `save` in it is replaced, other files stay. If the process is
            killed while it renames files, `kh.load` refuses the mix of old and new files: save again.
        class_names: Names of the classes, in order; for a head with one output, the name of class 1. Defaults to the
            names of the weights that the model was built with, if it has their classifier, else to numbers.
        transform: The transform of the images, a `keras_highway.data.Transform` or a name for `kh.get_transform`.
            Defaults to the model's own layer `preprocessing`, else to the transform of the weights that the model was
            built with, for images of the model's size.
        name: Name of the weights. Defaults to the folder's name.
        dataset: The training data. Defaults to `""`: not stated.
        license: Licence of the weights. Defaults to `""`: not stated.
        variant: The architecture. Defaults to the model's.
        overrides: Fields of its spec that differ from the variant's. Defaults to those that the model was built with.

    Returns:
        The folder.

    Raises:
        ValueError: If no variant describes the model, its transform is unknown or another than its own layer's, the
            number of names is another than the number of classes, or the folder holds something else; if `name`,
            `dataset`, `license` or a class's name is too long or has characters that it may not have. If only the
            names or the transform are wrong, the weights are in `FOLDER.weights.h5` then.

    Example:

    >>> kh.save(model, "pets", class_names=["bird", "cat", "dog"])
    >>> kh.load("pets")
    """
    facts = {"name": name, "dataset": dataset, "license": license, "variant": variant, "overrides": overrides}
    return _saved(model, Path(folder), Path(f"{folder}{files.SUFFIX}"), class_names, transform, **facts)


def _saved(
    model: keras.Model,
    folder: Path,
    kept: Path,
    class_names: Sequence[str] | None,
    transform: Transform | str | None,
    *,
    name: str | None = None,
    dataset: str = "",
    license: str = "",
    variant: str | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Path:
    """Save a model as `save` does; if its names or its transform are wrong, save the weights as `kept`."""
    _check_folder(folder)
    where = "The folder's name, which is the weights' name where `name` is not passed," if name is None else "`name`"
    name = Path(os.path.abspath(folder)).name if name is None else name
    check_field("name", name, where)
    check_field("data", dataset, "`dataset`")
    check_field("licence", license, "`license`")
    refuse(
        (
            not isinstance(model, keras.Model) or not hasattr(model, "operations") or len(model.inputs) != 1,
            "kh.save takes a functional keras.Model of one input, as kh.create_model and kh.load make it. "
            f"Received: {type(model).__name__}",
        ),
        (
            not isinstance(transform, Transform | str | None),
            f"`transform` must be a Transform or a name. Received: transform={transform!r}",
        ),
    )
    transform = get_transform(transform) if isinstance(transform, str) else transform
    model, transform = _without_preprocessing(without_updates(model), transform)
    info, classes = _form(model, variant, overrides)
    stamp = {"overrides": dict(info.overrides), "removed": list(info.removed), "activation": info.activation}
    stamp = {key: value for key, value in stamp.items() if value not in ({}, [], "softmax")}
    facts = {"name": name, "data": dataset, "licence": license}
    try:
        names = _checked_names(class_names, info.classes, classes)
        transform = _checked_transform(transform or _of_size(info.transform, image_shape(model)), image_shape(model))
        info = dataclasses.replace(info, **facts, classes=names, transform=transform)
    except ValueError as error:  # a script may end here, and the training with it
        if kept.exists():
            raise
        kept.parent.mkdir(parents=True, exist_ok=True)
        files.save(model, kept, info.variant, classes, **stamp)
        raise ValueError(f"{error} The weights are not lost: kh.load({str(kept)!r}) loads them.") from error
    _warn_of_other_names(model, info.classes)
    made = not folder.exists()
    with written(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with partial_folder(folder / ROW) as partial:
                sha256 = files.save(model, partial / FILE, info.variant, classes, **stamp)
                atomic_write_json(partial / ROW, to_json(dataclasses.replace(info, sha256=sha256)))
                for file in (FILE, ROW):  # a mix of old and new is refused by the hash in the second
                    os.replace(partial / file, folder / file)
        finally:
            if made:
                with contextlib.suppress(OSError):  # it holds the files, unless saving failed
                    folder.rmdir()
    return folder


def push_to_hub(
    model: keras.Model,
    repository: str,
    class_names: Sequence[str] | None = None,
    transform: Transform | str | None = None,
    *,
    private: bool = False,
    **facts: Any,
) -> Pushed:
    """Save a trained image classifier to the Hugging Face Hub; `kh.load("hf://org/name")` loads it anywhere.

    Args:
        model: See `save`.
        repository: `org/name`; made if it does not exist, else brought up to date, without the result and the log of a
            run that was published there before.
        class_names: See `save`.
        transform: See `save`.
        private: Bool, whether to make a new repository private; an existing public one is refused then. Defaults to
            `False`.
        **facts: `name` (defaults to the repository's), `dataset`, `license`, `variant` and `overrides` as in `save`.

    Returns:
        The changes, the commit and its tag.

    Raises:
        HubError: If the Hub refuses or cannot be reached.
        ValueError: As in `save`.

    Example:

    >>> kh.push_to_hub(model, "org/pets", class_names=["bird", "cat", "dog"])
    """
    repository = parse_target(repository).repository
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as scratch:
        name = repository.split("/")[1]
        folder = _saved(model, Path(scratch, name), Path(f"{name}{files.SUFFIX}"), class_names, transform, **facts)
        return publish(str(folder), repository, private)


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier save."""
    problem = ""
    if folder.name.endswith(_SUFFIXES):
        problem = "has the name of a file, and kh.save writes a folder: leave the ending out"
    elif (folder / RESULT).exists():
        problem = "is the folder of a run or of the zoo: choose another one"
    elif folder.exists() or folder.is_symlink():
        try:
            if not all(path.name == "lost+found" or path.name.startswith(".partial-") for path in folder.iterdir()):
                read_row(folder / ROW)
        except (ValueError, OSError):  # no folder, or no record of weights in it
            problem = "holds something else: choose a new folder, or one that kh.save wrote"
    if problem:
        raise ValueError(f"{folder} {problem}.")


def _without_preprocessing(model: keras.Model, transform: Transform | None) -> tuple[keras.Model, Transform | None]:
    """Return the network behind a layer `preprocessing`, and that layer's transform; without one, the arguments."""
    layers = [layer for layer in model.layers if isinstance(layer, Preprocessing)]
    if not layers:
        return model, transform
    layer = layers[0]
    refuse(
        (
            len(layers) > 1 or input_in(model, layer) is not model.inputs[0],
            f"Model {model.name!r} does more to images than its layer {layer.name!r}, which would be lost: save the "
            "network without what comes before it (kh.load(FOLDER, include_preprocessing=True) adds that layer).",
        ),
        (
            transform not in (None, layer.transform),
            f"Model {model.name!r} preprocesses images itself in its layer {layer.name!r}, not as transform=... "
            f"does: leave that argument out. Received: transform={transform!r}",
        ),
    )
    network = keras.Model(output_in(model, layer), model.output, name=model.name)
    note_info(network, info_of(model))
    return network, layer.transform


def _of_size(transform: Transform | None, shape: tuple[int | None, ...]) -> Transform | None:
    """Return the transform of loaded weights for the images of a model, which may have another size."""
    if transform is None or transform.mean_image or len(shape) != 3:
        return transform
    height, width = (own or known for own, known in zip(shape[:2], transform.size, strict=True))
    return dataclasses.replace(transform, size=(height, width))


def _checked_transform(transform: Transform | None, shape: tuple[int | None, ...]) -> Transform:
    if transform is None:
        raise ValueError(
            "The preprocessing of this model's images is unknown: pass transform=..., a "
            "keras_highway.data.Transform or a name such as 'imagenet'."
        )
    own, channels = (*transform.size, transform.channels), shape[2]
    if any(side not in (None, given) for side, given in zip(shape, own, strict=True)):
        fields = "size=(height, width)"
        if channels not in (None, transform.channels):
            fields = f"channels={channels}, mean=(m,), std=(s,)"
        remedy = f"pass the transform=... of its images, e.g. dataclasses.replace(transform, {fields})."
        if channels not in (None, 1, 3):
            remedy = f"transforms are for images of 1 or 3 channels. {_ELSEWHERE}"
        raise ValueError(f"The transform gives images of shape {own} and the model takes {shape}: {remedy}")
    return transform


def _checked_names(class_names: Any, known: tuple[str, ...], classes: int) -> tuple[str, ...]:
    if class_names is None:
        return known if len(known) == classes else default_names(classes)
    unordered = isinstance(class_names, str | set | frozenset | Mapping) or not isinstance(class_names, Sized)
    if not unordered and classes == 1 and len(class_names) != 1:
        raise ValueError(
            "`class_names` of a head with one output has one entry, the name of class 1. "
            f"Received: class_names={class_names!r}"
        )
    if unordered or len(class_names) != classes:
        raise ValueError(
            f"`class_names` must be {classes} names, one per class, in order. Received: class_names={class_names!r}"
        )
    return convert(list(class_names), ClassNames, "`class_names`")


def _warn_of_other_names(model: keras.Model, names: tuple[str, ...]) -> None:
    """Warn of new names on the classifier that loaded weights have, which still tells their own classes apart."""
    info = info_of(model)
    if info is None or not info.folder or info.classes in ((), names, default_names(len(names))):
        return
    kernel, arrays = keras.ops.convert_to_numpy(model.layers[-1].kernel), {}
    with contextlib.suppress(ValueError, OSError):  # the file may have changed since
        arrays = files.read(Path(info.folder) / FILE).arrays
    if any(np.array_equal(kernel, array) for array in arrays.values()):
        warnings.warn(
            f"The head is unchanged since it was loaded: it tells apart {some(info.classes)}. Load the weights with "
            "classes=[...] for a fresh head, and train it.",
            Notice,
            stacklevel=3,
        )


def _form(model: keras.Model, variant: str | None, overrides: Mapping[str, Any] | None) -> tuple[WeightsInfo, int]:
    """Return the record of a model's network, and its number of classes.

    A model that this package built is described by its record; any other is compared layer by layer with the network
    that variant and overrides describe.
    """
    head = model.layers[-1]
    activation = keras.activations.serialize(head.activation) if isinstance(head, keras.layers.Dense) else None
    if head.name != _HEAD or activation not in get_args(Activation):
        raise ValueError(
            f"Model {model.name!r} must end in a classifier 'head' with a softmax, a sigmoid or no activation: "
            f"kh.reset_classifier puts one on a body. {_ELSEWHERE} Received: {head.name!r}, activation {activation!r}"
        )
    info = info_of(model)
    if variant is None and info is None and model.name not in ALL_VARIANTS:
        raise ValueError(
            f"The variant of model {model.name!r} is unknown: pass variant='...' (see kh.list_models()), and "
            "overrides={...} where its spec differs."
        )
    known = info is not None and bool(info.variant) and variant in (None, info.variant) and overrides is None
    if info is None or not info.variant or variant not in (None, info.variant):
        info = WeightsInfo(variant=variant or model.name)
    row = get_spec(info.variant)
    if row.task is not IMAGES:
        raise ValueError(f"Variant {row.name!r} is a language model: save it with keras_highway.CharLM.save.")
    spec = override(row, **(info.overrides if overrides is None else overrides))
    spec = dataclasses.replace(spec, classes=row.classes)  # one class per name
    shape = image_shape(model)
    spec = spec if None in shape else override(spec, input_shape=shape)
    removed = info.removed if known else _removed(model, spec, head.units)
    own = to_json_values(spec, row)
    form = {"overrides": own, "removed": removed, "activation": activation}
    return WeightsInfo(variant=row.name, classes=info.classes, transform=info.transform, **form), head.units


def _removed(model: keras.Model, spec: NetSpec, classes: int) -> tuple[str, ...]:
    """Return the blocks that are missing in the model; raise a `ValueError` if it is another network."""
    overrides = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
    for name in ("name", "classes", "input_shape"):
        overrides.pop(name)
    whole = build_with(spec.name, None, input_shape=model.input_shape[1:], classes=classes, **overrides)
    names = {layer.name for layer in model.layers}
    try:
        present = list(blocks_of(whole))
    except ValueError:  # the nets of 1000 layers have one layer for all
        present = []
    removed, difference = tuple(name for name in present if name not in names), ""
    try:
        whole = trimmed(whole, removed)
    except ValueError as error:  # a transition, which the rest needs
        difference = str(error).split(":")[0]
    difference = difference or _difference(model, whole)
    if difference:
        raise ValueError(
            f"Model {model.name!r} is not variant {spec.name!r} as it was built, or with blocks left out: "
            f"{difference}. Give its variant=... and overrides={{...}} if it is another. {_ELSEWHERE}"
        )
    return removed


def _difference(model: keras.Model, other: keras.Model) -> str:
    """Return in words the first layer in which two networks differ, `""` if they do not."""
    for operation in model.operations:
        if not isinstance(operation, keras.layers.Layer):
            return f"it has an operation {operation.name!r}"
    ours, theirs = (
        {layer.name: layer for layer in one.layers if not isinstance(layer, keras.layers.InputLayer)}
        for one in (model, other)
    )
    if others := sorted(ours.keys() ^ theirs.keys()):
        return f"it {'has a' if others[0] in ours else 'lacks'} layer {others[0]!r}"
    for name, layer in ours.items():
        same = type(layer) is type(theirs[name]) and _fixed(layer) == _fixed(theirs[name])
        if not same or [tuple(w.shape) for w in layer.weights] != [tuple(w.shape) for w in theirs[name].weights]:
            return f"layer {name!r} is another"
    return ""


def _fixed(layer: keras.layers.Layer) -> Any:
    config = layer.get_config()
    return _without_free({**config, "activation": None} if layer.name == _HEAD else config)


def _without_free(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_free(item) for key, item in value.items() if not str(key).endswith(_FREE)}
    return [_without_free(item) for item in value] if isinstance(value, list | tuple) else value
