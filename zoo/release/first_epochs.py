"""`python -m zoo.release.first_epochs`: draws the first epochs of runs beside the authors' logs, into docs/results.

`section` is their part of docs/results.md. The authors' logs are in
`zoo/published_logs.json`, ours in `zoo/runs`; a net's short recipe, `_fast`,
stands beside the same log, though its rates are others.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from keras_highway._support.log import read_log
from keras_highway.analysis.plots import write
from keras_highway.analysis.plots_training import Curve, draw_training, training_axes
from zoo.release.commits import short

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / "zoo" / "published_logs.json"
RUNS = ROOT / "zoo" / "runs"
PICTURE = ROOT / "docs" / "results" / "first_epochs.png"


class Beside(NamedTuple):
    """A run and the authors' log of its net.

    Attributes:
        recipe: The run's recipe.
        theirs, ours: Test accuracy in percent after each epoch, of as many
            epochs.
        source: Of the authors' log.
        seed: Of the run.
        where: Its hardware and commit.
    """

    recipe: str
    theirs: list[float]
    ours: list[float]
    source: str
    seed: int
    where: str


def known(runs: Path = RUNS) -> list[Beside]:
    """Returns the runs whose net has a published log, also those that are not over.

    Args:
        runs: Folder of the runs. Defaults to `zoo/runs`.
    """
    found = []
    logs = json.loads(LOGS.read_text("utf-8"))
    for recipe, log in ((f"{net}{form}", log) for net, log in logs.items() for form in ("", "_fast")):
        path = runs / recipe / "log.csv"
        if not path.exists():
            continue
        ours = [100 * row["test_accuracy"] for row in read_log(path)][: len(log["epochs"])]
        seed = json.loads(path.with_name("recipe.json").read_text("utf-8"))["seed"]
        made = json.loads(path.with_name("environment.json").read_text("utf-8"))
        where = f"{made['hardware']}, `{short(made['commit'])}`"
        found.append(Beside(recipe, log["epochs"][: len(ours)], ours, log["source"], seed, where))
    return found


def section(runs: Path = RUNS) -> list[str]:
    """Returns the lines: a table and the picture.

    Args:
        runs: Folder of the runs. Defaults to `zoo/runs`.
    """
    lines = ["| recipe | test accuracy, %, after epoch 1, 2, ... | seed | hardware, commit |", "|---|---|---|---|"]
    for one in known(runs):
        lines.append(f"| `{one.recipe}`, the authors | {_listed(one.theirs)} | | {one.source} |")
        lines.append(f"| `{one.recipe}`, here | {_listed(one.ours)} | {one.seed} | {one.where} |")
    return [
        "",
        "## First epochs beside the authors' logs",
        "",
        *lines,
        "",
        "The `_fast` recipes' rate rises to 0.1 and falls to 0 within 10 epochs; the authors' stays at 0.1 in the "
        "first 100 of 200 (that of ResNet110 begins with an epoch at 0.01), so that theirs go on rising where ours "
        "end. No comparison of the two nets either: one seed each, and neither the rate nor the gate bias, -6, was "
        "chosen for so short a time.",
        "",
        f"![Test accuracy after each of the first epochs, here and in the authors' logs](results/{PICTURE.name})",
    ]


def _listed(accuracies) -> str:
    return ", ".join(f"{accuracy:.1f}" for accuracy in accuracies)


def draw(runs: Path = RUNS, path: Path = PICTURE) -> None:
    """Draws the runs with lines and the authors' logs dashed, a color for each recipe.

    Args:
        runs: Folder of the runs. Defaults to `zoo/runs`.
        path: The picture. Defaults to that of docs/results.md.
    """
    curves = []
    for i, one in enumerate(known(runs)):
        epochs = range(1, len(one.ours) + 1)
        log_of = one.recipe.removesuffix("_fast")
        lines = ((one.ours, f"{one.recipe}, here", "-"), (one.theirs, f"{log_of}, the authors", "--"))
        curves += [Curve(epochs, y, label, {"color": f"C{i}", "ls": ls, "marker": "."}) for y, label, ls in lines]
    figure, (axis,) = training_axes(1, 4.2)
    draw_training(axis, curves, ylabel="test accuracy, %")
    write(figure, path)


def main(argv=None) -> None:
    """Parses the command line and draws."""
    argparse.ArgumentParser(prog="python -m zoo.release.first_epochs", description=__doc__).parse_args(argv)
    draw()
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
