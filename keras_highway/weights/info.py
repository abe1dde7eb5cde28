"""The record of a trained weight: the same in weights.json, in the weight file and on a loaded model."""

import dataclasses
import reprlib
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Required, TypedDict, TypeVar

import msgspec
from msgspec import Meta

from keras_highway._support.files import read_bounded
from keras_highway._support.schema import refuse, reworded
from keras_highway._support.terminal import PRINTED, Notice
from keras_highway.data.transforms import Transform
from keras_highway.tasks import task_of

if TYPE_CHECKING:
    import keras  # `--help` and lists do not wait for it

FILE = "model.weights.h5"
ROW = "weights.json"
RESULT = "result.json"
GATES = "gates.json"

Text = Annotated[str, Meta(max_length=200, pattern=PRINTED)]
LongText = Annotated[str, Meta(max_length=1000, pattern=PRINTED)]
ClassName = Annotated[str, Meta(max_length=255, pattern=PRINTED)]  # folders have such names, too
ClassNames = Annotated[tuple[ClassName, ...], Meta(max_length=100_000)]
# The name of a folder, or `org/name` of third-party weights; never a path.
_SEGMENT = r"(?!\.\.?(?:/|\Z))[^/\\:\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+"
RowName = Annotated[str, Meta(max_length=200, pattern=rf"^(?:{_SEGMENT}(?:/{_SEGMENT})?)?\Z")]
FolderName = Annotated[str, Meta(max_length=200, pattern=rf"^(?!\.){_SEGMENT}\Z")]
Sha256 = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
Count = Annotated[int, Meta(ge=0, le=10**12)]
Number = Annotated[float, Meta(ge=-1e12, le=1e12)]
Overrides = Annotated[Mapping[Text, Any], Meta(max_length=50)]
Removed = Annotated[tuple[Annotated[str, Meta(max_length=120, pattern=PRINTED)], ...], Meta(max_length=2000)]
Activation = Literal["softmax", "linear", "sigmoid"]
KindT = TypeVar("KindT")


class WeightFileError(ValueError):
    """A file that holds no weights, is damaged, or does not match its own description; the message names it."""


class UncheckedWeights(Notice):
    """Weights were loaded from a file without a hash, so that its numbers cannot be compared with those saved."""


class _Stored(TypedDict, total=False):
    dtype: Required[Text]
    test_accuracy: Annotated[float, Meta(ge=0, le=1)]
    test_perplexity: Annotated[float, Meta(ge=1, le=1e12)]


class _Result(TypedDict, total=False):
    """A result.json."""

    metric: Required[Text]
    mean: Required[Number]
    std: Required[Annotated[float, Meta(ge=0, le=1e12)] | None]
    n: Required[Annotated[int, Meta(ge=1, le=10**6)]]
    weights: FolderName
    variant: Text
    data: LongText
    class_names: ClassNames
    seeds: list[Annotated[int, Meta(ge=-(10**12), le=10**12)]]
    values: list[Number]
    epochs: Count
    of_epochs: Count
    equivalents: Annotated[float, Meta(ge=0, le=1e12)]
    epoch_reported: Text
    test_tokens: Count | None
    holdout_images: Count | None
    test_images: Count | None
    valid_perplexity: Annotated[float, Meta(ge=1, le=1e12)]
    top5: Annotated[float, Meta(ge=0, le=1)]
    precision: Text
    hardware: LongText
    commit: Text | None
    commit_changes: list[Text | None]
    backend: Text
    stored: _Stored


class _Moments(TypedDict):
    mean: Number
    variance: Number


class _Gates(TypedDict, total=False):
    t: _Moments
    c: _Moments


class _GateReport(TypedDict, total=False):
    """A gates.json."""

    samples: Required[Count]
    blocks: Required[dict[Text, _Gates]]
    sha256: Text
    of: Text


