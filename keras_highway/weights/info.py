"""What is known of a trained weight file, and the same as JSON: the `weights.json` of a repository on the Hub."""

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keras_highway.data.transforms import MEAN_IMAGES, Transform

FILE = "model.weights.h5"
ROW = "weights.json"  # beside it


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
        licence: Of the weights.
        data_licence: What is known of the data set's terms.
        origin: Who trained it, where it is not this project.
        repository: `org/name` on the Hub, `""` if it is not there.
        revision: Its commit or tag there.
        file: Its file there. A `.safetensors` file has PyTorch's names and is
            converted.
        metrics: What was measured: metric, mean, std, n, seeds, ...
        gate_report: Mean and variance of the transform gate of every block.
    """

    name: str
    variant: str
    data: str
    recipe: str
    classes: tuple[str, ...]
    transform: Transform | None
    sha256: str
    licence: str = "Apache-2.0"
    data_licence: str = ""
    origin: str = ""
    repository: str = ""
    revision: str = "main"
    file: str = FILE
    metrics: Mapping[str, Any] = field(default_factory=dict, hash=False)
    gate_report: Mapping[str, Any] = field(default_factory=dict, hash=False)

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


def to_json(row: WeightsInfo) -> dict[str, Any]:
    """Returns a row as JSON values."""
    return {**dataclasses.asdict(row), "classes": list(row.classes)}


# Not in the row of a folder: what files beside it hold, and its place on the Hub, which `publish` notes.
_BESIDE = ("metrics", "gate_report", "repository", "revision", "file")


def row_in_folder(row: WeightsInfo) -> dict[str, Any]:
    """Returns what the `weights.json` of a folder of the zoo says of a row, as JSON values."""
    return {key: value for key, value in to_json(row).items() if key not in _BESIDE}


def from_json(values: Any) -> WeightsInfo:
    """Returns the row that JSON values describe.

    Args:
        values: What `to_json` made. Unknown keys, those of later versions,
            are ignored.

    Raises:
        ValueError: If something is missing or of another type.
    """
    try:
        transform = None if values["transform"] is None else _picked(Transform, values["transform"])
        row = WeightsInfo(
            **{
                **_picked_values(WeightsInfo, values),
                "classes": tuple(values["classes"]),
                "transform": transform,
            }
        )
        _check(row)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"The description of the weights is incomplete or malformed: {error!r}.") from error
    return row


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


def _picked_values(cls, values) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {key: value for key, value in values.items() if key in names}


def _picked(cls, values):
    lists = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return cls(**_picked_values(cls, lists))


def _check(row: WeightsInfo) -> None:
    texts = (row.name, row.variant, row.data, row.recipe, row.sha256, row.licence, *row.classes)
    mappings = all(isinstance(mapping, Mapping) for mapping in (row.metrics, row.gate_report))
    if not all(isinstance(text, str) for text in texts) or not mappings:
        raise TypeError("a text or a table is not one")
    if (row.transform is None) != (not row.classes):
        raise TypeError("images need classes and a transform, a language model has neither")
    if row.transform is not None:
        _check_transform(row.transform)


def _check_transform(transform: Transform) -> None:
    numbers = (transform.scale, transform.crop, *transform.mean, *transform.std)
    sizes = (*transform.size, transform.channels)
    if not (
        all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
        and all(isinstance(n, int) and n > 0 for n in sizes)
        and len(transform.size) == 2
        and transform.mean_image in ("", *MEAN_IMAGES)
    ):
        raise TypeError("a number or a size of the transform is not one")


def format_epochs(result: dict) -> str:
    """Returns how many epochs a result is after, e.g. `"25"`, or `"18 of 25"` of a run that was ended early."""
    return f"{result['epochs']} of {result['of_epochs']}" if "of_epochs" in result else str(result["epochs"])
