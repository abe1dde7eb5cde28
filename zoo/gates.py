"""`python -m zoo.gates --data DIR [NAME...]`: measures the gates of trained weights, into their `gates.json`."""

import argparse

from keras_highway import weights as rows
from keras_highway.applications import load
from keras_highway.data import load_dataset
from keras_highway.publishing.gate_report import gate_report
from keras_highway.whole_file import write_json
from zoo.add import ZOO


def main(argv=None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.gates", description=__doc__)
    parser.add_argument("names", nargs="*", help="weights (default: all that have a folder in the zoo)")
    parser.add_argument("--data", help="folder of the data sets")
    arguments = parser.parse_args(argv)
    for name in arguments.names or sorted(path.parent.name for path in ZOO.glob("*/result.json")):
        row = rows.get(name)
        images = load_dataset(row.data, arguments.data).x_test
        report = {"sha256": row.sha256, **gate_report(load(name), row.images, images)}
        write_json(ZOO / name / "gates.json", report)
        print(f"{ZOO / name / 'gates.json'}: the gates over {len(images)} test images")


if __name__ == "__main__":
    main()
