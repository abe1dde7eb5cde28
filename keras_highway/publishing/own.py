"""A user's own trained models: a folder that describes one completely, and the same on the Hub."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_highway._support.files import partial_folder, sha256_of, to_disk, written
from keras_highway._support.keras_models import input_in, output_in
from keras_highway.data.transforms import Transform
from keras_highway.hub import Pushed, parse_target
from keras_highway.hub.client import home_folder
from keras_highway.hub.download import locked
from keras_highway.layers import Preprocessing
from keras_highway.models.origin import note_origin, origin_of
from keras_highway.models.transfer import without_updates
from keras_highway.predictions import get_transform
from keras_highway.publishing.bundle import write_bundle
from keras_highway.publishing.form import Form, form_of_model
from keras_highway.publishing.publish import publish
from keras_highway.publishing.publishable import Publishable
from keras_highway.publishing.task_weights import TaskWeights
from keras_highway.weights import file as weights_file
from keras_highway.weights.info import FILE, ROW, WeightsInfo, check_field

_TOLERANCE = 1e-4  # relative to the largest output
_ROUGH = 0.1  # of a model that computes in 16 bits


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
    """Save a trained image classifier with all that is needed to use it: the folder that `publish` sends.

    It may be trained in any way: by `fit`, by a custom loop, by
    `keras_highway.training.train`; fine-tuned, trimmed or made of a ResNet.
    `kh.load`, `classify`, `evaluate` and `export` take the folder. It holds
    weights (`model.weights.h5`, `model.safetensors`), Keras's `config.json`,
    `weights.json`, a card (`README.md`) that states only what is known, and
    `check.npz`: inputs, their logits and the mean of each learned gate by
    channel.

    Args:
        model: A model of `keras_highway` with its classifier, `head`. Low-rank
            updates (`kh.enable_lora`) are merged into the kernels that are
            saved; the model keeps them. A layer `preprocessing`
            (`include_preprocessing=True`) is saved as the transform that it
            is: `kh.load(FOLDER, include_preprocessing=True)` builds it again.
        folder: Made if it is not there; what an earlier `save` left in it is
            replaced, other files stay. If the process is killed while it
            renames files, `kh.load` refuses the mix of old and new files: save
            again. Processes that save at once, as the ranks of a distributed
            run, take turns.
        class_names: Names of the classes, in order. Defaults to those of the
            weights that the model was built with, if it has their classifier,
            else to numbers.
        transform: What images go through, a `keras_highway.data.Transform` or a name for
            `kh.get_transform`. Defaults to that of the model's own layer
            `preprocessing`, else of the weights that the model was built with.
        name: Name of the weights. Defaults to the folder's name.
        dataset: What it was trained on. Defaults to `""`: not stated.
        license: Licence of the weights. Defaults to `""`: not stated.
        variant: The architecture. Defaults to what the model was built as.
        overrides: Fields of its spec that differ from the variant's. Defaults
            to those that the model was built with.

    Returns:
        The folder.

    Raises:
        ValueError: If no variant describes the model, the preprocessing of its
            images is unknown or another than its own layer's, there is not one
            name per class, or the folder holds something else; if `name`,
            `dataset`, `license` or a class's name is too long or has
            characters that it may not have.

    Example:

    >>> kh.save(model, "pets", class_names=["bird", "cat", "dog"])
    >>> kh.load("pets")
    """
    folder = Path(folder)
    _check_folder(folder)
    where = "The folder's name, which is the weights' name where `name` is not passed," if name is None else "`name`"
    name = folder.resolve().name if name is None else name
    check_field("name", name, where)
    check_field("data", dataset, "`dataset`")
    check_field("licence", license, "`license`")
    if isinstance(model, keras.Model):
        model = without_updates(model)
        model, transform = _without_preprocessing(model, transform)
    form = form_of_model(model, variant, overrides)
    transform = _checked_transform(model, transform, form)
    row = WeightsInfo(
        name=name,
        variant=form.variant,
        data=dataset,
        recipe="",
        classes=_checked_names(class_names, form),
        transform=transform,
        sha256="",
        licence=license,
        overrides=form.overrides,
        removed=form.removed,
    )
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as scratch:
        saved, bundle = Path(scratch, "saved"), Path(scratch, "bundle")
        saved.mkdir()
        bundle.mkdir()
        more = {"overrides": form.overrides, "removed": list(form.removed)}
        stamp = {key: value for key, value in more.items() if value}
        weights_file.save(model, saved / FILE, form.variant, form.classes, **stamp)
        row = dataclasses.replace(row, sha256=sha256_of(saved / FILE))
        _check_equal(model, write_bundle(Publishable(saved, row), "", bundle))
        _replace_files(bundle, folder.resolve())
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
        repository: `org/name`; made if it is not there, else brought up to
            date, without the result and the log of a run that was published
            there before.
        class_names: See `save`.
        transform: See `save`.
        private: Bool, whether to make a new repository private; one that is
            there and public is refused then. Defaults to `False`.
        **facts: `name` (defaults to the repository's), `dataset`, `license`,
            `variant` and `overrides` as in `save`.

    Returns:
        What was uploaded and removed, the commit and its tag.

    Raises:
        HubError: If the Hub refuses or cannot be reached.
        ValueError: As in `save`.

    Example:

    >>> kh.push_to_hub(model, "org/pets", class_names=["bird", "cat", "dog"])
    """
    repository = parse_target(repository).repository
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as scratch:
        folder = save(model, Path(scratch) / repository.split("/")[1], class_names, transform, **facts)
        return publish(str(folder), repository, private)


