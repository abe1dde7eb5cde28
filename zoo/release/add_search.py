"""`python -m zoo.release.add_search OUT`: takes a finished search into the zoo.

Table and curves go to `zoo/searches/NAME/`, the figure to `docs/NAME.png`. With
`zoo/searches/NAME` as OUT, the figure is drawn anew from what is there.
"""

import argparse
import functools
import json
import shutil
import tempfile
from pathlib import Path

from keras_highway._support.files import atomic_write
from training.search import draw

ROOT = Path(__file__).resolve().parents[2]
_FILES = ("curves.csv", "result.json")


def add_search(out: Path, root: Path = ROOT) -> Path:
    """Copy a search's result, curves and figure into a checkout.

    Args:
        out: The search's folder.
        root: The checkout.

    Returns:
        The folder in the zoo.

    Raises:
        ValueError: If the search is not finished.
    """
    for file in _FILES:
        if not (out / file).is_file():
            raise ValueError(f"{out} holds no finished search: there is no {out / file}.")
    result = json.loads((out / "result.json").read_text("utf-8"))
    folder = root / "zoo" / "searches" / result["search"]
    (root / "docs").mkdir(exist_ok=True)
    figure = root / "docs" / f"{result['search']}.png"
    with tempfile.TemporaryDirectory() as drawn:
        draw(result["cells"], out / "curves.csv", Path(drawn) / figure.name)  # what it refuses is not taken
        folder.mkdir(parents=True, exist_ok=True)
        if out.resolve() != folder.resolve():
            for file in _FILES:
                atomic_write(folder / file, functools.partial(shutil.copy, out / file))
        atomic_write(figure, functools.partial(shutil.copy, Path(drawn) / figure.name))
    return folder


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.add_search", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of a finished search")
    try:
        folder = add_search(parser.parse_args(argv).out)
    except (ValueError, OSError) as error:
        parser.exit(2, f"error: {error}\n")
    print(f"{folder}: added. Now: python -m zoo.release.tables")


if __name__ == "__main__":
    main()
