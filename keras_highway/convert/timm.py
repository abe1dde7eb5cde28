"""timm's and torchvision's ResNets as models of this package: state dicts in safetensors, and timm's `config.json`."""

import contextlib
import math
import os
import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_highway._support.files import may_pass
from keras_highway._support.schema import CLASS_NAME, Fields, Items, Maybe, Number, OneOf, Text, read_json
from keras_highway.convert.resnet_to_highway import highway_from_resnet
from keras_highway.convert.torch_names import assign_torch_state
from keras_highway.data.transforms import INTERPOLATIONS, Transform, imagenet_classes
from keras_highway.models.builder import build
from keras_highway.specs import ConvNetSpec
from keras_highway.variants import VARIANTS

_BOTTLENECK = re.compile(r"layer([1-4])\.\d+\.conv3\.weight")


def read_safetensors(path: Path, content: bytes | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of a `.safetensors` file by name.

    Args:
        path: The file.
        content: Its bytes, where they have been read. Defaults to reading
            them.

    Raises:
        ValueError: If it is not such a file, or is truncated.
    """
    from safetensors.numpy import load, load_file

    try:
        with _read(path):
            return load_file(path) if content is None else load(content)
    except (AttributeError, KeyError, TypeError) as error:  # such as an 8-bit float
        raise ValueError(f"{path} holds arrays of a type that NumPy lacks: save them in float32. {error}") from error


@contextlib.contextmanager
def _read(path: Path) -> Iterator[None]:
    """Tells a file that the system cannot read from one that is no safetensors file: by the error's cause."""
    import safetensors

    try:
        yield
    except MemoryError as error:
        raise ValueError(f"{path} could not be read: the machine's memory is full.") from error
    except OSError as error:
        raise ValueError(f"{path} could not be read: {error}") from _with_number(error)
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file, or is truncated: {error}") from error


def _with_number(error: OSError) -> OSError:
    """Return the error with the system's number, which those of safetensors have in their text alone."""
    number = re.search(r"\(os error (\d+)\)", str(error))
    if error.errno is not None or number is None:
        return error
    return OSError(int(number[1]), os.strerror(int(number[1])))


def resnet_of(path: Path) -> str:
    """Return the residual variant whose blocks a state dict has, `"resnet50"` or a deeper one; `""` if it has none.

    Only the names of the arrays are read.

    Args:
        path: A `.safetensors` file.

    Raises:
        ValueError: If it is not such a file, or is truncated.
    """
    import safetensors

    with _read(path), safetensors.safe_open(path, "numpy") as file:
        names = list(file.keys())
    return _resnet_of(names)


def _resnet_of(names: Iterable[str]) -> str:
    stages = Counter(match[1] for match in map(_BOTTLENECK.fullmatch, names) if match)
    blocks = tuple(stages[str(stage)] for stage in range(1, 5))
    published = ("resnet50", "resnet101", "resnet152")
    return next((name for name in published if name in VARIANTS and VARIANTS[name].blocks == blocks), "")


def model_of(path: Path, variant: str, content: bytes | None = None) -> tuple[keras.Model, int]:
    """Return a variant's model with the weights of a state dict with PyTorch's names, and its number of classes.

    Args:
        path: A `.safetensors` file in timm's or torchvision's layout (or,
            for the CIFAR 110-layer nets, the authors').
        variant: The architecture, e.g. `"resnet50"`; or one made of a
            ResNet's weights, `"highway_resnet50"`, see `highway_from_resnet`.
        content: The file's bytes, where they have been read.

    Raises:
        ValueError: If names or shapes are not the variant's.
    """
    spec = VARIANTS.get(variant)
    if not isinstance(spec, ConvNetSpec):
        raise ValueError(
            "PyTorch's state dicts are read into nets of residual-style blocks (resnet50, highway110, ...). "
            f"Received: {path} for variant {variant!r}"
        )
    state = read_safetensors(path, content)
    baseline, actual = spec.baseline or variant, _resnet_of(state)
    if actual not in ("", baseline):
        raise ValueError(
            f"{path} holds weights of {actual!r}, not of {baseline!r}; nothing was set. "
            f"Use keras_highway.create_model({actual!r}, weights=...)."
        )
    classifier = next((state[name] for name in ("fc.weight", "linear.weight") if name in state), None)
    if classifier is None:
        raise ValueError(f"{path} has no classifier, fc.weight or linear.weight: {len(state)} other arrays.")
    classes = int(classifier.shape[0])
    model = build(VARIANTS[baseline], classes=classes, dtype="float32")  # whatever the global policy
    assign_torch_state(model, state)
    if baseline != variant:
        epsilon = 1 / (1 + math.exp(-float(spec.gate_bias)))
        model = highway_from_resnet(model, spec.gating, epsilon, spec.gate, name=variant)
    return model, classes


_SIZE = Items(Number(1, 10_000, whole=True), 3, 3)
_NUMBERS = Items(Number(-1e9, 1e9), 1, 3)
_CROP = Number(0.01, 1.0)
_CONFIG = Fields(
    {
        "architecture": Text(),
        "pretrained_cfg": Fields(
            {
                "num_classes": Number(1, 100_000, whole=True),
                "mean": _NUMBERS,
                "std": _NUMBERS,
                "interpolation": Text(),
            },
            {
                "input_size": _SIZE,
                "test_input_size": Maybe(_SIZE),
                "crop_pct": _CROP,
                "test_crop_pct": Maybe(_CROP),
                "tag": Maybe(Text()),
                "license": Maybe(Text(1000)),
                "global_pool": Maybe(OneOf(("avg",))),
            },
            others=False,
        ),
    },
    {
        "num_classes": Maybe(Number(1, 100_000, whole=True)),
        "model_args": Maybe(Fields({}, {"global_pool": OneOf(("avg",))}, others=False)),
    },
    others=False,  # some of which timm takes from anywhere
)
_IN_TRAINING_ALONE = ("drop_rate", "drop_path_rate", "drop_block_rate", "zero_init_last")  # of timm's `model_args`


class OtherConfigError(ValueError):
    """A `config.json` is that of another library."""


@dataclass(frozen=True)
class TimmConfig:
    """What a `config.json` of timm's states about a network.

    Attributes:
        architecture: timm's name of it, `"resnet50"`.
        classes: Their number.
        names: Of the classes, in order; none where they are not stated.
        imagenet: Whether they are ImageNet's 1000.
        transform: What images must go through.
        licence: Of the weights, as it is written there; `""` if it is not.
    """

    architecture: str
    classes: int
    names: tuple[str, ...]
    imagenet: bool
    transform: Transform
    licence: str


def read_config(path: Path) -> TimmConfig:
    """Read a `config.json` of timm's.

    Args:
        path: The file.

    Raises:
        OtherConfigError: If it is not such a file.
        ValueError: If it is, and has impossible values, or images are resized
            with a filter that the package does not have.
    """
    try:
        whole = read_json(path)
    except ValueError as error:
        raise OtherConfigError(f"{path} is not a config.json of timm's: {error}") from error
    except OSError as error:  # whose it is cannot be known
        advice = "" if may_pass(error) else " Have it mended or removed."
        raise ValueError(f"{path} cannot be read: {error.strerror}.{advice}") from error
    if not isinstance(whole, dict) or not whole.keys() >= _CONFIG.required.keys():
        raise OtherConfigError(
            f"{path} is not a config.json of timm's, which has {' and '.join(map(repr, _CONFIG.required))}. "
            f"Received: {reprlib.repr(whole)}"
        )
    try:
        _CONFIG.check(whole, str(path))
        _check_arguments(whole.get("model_args") or {}, str(path))
        if (used := whole["pretrained_cfg"]["interpolation"]) in INTERPOLATIONS:
            return _config_of(whole)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a config.json of timm's that keras_highway can read: {error!r}. To load the weights alone, "
            "download the .safetensors file beside it, and give its path."
        ) from error
    raise ValueError(
        f"{path} is of a network whose images are resized with the filter {used!r}: keras_highway has "
        f"{' and '.join(INTERPOLATIONS)}. To load the weights alone, download the .safetensors file beside it, and "
        "give its path; how images are resized is up to you then."
    )


