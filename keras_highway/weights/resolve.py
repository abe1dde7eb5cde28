"""Where a `weights` argument leads: a file, its variant, and what is known of it.

The order of the search: a path; the files of the wheel; `KERAS_HIGHWAY_ZOO`;
the checkout's `zoo/weights/`; the Hub's cache; the Hub.
"""

import contextlib
import dataclasses
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_highway._support.schema import read_json
from keras_highway._support.terminal import Notice
from keras_highway.convert.timm import read_safetensors
from keras_highway.data.datasets import FOLDERS
from keras_highway.data.transforms import CLASSES, TRANSFORMS, Transform
from keras_highway.hub.client import is_absent
from keras_highway.hub.download import fetch, fetch_if_there, promised
from keras_highway.hub.error import HubError
from keras_highway.hub.names import HubName, is_hub_name, parse
from keras_highway.tasks import LANGUAGE
from keras_highway.variants import ALL_VARIANTS, task_of_variant
from keras_highway.weights import file as weights_file
from keras_highway.weights import keras_archive, registry, torch_files
from keras_highway.weights.file import Contents, WeightFileError
from keras_highway.weights.info import FILE, RESULT, ROW, Promised, WeightsInfo, read_row
from keras_highway.weights.keras_archive import Archive
from keras_highway.weights.overrides import from_json_values


@dataclass(frozen=True)
class WeightsFile:
    """A weight file on this machine, read and checked.

    Attributes:
        path: The file.
        variant: Its architecture, `""` if unknown.
        classes: Its number of classes or words, `None` if unknown.
        shapes: How often each shape is among its weights.
        transform: What images must go through, `None` if unknown.
        class_names: Names of the classes, in order; none where unknown.
        stamp: The file's own description.
        overrides: Fields of the spec that differ from the variant's; of nets
            that look at images.
        removed: Names of blocks that were left out.
        data: The data set, `""` where unknown.
        published: Whether it is the file of a row of the registry, and so of
            the variant as it is.
        checked: Whether its content was compared with a digest of its own, or
            the file with a hash from elsewhere.
        row: The row that describes it, `None` if there is none.
        archive: The description in a `.keras` file, which holds a whole
            model; `None` of a weight file.
        content: The bytes that were checked, which are what is loaded; none
            of a `.keras` file.
    """

    path: Path
    variant: str
    classes: int | None
    shapes: Counter
    transform: Transform | None
    class_names: tuple[str, ...]
    stamp: Mapping[str, Any]
    overrides: Mapping[str, Any]
    removed: tuple[str, ...]
    data: str
    published: bool
    checked: bool
    row: WeightsInfo | None = None
    archive: Archive | None = None
    content: bytes = field(default=b"", repr=False)

    def without_content(self) -> "WeightsFile":
        """Return the description alone, for what lives longer than loading."""
        archive = self.archive and self.archive._replace(content=b"")
        return dataclasses.replace(self, content=b"", archive=archive)


def resolve(weights: str | os.PathLike, variant: str = "") -> WeightsFile:
    """Find, or downloads, the file that a `weights` argument names, and reads how the file describes itself.

    With a language model from the Hub comes its `vocabulary.json`.

    Args:
        weights: A weights name, a data set or a tag (with `variant`), a
            `.weights.h5` file, a folder that holds one,
            `hf://org/name[@revision]`; or a ResNet of timm's or torchvision's:
            a `.safetensors` file, or its repository; without `variant` also a
            `.keras` file, a whole model.
        variant: The architecture that is expected. Defaults to any.

    Raises:
        ValueError: If there are no such weights, the file is not what it
            should be, or it is of another architecture.
        HubError: If they are on the Hub and cannot be had.
    """
    if not isinstance(weights, str | os.PathLike):
        raise ValueError(f"`weights` must be a name or a path. Received: weights={weights!r}")
    weights, published = str(os.fspath(weights)), False
    if not weights.strip():
        raise ValueError(f"`weights` is empty: give a weights name or a path, or None for none. Received: {weights!r}")
    with _looked_up(weights):
        torch_files.refuse_pickles(weights)
    path = None if is_hub_name(weights) else _path(weights)
    if path is not None and path.suffix == keras_archive.SUFFIX:
        return _of_archive(path, variant)
    if is_hub_name(weights):
        path, contents, row = _of_hub(parse(weights), variant)
    elif path is not None and path.name.endswith(torch_files.SUFFIX):
        path, row = torch_files.of_file(path, variant), None
        contents = weights_file.read(path)
    elif path is not None:
        row = _row_beside(path)
        contents = weights_file.read(path, _promised_beside(path, row))
    else:
        row, published = registry.find(weights, variant) if variant else registry.get(weights), True
        path, contents = _of_row(row)
    _check_variant(path, contents, row, variant)
    stamp = contents.stamp
    classes = _classes(path, contents, row, _row_is_in(row, published))
    overrides, removed = _changes(contents, row)
    names, data = _run_beside(path, classes)
    transform = stamp.get("transform")
    if transform is not None and transform not in TRANSFORMS:
        raise WeightFileError(
            f"{path} names transform {transform!r}, which this version of keras_highway does not have."
        )
    return WeightsFile(
        path=path,
        variant=row.variant if row else stamp.get("variant", variant),
        classes=classes,
        shapes=contents.shapes,
        transform=row.transform if row else TRANSFORMS.get(transform or ""),
        class_names=row.classes if row else names,
        stamp=stamp,
        overrides=overrides,
        removed=removed,
        data=row.data if row else data,
        published=published,
        # What comes from the Hub was compared where the cache has links, which name contents by their hashes.
        checked=contents.checked or bool(row and row.sha256) or (is_hub_name(weights) and bool(promised(path))),
        row=row,
        content=contents.content,
    )