@dataclass(frozen=True, kw_only=True)
class WeightsInfo:
    """A trained weight."""

    name: RowName = ""  # `<variant>.<tag>` in the zoo; any name of a user's own
    variant: Text  # the architecture, `""` if unknown
    data: LongText = ""  # the data set, `""` if unknown
    recipe: Text = ""  # the recipe that trained it
    classes: ClassNames = ()  # names of the classes, in order; none of a language model
    transform: Transform | None = None  # the transform of its images; None of a language model
    sha256: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""  # hash of the file, `""` if unknown
    licence: LongText = ""  # licence of the weights
    data_licence: LongText = ""  # licence of the data set
    origin: LongText = ""  # source of third-party weights
    repository: Text = ""  # `org/name` on the Hub, `""` if it is not there
    revision: Text = "main"  # its commit or tag there
    file: Text = FILE  # its file there. A `.safetensors` file has PyTorch's names and is converted
    metrics: Mapping[str, Any] = field(default_factory=dict, hash=False)  # metric, mean, std, n, seeds, ...
    # mean and variance of each learned gate of every block
    gate_report: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # fields of the spec that differ from the variant's, as JSON values
    overrides: Overrides = field(default_factory=dict, hash=False)
    removed: Removed = ()  # names of blocks that were left out, as `analysis.trim` does
    activation: Activation = "softmax"  # of the head; `linear` gives logits
    # SHA-256 of the words of a language model, or `""`
    vocabulary: Annotated[str, Meta(pattern=r"^([0-9a-f]{64})?\Z")] = ""
    folder: str = field(default="", compare=False)  # local folder of the file; not in the JSON form

    @property
    def images(self) -> Transform:
        """The transform of images; raise a `ValueError` for a language model."""
        if self.transform is None:
            raise ValueError(
                f"{self.name!r} is a language model: it reads words, not images. Use keras_highway.CharLM, or "
                "`python -m keras_highway lm --help`."
            )
        return self.transform

    def scores(self, outputs: int | None) -> str:
        """Return the activation that makes probabilities of the logits of a head."""
        return "sigmoid" if self.activation == "sigmoid" or (self.activation, outputs) == ("linear", 1) else "softmax"

    def derived(self, **changes: Any) -> "WeightsInfo":
        """Return the record of a model made of this one: its file and its measurements are not the model's."""
        none = {"name": "", "sha256": "", "metrics": {}, "gate_report": {}, "folder": ""}
        return dataclasses.replace(self, **none, **changes)


# The required fields of a weights.json, which have defaults on a record made here.
_REQUIRED = ("name", "variant", "data", "recipe", "classes", "transform", "sha256")
# Not in the row of a folder: its other files hold them, or `publish` notes them.
_BESIDE = ("metrics", "gate_report", "repository", "revision", "file")
_RECORDS: "weakref.WeakKeyDictionary[keras.Model, WeightsInfo]" = weakref.WeakKeyDictionary()


def note_info(model: "keras.Model", info: WeightsInfo | None) -> None:
    """Note the record of a model for as long as the model lives; None changes nothing. Keras's own copies have none."""
    if info is not None:
        _RECORDS[model] = info


def info_of(model: "keras.Model") -> WeightsInfo | None:
    """Return the record of a model, None if it was not built by this package."""
    return _RECORDS.get(model)


def decode(content: str | bytes, kind: type[KindT], where: str) -> KindT:
    """Return the values of a JSON text as a type; raise a `ValueError` that names the text where it is another."""
    # Not JSON, not UTF-8, another type or range.
    with reworded(f"{where} is malformed", (msgspec.MsgspecError, ValueError, RecursionError)):
        return msgspec.json.decode(content, type=kind)


def convert(value: Any, kind: type[KindT], where: str) -> KindT:
    """Return a value as a type; raise a `ValueError` that names it where it does not fit."""
    try:
        return msgspec.convert(value, kind)
    except (msgspec.MsgspecError, ValueError) as error:
        raise ValueError(f"{where} is malformed: {str(error)[:300]}. Received: {reprlib.repr(value)}") from error