def _check_arguments(arguments: dict[str, Any], where: str) -> None:
    """Refuses `model_args`, which timm builds the network with, where they make another one."""
    other = sorted(arguments.keys() - {"num_classes", "global_pool", "in_chans", *_IN_TRAINING_ALONE})
    if other:
        raise ValueError(f"{where}: model_args makes another network, by {reprlib.repr(', '.join(other))}")


def _config_of(whole: dict[str, Any]) -> TimmConfig:
    values = whole["pretrained_cfg"]
    channels, *size = values.get("test_input_size") or values["input_size"]
    transform = Transform(
        size=(int(size[0]), int(size[1])),
        channels=int(channels),
        scale=1 / 255,
        mean=tuple(map(float, values["mean"])),
        std=tuple(map(float, values["std"])),
        crop=float(values.get("test_crop_pct") or values["crop_pct"]),
        interpolation=str(values["interpolation"]),
    )
    # timm's own loader, too, takes the root's: `pretrained_cfg` may be that of the net that was fine-tuned.
    classes = int(whole.get("num_classes") or values["num_classes"])
    names = _label_names(whole.get("label_names") or values.get("label_names"), classes)
    imagenet = classes == 1000 and str(values.get("tag") or "").endswith("in1k")
    imagenet = imagenet and names in ((), tuple(synset for synset, _ in imagenet_classes()))
    licence = str(values.get("license") or "")
    return TimmConfig(str(whole["architecture"]), classes, names, imagenet, transform, licence)


def _label_names(labels: Any, classes: int) -> tuple[str, ...]:
    """Return the class names in timm's `label_names`, a list or a table by index; `()` if one is missing."""
    if isinstance(labels, dict) and len(labels) == classes:
        labels = [labels.get(str(i)) for i in range(classes)]
    try:
        Items(CLASS_NAME, classes, classes).check(labels, "label_names")
    except ValueError:
        return ()  # they only inform, in timm as well
    return tuple(labels)
