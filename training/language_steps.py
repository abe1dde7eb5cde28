"""First steps of the large character-aware language models: picture and table.

    python -m training.language_steps

They show that each of the six gatings trains and how they start; they are not
results of [UIE, Table 1a]. Made with

    python -m training.table1a --data DIR --out RUNS --log-steps \\
        --set epochs=1 --set train_tokens=210000 --set test_tokens=14000
"""

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway._support.log import read_log
from keras_highway.analysis.plots import legend_above
from keras_highway.analysis.plots_training import Curve, draw_training, training_axes
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES
from training.table1a import GATINGS

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "zoo" / "runs" / "lm_steps"
PICTURE = ROOT / "docs" / "charlm_steps.png"
WINDOW = 20  # steps, of the table's means
SIGMA = 5  # steps, of the picture's Gaussian


class Steps(NamedTuple):
    """The first steps of a run.

    Attributes:
        gating: Of its model.
        losses: float64 `(steps,)`, the mean loss of each step.
        valid: Validation perplexity after them.
        recipe: As recipe.json has it.
        environment: As environment.json has it.
    """

    gating: str
    losses: np.ndarray
    valid: float
    recipe: dict
    environment: dict


def read_steps(folder: Path = RUNS) -> list[Steps]:
    """Returns the runs that are there, in the order of the paper's table.

    Args:
        folder: Holds a run's folder for each model, with steps.csv, log.csv,
            recipe.json and environment.json.
    """
    runs = []
    for gating in GATINGS:
        run = folder / f"charlm_large_{gating}"
        if not (run / "steps.csv").exists():
            continue
        losses, valid = (_column(run / f, c) for f, c in (("steps.csv", "train_loss"), ("log.csv", "valid_perplexity")))
        recipe, environment = (json.loads((run / f"{f}.json").read_text("utf-8")) for f in ("recipe", "environment"))
        runs.append(Steps(gating, losses, float(valid[-1]), recipe, environment))
    return runs


def table(folder: Path = RUNS) -> str:
    """Returns the table of first steps: losses of the first and last of them, validation perplexity after them."""
    lines = [
        f"| gating | published test perplexity, 25 epochs | here: steps | loss, first and last {WINDOW} | validation |",
        "|---|---|---|---|---|",
    ]
    runs = read_steps(folder)
    for run in runs:
        published = PUBLISHED_PERPLEXITIES[f"charlm_large_{run.gating}"]
        first, last = run.losses[:WINDOW].mean(), run.losses[-WINDOW:].mean()
        lines.append(
            f"| {run.gating} | {published} | {len(run.losses)} | {first:.2f} to {last:.2f} | {run.valid:.0f} |"
        )
    ((tokens, precision, seed),) = {tuple(run.recipe[f] for f in ("test_tokens", "precision", "seed")) for run in runs}
    where = {f"{run.environment['backend']}, {run.environment['hardware']}" for run in runs}
    note = (
        f"n = 1, seed {seed}; validation: the first {tokens:,} tokens; products in {precision.removeprefix('mixed_')}; "
        f"{'; '.join(sorted(where))}. Logs: `zoo/runs/lm_steps`."
    )
    return "\n".join([*lines, "", note])


def draw(path: Path = PICTURE, folder: Path = RUNS) -> None:
    """Draws the losses of all runs, faint as they are and smoothed."""
    picture(read_steps(folder)).savefig(path, dpi=150, metadata={"Software": None})


def picture(runs: list[Steps]):
    """Returns a matplotlib figure of the losses of runs."""
    figure, (axis,) = training_axes(1, 4.0)
    curves, highest = [], 0.0
    for i, run in enumerate(runs):
        steps, smooth, color = np.arange(1, len(run.losses) + 1), smoothed(run.losses), {"color": f"C{i}"}
        curves.append(Curve(steps, run.losses, style={**color, "lw": 0.5, "alpha": 0.3}))
        curves.append(Curve(steps, smooth, run.gating, {**color, "lw": 1.2}))
        highest = max(highest, smooth.max())
    draw_training(axis, curves, xlabel="training step (700 words)", ylabel="loss, nats a word")
    axis.set_ylim(min(run.losses.min() for run in runs) - 0.1, highest + 0.1)
    legend_above(axis, columns=3)
    figure.suptitle("Large character-aware, word-level language models: first steps", fontsize=11)
    caption = (
        "one seed; faint: each step, a few of them above the frame;\n"
        f"bold: mean around it, weighted by a Gaussian of standard deviation {SIGMA} steps"
    )
    figure.supxlabel(caption, fontsize=9)
    return figure


def smoothed(values, sigma=SIGMA) -> np.ndarray:
    """Returns the mean of the values around each, with the weights of a Gaussian; near the ends, of those there are.

    Args:
        values: float64 `(n,)`.
        sigma: Standard deviation of the Gaussian, in steps. Defaults to
            `SIGMA`.
    """
    steps = np.arange(len(values))
    weights = np.exp(-0.5 * ((steps[:, None] - steps) / sigma) ** 2)
    return weights @ values / weights.sum(1)


def _column(path, name) -> np.ndarray:
    return np.array([row[name] for row in read_log(path)])


def main(argv=None) -> int:
    """Parses the command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m training.language_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=Path, default=RUNS, help="table1a's folder (default: zoo/runs/lm_steps)")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the picture (default: docs/charlm_steps.png)")
    args = parser.parse_args(argv)
    if not read_steps(args.runs):
        parser.error(f"--runs holds no steps.csv of a run with --log-steps. Received: {args.runs}")
    draw(args.out, args.runs)
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
