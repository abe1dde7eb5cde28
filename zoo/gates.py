"""`python -m zoo.gates --data DIR [NAME...]`: measures gates of trained weights, into `gates.json` and card."""

import argparse

from keras_highway import weights as rows
from keras_highway.publishing import kind_of
from keras_highway.whole_file import write_json
from zoo.add import ZOO
from zoo.cards import write_card


def main(argv=None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.gates", description=__doc__)
    parser.add_argument("names", nargs="*", help="weights (default: all that have a folder in the zoo)")
    parser.add_argument("--data", help="folder of the data sets")
    arguments = parser.parse_args(argv)
    for name in arguments.names or sorted(path.parent.name for path in ZOO.glob("*/result.json")):
        row = rows.get(name)
        report = kind_of(row.variant).open(row, rows.file_of(row)).gate_report(arguments.data)
        write_json(ZOO / name / "gates.json", {"sha256": row.sha256, **report})
        write_card(rows.described(row), ZOO / name)
        print(f"{ZOO / name / 'gates.json'}: the gates over {report['samples']} {report.get('of', 'test samples')}")


if __name__ == "__main__":
    main()
