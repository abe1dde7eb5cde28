"""Trained weights to the Hub and back: the files of a repository, bringing it up to date, verifying it."""

import dataclasses
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.files import read_bounded, read_log, sha256_of
from keras_highway._support.keras_models import by_path
from keras_highway.tasks import IMAGES, LANGUAGE
from keras_highway.weights import files, registry
from keras_highway.weights.card import CARD, CURVE, draw_curve, model_card, with_own_text
from keras_highway.weights.hub import HubName, Pushed, fetch, parse, parse_target, push
from keras_highway.weights.info import (
    FILE,
    RESULT,
    ROW,
    LongText,
    Text,
    WeightsInfo,
    check_field,
    convert,
    decode,
    described,
    read_result,
    read_row,
    to_json,
)
from keras_highway.weights.sources import is_elsewhere
from keras_highway.weights.torch_files import SAFETENSORS, read_safetensors
from keras_highway.weights.torch_names import torch_state
from keras_highway.weights.trained import CHECK, ClassifierWeights, LanguageModel, compare_check, weights_class
from keras_highway.weights.trained import write_check as write_check

RECIPE = "recipe.json"
_COPIED = (FILE, RESULT, RECIPE, "log.csv")
# All of them are in every bundle of a run. Next to a saved model, some of them may be a user's.
_OF_EVERY_RUN = (ROW, RESULT, RECIPE, "log.csv", CURVE)
_OF_A_RUN = {RESULT, RECIPE, "log.csv", CURVE, *(name for task in (IMAGES, LANGUAGE) for name in task.files)}
_LOG_OF_A_SEED = re.compile(r"log_seed\d+\.csv")
TrainedWeights = ClassifierWeights | LanguageModel


class Publishable(NamedTuple):
    """A folder of trained weights, and their record."""

    folder: Path
    row: WeightsInfo


def find_publishable(weights: str, dataset: str | None = None, license: str | None = None) -> Publishable:
    """Return the folder and the record of weights to publish."""
    fields = {"data": dataset, "licence": license}
    changes = {field: value for field, value in fields.items() if value is not None}
    for field, value in changes.items():
        check_field(field, value, "`dataset`" if field == "data" else "`license`")
    folder, row = _of_weights(weights)
    return Publishable(folder, dataclasses.replace(row, **changes))


def _of_weights(weights: str) -> Publishable:
    if weights not in registry.WEIGHTS and Path(weights).is_dir():
        return _of_run(Path(weights)) if (Path(weights) / RESULT).is_file() else _of_saved(Path(weights))
    row = registry.find(weights)
    if is_elsewhere(Path(weights), weights):
        raise ValueError(
            f"{weights!r} is a name in the zoo, and a folder of other weights here. To publish the folder write "
            f"'./{weights}'; to publish the zoo's, call this from another folder."
        )
    folder = registry.file_of(row).parent
    if not (folder / RESULT).is_file() and (folder / ROW).is_file():  # of a user's own zoo
        return _of_saved(folder)
    return _of_folder(folder, described(dataclasses.replace(row, folder=str(folder))))


def _of_saved(folder: Path) -> Publishable:
    """Return the publishable folder that `kh.save` wrote."""
    if not (folder / ROW).is_file() or not (folder / FILE).is_file():
        raise ValueError(f"{folder} is neither a finished run, with {RESULT}, nor a folder of kh.save, with {ROW}.")
    row, actual = read_row(folder / ROW), sha256_of(folder / FILE)
    if row.sha256 != actual:
        raise ValueError(f"{folder / FILE} is not the file of {ROW}: its sha256 is {actual}. Save the model again.")
    return Publishable(folder, row)


def _of_run(folder: Path) -> Publishable:
    published_files(folder, ())
    result = read_result(folder, of_run=True)
    stamp = files.read(folder / FILE).stamp
    if stamp.get("variant") != result["variant"]:
        raise ValueError(
            f"{folder / FILE} is of variant {stamp.get('variant')!r}, {RESULT} of {result['variant']!r}: they are "
            "not of one run."
        )
    known, sha256 = registry.WEIGHTS.get(result["weights"]), sha256_of(folder / FILE)
    if known is None or known.sha256 != sha256:  # weights that were trained again are not the table's
        known = weights_class(result["variant"]).new_row(result, stamp)
    return _of_folder(folder, dataclasses.replace(known, sha256=sha256, metrics=result, gate_report={}))


