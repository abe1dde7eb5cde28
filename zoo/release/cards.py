"""`python -m zoo.release.cards [NAME...]`: writes the cards of the zoo, with their curves.

A card is the README.md that `publish` sends, with `org/name` as its
repository. With `--gates --data DIR` the gates are measured first.
"""

import argparse
from pathlib import Path

import keras_highway as kh
from keras_highway._support.files import atomic_write, atomic_write_json
from keras_highway._support.keras_models import without_values
from keras_highway.gating import get_gating
from keras_highway.weights import registry
from keras_highway.weights.card import CURVE, draw_curve, gating_of, model_card
from keras_highway.weights.card import described as described
from keras_highway.weights.registry import WeightsInfo
from keras_highway.weights.torch_names import torch_variables
from keras_highway.weights.trained import weights_class
from training import read_json

ROOT = Path(__file__).resolve().parents[2]
ZOO = ROOT / "zoo" / "weights"
REPOSITORY = "org/name"
CARD = "card.md"


def write_card(row: WeightsInfo, folder: Path) -> None:
    """Write card and curve of weights into their folder."""
    draw_curve(folder / "log.csv", folder / CURVE, row.name, kh.get_spec(row.variant).task.metric.name)
    text = card(row, folder)
    atomic_write(folder / CARD, lambda partial: partial.write_text(text, "utf-8"))


def card(row: WeightsInfo, folder: Path) -> str:
    """Return the text of a card; arguments as in `write_card`."""
    recipe = read_json(folder / "recipe.json")
    return model_card(row, REPOSITORY, recipe, _has_torch_names(row.variant), shipped=True)


def _has_torch_names(variant) -> bool:
    model = without_values(lambda: kh.create_model(variant))
    try:
        torch_variables(model)
    except ValueError:
        return False
    return True


def measure_gates(row: WeightsInfo, data_dir) -> None:
    """Measure the gates of weights on their test set, into `gates.json`."""
    if not get_gating(gating_of(row)).learned_gates:
        print(f"{row.name}: no gates to measure, they are constant")
        return
    report = weights_class(row.variant).open(row, registry.file_of(row)).gate_report(data_dir)
    atomic_write_json(ZOO / row.name / "gates.json", {"sha256": row.sha256, **report})


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.cards", description=__doc__)
    parser.add_argument("names", nargs="*", help="weights (default: all that have a folder in the zoo)")
    parser.add_argument("--gates", action="store_true", help="first measure the gates on the test set")
    parser.add_argument("--data", help="folder of the data sets, with --gates")
    arguments = parser.parse_args(argv)
    for name in arguments.names or sorted(path.parent.name for path in ZOO.glob("[!.]*/result.json")):
        if arguments.gates:
            measure_gates(registry.find(name), arguments.data)
        write_card(registry.described(registry.find(name)), ZOO / name)
        print(f"{ZOO / name / CARD}: written")


if __name__ == "__main__":
    main()
