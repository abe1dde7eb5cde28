"""First steps of the large language models: picture and table.

    python -m keras_highway.training.experiments.language_steps

They show that each of the six gatings trains and how they start; they are no
results of [UIE, Table 1a]. Made with

    python -m keras_highway.training.experiments.table1a --data DIR --out RUNS --log-steps \\
        --set epochs=1 --set train_tokens=210000 --set test_tokens=14000
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway._support.log import read_log
from keras_highway.analysis.plots_training import Curve, draw_training, training_axes
from keras_highway.training.experiments.table1a import GATINGS
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES

ROOT = Path(__file__).resolve().parents[3]
RUNS = ROOT / "zoo" / "runs" / "lm_steps"
PICTURE = ROOT / "docs" / "charlm_steps.png"
WINDOW = 20  # steps


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
    found = []
    for gating in GATINGS:
        run = folder / f"charlm_large_{gating}"
        if not (run / "steps.csv").exists():
            continue
        losses, valid = (_column(run / f, c) for f, c in (("steps.csv", "train_loss"), ("log.csv", "valid_perplexity")))
        recipe, environment = (json.loads((run / f"{f}.json").read_text("utf-8")) for f in ("recipe", "environment"))
        found.append(Steps(gating, losses, float(valid[-1]), recipe, environment))
    return found


def table(folder: Path = RUNS) -> str:
    """Returns the README's table: losses of the first and last steps, validation perplexity after them."""
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
    """Draws the losses of all runs, each the mean of `WINDOW` steps."""
    figure, axes = training_axes(1, (9, 3.6))
    curves = [
        Curve(
            np.arange(WINDOW, len(run.losses) + 1),
            np.convolve(run.losses, np.full(WINDOW, 1 / WINDOW), "valid"),
            run.gating,
        )
        for run in read_steps(folder)
    ]
    draw_training(
        axes[0],
        curves,
        xlabel="training step (700 tokens)",
        ylabel=f"loss, nats a token (mean of {WINDOW} steps)",
        title="Large language models under six gatings: the first steps, one seed",
    )
    figure.savefig(path, dpi=110, metadata={"Software": None})


def _column(path, name) -> np.ndarray:
    return np.array([row[name] for row in read_log(path)])


if __name__ == "__main__":
    draw()
    print(f"wrote {PICTURE}")
