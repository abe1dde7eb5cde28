"""`python -m zoo.release.cards [NAME...]`: writes the cards of the zoo, with their curves.

A card is what `publish` sends as the README.md of a repository, here with
`org/name` for its name.
"""

import argparse
import json
from pathlib import Path

import keras_highway as kh
from keras_highway._support.files import atomic_write
from keras_highway._support.keras_models import without_values
from keras_highway.weights import registry
from keras_highway.weights.card import CURVE, draw_curve, model_card
from keras_highway.weights.card import described as described
from keras_highway.weights.registry import WeightsInfo
from keras_highway.weights.torch_names import torch_variables

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "zoo" / "weights"
REPOSITORY = "org/name"
CARD = "card.md"


def write_card(row: WeightsInfo, folder: Path) -> None:
    """Write card and curve of weights into their folder.

    Args:
        row: The weights, with what was measured.
        folder: It holds `recipe.json` and `log.csv`.
    """
    draw_curve(folder / "log.csv", folder / CURVE, row.name, kh.get_spec(row.variant).task.metric.name)
    text = card(row, folder)
    atomic_write(folder / CARD, lambda partial: partial.write_text(text, "utf-8"))


def card(row: WeightsInfo, folder: Path) -> str:
    """Return the text of a card; arguments as in `write_card`."""
    recipe = json.loads((folder / "recipe.json").read_text("utf-8"))
    return model_card(row, REPOSITORY, recipe, _has_torch_names(row.variant), shipped=True)


def _has_torch_names(variant) -> bool:
    model = without_values(lambda: kh.create_model(variant))
    try:
        torch_variables(model)
    except ValueError:
        return False
    return True


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.cards", description=__doc__)
    parser.add_argument("names", nargs="*", help="weights (default: all that have a folder in the zoo)")
    arguments = parser.parse_args(argv)
    for name in arguments.names or sorted(path.parent.name for path in ZOO.glob("[!.]*/result.json")):
        write_card(registry.described(registry.find(name)), ZOO / name)
        print(f"{ZOO / name / CARD}: written")


if __name__ == "__main__":
    main()
