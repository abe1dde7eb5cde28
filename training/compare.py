"""Draw the training curves of several runs in one picture.

python -m training.compare RUN RUN ... --out compare.png
"""

import argparse
import sys
from pathlib import Path

from keras_highway._support.files import read_log
from keras_highway.analysis.plots import Curve, draw_training, training_axes, write
from keras_highway.tasks import IMAGES
from training import head, read_json

LINES = {"train": ":", "test": "-"}
METRICS = ("train_loss", "test_loss", "train_accuracy", "test_accuracy")


def read_run(folder: Path) -> tuple[str, list[dict[str, float]]]:
    """Return a run's name and its log."""
    log = folder / "log.csv"
    if not log.is_file():
        raise FileNotFoundError(f"{folder} holds no run: there is no {log}.")
    rows = read_log(log)
    if not rows or not all({"epoch", *METRICS} <= set(row) for row in rows):
        raise ValueError(f"{log} is not the log of a run: it needs epoch, {', '.join(METRICS)} in each line.")
    recipe = folder / "recipe.json"
    name = read_json(recipe).get("name", folder.name) if recipe.is_file() else folder.name
    return name, rows


def compare(folders: list[Path], path: Path) -> str:
    """Draw the curves of runs and return a table of their last epochs."""
    runs = [read_run(folder) for folder in folders]
    names = _distinct([name for name, _ in runs], folders)
    _draw(names, [rows for _, rows in runs], path)
    columns = ("run", "epochs", "train loss", "train accuracy", "test loss", "test accuracy", "images/s")
    lines = head(f"| {' | '.join(columns)} |")
    for name, (_, rows) in zip(names, runs, strict=True):
        last = rows[-1]
        cells = [name, f"{last['epoch']:.0f}"]
        for split in ("train", "test"):
            cells += [f"{last[f'{split}_loss']:.4f}", IMAGES.metric.format(last[f"{split}_accuracy"])]
        lines.append(f"| {' | '.join([*cells, format(last.get('images_per_second', 0), '.0f')])} |")
    return "\n".join(lines)


def _distinct(names, folders) -> list[str]:
    """Names of runs; equal names get the shortest ends of their folders that differ."""
    parts = [folder.resolve().parts for folder in folders]
    depth = next((n for n in range(1, max(map(len, parts))) if len({p[-n:] for p in parts}) == len(set(parts))), 1)
    ends = ["/".join(p[-depth:]) for p in parts]
    return [n if names.count(n) == 1 else f"{n} ({end})" for n, end in zip(names, ends, strict=True)]


def _draw(names, logs, path) -> None:
    losses, errors = [], []
    for i, (name, rows) in enumerate(zip(names, logs, strict=True)):
        epochs = [row["epoch"] for row in rows]
        for split, line in LINES.items():
            style = {"color": f"C{i}", "linestyle": line}
            losses.append(Curve(epochs, [row[f"{split}_loss"] for row in rows], style=style))
            wrong = [100 * (1 - row[f"{split}_accuracy"]) for row in rows]
            errors.append(Curve(epochs, wrong, name if split == "test" else None, style))
    losses += [Curve([], [], split, {"color": "0.3", "linestyle": line}) for split, line in LINES.items()]
    figure, axes = training_axes(2, 6.4)
    for axis, curves, what in zip(axes, (losses, errors), ("loss", "error, %"), strict=True):
        draw_training(axis, curves, scale="log", ylabel=what)
    write(figure, path)


def main(argv=None) -> None:
    """Parse the command line, draw and print."""
    parser = argparse.ArgumentParser(prog="python -m training.compare", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of runs")
    parser.add_argument("--out", type=Path, default=Path("compare.png"), help="the picture (default: compare.png)")
    args = parser.parse_args(argv)
    try:
        print(compare(args.runs, args.out))
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(f"\n{args.out}: curves of {len(args.runs)} runs")


if __name__ == "__main__":
    main()
