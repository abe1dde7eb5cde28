"""Table, curves and figure of a random search."""

import csv
import json
import math
import statistics
from pathlib import Path

from keras_highway._support.files import atomic_write, atomic_write_json
from keras_highway._support.log import read_log
from keras_highway.analysis.plots import new_figure, write
from keras_highway.analysis.plots_training import Curve, draw_training
from keras_highway.tasks import IMAGES
from training.rungs import Rung, Search, loss_at, losses

TOP, FEW = 10, 3  # of [TVDN, Figure 1, right], of 100 runs; of as many runs as TOP or fewer
STUCK = 0.977  # times the loss of equally likely classes, which is 2.303 for ten
_NO_TOP = {"top": TOP, "top_epochs": "-"}


def report(search: Search, rungs: tuple[Rung, ...], out: Path) -> str:
    """Writes result.json, curves.csv and the figure of a search into its folder.

    Args:
        search: What was searched.
        rungs: Its extent.
        out: Its folder.

    Returns:
        The table, as text.
    """
    cells = {cell: summary(out / cell, rungs, search.classes) for cell in search.cells}
    result = {
        "search": search.name,
        "source": search.source,
        "metric": "train_loss",
        "rungs": [rung._asdict() for rung in rungs],
        "cells": cells,
        **_environment([out / cell / "0" for cell in search.cells]),
    }
    atomic_write_json(out / "result.json", result)
    _write_curves(search, out, cells)
    draw(cells, out / "curves.csv", out / f"{search.name}.png")
    return table(result)


def _environment(runs: list[Path]) -> dict:
    """Of the first run, with every hardware and commit of all: processes that share a search may differ in these."""
    first, *others = (json.loads((run / "environment.json").read_text("utf-8")) for run in runs)
    all_of = {key: "; ".join(dict.fromkeys(str(e[key]) for e in (first, *others))) for key in ("hardware", "commit")}
    return {**first, **all_of}


def summary(folder: Path, rungs: tuple[Rung, ...], classes: int = 10) -> dict:
    """Returns what the runs of a cell came to.

    Args:
        folder: Of the cell.
        rungs: The extent of the search.
        classes: Of the data set. Defaults to `10`.

    Returns:
        Number of runs, of those that diverged and of those that never left
        chance; the best run, its losses and settings; the mean of the best
        `TOP`, of few runs of the best `FEW`, after the last rung that has as
        many, else after the first.
    """
    runs = range(rungs[0].runs)
    first = sorted(loss_at(folder / str(i), rungs[0].epochs) for i in runs)
    finite = [loss for loss in first if math.isfinite(loss)]
    # The last rung's runs first; of one that diverged there, what it came to before.
    ends = {
        i: max((r.epochs for r in rungs if math.isfinite(loss_at(folder / str(i), r.epochs))), default=0) for i in runs
    }
    best = min(runs, key=lambda i: (-ends[i], loss_at(folder / str(i), ends[i]), i))
    stuck = sum(loss > STUCK * math.log(classes) for loss in finite)
    counts = {"n": len(runs), "diverged": len(runs) - len(finite), "at_chance": stuck}
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
        **_top_mean([losses(folder / str(i)) for i in runs], rungs),
        "settings": {
            **{name: recipe[name] for name in ("learning_rate", "momentum", "decay", "seed")},
            **dict(recipe["overrides"]),
        },
    }


def _top_mean(by_run: list[list[float]], rungs: tuple[Rung, ...]) -> dict:
    """The mean of the best runs, how many they are and after how many epochs; losses by run and epoch."""
    count = TOP if rungs[0].runs > TOP else FEW
    at = [rung for rung in rungs if rung.runs >= count or rung is rungs[0]][-1]
    ended = sorted(own[at.epochs - 1] for own in by_run if len(own) >= at.epochs)[:count]
    return {"top": len(ended), "top_epochs": at.epochs, "top_mean_loss": statistics.fmean(ended) if ended else None}


def _write_curves(search, out, cells) -> None:
    lines = ["cell,run,epoch,train_loss"]
    for cell, row in cells.items():
        for i in range(row["n"]):
            lines += [f"{cell},{i},{e},{loss}" for e, loss in enumerate(losses(out / cell / str(i)), start=1)]
    atomic_write(out / "curves.csv", lambda path: path.write_text("\n".join(lines) + "\n", "utf-8"))


