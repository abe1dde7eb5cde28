"""Every `weights` argument ends in one local folder: weights.json, model.weights.h5, and vocabulary.json for text.

The order of the search: a path; the files of the wheel; `KERAS_HIGHWAY_ZOO`; the checkout's `zoo/weights/`; the Hub's
cache; the Hub. PyTorch's files are converted into such a folder.
"""

import contextlib
import dataclasses
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from keras_highway._support.terminal import Notice
from keras_highway.data.datasets import FOLDERS
from keras_highway.data.transforms import CLASSES, TRANSFORMS
from keras_highway.tasks import LANGUAGE
from keras_highway.variants import ALL_VARIANTS, task_of_variant
from keras_highway.weights import files, keras_archive, registry, torch_files
from keras_highway.weights.hub import (
    HubError,
    HubName,
    discard,
    fetch,
    fetch_if_there,
    is_absent,
    is_hub_name,
    stated_sha256,
)
from keras_highway.weights.hub import parse as parse_hub_name
from keras_highway.weights.info import FILE, ROW, WeightFileError, WeightsInfo, described, read_result, read_row
from keras_highway.weights.keras_archive import Archive


@dataclass(frozen=True)
class WeightsFile:
    """A weight file on this machine, read and checked."""

    path: Path  # the file
    info: WeightsInfo  # its record: from the weights.json next to it, else from its stamp and its run
    classes: int | None = None  # its number of classes or words, `None` if unknown
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False)  # by path in the file
    stated: bool = False  # whether it states all of its network, which files of Keras do not
    checked: bool = False  # whether it was compared with a hash
    archive: Archive | None = field(default=None, repr=False)  # the whole model of a `.keras` file

    @property
    def shapes(self) -> Counter[tuple[int, ...]]:
        """Number of weights of each shape."""
        return files.shapes_of(self.arrays)

    @property
    def variant(self) -> str:
        """The variant; raise a `ValueError` if the file does not name it."""
        if not self.info.variant:
            raise ValueError(
                f"{self.path} does not name its variant. "
                f"Use keras_highway.create_model(VARIANT, weights={str(self.path)!r})."
            )
        return self.info.variant


def checked_word(weights: Any) -> str:
    """Return a `weights` argument that must be a name or a path."""
    if not isinstance(weights, str | os.PathLike) or not str(weights).strip():
        raise ValueError(f"`weights` must be a name or a path, or None for none. Received: weights={weights!r}")
    return str(os.fspath(weights))


def resolve(weights: str | os.PathLike, variant: str = "") -> WeightsFile:
    """Find or download the file that a `weights` argument names, and read it."""
    word = checked_word(weights)
    with _looked_up(word):
        torch_files.refuse_pickles(word)
    if is_hub_name(word):
        return _of_hub(parse_hub_name(word), variant)
    path = _path(word)
    if path is None:
        return _of_row(registry.find(word, variant), variant)
    if path.name.endswith(keras_archive.SUFFIX):
        return _of_archive(path, variant)
    if path.name.endswith(torch_files.SUFFIX):
        torch_files.refuse_other_nets(path)
        label = f"{path.name.removesuffix(torch_files.SUFFIX)}.{variant}".rstrip(".")
        row = _timms_row(variant, lambda: torch_files.read_config(path.with_name(torch_files.CONFIG), None))
        return _converted(path, path, variant, label, f"{path}, once.", row, "")
    described_by = path.with_name(ROW)
    row = read_row(described_by) if path.name == FILE and path.is_file() and described_by.is_file() else None
    return _read(path, row, variant, str(described_by))


def _of_row(row: WeightsInfo, variant: str) -> WeightsFile:
    path, name = registry.local_file(row), HubName(row.repository, row.revision)
    if path is None and row.repository and row.file == FILE:
        return _of_repository(name, fetch(name, FILE), row, variant)
    if path is None and row.repository:
        note = f"{row.repository} from the Hub, once. Weights: {row.licence}; {row.origin}. {row.data_licence}."
        return _converted(name, fetch(name, row.file), row.variant, row.name, note, row, row.sha256)
    return _read(path or registry.file_of(row), row, variant, f"the row of {row.name!r}")


