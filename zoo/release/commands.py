"""The command that trains an entry of the zoo again: its recipe, and what differed when it was trained."""

import json
from pathlib import Path

from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import defaults_of, differences

_NAMES = ("name", "weights", "source", "seed")  # texts about a recipe, and what `seeds` records


def command_of(folder: Path) -> str:
    """Return the command that trains an entry's seeds again, as the recipes are now.

    Args:
        folder: The entry, with its `recipe.json` and `result.json`.

    Raises:
        ValueError: If the entry's recipe has a field that recipes no longer
            have, or lacks one of the network's that the recipe has now.
    """
    trained = json.loads((folder / "recipe.json").read_text("utf-8"))
    seeds = json.loads((folder / "result.json").read_text("utf-8"))["seeds"]
    recipe = RECIPES[trained["name"]]
    changes = differences(trained, recipe.to_dict(), defaults_of(recipe))
    other = {field: value for field, value in changes.items() if field not in _NAMES}
    if gone := other.keys() - recipe.to_dict().keys():
        raise ValueError(
            f"{folder} was trained with settings that its recipe no longer has: {', '.join(sorted(gone))}."
        )
    net = dict(other.pop("overrides", ()))
    if unset := dict(recipe.overrides).keys() - net.keys() if net else ():
        raise ValueError(f"{folder} was trained without settings of its recipe's net: {', '.join(sorted(unset))}.")
    parts = [f"python -m keras_highway train {trained['name']} --data DIR"]
    parts += [f'--set "net.{field}={_value(value)}"' for field, value in net.items()]
    parts += [f'--set "{field}={_value(value)}"' for field, value in other.items()]
    if len(seeds) > 1:  # a run's folder is one seed's
        parts.append(f"--set seed=N --out runs/{trained['name']}/N (N = {', '.join(map(str, seeds))})")
    elif seeds != [recipe.seed]:
        parts.append(f"--set seed={seeds[0]}")
    return " ".join(parts)


def _value(value):
    return "()" if value == [] else value
