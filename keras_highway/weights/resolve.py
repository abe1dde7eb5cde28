"""Where a `weights` argument leads: a file, its variant, and what is known of it.

The order of the search: a path; the files of the wheel; `KERAS_HIGHWAY_ZOO`;
the checkout's `zoo/weights/`; the Hub's cache; the Hub.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_highway._support.files import atomic_write_json, sha256_of
from keras_highway.convert.timm import model_of, read_safetensors
from keras_highway.data.transforms import TRANSFORMS, Transform
from keras_highway.data.vocabulary import VOCABULARY
from keras_highway.hub.client import cache_folder
from keras_highway.hub.download import fetch, locked
from keras_highway.hub.names import HubName, is_hub_name, parse
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry
from keras_highway.weights.file import Contents
from keras_highway.weights.info import FILE, ROW, WeightsInfo, read_row


@dataclass(frozen=True)
class WeightsFile:
    """A weight file on this machine, read and checked.

    Attributes:
        path: The file.
        variant: Its architecture, `""` if nothing says.
        classes: Its number of classes or words, `None` if nothing says.
        shapes: How often each shape is among its weights.
        transform: What images must go through, `None` if nothing says.
        class_names: Names of the classes, in order; none where nothing says.
        stamp: What the file says of itself.
        published: Whether it is the file of a row of the registry, and so of
            the variant as it is.
    """

    path: Path
    variant: str
    classes: int | None
    shapes: Counter
    transform: Transform | None
    class_names: tuple[str, ...]
    stamp: Mapping[str, Any]
    published: bool


def resolve(weights: str | os.PathLike, variant: str = "") -> WeightsFile:
    """Finds, or downloads, the file that a `weights` argument names, and reads what it says of itself.

    With a language model from the Hub comes its `vocabulary.json`.

    Args:
        weights: A weights name, a data set or a tag (with `variant`), a
            `.weights.h5` file, a folder that holds one, or
            `hf://org/name[@revision]`.
        variant: The architecture that is expected. Defaults to any.

    Raises:
        ValueError: If there are no such weights, the file is not what it
            should be, or it is of another architecture.
        HubError: If they are on the Hub and cannot be had.
    """
    weights, row = os.fspath(weights), None
    path = None if is_hub_name(weights) else _path(weights)
    if is_hub_name(weights):
        path, (stamp, shapes) = _fetched(parse(weights))
    elif path is not None:
        stamp, shapes = weights_file.read(path)
    else:
        row = registry.find(weights, variant) if variant else registry.get(weights)
        path, (stamp, shapes) = _of_row(row)
    actual = stamp.get("variant", variant)
    if variant and actual != variant:
        raise ValueError(
            f"{path} holds weights of variant {actual!r}, not of {variant!r}. "
            f"Use keras_highway.create_model({actual!r}, weights={str(path)!r})."
        )
    if row is None:
        transform = TRANSFORMS.get(stamp.get("transform", ""))
        return WeightsFile(path, actual, stamp.get("classes"), shapes, transform, (), stamp, published=False)
    classes = len(row.classes) or stamp.get("classes")
    return WeightsFile(path, row.variant, classes, shapes, row.transform, row.classes, stamp, published=True)


def describe_weights(weights: str) -> WeightsInfo:
    """Returns all that is known of weights: what they are, how they are fed, what was measured.

    Args:
        weights: A weights name, or `hf://org/name[@revision]` (its
            `weights.json` is downloaded).

    Raises:
        ValueError: If there are none, or the description is malformed.
        HubError: If it is on the Hub and cannot be had.
    """
    if not is_hub_name(weights):
        return registry.described(registry.get(weights))
    return read_row(fetch(parse(weights), ROW, check=read_row))


def _path(weights) -> Path | None:
    """The file of a path; None for the words that rows go by, even where a folder has such a name."""
    path = Path(weights)
    if weights.endswith(weights_file.SUFFIX):
        return path
    if weights in registry.words() or not path.exists():
        return None
    return path / FILE if path.is_dir() else path


def _fetched(name: HubName, sha256="") -> tuple[Path, Contents]:
    """The weight file of a repository; with that of a language model its words, from the same commit."""
    contents = []
    path = fetch(name, FILE, sha256, check=lambda path: contents.append(weights_file.read(path)))
    if contents[0].stamp.get("variant") in LM_VARIANTS:
        other = fetch(name, VOCABULARY)
        if other.parent != path.parent:
            raise ValueError(f"{name} changed between two downloads: {path} and {other}. Try again.")
    return path, contents[0]


def _of_row(row: WeightsInfo) -> tuple[Path, Contents]:
    path, name = registry.local_file(row), HubName(row.repository, row.revision)
    if path is None and row.repository and row.file == FILE:
        return _fetched(name, row.sha256)
    if path is None and row.repository:
        path = _converted(row, fetch(name, row.file, row.sha256, check=read_safetensors))
    if path is None:
        path = registry.file_of(row)  # raises, and says where it looked
    return path, weights_file.read(path)


def _converted(row, source: Path) -> Path:
    """The weight file made from a PyTorch file; made once for every content of that file."""
    folder = cache_folder().parent / "keras_highway" / "converted"
    content = sha256_of(source)
    target, record = (folder / f"{row.name}-{content[:16]}{suffix}" for suffix in (weights_file.SUFFIX, ".json"))
    with locked(cache_folder(), f"converted/{row.name}"):
        if not _recorded(target, record):
            folder.mkdir(parents=True, exist_ok=True)
            _say(row)
            convert_torch_file(source, target, row.variant)
            facts = {"sha256": sha256_of(target), "source_sha256": content, "origin": row.origin}
            atomic_write_json(record, {**facts, "repository": row.repository, "licence": row.licence})
    return target


def convert_torch_file(source: Path, target: Path, variant: str) -> None:
    """Writes the weight file of a variant from a state dict with PyTorch's names; whole or not at all.

    Args:
        source: A `.safetensors` file, see `convert.timm.model_of`.
        target: The `.weights.h5` file to write.
        variant: The architecture, e.g. `"resnet50"`.

    Raises:
        ValueError: If names or shapes are not the variant's.
    """
    model, classes = model_of(source, variant)
    weights_file.save(model, target, variant, classes)


def _recorded(target, record) -> bool:
    """Whether a conversion was finished, and its file is as it was then."""
    try:
        return sha256_of(target) == json.loads(record.read_text("utf-8"))["sha256"]
    except (OSError, ValueError, KeyError):
        return False


def _say(row) -> None:
    print(
        f"{row.name}: converting {row.repository} from the Hub, once. Weights: {row.licence}; {row.origin}. "
        f"{row.data_licence}.",
        file=sys.stderr,
    )
