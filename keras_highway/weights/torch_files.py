"""PyTorch's `.safetensors` of timm's and torchvision's ResNets as weight files, converted once for every content."""

import atexit
import contextlib
import functools
import hashlib
import math
import os
import re
import reprlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Required, TypedDict

import keras
import ml_dtypes
import numpy as np
from msgspec import Meta

from keras_highway._support.files import atomic_write_json, read_bounded, sha256_of
from keras_highway._support.schema import refuse, reworded
from keras_highway.data.transforms import Transform, imagenet_classes
from keras_highway.models.builder import build
from keras_highway.specs import ConvNetSpec
from keras_highway.variants import VARIANTS
from keras_highway.weights import files
from keras_highway.weights.hub import HubName, fetch, fetch_if_there, home_folder
from keras_highway.weights.info import (
    FILE,
    ROW,
    ClassNames,
    LongText,
    Text,
    WeightsInfo,
    convert,
    decode,
    to_json,
)
from keras_highway.weights.registry import DATA_LICENCES, check_checkout, note_repository
from keras_highway.weights.resnet_to_highway import highway_from_resnet
from keras_highway.weights.torch_names import assign_torch_state

SUFFIX = ".safetensors"
SAFETENSORS = "model.safetensors"
CONFIG = "config.json"
_CONVERSION = 3  # raised where a conversion comes to compute something else: kept files are made again
_PICKLES = (".bin", ".pt", ".pth", ".pth.tar")
_BOTTLENECK = re.compile(r"layer([1-4])\.\d+\.conv3\.weight")


class OtherConfigError(ValueError):
    """A `config.json` of another library."""


def refuse_pickles(weights: str) -> None:
    """Raise a ValueError for a file that only Python's pickle can read: it may run any code."""
    if weights.endswith(_PICKLES) and Path(weights).is_file():
        raise ValueError(
            f"{weights} is a pickle, which can run code when it is opened. Save its state dict with "
            f"safetensors.torch.save_file(state_dict, 'model{SUFFIX}') where you trust it, and pass that file."
        )


def refuse_other_nets(path: Path) -> None:
    """Raise a ValueError for a file or folder with the name of a net that only differs in layers without weights."""
    if other := next((name for name in _SAME_NAMES for part in path.parts[-2:] if name in part.lower()), ""):
        raise ValueError(f"{path} is of a {other}, which blurs its features: keras_highway lacks that net.")