def _of_hub(name: HubName, variant: str) -> WeightsFile:
    """Read the weight file of a repository; without one, that made of timm's file, with timm's `config.json`."""
    described_by = fetch_if_there(name, ROW)
    row = None if described_by is None else read_row(described_by)
    if described_by is not None:
        name = HubName(name.repository, described_by.parent.name)  # the other files are of the same commit
    try:
        path = fetch(name, FILE)
    except HubError as error:
        torch_file = fetch_if_there(name, torch_files.SAFETENSORS) if row is None and is_absent(error) else None
        if torch_file is None:
            raise
        commit = HubName(name.repository, torch_file.parent.name)
        row = _timms_row(variant, lambda: torch_files.describe(commit))
        row = row and dataclasses.replace(row, revision=name.revision)
        label = f"{name.repository.replace('/', '--')}.{variant}".rstrip(".")
        note = f"{name}, once. Its page states the licence."
        return _converted(name, torch_file, variant, label, note, row, stated_sha256(torch_file))
    return _of_repository(name, path, row, variant)


def _timms_row(variant: str, describe: Callable[[], WeightsInfo | None]) -> WeightsInfo | None:
    """Return the record in timm's `config.json`, or None without one."""
    row = None
    with contextlib.suppress(FileNotFoundError, torch_files.OtherConfigError):
        row = describe()
    return row and dataclasses.replace(row, variant=variant or row.variant)


def _of_repository(name: HubName, path: Path, row: WeightsInfo | None, variant: str) -> WeightsFile:
    """Read a downloaded weight file, and download the words of a language model from the same commit."""
    with _discarded(path):
        file = _read(path, row, variant, f"{ROW} of {name}", (row.sha256 if row else "") or stated_sha256(path))
    if file.info.variant and task_of_variant(file.info.variant) is LANGUAGE:
        for needed in LANGUAGE.files:
            fetch(HubName(name.repository, path.parent.name), needed)
    return file


def _converted(
    name: HubName | Path, torch_file: Path, variant: str, label: str, note: str, row: WeightsInfo | None, sha256: str
) -> WeightsFile:
    """Read the weight file made of a downloaded PyTorch file, with the record that describes it, if there is one."""
    facts = {"origin": row.origin, "repository": row.repository, "licence": row.licence} if row else {}
    with _discarded(torch_file):
        folder = torch_files.converted(torch_file, variant, label, note, sha256, **facts)
    made = read_row(folder / ROW)
    if row is not None:
        made = dataclasses.replace(row, variant=made.variant, sha256=made.sha256, file=FILE, folder=made.folder)
    else:
        text = "the preprocessing of ImageNet is assumed, and the names of its classes are unknown."
        warnings.warn(f"{name} has no config.json of timm's: {text}", Notice, stacklevel=4)
    return _read(folder / FILE, made, variant, f"{torch_files.CONFIG} of {name}")


@contextlib.contextmanager
def _discarded(path: Path) -> Iterator[None]:
    """Remove a file of the cache that has another hash than it should have."""
    try:
        yield
    except files.AlteredError as error:
        raise files.AlteredError(f"{str(error).removesuffix(files.REMEDY)} {discard(path)}") from error


def _read(path: Path, row: WeightsInfo | None, variant: str, described_in: str, sha256: str = "") -> WeightsFile:
    """Read a weight file and join its stamp with its row, or with the result of its run."""
    contents = files.read(path, sha256 or (row.sha256 if row else ""), described_in)
    stamp = contents.stamp
    stamped, named = stamp.get("variant", ""), row.variant if row else ""
    own = named or stamped or variant
    classes, of_row = stamp.get("classes"), len(row.classes) if row else 0
    unknown = {stamped, named} - {"", *ALL_VARIANTS}
    wrong = ""
    if unknown:
        wrong = f"names variant {unknown.pop()!r}, which this version of keras_highway does not have"
    elif named and stamped not in ("", named):
        wrong = f"holds weights of variant {stamped!r}, but {described_in} names {named!r}"
    elif variant and own != variant:
        advice = f"Use keras_highway.create_model({own!r}, weights={str(path)!r})"
        wrong = f"holds weights of variant {own!r}, not of {variant!r}. {advice}"
    elif of_row and classes not in (None, of_row):
        wrong = f"holds weights of {classes} classes, but {described_in} names {of_row}"
    classes = of_row or classes
    images = bool(own) and not unknown and task_of_variant(own) is not LANGUAGE
    if not wrong and classes is not None and images and (classes,) not in files.shapes_of(contents.arrays):
        wrong = f"has no classifier of {classes} classes, which it or {described_in} declares"
    if wrong:
        raise WeightFileError(f"{path} {wrong}.")
    info = row or _of_stamp(path, own, stamp, classes)
    info = dataclasses.replace(
        info,
        overrides=info.overrides or stamp.get("overrides", {}),
        removed=info.removed or stamp.get("removed", ()),
        vocabulary=stamp.get("vocabulary", ""),
        folder=info.folder or str(path.parent),
    )
    if info.overrides:
        files.check_overrides(info.overrides, files.shapes_of(contents.arrays), path)
    stated = row is not None or "overrides" in stamp
    return WeightsFile(path, info, classes, contents.arrays, stated, contents.checked)