def _of_archive(path: Path, variant: str) -> WeightsFile:
    if variant:
        raise WeightFileError(
            f"{path} is a whole model and not weights for {variant!r} to be built with: load it with "
            "keras_highway.load, and keras_highway.save makes weights of it."
        )
    archive = keras_archive.describe(path)
    return WeightsFile(
        path=path,
        variant=archive.variant,
        classes=archive.classes,
        shapes=Counter(),  # no model is built from them
        transform=archive.transform,
        class_names=(),
        stamp={},
        overrides={},
        removed=(),
        data="",
        published=False,
        checked=False,
        archive=archive,
    )


def _check_variant(path, contents, row, variant) -> None:
    """Compare the architecture in the file with that of its row and with what is expected."""
    actual = contents.stamp.get("variant")
    if actual is not None and actual not in ALL_VARIANTS:
        raise WeightFileError(f"{path} names variant {actual!r}, which this version of keras_highway does not have.")
    if row is not None and actual not in (None, row.variant):
        raise WeightFileError(f"{path} holds weights of variant {actual!r}, but {ROW} names {row.variant!r}.")
    actual = row.variant if row else actual
    if variant and actual not in (None, variant):
        raise WeightFileError(
            f"{path} holds weights of variant {actual!r}, not of {variant!r}. "
            f"Use keras_highway.create_model({actual!r}, weights={str(path)!r})."
        )


def _row_is_in(row, published) -> str:
    """Return the file that describes a weight file, for errors."""
    if row is None or row.file != torch_files.FILE:
        return ROW
    return "the table of keras_highway" if published else f"the {torch_files.CONFIG} of its repository"


def _classes(path, contents, row, row_is_in) -> int | None:
    """Return the number of classes or words, as row, stamp and the shapes in the file agree on it."""
    stamped, named = contents.stamp.get("classes"), len(row.classes) if row else 0
    if named and stamped not in (None, named):
        raise WeightFileError(f"{path} holds weights of {stamped} classes, but {row_is_in} names {named}.")
    classes = named or stamped
    variant = row.variant if row else contents.stamp.get("variant")
    if classes is not None and task_of_variant(variant) is not LANGUAGE and (classes,) not in contents.shapes:
        raise WeightFileError(f"{path} has no classifier of {classes} classes, which it or {row_is_in} declares.")
    return classes