def read_safetensors(path: Path, content: bytes | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of a `.safetensors` file by name; `content` are its bytes, if they have been read."""
    from safetensors.numpy import load

    with files.one_error(path):
        arrays = load(read_bounded(path, files.LARGEST) if content is None else content)
        for name, values in arrays.items():
            if name.endswith("num_batches_tracked"):
                continue
            floating = values.dtype.kind == "f" or values.dtype == ml_dtypes.bfloat16
            refuse((not floating, f"{name} is of dtype {values.dtype}: save it in float32"))
            negative = name.endswith("running_var") and (values < 0).any()
            text = f"{name} has values that are not finite, or negative variances"
            refuse((negative or not np.isfinite(values).all(), text))
    return arrays


def model_of(path: Path, variant: str, content: bytes | None = None) -> tuple[keras.Model, int]:
    """Return a variant's model with the weights of a state dict with PyTorch's names, and its number of classes."""
    state = read_safetensors(path, content)
    actual = _resnet_of(state)
    variant = variant or actual
    spec = VARIANTS.get(variant)
    if not isinstance(spec, ConvNetSpec):
        raise ValueError(
            f"{path} does not have the names of a ResNet50, ResNet101 or ResNet152 of timm or torchvision, or "
            f"{variant!r} is no such net. For another net: keras_highway.create_model(VARIANT, weights=...)."
        )
    baseline = spec.baseline or variant
    classifier = next((state[name] for name in ("fc.weight", "linear.weight") if name in state), np.empty(0))
    refuse(
        (
            actual not in ("", baseline),
            f"{path} holds weights of {actual!r}, not of {baseline!r}; nothing was set. "
            f"Use keras_highway.create_model({actual!r}, weights=...).",
        ),
        (classifier.ndim != 2, f"{path} has no classifier, fc.weight or linear.weight: {len(state)} other arrays."),
    )
    classes = int(classifier.shape[0])
    model = build(VARIANTS[baseline], classes=classes, dtype="float32")  # whatever the global policy
    assign_torch_state(model, state)
    if baseline != variant:
        epsilon = 1 / (1 + math.exp(-float(spec.gate_bias)))
        model = highway_from_resnet(model, spec.gating, epsilon, spec.gate, name=variant)
    return model, classes


def convert_torch_file(torch_file: Path, target: Path, variant: str) -> str:
    """Write the weight file of a variant from a state dict with PyTorch's names; return its SHA-256."""
    model, classes = model_of(torch_file, variant)
    return files.save(model, target, variant or model.name, classes)


def converted(torch_file: Path, variant: str, label: str, note: str, sha256: str = "", **facts: str) -> Path:
    """Return the folder with the weight file made of a PyTorch file; made once for every content of that file."""
    with files.one_error(torch_file):
        content = read_bounded(torch_file, files.LARGEST)
    if sha256:
        files.compare(content, sha256, torch_file, "its source")
    made_by = hashlib.sha256(repr((_CONVERSION, variant, VARIANTS.get(variant))).encode()).hexdigest()
    name = f"{label}-{hashlib.sha256(content).hexdigest()[:16]}-{made_by[:8]}"
    kept = home_folder() / "keras_highway" / "converted"
    if (kept / name / FILE).is_file():
        return kept / name
    with contextlib.suppress(OSError):
        kept.mkdir(parents=True, exist_ok=True)
    if not os.access(kept, os.W_OK):
        note += f" {kept} cannot be written: the result is kept until this process ends."
        kept = _temporary_folder(os.getpid())
        if (kept / name / FILE).is_file():
            return kept / name
    model, classes = model_of(torch_file, variant, content)
    print(f"{label}: converting {note}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=kept, ignore_cleanup_errors=True) as scratch:
        made = Path(scratch, name)
        made.mkdir()
        sha256 = files.save(model, made / FILE, model.name, classes)
        atomic_write_json(made / ROW, to_json(WeightsInfo(name=label, variant=model.name, sha256=sha256, **facts)))
        shutil.rmtree(kept / name, ignore_errors=True)
        with contextlib.suppress(OSError):  # another process has made it meanwhile
            made.rename(kept / name)
    return kept / name


@functools.cache
def _temporary_folder(process: int) -> Path:
    """Return a folder that is removed as a process ends; a fork has its own, for its parent may end before it."""
    folder = Path(tempfile.mkdtemp(prefix="keras_highway-"))
    atexit.register(lambda: os.getpid() == process and shutil.rmtree(folder, ignore_errors=True))
    return folder


def pin(row: WeightsInfo) -> dict[str, str]:
    """Download the file of a row and write its commit and sha256 into the checkout's table."""
    if not row.file.endswith(SUFFIX):
        raise ValueError(
            f"Only third-party weights are pinned; `publish` records the zoo's. Received: weights={row.name!r}"
        )
    check_checkout()
    path = fetch(HubName(row.repository, row.revision), row.file)
    read_safetensors(path)
    pinned = {"revision": path.parent.name, "sha256": sha256_of(path)}  # the cache names folders by their commits
    variant, _, tag = row.name.partition(".")
    note_repository(f"{getattr(VARIANTS[variant], 'baseline', '') or variant}.{tag}", pinned)
    return pinned


def _resnet_of(names: Iterable[str]) -> str:
    """Return the residual variant whose blocks a state dict has, `""` if it has none."""
    stages = Counter(match[1] for match in map(_BOTTLENECK.fullmatch, names) if match)
    blocks = tuple(stages[str(stage)] for stage in range(1, 5))
    published = ("resnet50", "resnet101", "resnet152")
    return next((name for name in published if name in VARIANTS and VARIANTS[name].blocks == blocks), "")


_Size = tuple[int, int, int]
_Numbers = Annotated[tuple[float, ...], Meta(min_length=1, max_length=3)]
_Crop = Annotated[float, Meta(ge=0.01, le=1)]
_Classes = Annotated[int, Meta(ge=1, le=100_000)]


class _Pretrained(TypedDict, total=False):
    num_classes: Required[_Classes]
    mean: Required[_Numbers]
    std: Required[_Numbers]
    interpolation: Required[Text]
    input_size: Required[_Size]
    test_input_size: _Size | None
    crop_pct: Required[_Crop]
    test_crop_pct: _Crop | None
    tag: Text | None
    license: LongText | None
    global_pool: str | None
    label_names: Any


class _TimmConfig(TypedDict, total=False):
    """The keys by which a file is known as timm's."""

    architecture: Required[Any]
    pretrained_cfg: Required[Any]
    num_classes: Any
    model_args: Any
    label_names: Any


class _Config(TypedDict, total=False):
    architecture: Required[Text]
    pretrained_cfg: Required[_Pretrained]
    num_classes: _Classes | None
    model_args: dict[str, Any] | None
    label_names: Any


_HARMLESS = {"drop_rate", "drop_path_rate", "drop_block_rate", "zero_init_last"}  # `model_args` of training alone
_ALONE = "To load the weights alone, pass the path of the .safetensors file in a folder without config.json."
_SAME_NAMES = ("resnetaa", "resnetblur")  # timm's nets whose arrays have the names and shapes of a ResNet's


def describe(name: HubName) -> WeightsInfo | None:
    """Return the record in timm's `config.json` of a repository, None if there is no such file."""
    path = fetch_if_there(name, CONFIG)
    return path and read_config(path, name)


def read_config(path: Path, name: HubName | None) -> WeightsInfo:
    """Return the record in a `config.json` of timm's, of a repository or a local folder; errors as in `describe`."""
    with reworded(f"{path} is not a config.json of timm's", error=OtherConfigError):
        whole = decode(read_bounded(path), _TimmConfig, str(path))
    with reworded(f"{path} is of a network that keras_highway cannot read. {_ALONE} Cause", (ValueError, KeyError)):
        config = convert(whole, _Config, str(path))
        values, arguments = config["pretrained_cfg"], config.get("model_args") or {}
        pooling = {values.get("global_pool"), arguments.get("global_pool")} - {None, "avg"}
        other = sorted(arguments.keys() - {"num_classes", "global_pool", "in_chans"} - _HARMLESS)
        refuse(
            (other, f"model_args makes another network, by {reprlib.repr(', '.join(other))}"),
            (
                pooling or config["architecture"] not in VARIANTS,
                f"keras_highway lacks its architecture or pooling: {config['architecture']!r}, {pooling or 'avg'}",
            ),
        )
        return _info_of(config, name)


def _info_of(config: _Config, name: HubName | None) -> WeightsInfo:
    values = config["pretrained_cfg"]
    channels, *size = values.get("test_input_size") or values["input_size"]
    transform = Transform(
        size=(size[0], size[1]),
        channels=channels,
        scale=1 / 255,
        mean=values["mean"],
        std=values["std"],
        crop=values.get("test_crop_pct") or values["crop_pct"],
        interpolation=values["interpolation"],
    )
    # timm's own loader, too, takes the root's: `pretrained_cfg` may be of the net that was fine-tuned.
    classes = config.get("num_classes") or values["num_classes"]
    names = _label_names(config.get("label_names") or values.get("label_names"), classes)
    imagenet = classes == 1000 and str(values.get("tag") or "").endswith("in1k")
    imagenet = imagenet and names in ((), tuple(synset for synset, _ in imagenet_classes()))
    if imagenet:
        names = tuple(words for _, words in imagenet_classes())
    return WeightsInfo(
        name=name.repository if name else config["architecture"],
        variant=config["architecture"],
        data="imagenet" if imagenet else "",
        classes=names or tuple(map(str, range(classes))),
        transform=transform,
        licence=str(values.get("license") or ""),
        data_licence=DATA_LICENCES["imagenet"] if imagenet else "",
        origin=f"published as {name}" if name else "",
        repository=name.repository if name else "",
        revision=name.revision if name else "main",
        file=SAFETENSORS,
    )


def _label_names(labels: Any, classes: int) -> tuple[str, ...]:
    """Return the class names in timm's `label_names`, a list or a table by index; `()` if one is missing."""
    if isinstance(labels, dict):
        labels = [labels.get(str(i)) for i in range(classes)]
    try:
        names = convert(labels, ClassNames, "label_names")
    except ValueError:
        return ()  # they only inform, in timm as well
    return names if len(names) == classes else ()
