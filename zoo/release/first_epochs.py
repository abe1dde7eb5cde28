"""`python -m zoo.release.first_epochs`: draws the first epochs of runs beside the authors' logs, into docs/results.

`section` is their part of docs/results.md. The authors' logs are in
`zoo/published_logs.json`, ours in `zoo/runs`; a net's short recipe, `_fast`,
stands beside the same log, though its rates are others.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from keras_highway._support.files import read_log
from keras_highway.analysis.plots import Curve, draw_training, training_axes, write
from zoo.release.commits import short
from zoo.release.studies import PICTURES, RUNS

LOGS = RUNS.with_name("published_logs.json")
PICTURE = PICTURES / "first_epochs.png"
_SCHEDULES = (
    "The `_fast` recipes' rate rises to 0.1 in two epochs and falls to 0 until the tenth; the authors' stays at 0.1 in "
    "the first 100 of 200 (that of `resnet110` begins with an epoch at 0.01)."
)
_NO_COMPARISON = (
    "A rate that falls may explain what is above, not what is below: why `highway110_fast` learns more slowly than the "
    "authors' net has not been looked for (its gates begin nearly closed, with a bias of -6, which held `highway20` "
    "back, too, and its rate rises where theirs begins at 0.1). The two nets are not compared here: one seed each, "
    "neither the rate nor the gate bias was chosen for so short a time, and `highway110` has 1.5 times the parameters."
)


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

    @property
    def log_of(self) -> str:
        """The recipe that the authors' log is of."""
        return self.recipe.removesuffix("_fast")


def known(runs: Path = RUNS) -> list[Beside]:
    """Return the runs whose net has a published log, also those that are not over.

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
    """Return the lines: a table and the picture.

    Args:
        runs: Folder of the runs. Defaults to `zoo/runs`.
    """
    lines = ["| recipe | test accuracy, %, after epoch 1, 2, ... | seed | hardware, commit |", "|---|---|---|---|"]
    found = known(runs)
    for one in found:
        lines.append(f"| `{one.log_of}`, the authors | {_listed(one.theirs)} | | {one.source} |")
        lines.append(f"| `{one.recipe}`, here | {_listed(one.ours)} | {one.seed} | {one.where} |")
    return [
        "",
        "## First epochs beside the authors' logs",
        "",
        *lines,
        "",
        " ".join((_SCHEDULES, *(_gap(one) for one in found if one.recipe != one.log_of), _NO_COMPARISON)),
        "",
        f"![Test accuracy after each of the first epochs, here and in the authors' logs](results/{PICTURE.name})",
    ]


def _listed(accuracies) -> str:
    return ", ".join(f"{accuracy:.4g}" for accuracy in accuracies)


def _gap(one) -> str:
    """How far a run's last epoch is from the authors' of the same number, and whether all before are on that side."""
    gaps = [ours - theirs for ours, theirs in zip(one.ours, one.theirs, strict=True)]
    side = "above" if gaps[-1] > 0 else "below"
    always = ", and on that side after every epoch" if min(gaps) > 0 or max(gaps) < 0 else ""
    return f"After epoch {len(gaps)} `{one.recipe}` is {abs(gaps[-1]):.1f} points {side} the authors' log{always}."


def draw(runs: Path = RUNS, path: Path = PICTURE) -> None:
    """Draws the runs with lines and the authors' logs dashed, a color for each recipe.

    Args:
        runs: Folder of the runs. Defaults to `zoo/runs`.
        path: The picture. Defaults to that of docs/results.md.
    """
    curves = []
    for i, one in enumerate(known(runs)):
        epochs = range(1, len(one.ours) + 1)
        lines = ((one.ours, f"{one.recipe}, here", "-"), (one.theirs, f"{one.log_of}, the authors", "--"))
        curves += [Curve(epochs, y, label, {"color": f"C{i}", "ls": ls, "marker": "."}) for y, label, ls in lines]
    figure, (axis,) = training_axes(1, 4.2)
    draw_training(axis, curves, ylabel="test accuracy, %")
    write(figure, path)


def main(argv=None) -> None:
    """Parse the command line and draws."""
    argparse.ArgumentParser(prog="python -m zoo.release.first_epochs", description=__doc__).parse_args(argv)
    draw()
    print(f"wrote {PICTURE}")


if __name__ == "__main__":
    main()
