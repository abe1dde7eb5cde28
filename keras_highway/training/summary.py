"""What is printed at the end of a run: the metric, where the weights are, what to type next."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from keras_highway.data.datasets import DATA_VARIABLE, FOLDERS, folder_of
from keras_highway.tasks import format_metric, metric_name
from keras_highway.training.data.synthetic import PREFIX
from keras_highway.training.language_recipe import LanguageRecipe
from keras_highway.training.recipe import Recipe
from keras_highway.weights.info import FILE, format_epochs

_PROGRAM = "python -m keras_highway"


def summary(
    recipe: Recipe | LanguageRecipe, result: Mapping[str, Any], out: str | os.PathLike, data_dir: str | None
) -> str:
    """Return the lines.

    Args:
        recipe: What was trained.
        result: What its result.json holds.
        out: The run's folder.
        data_dir: The folder of its data as it was passed, or `None`.
    """
    metric = f"{metric_name(result)} {format_metric(dict(result))}"
    commands = "\n".join(f"  {_PROGRAM} {command}" for command in _next(recipe, str(out), data_dir))
    return (
        f"{recipe.name}: {metric} after {format_epochs(dict(result))} epochs\n"
        f"weights: {Path(out) / FILE}\nnext:\n{commands}"
    )


def _next(recipe, out: str, data_dir: str | None) -> list[str]:
    if recipe.data.startswith(PREFIX):  # made-up data: there is nothing to classify
        return [f"train {recipe.name.removesuffix('_tiny')} --data DIR"]
    # One word could be the name of weights, and would be looked up as such.
    folder = shlex.quote(out if len(Path(out).parts) > 1 else f"./{out}")
    # Where training found them: the other commands look there for sets of known names alone.
    elsewhere = not data_dir and recipe.data in FOLDERS and os.environ.get(DATA_VARIABLE)
    data_dir = str(folder_of(recipe.data, None)) if elsewhere else data_dir
    data = f" --data {shlex.quote(str(data_dir))}" if data_dir else ""
    if recipe.data.startswith("tfds:"):
        data = f" --tfds {shlex.quote(recipe.data.removeprefix('tfds:'))}{data}"
    from keras_highway.training.tasks import training_of  # which imports Keras; `--help` imports this

    commands = (*training_of(recipe.task).commands, "publish {folder} --repo ORG/NAME")
    return [command.format(folder=folder, data=data) for command in commands]
