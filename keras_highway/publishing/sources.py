"""What can be published: a finished run's folder, or weights of the zoo."""

import dataclasses
import json
from pathlib import Path
from typing import NamedTuple

from keras_highway import weights as zoo
from keras_highway import weights_file
from keras_highway.transforms import CLASSES, TRANSFORMS, imagenet_classes
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights_row import FILE, WeightsRow

RESULT = "result.json"


class Publishable(NamedTuple):
    """A folder of trained weights.

    Attributes:
        folder: It holds `model.weights.h5`, `result.json`, `recipe.json` and
            `log.csv`.
        row: What is known of the weights.
    """

    folder: Path
    row: WeightsRow


def find_publishable(source: str) -> Publishable:
    """Returns the folder and the row of what is to be published.

    Args:
        source: The folder of a finished run, or the name of weights whose
            folder is in the checkout, in `KERAS_HIGHWAY_ZOO` or in the wheel.

    Raises:
        ValueError: If there is none, if it is not finished, if its weights
            are not those of its row, or if they are a language model's.
    """
    if source not in zoo.WEIGHTS and Path(source).is_dir():
        return _of_run(Path(source))
    row = zoo.get(source)
    _refuse_language_models(row.variant)
    zoo.file_of(row)  # its hash is right
    return _of_folder(next(f for f in zoo.folders(source) if (f / FILE).is_file()), zoo.described(row))


def zoo_names() -> list[str]:
    """Returns the names of all weights of the table that have a folder here."""
    return [name for name in zoo.list_weights() if any((f / FILE).is_file() for f in zoo.folders(name))]


def is_publishable(name: str) -> bool:
    """Whether weights of the table can be published: those of image nets."""
    return zoo.get(name).transform is not None


def _refuse_language_models(variant) -> None:
    if variant in LM_VARIANTS:
        raise ValueError(
            "Language models cannot be published yet: a repository's card and check are made for images. "
            f"keras_highway.CharLM loads one from hf://org/name that holds {FILE} and vocabulary.json. "
            f"Received: weights of {variant!r}"
        )


def _of_folder(folder, row) -> Publishable:
    missing = [name for name in (FILE, RESULT, "recipe.json", "log.csv") if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is no finished run: it has no {', '.join(missing)}.")
    return Publishable(folder, row)


def _of_run(folder) -> Publishable:
    if not (folder / RESULT).is_file():
        raise ValueError(f"{folder} holds no finished run: there is no {folder / RESULT}.")
    result = json.loads((folder / RESULT).read_text("utf-8"))
    stamp = weights_file.read_stamp(folder / FILE)
    if stamp.get("variant") != result["variant"]:
        raise ValueError(
            f"{folder / FILE} is of variant {stamp.get('variant')!r}, {RESULT} of {result['variant']!r}: they are "
            "not of one run."
        )
    _refuse_language_models(result["variant"])
    known = zoo.WEIGHTS.get(result["weights"])
    row = known or _new_row(result, stamp["classes"], stamp.get("transform"))
    sha256 = weights_file.sha256(folder / FILE)
    return _of_folder(folder, dataclasses.replace(row, sha256=sha256, metrics=result, gate_report={}))


def _new_row(result, classes, transform) -> WeightsRow:
    """The row of weights that are not in the table."""
    data = result["data"]
    if data not in TRANSFORMS:
        raise ValueError(f"Unknown data set. Known: {', '.join(TRANSFORMS)}. Received: {data!r} in {RESULT}")
    names = tuple(name for _, name in imagenet_classes()) if data == "imagenet" else CLASSES.get(data, ())
    return WeightsRow(
        name=result["weights"],
        variant=result["variant"],
        data=data,
        recipe=result["weights"].split(".")[0],
        classes=names if len(names) == classes else tuple(map(str, range(classes))),
        transform=TRANSFORMS[transform or data],
        sha256="",
    )
