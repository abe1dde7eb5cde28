"""What is known of a trained weight file, and the same as JSON: the `weights.json` of a repository on the Hub."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from keras_highway._support.schema import (
    BOOL,
    CLASS_NAME,
    Anything,
    Fields,
    Items,
    Maybe,
    Number,
    OneOf,
    OrEmpty,
    Table,
    Text,
    read_json,
    refuse,
)
from keras_highway._support.terminal import Notice
from keras_highway.data.transforms import INTERPOLATIONS, MEAN_IMAGES, Transform
from keras_highway.tasks import IMAGES, LANGUAGE, task_of

FILE = "model.weights.h5"
ROW = "weights.json"  # beside it


class WeightFileError(ValueError):
    """A file that holds no weights, is damaged, or does not match its own description; the message names it."""


class UncheckedWeights(Notice):
    """Weights were loaded from a file without a digest, so that its numbers cannot be compared with those saved."""


class Promised(NamedTuple):
    """What the bytes of a file must hash to.

    Attributes:
        sha256: In hexadecimal digits; `""` where nothing is promised.
        of: Where it is stated, in words.
        remedy: A sentence for the message. Defaults to none.
    """

    sha256: str
    of: str
    remedy: str = ""


OVERRIDES = Table(Anything(4), 50)  # `specs.override` knows more of them
REMOVED = Items(Text(120), most=2000)
_LARGEST = 2048  # pixels of a side to which an image is resized
# Of a folder, beside others: it leads nowhere else.
NAME = Text(pattern=r"[^./\\:][^/\\:]*", like="a name without '/', '\\' and ':' that does not begin with '.'")
_ACCURACY, _PERPLEXITY = (Number(*task.metric.bounds) for task in (IMAGES, LANGUAGE))
_SHA256 = Text(pattern="([0-9a-f]{64})?", like="64 hexadecimal digits, or empty")
_COUNT = Number(0, 1e12, whole=True)
_TRANSFORM = Fields(
    {
        "size": Items(Number(1, _LARGEST, whole=True), 2, 2),
        "channels": OneOf((1, 3)),
        "scale": Number(1e-9, 1e9),
    },
    {
        "mean": Items(Number(-1e9, 1e9), 1, 3),
        "std": Items(Number(1e-9, 1e9), 1, 3),
        "crop": Number(0.01, 1.0),
        "interpolation": OneOf(INTERPOLATIONS),
        "contrast": BOOL,
        "mean_image": OneOf(("", *MEAN_IMAGES)),
    },
)


class _Result(Fields):
    """A result, whose values are within the range of its metric."""

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` where the value does not match."""
        super().check(value, where)
        bounds = Number(*task_of(value).metric.bounds)
        bounds.check(value["mean"], f"{where}: mean")
        Items(bounds).check(value.get("values", ()), f"{where}: values")


# What was measured: a result.json.
RESULT = _Result(
    {"metric": Text(), "mean": Number(), "std": Maybe(Number(0)), "n": Number(1, 1e6, whole=True)},
    {
        "weights": NAME,
        "variant": Text(),
        "data": Text(1000),
        "class_names": Items(CLASS_NAME),
        "seeds": Items(Number(whole=True)),
        "values": Items(Number()),
        "epochs": _COUNT,
        "of_epochs": _COUNT,
        "equivalents": Number(0),
        "epoch_reported": Text(),
        "test_tokens": Maybe(_COUNT),
        "holdout_images": Maybe(_COUNT),
        "test_images": Maybe(_COUNT),
        "valid_perplexity": _PERPLEXITY,
        "top5": Number(0, 1),
        "precision": Text(),
        "hardware": Text(1000),
        "commit": Maybe(Text()),
        "commit_changes": Items(Maybe(Text())),
        "backend": Text(),
        "stored": Fields({"dtype": Text()}, {"test_accuracy": _ACCURACY, "test_perplexity": _PERPLEXITY}),
    },
)
# The same of a finished run, which names its weights, variant and data.
RUN_RESULT = _Result(
    {**RESULT.required, **{name: RESULT.optional[name] for name in ("weights", "variant", "data")}}, RESULT.optional
)
_MOMENTS = Fields({"mean": Number(), "variance": Number()})


class _Gates(Fields):
    """Of one block: one of its learned gates at least."""

    def check(self, value: Any, where: str) -> None:
        super().check(value, where)
        if not value.keys() & self.optional.keys():
            refuse(where, "moments of t, of c or of both", value)


GATE_REPORT = Fields(
    {"samples": _COUNT, "blocks": Table(_Gates({}, {"t": _MOMENTS, "c": _MOMENTS}))},
    {"sha256": Text(), "of": Text()},
)
_ROW = Fields(
    {
        # A folder's, or `org/name` of third-party weights; never a path.
        "name": Text(
            pattern=r"((?!\.\.?(/|$))[^/\\:]+(/(?!\.\.?$)[^/\\:]+)?)?",
            like="a name, or org/name with one '/', without '\\' and ':', neither part '.' or '..'",
        ),
        "variant": Text(),
        "data": Text(1000),
        "recipe": Text(),
        "classes": Items(CLASS_NAME),
        "transform": Maybe(_TRANSFORM),
        "sha256": _SHA256,
    },
    {
        "licence": Text(1000),
        "data_licence": Text(1000),
        "origin": Text(1000),
        "repository": Text(),
        "revision": Text(),
        "file": Text(),
        "metrics": OrEmpty(RESULT),
        "gate_report": OrEmpty(GATE_REPORT),
        "overrides": OVERRIDES,
        "removed": REMOVED,
    },
)