def _changes(contents, row) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Override and removed blocks of a net that looks at images; those of a language model: `stated_overrides`."""
    stamp = contents.stamp
    if task_of_variant(row.variant if row else stamp.get("variant")) is LANGUAGE:
        return {}, ()
    overrides = row.overrides if row and row.overrides else stamp.get("overrides", {})
    weights_file.check_overrides(overrides, contents.shapes)
    return from_json_values(overrides), tuple(row.removed if row and row.removed else stamp.get("removed", ()))


def result_beside(path: Path) -> dict[str, Any]:
    """Return what the `result.json` beside a `model.weights.h5` holds, `{}` where there is none.

    Raises:
        ValueError: If it is malformed.
    """
    beside = path.with_name("result.json")
    return read_json(beside, RESULT) if path.name == FILE and beside.is_file() else {}


def _run_beside(path: Path, classes: int | None) -> tuple[tuple[str, ...], str]:
    """Return class names (rare) and the data set from the result of the run next to a file."""
    result = result_beside(path)
    names, data = tuple(result.get("class_names", ())), result.get("data", "")
    if names and len(names) == classes:
        return names, data
    # Made-up data are nothing to find classes or test images by: what the variant was published for is.
    return (), data if data in (*CLASSES, *FOLDERS) or data.startswith("tfds:") else ""


def _row_beside(path: Path) -> WeightsInfo | None:
    """Return the row in the `weights.json` next to a file, or `None`."""
    beside = path.with_name(ROW)
    if path.name != FILE or not beside.is_file():
        return None
    return read_row(beside) if path.is_file() else None


def _promised_beside(path: Path, row: WeightsInfo | None) -> Promised | None:
    remedy = f"Get it anew, or remove {ROW} if the file was replaced on purpose."
    return row and Promised(row.sha256, f"in {path.with_name(ROW)}", remedy)


def row_of(weights: str) -> WeightsInfo:
    """Return what is known of weights by their name, or by their `hf://org/name[@revision]`.

    Args:
        weights: The name; from the Hub the `weights.json` is downloaded, or
            timm's `config.json`.

    Raises:
        ValueError: If there are none, or the description is malformed.
        HubError: If it is on the Hub and cannot be had.
    """
    if not is_hub_name(weights):
        return registry.described(registry.get(weights))
    name = parse(weights)
    try:
        return read_row(fetch(name, ROW, check=read_row, needed=False))
    except HubError as error:
        row = torch_files.describe(name) if is_absent(error.__cause__) else None
        if row is None:
            raise
        return row


def is_path(weights: str) -> bool:
    """Whether a `weights` argument names a file or a folder of this machine."""
    return not is_hub_name(weights) and _path(weights) is not None


def _path(weights) -> Path | None:
    """Return the file of a path; None for the words that rows go by, even where a folder has such a name."""
    with _looked_up(weights):
        path = _file_or_folder(weights)
        if path is not None and path.exists() and not path.is_file() and not path.is_dir():
            raise WeightFileError(f"{path} is a pipe or a device, not a weight file.")
    return path


@contextlib.contextmanager
def _looked_up(weights) -> Iterator[None]:
    """Return a path that the system refuses, such as one that is too long, is not a weight file."""
    try:
        yield
    except OSError as error:
        name = weights if len(weights) < 200 else f"{weights[:80]}...{weights[-80:]}"
        raise WeightFileError(f"{name} cannot be looked up as a weight file: {error.strerror}.") from error


def _file_or_folder(weights) -> Path | None:
    path = Path(weights)
    if weights.endswith((weights_file.SUFFIX, keras_archive.SUFFIX)):
        return path
    if not path.exists() and (weights.endswith(torch_files.SUFFIX) or len(path.parts) > 1):
        raise WeightFileError(f"No such file or folder: {path}. Names of weights: keras_highway.list_weights().")
    if weights in registry.words() or not path.exists():
        if is_elsewhere(path, weights):
            text = f"{weights!r} is taken for what the zoo knows by that name. For the folder write './{weights}'."
            warnings.warn(text, Notice, stacklevel=2)
        return None
    return path / FILE if path.is_dir() else path


def is_elsewhere(folder: Path, weights: str) -> bool:
    """Whether a folder holds weights and is not that of the zoo whose name it has."""
    with contextlib.suppress(OSError):  # one that may not be looked into is none of the user's own
        known = [place.resolve() for place in registry.folders(weights)]
        return (folder / FILE).is_file() and folder.resolve() not in known
    return False


def _of_hub(name: HubName, variant: str) -> tuple[Path, Contents, WeightsInfo | None]:
    """Return the weight file of a repository, compared with its `weights.json` where it has one.

    Or that made of timm's file, with the contents of timm's `config.json`.
    """
    beside = fetch_if_there(name, ROW, check=read_row)
    row = None if beside is None else read_row(beside)
    try:
        path, contents = _fetched(name, row.sha256 if row else "")
    except HubError as error:
        maybe = row is None and is_absent(error.__cause__)
        torch_file = fetch_if_there(name, torch_files.FILE, read_safetensors, needed=True) if maybe else None
        if torch_file is None:
            raise
        path, row = torch_files.of_repository(name, torch_file, variant)
        return path, weights_file.read(path), row
    if beside is not None:
        _check_same_commit(name, path, beside)
    return path, contents, row


def _fetched(name: HubName, sha256: str) -> tuple[Path, Contents]:
    """Return the weight file of a repository; with that of a language model its words, from the same commit."""
    contents = []

    def read(path: Path, expected: str) -> None:
        contents.append(weights_file.read(path, Promised(expected, f"of {name}")))

    path = fetch(name, FILE, sha256, read=read)
    for needed in task_of_variant(contents[0].stamp.get("variant")).files:
        _check_same_commit(name, path, fetch(name, needed))
    return path, contents[0]


def _check_same_commit(name, path, other) -> None:
    if other.parent != path.parent:
        raise ValueError(f"{name} changed between two downloads: {path} and {other}. Try again.")


def _of_row(row: WeightsInfo) -> tuple[Path, Contents]:
    path, name = registry.local_file(row), HubName(row.repository, row.revision)
    if path is None and row.repository and row.file == FILE:
        return _fetched(name, row.sha256)
    if path is None and row.repository:
        path = torch_files.of_row(row)
        return path, weights_file.read(path)
    if path is None:
        path = registry.file_of(row)  # raises, and lists where it looked
    return path, weights_file.read(path, registry.promised(row))