def _of_stamp(path: Path, variant: str, stamp: Mapping[str, Any], classes: int | None) -> WeightsInfo:
    """Return the record of a file without a weights.json: from its stamp and the result of its run."""
    if (transform := stamp.get("transform")) not in (None, *TRANSFORMS):
        raise WeightFileError(
            f"{path} names transform {transform!r}, which this version of keras_highway does not have."
        )
    result = read_result(path.parent) if path.name == FILE else {}
    names, data = tuple(result.get("class_names", ())), result.get("data", "")
    if not names or len(names) != classes:
        names = ()
        # Made-up data are no data set to find classes or test images by.
        data = data if data in (*CLASSES, *FOLDERS) or data.startswith("tfds:") else ""
    return WeightsInfo(
        name=path.parent.name if path.name == FILE else path.name.removesuffix(files.SUFFIX),
        variant=variant,
        data=data,
        recipe=result.get("recipe", ""),
        classes=names,
        transform=TRANSFORMS.get(transform or ""),
        activation=stamp.get("activation", "softmax"),
    )


def _of_archive(path: Path, variant: str) -> WeightsFile:
    if variant:
        raise WeightFileError(
            f"{path} is a whole model and not weights for {variant!r} to be built with: load it with "
            "keras_highway.load, and keras_highway.save makes weights of it."
        )
    archive = keras_archive.describe(path)
    info = archive.info
    return WeightsFile(path, info, archive.classes, archive=archive)


def describe(weights: str) -> WeightsInfo:
    """Return the record of weights by name or by `hf://org/name[@revision]`, without the weight file."""
    if not is_hub_name(weights):
        return described(registry.find(weights))
    name = parse_hub_name(weights)
    try:
        return read_row(fetch(name, ROW))
    except HubError as error:
        row = torch_files.describe(name) if is_absent(error) else None
        if row is None:
            raise
        return row


def is_path(weights: str) -> bool:
    """Whether a `weights` argument names a file or a folder of this machine."""
    return not is_hub_name(weights) and _path(weights) is not None


def _path(word: str) -> Path | None:
    """Return the file of a path; None for the names of weights, even where a folder has such a name."""
    with _looked_up(word):
        return _file_or_folder(word)


@contextlib.contextmanager
def _looked_up(word: str) -> Iterator[None]:
    """Turn the system's refusal of a path, e.g. one that is too long, into a `WeightFileError`."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # a loop of links
        reason = getattr(error, "strerror", None) or "its links lead in a circle"
        name = word if len(word) < 200 else f"{word[:80]}...{word[-80:]}"
        raise WeightFileError(f"{name} cannot be looked up as a weight file: {reason}.") from error


def _file_or_folder(word: str) -> Path | None:
    path = Path(word)
    if word.endswith((files.SUFFIX, keras_archive.SUFFIX)) and not path.is_dir():
        return path
    if not path.exists() and (word.endswith(torch_files.SUFFIX) or len(path.parts) > 1):
        raise WeightFileError(f"No such file or folder: {path}. Names of weights: keras_highway.list_weights().")
    if not path.exists():
        return None
    if word in registry.words():
        if is_elsewhere(path, word):
            text = f"{word!r} is a name in the zoo. To load the folder, write './{word}'."
            warnings.warn(text, Notice, stacklevel=2)
        return None
    return path / FILE if path.is_dir() else path


def is_elsewhere(folder: Path, weights: str) -> bool:
    """Whether a folder holds weights and is not the folder of the zoo with its name."""
    with contextlib.suppress(OSError, RuntimeError):
        known = [place.resolve() for place in registry.folders(weights)]
        return (folder / FILE).is_file() and folder.resolve() not in known
    return False