def _of_folder(folder: Path, row: WeightsInfo) -> Publishable:
    more = weights_class(row.variant).task.files
    published_files(folder, more)
    if missing := [name for name in (*_COPIED, *more) if not (folder / name).is_file()]:
        raise ValueError(f"{folder} is not a finished run: it has no {', '.join(missing)}.")
    check_epochs(folder, row.metrics)
    return Publishable(folder, row)


def published_files(folder: Path, more: tuple[str, ...]) -> list[Path]:
    """Return the files of a folder that go to the Hub: all of a run, only the weights of a saved model."""
    of_run = (folder / RESULT).is_file()
    names = (*(_COPIED if of_run else (FILE,)), *more)
    found = [p for p in sorted(folder.iterdir()) if p.name in names or (of_run and p.name.startswith("log_seed"))]
    for path in found:
        if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
            raise ValueError(
                f"{path} is a link to {path.resolve()}, or not a regular file, and is not published: put a copy in its "
                "place, or remove it."
            )
    return found


def check_epochs(folder: Path, result: Mapping[str, Any]) -> None:
    """Raise a `ValueError` for a run that was resumed after its result: its log has more epochs."""
    logged = len(read_log(folder / "log.csv"))
    if result.get("epochs", logged) != logged:
        raise ValueError(
            f"{folder / RESULT} is after {result['epochs']} epochs and log.csv has {logged}: the run has resumed. "
            "End it with `python -m keras_highway train ... --finish`."
        )


def write_bundle(publishable: Publishable, repository: str, folder: Path) -> TrainedWeights:
    """Write the files of a repository into a folder; the same weights give the same bytes."""
    from safetensors.numpy import save_file

    row, loader = publishable.row, weights_class(publishable.row.variant)
    for path in published_files(publishable.folder, loader.task.files):
        shutil.copyfile(path, folder / path.name)
    _write_json(folder / ROW, to_json(dataclasses.replace(row, repository="", revision="main", file=FILE)))
    recipe = _read_recipe(folder / RECIPE)
    weights = loader.open(row, folder / FILE)
    write_check(weights, folder / CHECK)
    names, arrays = named_arrays(weights.network)
    save_file(arrays, folder / SAFETENSORS, metadata={"format": names})  # two entries would come in random order
    _write_json(folder / "config.json", keras.saving.serialize_keras_object(weights.blank()))
    _write_json(folder / "metadata.json", {"keras_version": keras.__version__})
    if (folder / "log.csv").is_file():
        tested = "held-out" if row.metrics.get("holdout_images") else "test"
        draw_curve(folder / "log.csv", folder / CURVE, row.name, loader.task.metric.name, tested)
    own = publishable.folder / CARD
    text = read_bounded(own).decode("utf-8", "replace") if own.is_file() and not own.is_symlink() else ""
    (folder / CARD).write_text(with_own_text(model_card(row, repository, recipe, names == "pt"), text), "utf-8")
    return weights