def check_field(name: str, value: Any, where: str) -> None:
    """Raise a `ValueError` for a value that a field of `WeightsInfo` cannot have."""
    convert({"variant": "", name: value}, WeightsInfo, where)


def check_name(value: Any, where: str) -> None:
    """Raise a `ValueError` for a name that no folder of weights can have."""
    convert(value, FolderName, where)


def to_json(row: WeightsInfo) -> dict[str, Any]:
    """Return a record as JSON values; rare fields are left out where they are empty."""
    values = msgspec.to_builtins(row, enc_hook=lambda value: value.item())  # NumPy's numbers
    del values["folder"]
    if row.activation == "softmax":
        del values["activation"]
    return {key: value for key, value in values.items() if value or key not in ("overrides", "removed", "vocabulary")}


def row_in_folder(row: WeightsInfo) -> dict[str, Any]:
    """Return the JSON values of a record in the weights.json of a folder of the zoo."""
    return {key: value for key, value in to_json(row).items() if key not in _BESIDE}


def from_json(values: Any, where: str = "The description of the weights") -> WeightsInfo:
    """Return the record of JSON values; unknown keys are ignored."""
    row = convert(values, WeightsInfo, where)
    missing = ", ".join(name for name in _REQUIRED if name not in values)
    text = f"{where} is malformed: images need `classes` and `transform`, a language model has neither."
    refuse(
        (missing, f"{where} is incomplete: it has no {missing}."), ((row.transform is None) == bool(row.classes), text)
    )
    if row.metrics:
        check_result(row.metrics, where)
    if row.gate_report:
        _check_gates(row.gate_report, where)
    return row


def check_result(values: Any, where: str, of_run: bool = False) -> None:
    """Raise a `ValueError` for values that are no result.json, or, if requested, of no finished run."""
    result = convert(values, _Result, where)
    missing = [name for name in ("weights", "variant", "data") if of_run and name not in result]
    low, high = task_of(dict(result)).metric.bounds
    if missing or not all(low <= value <= high for value in (result["mean"], *result.get("values", ()))):
        wrong = f"it has no {', '.join(missing)}" if missing else f"its {result['metric']} is out of range"
        raise ValueError(f"{where} is malformed: {wrong}.")


def _check_gates(values: Any, where: str) -> None:
    if not all(convert(values, _GateReport, where)["blocks"].values()):
        raise ValueError(f"{where} is malformed: a block has no gate.")


def read_row(path: Path) -> WeightsInfo:
    """Return the record in a weights.json, with its folder; raise a `ValueError` if it is malformed."""
    row = from_json(decode(read_bounded(path), dict[str, Any], str(path)), str(path))
    return dataclasses.replace(row, folder=str(path.parent))


def read_result(folder: Path, of_run: bool = False) -> dict[str, Any]:
    """Return the values of a folder's result.json, `{}` without one; raise a `ValueError` if malformed."""
    path = folder / RESULT
    if not of_run and not path.is_file():
        return {}
    values = decode(read_bounded(path), dict[str, Any], str(path))
    check_result(values, str(path), of_run)
    return values


def described(row: WeightsInfo) -> WeightsInfo:
    """Return a record with the measurements in its folder; gates of replaced weights are left out."""
    if not row.folder:
        return row
    metrics, path = read_result(Path(row.folder)), Path(row.folder) / GATES
    gates = decode(read_bounded(path), dict[str, Any], str(path)) if path.is_file() else {}
    if gates:
        _check_gates(gates, str(path))
    if gates.get("sha256") != row.sha256:
        gates = {}
    return dataclasses.replace(row, metrics=metrics or row.metrics, gate_report=gates or row.gate_report)


def format_epochs(result: Mapping[str, Any]) -> str:
    """Return the epochs of a result, e.g. `"25"`, or `"18 of 25"` of a run that was ended early."""
    number = f"{result['epochs']} of {result['of_epochs']}" if "of_epochs" in result else str(result["epochs"])
    return f"{number} ({result['equivalents']:g} full-size)" if "equivalents" in result else number
