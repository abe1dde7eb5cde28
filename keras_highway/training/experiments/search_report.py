"""Table, curves and figure of a random search."""

import csv
import json
import math
import statistics
from pathlib import Path

from keras_highway._support.files import atomic_write, atomic_write_json
from keras_highway._support.log import read_log
from keras_highway.analysis.plots_training import Curve, draw_training, training_axes
from keras_highway.tasks import IMAGES
from keras_highway.training.experiments.rungs import Rung, Search, loss_at, losses

TOP = 3
STUCK = 2.25  # the loss of ten equally likely classes is 2.303


def report(search: Search, rungs: tuple[Rung, ...], out: Path) -> str:
    """Writes result.json, curves.csv and the figure of a search into its folder.

    Args:
        search: What was searched.
        rungs: Its extent.
        out: Its folder.

    Returns:
        The table, as text.
    """
    cells = {cell: summary(out / cell, rungs) for cell in search.cells}
    environment = json.loads((out / search.cells[0] / "0" / "environment.json").read_text("utf-8"))
    result = {
        "search": search.name,
        "source": search.source,
        "metric": "train_loss",
        "rungs": [rung._asdict() for rung in rungs],
        "cells": cells,
        **environment,
    }
    atomic_write_json(out / "result.json", result)
    _write_curves(search, out, cells)
    draw(cells, out / "curves.csv", out / f"{search.name}.png")
    return table(result)


def summary(folder: Path, rungs: tuple[Rung, ...]) -> dict:
    """Returns what the runs of a cell came to.

    Returns:
        Number of runs, of those that diverged and of those that never left
        chance; the best run, its losses and settings; the mean of the best
        `TOP` after the first rung, where all runs were equally long.
    """
    runs = range(rungs[0].runs)
    first = sorted(loss_at(folder / str(i), rungs[0].epochs) for i in runs)
    finite = [loss for loss in first if math.isfinite(loss)]
    # The last rung's runs first; of one that diverged there, what it came to before.
    ends = {
        i: max((r.epochs for r in rungs if math.isfinite(loss_at(folder / str(i), r.epochs))), default=0) for i in runs
    }
    best = min(runs, key=lambda i: (-ends[i], loss_at(folder / str(i), ends[i]), i))
    counts = {"n": len(runs), "diverged": len(runs) - len(finite), "at_chance": sum(loss > STUCK for loss in finite)}
    if not finite:
        return counts
    recipe = json.loads((folder / str(best) / "recipe.json").read_text("utf-8"))
    row = read_log(folder / str(best) / "log.csv")[ends[best] - 1]
    return {
        **counts,
        "best_run": best,
        "best_loss": row["train_loss"],
        "best_epochs": ends[best],
        "best_test_accuracy": row["test_accuracy"],
        "top": min(TOP, len(finite)),
        "top_epochs": rungs[0].epochs,
        "top_mean_loss": statistics.fmean(finite[:TOP]),
        "settings": {
            **{name: recipe[name] for name in ("learning_rate", "momentum", "decay", "seed")},
            **dict(recipe["overrides"]),
        },
    }


def _write_curves(search, out, cells) -> None:
    lines = ["cell,run,epoch,train_loss"]
    for cell, row in cells.items():
        for i in range(row["n"]):
            lines += [f"{cell},{i},{e},{loss}" for e, loss in enumerate(losses(out / cell / str(i)), start=1)]
    atomic_write(out / "curves.csv", lambda path: path.write_text("\n".join(lines) + "\n", "utf-8"))


def table(result: dict) -> str:
    """Returns a search's Markdown table."""
    top = next((row for row in result["cells"].values() if "top" in row), {"top": TOP, "top_epochs": "-"})
    lines = [
        f"| net | runs | diverged | at chance | best loss | epochs | test accuracy "
        f"| mean of the top {top['top']} at epoch {top['top_epochs']} |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for cell, row in result["cells"].items():
        if "best_loss" not in row:
            lines.append(f"| `{cell}` | {row['n']} | {row['diverged']} | {row['at_chance']} | - | - | - | - |")
            continue
        lines.append(
            f"| `{cell}` | {row['n']} | {row['diverged']} | {row['at_chance']} | {row['best_loss']:.2g} "
            f"| {row['best_epochs']} | {IMAGES.metric.format(row['best_test_accuracy'])} | {row['top_mean_loss']:.2g} |"
        )
    return "\n".join(lines)


def draw(cells: dict, curves: Path, path: Path) -> None:
    """Draws the best run of every cell: training loss by epoch, one panel per family of nets.

    Args:
        cells: As result.json has them.
        curves: The search's curves.csv.
        path: The picture to write.
    """
    families = sorted({cell.split("_")[0] for cell in cells}, reverse=True)
    figure, axes = training_axes(len(families), 3.2, stacked=False, sharey=True)
    from matplotlib import colormaps

    run_losses = _read_curves(curves)
    for axis, family in zip(axes, families, strict=True):
        own = [cell for cell in cells if cell.split("_")[0] == family]
        lines = []
        for shade, cell in enumerate(own):
            if "best_run" in cells[cell]:
                curve = run_losses[cell, cells[cell]["best_run"]]
                color = colormaps["viridis"](0.85 * shade / max(len(own) - 1, 1))
                label = cell.removeprefix(f"{family}_fc") + " layers" if axis is axes[0] else None  # once for all
                lines.append(Curve(range(1, len(curve) + 1), curve, label, {"color": color}))
        draw_training(axis, lines, scale="log", title=f"{family}, best of {cells[own[0]]['n']} runs")
        axis.title.set_fontsize(10)
    axes[0].set_ylabel("training loss, nats")
    figure.savefig(path, dpi=150, metadata={"Software": None})


def _read_curves(path) -> dict[tuple[str, int], list[float]]:
    """The losses of every run, by its cell and number."""
    run_losses: dict[tuple[str, int], list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            run_losses.setdefault((row["cell"], int(row["run"])), []).append(float(row["train_loss"]))
    return run_losses