def _read_recipe(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    values: Any = str | int | float | bool | None
    for _ in range(8):  # levels
        values = str | int | float | bool | None | list[values] | dict[str, values]
    recipe = decode(read_bounded(path), dict[str, values], str(path))
    for field, kind in (("name", Text), ("source", LongText)):
        convert(recipe.get(field, ""), kind, f"{path}: {field}")
    return recipe


def named_arrays(model: keras.Model) -> tuple[str, dict[str, np.ndarray]]:
    """Return the weights under PyTorch's names (`"pt"`) where they are known, else under Keras's (`"keras"`)."""
    try:
        return "pt", torch_state(model)
    except ValueError:
        weights = [w for w in model.weights if "seed_generator" not in w.path]
        to_numpy = keras.ops.convert_to_numpy
        return "keras", {path: np.ascontiguousarray(to_numpy(w)) for path, w in by_path(weights).items()}


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def publish(
    weights: str,
    repository: str,
    private: bool = False,
    dry_run: bool = False,
    *,
    dataset: str | None = None,
    license: str | None = None,
) -> Pushed:
    """Make a repository of trained weights, or bring it up to date.

    If it is interrupted, repeating the call gives the same repository: its files come in one commit, and then its tag.
    That commit also removes files of an earlier publication of a run that the new one lacks (its result, recipe, logs
    and their curve, a vocabulary): they are of other weights. Other files of the repository stay.
    """
    name = parse_target(repository)
    return _publish(find_publishable(weights, dataset, license), name, private, dry_run)


def _publish(publishable: Publishable, name: HubName, private: bool, dry_run: bool) -> Pushed:
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        write_bundle(publishable, name.repository, folder)

        def right(remote: dict[str, str]) -> set[str]:
            """Keep check and curve of the same weights: another processor and another matplotlib give other bytes.

            Keep also what a person wrote into the card on the Hub, unless there is a card in the folder.
            """
            if CARD in remote and not (publishable.folder / CARD).is_file():
                old = read_bounded(fetch(name, CARD)).decode("utf-8", "replace")
                (folder / CARD).write_text(with_own_text((folder / CARD).read_text("utf-8"), old), "utf-8")
            return {CHECK, CURVE} & remote.keys() if remote.get(FILE) == sha256_of(folder / FILE) else set()

        pushed = push(folder, name.repository, private, dry_run, right, of_a_run)
    known = registry.WEIGHTS.get(publishable.row.name)
    same = known is not None and known.sha256 == publishable.row.sha256  # not a user's own run under its name
    if same and registry.in_checkout() and not dry_run and not private:
        registry.note_repository(publishable.row.name, {"repository": pushed.repository, "revision": pushed.commit})
    return pushed


def of_a_run(repository: Collection[str]) -> set[str]:
    """Return the files of a repository that only the publication of a run has, if it was published from a run."""
    if not all(name in repository for name in _OF_EVERY_RUN):
        return set()
    return {name for name in repository if name in _OF_A_RUN or _LOG_OF_A_SEED.fullmatch(name)}


def publish_all(
    organization: str,
    private: bool = False,
    dry_run: bool = False,
    on_pushed: Callable[[Pushed], object] = lambda pushed: None,
) -> list[Pushed]:
    """Publish every weight of the table that has a folder here, each as `organization/<its name>`."""
    names = [name for name in registry.list_weights() if any((f / FILE).is_file() for f in registry.folders(name))]
    if not names:
        raise ValueError(
            f"No weights have a folder here: set {registry.ZOO_VARIABLE}, or name the folder of a run instead of --all."
        )
    found = [(find_publishable(name), parse_target(f"{organization}/{name}")) for name in names]
    for publishable, _ in found:
        files.read(publishable.folder / FILE, publishable.row.sha256, f"the row of {publishable.row.name!r}")
    done = []
    for publishable, target in found:
        done.append(_publish(publishable, target, private, dry_run))
        on_pushed(done[-1])
    return done


class Verification(NamedTuple):
    """Weights that passed verification."""

    weights: TrainedWeights  # the weights, loaded
    difference: float  # the largest difference from `check.npz`, relative to the largest logit where that is above 1

    @property
    def row(self) -> WeightsInfo:
        """The record of the weights."""
        return self.weights.row


def verify(repository: str) -> Verification:
    """Download a repository into an empty cache, compare hashes and weights, and compute its `check.npz` again."""
    name = parse(repository)
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as cache:
        row = read_row(fetch(name, ROW, Path(cache)))
        if not row.sha256:
            raise ValueError(f"{ROW} of {name} does not name the sha256 of its weights.")
        loader = weights_class(row.variant)
        path, *_, check, copy = (
            fetch(name, file, Path(cache)) for file in (FILE, *loader.task.files, CHECK, SAFETENSORS)
        )
        files.read(path, row.sha256, f"{ROW} of {name}")
        weights = loader.open(row, path)
        difference = compare_check(weights, check)
        copied, arrays = read_safetensors(copy), named_arrays(weights.network)[1]
    same = copied.keys() == arrays.keys() and all(np.array_equal(copied[key], value) for key, value in arrays.items())
    if not same:
        raise ValueError(f"{SAFETENSORS} of {name} does not hold the weights of {FILE}.")
    return Verification(weights, difference)