@dataclass(frozen=True, kw_only=True)
class WeightsInfo:
    """A trained weight file.

    Attributes:
        name: `<variant>.<tag>`, stable.
        variant: The architecture.
        data: The data set it was trained on.
        recipe: The recipe that trained it.
        classes: Names of the classes, in order; of a language model, whose
            words are in the `vocabulary.json` beside the file, none.
        transform: What images must go through; of a language model, `None`.
        sha256: Of the file; `""` where the publisher gives none in advance.
        licence: Of the weights; `""` where none is stated.
        data_licence: What is known of the data set's terms.
        origin: Who trained it, where it is not this project.
        repository: `org/name` on the Hub, `""` if it is not there.
        revision: Its commit or tag there.
        file: Its file there. A `.safetensors` file has PyTorch's names and is
            converted.
        metrics: What was measured: metric, mean, std, n, seeds, ...
        gate_report: Mean and variance of each learned gate of every block.
        overrides: Fields of the spec that differ from the variant's, as JSON
            values.
        removed: Names of blocks that were left out, as `analysis.trim` does.
    """

    name: str
    variant: str
    data: str
    recipe: str
    classes: tuple[str, ...]
    transform: Transform | None
    sha256: str
    licence: str = ""
    data_licence: str = ""
    origin: str = ""
    repository: str = ""
    revision: str = "main"
    file: str = FILE
    metrics: Mapping[str, Any] = field(default_factory=dict, hash=False)
    gate_report: Mapping[str, Any] = field(default_factory=dict, hash=False)
    overrides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    removed: tuple[str, ...] = ()

    @property
    def images(self) -> Transform:
        """What images must go through.

        Raises:
            ValueError: If the weights are of a language model.
        """
        if self.transform is None:
            raise ValueError(
                f"{self.name!r} is a language model: it reads words, not images. Use keras_highway.CharLM, or "
                "`python -m keras_highway lm --help`."
            )
        return self.transform


def check_field(name: str, value: Any, where: str) -> None:
    """Raise `ValueError` for a value that a row cannot have.

    Args:
        name: Of a field of `WeightsInfo`.
        value: The field's value, as JSON has it.
        where: What it is called in the message, e.g. the argument.
    """
    (_ROW.required | _ROW.optional)[name].check(value, where)


def to_json(row: WeightsInfo) -> dict[str, Any]:
    """Return a row as JSON values; what most rows lack is left out where it is empty."""
    values = {**dataclasses.asdict(row), "classes": list(row.classes), "removed": list(row.removed)}
    return {key: value for key, value in values.items() if value or key not in ("overrides", "removed")}


# Not in the row of a folder: what files beside it hold, and its repository on the Hub, which `publish` notes.
_BESIDE = ("metrics", "gate_report", "repository", "revision", "file")


def row_in_folder(row: WeightsInfo) -> dict[str, Any]:
    """Return what the `weights.json` of a folder of the zoo holds of a row, as JSON values."""
    return {key: value for key, value in to_json(row).items() if key not in _BESIDE}


def from_json(values: Any, where: str = "The description of the weights") -> WeightsInfo:
    """Return the row that JSON values describe.

    Args:
        values: What `to_json` made. Unknown keys, those of later versions,
            are ignored.
        where: What holds them, for the message.

    Raises:
        ValueError: If something is missing, of another type or out of its
            range.
    """
    try:
        _ROW.check(values, "the table")
        transform = values["transform"] and _transform(values["transform"])
        if (transform is None) != (not values["classes"]):
            raise ValueError("images need classes and a transform, a language model has neither")
        row = _known(WeightsInfo, values) | {"classes": tuple(values["classes"]), "transform": transform}
        row["removed"] = tuple(row.get("removed", ()))
        return WeightsInfo(**row)
    except ValueError as error:
        raise ValueError(f"{where} is incomplete or malformed: {error}") from error


def transform_from_json(values: Any, where: str) -> Transform:
    """Return the transform that JSON values describe.

    Args:
        values: The fields of a `Transform`.
        where: What holds them, for the message.

    Raises:
        ValueError: If something is missing, of another type or out of its
            range.
    """
    _TRANSFORM.check(values, where)
    return _transform(values)


def _transform(values: Mapping[str, Any]) -> Transform:
    """Return a transform, after its numbers have been compared with each other."""
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    transform = Transform(**_known(Transform, lists))
    if not {len(transform.mean), len(transform.std)} <= {1, transform.channels}:
        raise ValueError(f"`mean` and `std` have one number, or one for each of the {transform.channels} channels")
    if max(transform.size) > _LARGEST * transform.crop:
        raise ValueError(f"images would be resized to more than {_LARGEST} pixels: `size` over `crop`")
    if transform.mean_image and (transform.size, transform.channels) != ((32, 32), 3):
        raise ValueError("a mean image is of 32x32 pixels and 3 channels")
    return transform


def _known(cls: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {key: value for key, value in values.items() if key in names}


def read_row(path: Path) -> WeightsInfo:
    """Return the row that a `weights.json` describes.

    Args:
        path: The file.

    Raises:
        ValueError: If it is malformed.
    """
    return from_json(read_json(path), str(path))


def format_epochs(result: Mapping[str, Any]) -> str:
    """Return how many epochs a result is after, e.g. `"25"`, or `"18 of 25"` of a run that was ended early."""
    number = f"{result['epochs']} of {result['of_epochs']}" if "of_epochs" in result else str(result["epochs"])
    return f"{number} ({result['equivalents']:g} full-size)" if "equivalents" in result else number