def _replace_files(bundle: Path, folder: Path) -> None:
    """Copy the files of a saved model into a folder and rename them there, `weights.json` last.

    A folder with old and new files is refused by the sha256 in its `weights.json`.
    """
    for path in bundle.iterdir():
        if (folder / path.name).is_dir():
            raise ValueError(f"{folder / path.name} is a folder, and a file goes there: rename it.")
    made = not folder.exists()
    with locked(home_folder(), "saving"), written(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with partial_folder(folder / ROW) as partial:
                names = sorted((path.name for path in bundle.iterdir()), key=lambda name: name == ROW)
                for name in names:
                    shutil.copyfile(bundle / name, partial / name)
                    to_disk(partial / name)
                for name in names:
                    os.replace(partial / name, folder / name)
        except BaseException:
            if made:
                with contextlib.suppress(OSError):  # it holds files of another process
                    folder.rmdir()
            raise


def _is_left(path: Path) -> bool:
    """Whether a killed process left a file, or the file system made it."""
    return path.name == "lost+found" or path.name.startswith(".partial-")


def _check_folder(folder: Path) -> None:
    known = (folder / ROW).is_file() or not folder.exists()
    if not known and not (folder.is_dir() and all(_is_left(path) for path in folder.iterdir())):
        raise ValueError(f"{folder} holds something else: choose a new folder, or one that kh.save wrote.")
    if (folder / "result.json").exists():
        raise ValueError(f"{folder} is the folder of a run or of the zoo: choose another one.")


def _without_preprocessing(
    model: keras.Model, transform: Transform | str | None
) -> tuple[keras.Model, Transform | str | None]:
    """Return the network behind a layer `preprocessing`, and that layer's transform; without one, the arguments.

    Only the network's weights are saved: what prepares its images can be
    rebuilt exactly.
    """
    layers = [layer for layer in model.layers if isinstance(layer, Preprocessing)]
    if not layers:
        return model, transform
    layer = layers[0]
    if len(layers) > 1 or len(model.inputs) != 1 or input_in(model, layer) is not model.inputs[0]:
        raise ValueError(
            f"Model {model.name!r} does more to images than its layer {layer.name!r}, which would be lost: save the "
            "network without what comes before it (kh.load(FOLDER, include_preprocessing=True) adds that layer)."
        )
    requested = get_transform(transform) if isinstance(transform, str) else transform
    if requested not in (None, layer.transform):
        raise ValueError(
            f"Model {model.name!r} preprocesses images itself in its layer {layer.name!r}, not as transform=... "
            f"does: leave that argument out. Received: transform={transform!r}"
        )
    network = keras.Model(output_in(model, layer), model.output, name=model.name)
    note_origin(network, origin_of(model))
    return network, layer.transform


def _checked_transform(model: keras.Model, transform: Transform | str | None, form: Form) -> Transform:
    transform = get_transform(transform) if isinstance(transform, str) else transform or form.transform
    if transform is None:
        raise ValueError(
            "The preprocessing of this model's images is unknown: pass transform=..., a "
            "keras_highway.data.Transform or a name such as 'imagenet'."
        )
    height, width, channels = form.input_shape
    shape = (*transform.size, transform.channels)
    if any(side not in (None, own) for side, own in zip((height, width, channels), shape, strict=True)):
        if channels not in (None, 1, 3):
            raise ValueError(
                f"Transforms are for images of 1 or 3 channels, and the model takes {form.input_shape}: save it by "
                "Keras's model.save, without the preprocessing of its images."
            )
        fields = "size=(height, width)"
        if channels not in (None, transform.channels):
            fields = f"channels={channels}, mean=(m,), std=(s,)"
        raise ValueError(
            f"The transform gives images of shape {shape} and the model takes {form.input_shape}: pass the "
            f"transform=... that its images went through, e.g. dataclasses.replace(transform, {fields})."
        )
    return transform


def _checked_names(class_names: Sequence[str] | None, form: Form) -> tuple[str, ...]:
    if class_names is None:
        return form.class_names or tuple(map(str, range(form.classes)))
    names = (class_names,) if isinstance(class_names, str) else tuple(class_names)
    if len(names) != form.classes or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"`class_names` must be {form.classes} names, one per class, in order. Received: class_names={names[:20]!r}"
        )
    check_field("classes", names, "`class_names`")
    return names


def _check_equal(model: keras.Model, saved: TaskWeights) -> None:
    """Check that the saved model computes what the model does."""
    pixels = saved.row.images.apply(saved.example()["pixels"])
    if keras.config.image_data_format() == "channels_first":
        pixels = np.moveaxis(pixels, -1, 1)
    expected = keras.ops.convert_to_numpy(keras.ops.cast(model(pixels, training=False), "float32"))
    actual = saved.network(pixels, training=False)
    if keras.activations.serialize(model.layers[-1].activation) == "softmax":
        actual = keras.ops.softmax(actual)
    actual = keras.ops.convert_to_numpy(actual)
    layers = [layer for layer in model.layers if not isinstance(layer, keras.layers.InputLayer)]  # of the global policy
    exact = all(getattr(layer, "compute_dtype", "float32") == "float32" for layer in layers)
    worst = float(np.abs(actual - expected).max()) / max(1.0, float(np.abs(expected).max()))
    if not worst <= (_TOLERANCE if exact else _ROUGH):
        raise ValueError(
            f"What was saved does not compute what model {model.name!r} does (they differ by {worst:.2g}): it is not "
            f"the variant {saved.row.variant!r}. Save it with model.save('model.keras')."
        )
