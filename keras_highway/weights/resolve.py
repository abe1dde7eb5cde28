"""Where a `weights` argument leads: a file, its variant, and what is known of it.

The order of the search: a path; the files of the wheel; `KERAS_HIGHWAY_ZOO`;
the checkout's `zoo/weights/`; the Hub's cache; the Hub.
"""

import json
import sys
from pathlib import Path
from typing import NamedTuple

from keras_highway._support.files import atomic_write_json, sha256_of
from keras_highway.convert.timm import model_of, read_safetensors
from keras_highway.hub.client import cache_folder
from keras_highway.hub.download import fetch, locked
from keras_highway.hub.names import HubName, is_hub_name, parse
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import FILE, WeightsInfo, from_json

ROW_FILE = "weights.json"


class Located(NamedTuple):
    """A weight file on this machine.

    Attributes:
        path: The file.
        variant: Its architecture, `""` if the file does not say.
        classes: Its number of classes, `None` if the file does not say.
        published: Whether it is a row's, and so of the variant as it is.
    """

    path: Path
    variant: str
    classes: int | None
    published: bool


def locate(weights: str, variant: str = "", recipe: str = "", beside: tuple[str, ...] = ()) -> Located:
    """Finds, or downloads, the file that a `weights` argument names.

    Args:
        weights: A weights name, a data set or a tag (with `variant`), a
            `.weights.h5` file, a folder that holds one, or
            `hf://org/name[@revision]`.
        variant: The architecture that is asked for. Defaults to any.
        recipe: The recipe that trains it, for the message.
        beside: Names of files that must lie beside it: from the Hub they are
            downloaded, too.

    Raises:
        ValueError: If there are no such weights, or the file is not what it
            should be.
        HubError: If they are on the Hub and cannot be had.
    """
    if is_hub_name(weights):
        return _of_file(_fetched(parse(weights), beside))
    path = _path(weights)
    if path is not None:
        return _of_file(path)
    row = registry.find(weights, variant, recipe) if variant else registry.get(weights)
    path = _file_of(row, beside)
    return Located(path, row.variant, len(row.classes) or _of_file(path).classes, published=True)


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
    return read_row(fetch(parse(weights), ROW_FILE, check=read_row))


def _path(weights) -> Path | None:
    """The file of a path; None for the words that rows go by, even where a folder has such a name."""
    path = Path(weights)
    if weights.endswith(weights_file.SUFFIX):
        return path
    if weights in registry.words() or not path.exists():
        return None
    return path / FILE if path.is_dir() else path


def read_row(path: Path) -> WeightsInfo:
    """Returns the row that a `weights.json` describes.

    Args:
        path: The file.

    Raises:
        ValueError: If it is malformed.
    """
    try:
        return from_json(json.loads(path.read_text("utf-8")))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no JSON: {error}.") from error


def _of_file(path) -> Located:
    stamp = weights_file.read_stamp(path)
    return Located(path, stamp.get("variant", ""), stamp.get("classes"), published=False)


def _fetched(name: HubName, beside, sha256="") -> Path:
    """The weight file of a repository, and the files that belong to it, from the same commit."""
    path = fetch(name, FILE, sha256, check=weights_file.read_stamp)
    for file in beside:
        other = fetch(name, file)
        if other.parent != path.parent:
            raise ValueError(f"{name} changed between two downloads: {path} and {other}. Try again.")
    return path


def _file_of(row: WeightsInfo, beside) -> Path:
    path = registry.local_file(row)
    if path is not None:
        return path
    if not row.repository:
        return registry.file_of(row)  # raises, and says where it looked
    name = HubName(row.repository, row.revision)
    if row.file == FILE:
        return _fetched(name, beside, row.sha256)
    return _converted(row, fetch(name, row.file, row.sha256, check=read_safetensors))


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
        wanted = json.loads(record.read_text("utf-8"))["sha256"]
        return sha256_of(target) == wanted
    except (OSError, ValueError, KeyError):
        return False


def _say(row) -> None:
    print(
        f"{row.name}: converting {row.repository} from the Hub, once. Weights: {row.licence}; {row.origin}. "
        f"{row.data_licence}.",
        file=sys.stderr,
    )
