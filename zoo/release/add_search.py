"""`python -m zoo.release.add_search OUT`: takes a finished search into the zoo.

Table and curves go to `zoo/searches/NAME/`, the figure to `docs/NAME.png`. With
`zoo/searches/NAME` as OUT, the figure is drawn anew from what is there.
"""

import argparse
import json
import shutil
from pathlib import Path

from keras_highway.training.experiments.search_report import draw

ROOT = Path(__file__).resolve().parents[2]


def add_search(out: Path, root: Path = ROOT) -> Path:
    """Copies a search's result, curves and figure into a checkout.

    Args:
        out: The search's folder.
        root: The checkout.

    Returns:
        The folder in the zoo.

    Raises:
        ValueError: If the search is not finished.
    """
    if not (out / "result.json").is_file():
        raise ValueError(f"{out} holds no finished search: there is no {out / 'result.json'}.")
    name = json.loads((out / "result.json").read_text("utf-8"))["search"]
    folder = root / "zoo" / "searches" / name
    folder.mkdir(parents=True, exist_ok=True)
    (root / "docs").mkdir(exist_ok=True)
    if out.resolve() != folder.resolve():
        for file in ("result.json", "curves.csv"):
            shutil.copy(out / file, folder / file)
    cells = json.loads((folder / "result.json").read_text("utf-8"))["cells"]
    draw(cells, folder / "curves.csv", root / "docs" / f"{name}.png")
    return folder


def main(argv=None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.add_search", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of a finished search")
    print(f"{add_search(parser.parse_args(argv).out)}: added. Now: python -m zoo.release.tables")


if __name__ == "__main__":
    main()