def table(result: dict) -> str:
    """Returns a search's Markdown table."""
    top = max((row for row in result["cells"].values() if "top" in row), key=lambda row: row["top"], default=_NO_TOP)
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
            f"| `{cell}` | {row['n']} | {row['diverged']} | {row['at_chance']} | {row['best_loss']:#.2g} "
            f"| {row['best_epochs']} | {IMAGES.metric.format(row['best_test_accuracy'])} | {_top(row, top['top'])} |"
        )
    return "\n".join(lines)


def _top(row, count) -> str:
    """The mean of the best runs; in brackets how many, where they are fewer than in other cells."""
    if row["top_mean_loss"] is None:
        return "-"
    return f"{row['top_mean_loss']:#.2g}" + (f" ({row['top']})" if row["top"] < count else "")


def draw(cells: dict, curves: Path, path: Path) -> None:
    """Draws [TVDN, Figure 1]: training loss of the best run of every cell by epoch, one panel per family of nets.

    Below, where there are several depths, the mean of the best runs by depth.

    Args:
        cells: As result.json has them.
        curves: The search's curves.csv.
        path: The picture to write.
    """
    families = sorted({cell.split("_")[0] for cell in cells}, reverse=True)
    means = {family: _means_by_depth(cells, family) for family in families}
    below = any(len(points) > 1 for points in means.values())
    figure = new_figure(6.0 if below else 3.2)
    panels = figure.subplot_mosaic([families, ["top"] * len(families)] if below else [families])
    axes = [panels[family] for family in families]
    from matplotlib import colormaps

    depths, run_losses = sorted(map(depth_of, cells)), _read_curves(curves)
    color = {depth: colormaps["viridis"](0.85 * i / max(len(depths) - 1, 1)) for i, depth in enumerate(depths)}
    for axis, family in zip(axes, families, strict=True):
        axis.sharey(axes[0])
        own = [cell for cell in cells if cell.split("_")[0] == family]
        lines = []
        for cell in own:
            if "best_run" in cells[cell]:
                curve = run_losses[cell, cells[cell]["best_run"]]
                lines.append(Curve(range(1, len(curve) + 1), curve, style={"color": color[depth_of(cell)]}))
        if axis is axes[-1]:  # one legend for all, where there is room
            lines += [Curve([], [], f"{depth} layers", {"color": color[depth]}) for depth in color]
        draw_training(axis, lines, scale="log", title=f"{family}, best of {cells[own[0]]['n']} runs")
        axis.title.set_fontsize(10)
    axes[0].set_ylabel("training loss, nats")
    if below:
        _draw_means(panels["top"], means, cells)
    write(figure, path)


def _draw_means(axis, means, cells) -> None:
    rows = [row for row in cells.values() if row.get("top_mean_loss") is not None]
    most, epochs = max(row["top"] for row in rows), rows[0]["top_epochs"]
    lines = [Curve(*zip(*points, strict=True), family, {"marker": "o"}) for family, points in means.items() if points]
    draw_training(axis, lines, scale="log", xlabel="layers", ylabel="training loss, nats")
    fewest = min(row["top"] for row in rows)
    count = str(most) if fewest == most else f"{fewest} to {most}"
    axis.set_title(f"mean of the best {count} runs after {epochs} epochs", fontsize=10)
    axis.set_xticks(sorted({depth for points in means.values() for depth, _ in points}))


def _means_by_depth(cells, family) -> list[tuple[int, float]]:
    own = {depth_of(cell): row for cell, row in cells.items() if cell.split("_")[0] == family}
    return [(depth, row["top_mean_loss"]) for depth, row in sorted(own.items()) if row.get("top_mean_loss") is not None]


def depth_of(cell: str) -> int:
    """Number of layers of a fully connected net, e.g. 50 of `"highway_fc50_cifar100"`."""
    return int(cell.split("_fc")[1].split("_")[0])


def _read_curves(path) -> dict[tuple[str, int], list[float]]:
    """The losses of every run, by its cell and number."""
    run_losses: dict[tuple[str, int], list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            run_losses.setdefault((row["cell"], int(row["run"])), []).append(float(row["train_loss"]))
    return run_losses
