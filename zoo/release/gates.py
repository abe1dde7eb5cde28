"""`python -m zoo.release.gates --data DIR [NAME...]`: measures gates of trained weights, into `gates.json` and card."""

import argparse

from keras_highway._support.files import atomic_write_json
from keras_highway.gating import get_gating
from keras_highway.weights import registry
from keras_highway.weights.card import gating_of
from keras_highway.weights.trained import weights_class
from zoo.release.add import ZOO
from zoo.release.cards import write_card


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.gates", description=__doc__)
    parser.add_argument("names", nargs="*", help="weights (default: all that have a folder in the zoo)")
    parser.add_argument("--data", help="folder of the data sets")
    arguments = parser.parse_args(argv)
    for name in arguments.names or sorted(path.parent.name for path in ZOO.glob("[!.]*/result.json")):
        row = registry.find(name)
        if not get_gating(gating_of(row)).learned_gates:
            print(f"{name}: no gates to measure, they are constant")
            continue
        report = weights_class(row.variant).open(row, registry.file_of(row)).gate_report(arguments.data)
        atomic_write_json(ZOO / name / "gates.json", {"sha256": row.sha256, **report})
        write_card(registry.described(row), ZOO / name)
        print(f"{ZOO / name / 'gates.json'}: the gates over {report['samples']} {report.get('of', 'test samples')}")


if __name__ == "__main__":
    main()
