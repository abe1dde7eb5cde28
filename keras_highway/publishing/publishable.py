"""What can be published: a finished run's folder, or weights of the zoo."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from keras_highway._support.files import read_log, sha256_of
from keras_highway._support.schema import Fields, Text, read_json
from keras_highway.publishing.by_task import weights_class
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import FILE, ROW, RUN_RESULT, WeightsInfo, check_field, read_row
from keras_highway.weights.resolve import is_elsewhere

RESULT = "result.json"
RECIPE = Fields({}, {"name": Text(), "source": Text(1000)})
_COPIED = (FILE, RESULT, "recipe.json", "log.csv")


class Publishable(NamedTuple):
    """A folder of trained weights.

    Attributes:
        folder: It holds `model.weights.h5`, `result.json`, `recipe.json`,
            `log.csv` and, of a language model, `vocabulary.json`.
        row: What is known of the weights.
    """

    folder: Path
    row: WeightsInfo


def find_publishable(weights: str, dataset: str | None = None, license: str | None = None) -> Publishable:
    """Return the folder and the row of what is to be published.

    Args:
        weights: The folder of a finished run, or the name of weights whose
            folder is in the checkout, in `KERAS_HIGHWAY_ZOO` or in the wheel;
            or a folder that `kh.save` wrote.
        dataset: What they were trained on, where the run does not know it.
            Defaults to what is known.
        license: Of the weights. Defaults to what is known.

    Raises:
        ValueError: If there is none, if it is not finished, or if its weights
            are not those of its row.
    """
    for argument, field, value in (("dataset", "data", dataset), ("license", "licence", license)):
        if value is not None:
            check_field(field, value, f"`{argument}`")
    publishable = _of_weights(weights)
    fields = {"data": dataset, "licence": license}
    row = dataclasses.replace(publishable.row, **{key: value for key, value in fields.items() if value is not None})
    return publishable._replace(row=row)


def _of_weights(weights: str) -> Publishable:
    if weights not in registry.WEIGHTS and Path(weights).is_dir():
        return _of_run(Path(weights)) if (Path(weights) / RESULT).is_file() else _of_saved(Path(weights))
    row = registry.get(weights)
    if weights in registry.WEIGHTS and is_elsewhere(Path(weights), weights):
        raise ValueError(
            f"{weights!r} is the name of weights of the zoo, and here also a folder of others. To publish the folder "
            f"write './{weights}'; for the zoo's, call this from elsewhere."
        )
    folder = registry.file_of(row).parent
    if not (folder / RESULT).is_file() and (folder / ROW).is_file():  # of a zoo of the user's own
        return _of_saved(folder)
    return _of_folder(folder, registry.described(row))


def published_files(folder: Path, more: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder that go to the Hub, of a run `log_seed*` among them.

    Recipe and logs are taken only where there is a result: beside a saved
    model they are a user's own, and tell nothing of how it was trained.

    Args:
        folder: Of a run, of the zoo or of a saved model.
        more: Names that weights of their task have besides.

    Raises:
        ValueError: If one links outside of the folder, or is not a regular
            file: what lies there is not the run's, and may be secret.
    """
    of_run = (folder / RESULT).is_file()
    names = (*(_COPIED if of_run else (FILE,)), *more)
    files = [p for p in sorted(folder.iterdir()) if p.name in names or (of_run and p.name.startswith("log_seed"))]
    for path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{path} is a link to {path.resolve()}, outside of the run's folder, and is not published: put a copy "
                "in its place if that file is meant."
            )
        if not path.is_file():
            raise ValueError(f"{path} is not a regular file and is not published: remove it.")
    return files


def zoo_names() -> list[str]:
    """Return the names of all weights of the table that have a folder here."""
    return [name for name in registry.list_weights() if any((f / FILE).is_file() for f in registry.folders(name))]


def _of_folder(folder, row) -> Publishable:
    more = weights_class(row.variant).task.files
    published_files(folder, more)
    needed = (*_COPIED, *more)
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing:
        raise ValueError(f"{folder} is not a finished run: it has no {', '.join(missing)}.")
    check_epochs(folder, row.metrics)
    return Publishable(folder, row)


def check_epochs(folder: Path, result: Mapping[str, Any]) -> None:
    """Raise where a run went on after its result: its weights are not those of the last line of the log.

    Args:
        folder: Of the run.
        result: What its result.json holds.

    Raises:
        ValueError: If the log has another number of epochs than the result.
    """
    logged = len(read_log(folder / "log.csv"))
    if result.get("epochs", logged) != logged:
        raise ValueError(
            f"{folder / RESULT} is after {result['epochs']} epochs and log.csv has {logged}: the run has resumed. "
            "End it with `python -m keras_highway train ... --finish`."
        )


def _of_saved(folder) -> Publishable:
    """Return the publishable folder that `kh.save` wrote."""
    if not (folder / ROW).is_file() or not (folder / FILE).is_file():
        raise ValueError(
            f"{folder} holds no finished run: there is no {folder / RESULT}. Nor did kh.save write it: there is no "
            f"{ROW} with a {FILE}."
        )
    row, actual = read_row(folder / ROW), sha256_of(folder / FILE)
    if row.sha256 != actual:
        raise ValueError(f"{folder / FILE} is not the file of {ROW}: its sha256 is {actual}. Save the model anew.")
    return Publishable(folder, row)


def _of_run(folder) -> Publishable:
    published_files(folder, ())
    result = read_json(folder / RESULT, RUN_RESULT)
    stamp = weights_file.read(folder / FILE).stamp
    if stamp.get("variant") != result["variant"]:
        raise ValueError(
            f"{folder / FILE} is of variant {stamp.get('variant')!r}, {RESULT} of {result['variant']!r}: they are "
            "not of one run."
        )
    known, sha256 = registry.WEIGHTS.get(result["weights"]), sha256_of(folder / FILE)
    if known is None or known.sha256 != sha256:  # weights that were trained anew are not the table's
        known = weights_class(result["variant"]).new_row(result, stamp)
    return _of_folder(folder, dataclasses.replace(known, sha256=sha256, metrics=result, gate_report={}))
