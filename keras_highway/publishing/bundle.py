"""What a repository on the Hub holds: weights, their copy in safetensors, config, card, results, a check, a curve."""

import dataclasses
import json
import re
import shutil
from collections.abc import Collection
from pathlib import Path

import keras
import numpy as np

from keras_highway._support.keras_models import by_path
from keras_highway._support.schema import read_json
from keras_highway.convert import torch_state
from keras_highway.publishing.by_task import weights_class
from keras_highway.publishing.card import model_card
from keras_highway.publishing.check import CHECK, write_check
from keras_highway.publishing.curve import CURVE, draw_curve
from keras_highway.publishing.publishable import RECIPE, RESULT, Publishable, published_files
from keras_highway.publishing.task_weights import TaskWeights
from keras_highway.tasks import IMAGES, LANGUAGE
from keras_highway.weights.info import FILE, ROW, to_json

SAFETENSORS = "model.safetensors"
# All of them are in every bundle of a run. Some of them beside a saved model may be a user's.
_OF_EVERY_RUN = (ROW, RESULT, "recipe.json", "log.csv", CURVE)
_OF_A_RUN = {RESULT, "recipe.json", "log.csv", CURVE, *(name for task in (IMAGES, LANGUAGE) for name in task.files)}
_LOG_OF_A_SEED = re.compile(r"log_seed\d+\.csv")


def write_bundle(publishable: Publishable, repository: str, folder: Path) -> TaskWeights:
    """Write the files of a repository into a folder; the same weights give the same bytes.

    Args:
        publishable: What is published.
        repository: `org/name`, for the card.
        folder: An empty folder.

    Returns:
        The weights, loaded.

    Raises:
        ValueError: If the weights do not fit their variant, or a file is not
            what it should be.
    """
    row, loader = publishable.row, weights_class(publishable.row.variant)
    for path in published_files(publishable.folder, loader.task.files):
        shutil.copyfile(path, folder / path.name)
    _write_json(folder / ROW, to_json(dataclasses.replace(row, repository="", revision="main", file=FILE)))
    known = folder / "recipe.json"
    recipe = read_json(known, RECIPE) if known.is_file() else {}
    weights = loader.open(row, folder / FILE)
    write_check(weights, folder / CHECK)
    names, arrays = named_arrays(weights.network)
    _write_safetensors(arrays, names, folder / SAFETENSORS)
    configuration = keras.saving.serialize_keras_object(weights.with_softmax())
    _write_json(folder / "config.json", configuration)
    _write_json(folder / "metadata.json", {"keras_version": keras.__version__})
    if (folder / "log.csv").is_file():
        tested = "held-out" if row.metrics.get("holdout_images") else "test"
        draw_curve(folder / "log.csv", folder / CURVE, row.name, loader.task.metric.name, tested)
    (folder / "README.md").write_text(model_card(row, repository, recipe, names == "pt"), "utf-8")
    return weights


def of_a_run(repository: Collection[str]) -> set[str]:
    """Return the files that only the bundles of runs have, where the repository was published from a run.

    Beside other weights they would state a result that is not theirs.

    Args:
        repository: Its files.
    """
    if not all(name in repository for name in _OF_EVERY_RUN):
        return set()
    return {name for name in repository if name in _OF_A_RUN or _LOG_OF_A_SEED.fullmatch(name)}


def named_arrays(model: keras.Model) -> tuple[str, dict[str, np.ndarray]]:
    """Return the weights as `model.safetensors` holds them, and whose names they have.

    Args:
        model: The network.

    Returns:
        `("pt", PyTorch's state dict)` where the network has a PyTorch layout,
        else `("keras", dict by the paths of Keras's variables)`.
    """
    try:
        return "pt", torch_state(model)
    except ValueError:
        weights = [w for w in model.weights if "seed_generator" not in w.path]
        to_numpy = keras.ops.convert_to_numpy
        return "keras", {path: np.ascontiguousarray(to_numpy(w)) for path, w in by_path(weights).items()}


def _write_safetensors(arrays, names, path) -> None:
    from safetensors.numpy import save_file

    save_file(arrays, path, metadata={"format": names})  # two entries would come in random order


def _write_json(path, value) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
