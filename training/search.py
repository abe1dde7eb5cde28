"""Search recipes at random for [TVDN, Figure 1] and draw the figure.

    python -m training.search figure1 --data DIR --out DIR

`figure1` trains plain and highway nets of 10, 20, 50 and 100 layers on MNIST: the
best of a random search over rate, momentum, decay, activation and gate bias.
`cifar100` searches the net of [TVDN, Figures 2 to 4] for CIFAR-100, with its
known activation and gate bias. Rungs are few runs ("10x40": ten runs of 40
epochs) or halve ("10x4,3x12,1x40": the best three of ten runs of 4 epochs
continue to 12, the best of these to 40: successive halving, Jamieson and
Talwalkar 2016). The same command resumes a search. Processes may share OUT if
each searches other cells; then the command without `--cells` reports.
"""

import argparse
import csv
import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway._support.files import atomic_write, atomic_write_json, read_log
from keras_highway._support.terminal import did_you_mean
from keras_highway.analysis.plots import Curve, draw_training, new_figure, write
from keras_highway.tasks import IMAGES
from keras_highway.training.recipe import Recipe, changed
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.train import errors_in_a_line
from training import head, read_json
from training.study import has_diverged, train_or_diverge

TOP, FEW = 10, 3  # of [TVDN, Figure 1, right], of 100 runs; of as many runs as TOP or fewer
STUCK = 0.977  # times the loss of equally likely classes, which is 2.303 for ten
_NO_TOP = {"top": TOP, "top_epochs": "-"}


class Rung(NamedTuple):
    """A number of runs, trained to a number of epochs."""

    runs: int
    epochs: int


@dataclass(frozen=True)
class Search:
    """A random search."""

    name: str  # name of the search
    cells: tuple[str, ...]  # names of the base recipes; each is searched alone
    draw: Callable  # function (generator, recipe) -> settings of a run, as for `changed`
    rungs: tuple[Rung, ...]  # default extent
    source: str  # source of the published search
    classes: int = 10  # number of classes of the data set


def losses(folder: Path) -> list[float]:
    """Return a run's training loss by epoch."""
    path = folder / "log.csv"
    if not path.exists():
        return []
    return [row["train_loss"] for row in read_log(path)]


def loss_at(folder: Path, epochs: int) -> float:
    """Return a run's training loss after some epochs: infinite if it did not reach them, 0 for no epochs."""
    by_epoch = losses(folder)
    if epochs == 0:
        return 0.0
    return by_epoch[epochs - 1] if len(by_epoch) >= epochs else float("inf")


def parse_rungs(text: str) -> tuple[Rung, ...]:
    """Return the rungs of `"10x4,3x12,1x40"`."""
    try:
        rungs = tuple(Rung(*map(int, part.split("x"))) for part in text.split(","))
    except (ValueError, TypeError):
        rungs = ()
    pairs = list(itertools.pairwise(rungs))
    if not rungs or min(min(r) for r in rungs) < 1 or any(a.runs < b.runs or a.epochs >= b.epochs for a, b in pairs):
        raise ValueError(f"Rungs are RUNSxEPOCHS, e.g. 10x4,3x12,1x40: fewer runs, more epochs. Received: {text!r}")
    return rungs


def _optimizer(draw) -> dict:
    rate = float(np.exp(draw.uniform(np.log(1e-3), np.log(0.3))))
    return {
        "learning_rate": rate,
        "momentum": float(draw.choice([0.8, 0.9, 0.95])),
        "decay": float(draw.uniform(0.9, 0.995)),
    }


def _figure1(draw, recipe) -> dict:
    settings = _optimizer(draw)
    net = {"activation": str(draw.choice(["relu", "tanh"])), "scanned": True}
    if recipe.variant.startswith("highway"):
        net["gate_bias"] = -float(draw.integers(1, 11))
    return {**settings, "overrides": tuple(net.items())}


def _cifar100(draw, recipe) -> dict:
    return {**_optimizer(draw), "overrides": (("scanned", True),)}


FIGURE1 = Search(
    name="figure1",
    cells=tuple(f"{kind}_fc{depth}" for depth in (10, 20, 50, 100) for kind in ("plain", "highway")),
    draw=_figure1,
    rungs=(Rung(100, 40),),
    source="TVDN, 3.1 and Figure 1: 100 runs over rate, momentum, decay, activation, gate bias -1 to -10; ranges ours",
)
CIFAR100 = Search(
    name="cifar100",
    cells=("highway_fc50_cifar100",),
    draw=_cifar100,
    rungs=(Rung(20, 10), Rung(5, 30), Rung(1, 150)),
    source="TVDN, 4, Figures 2 to 4: best by search; 50 layers, tanh, gate bias -4; ranges and extent ours",
    classes=100,
)
SEARCHES = {search.name: search for search in (FIGURE1, CIFAR100)}


def recipe_of(search: Search, cell: str, i: int, epochs: int, small: bool = False) -> Recipe:
    """Return the recipe of a cell's i-th run. It depends only on the arguments."""
    base = tiny(RECIPES[cell]) if small else RECIPES[cell]
    settings = search.draw(np.random.default_rng((search.cells.index(cell), i)), base)
    settings["overrides"] = tuple({**dict(base.overrides), **dict(settings["overrides"])}.items())
    return changed(base, name=f"{search.name}_{cell}_{i}", epochs=epochs, seed=i, **settings)


def run_search(search: Search, rungs: tuple[Rung, ...], data_dir, out: Path, small: bool = False, cells=None) -> None:
    """Start or resume a search. Each run has its folder, `OUT/CELL/I`."""
    for cell in search.cells if cells is None else cells:
        alive, before = list(range(rungs[0].runs)), 0
        for rung in rungs:
            # By the loss at the rung before, wherever a run is by now: a search that resumes promotes the same runs.
            ranks = {i: (loss_at(out / cell / str(i), before), i) for i in alive}
            alive, before = sorted(alive, key=ranks.__getitem__)[: rung.runs], rung.epochs
            for i in alive:
                recipe = recipe_of(search, cell, i, rungs[-1].epochs, small)
                _resume(recipe, data_dir, out / cell / str(i), rung.epochs)


def _resume(recipe, data_dir, folder, epochs) -> None:
    from keras_highway.training.checkpoint import epochs_of
    from keras_highway.training.run_folder import has_begun, has_whole_result, is_run_of

    # The state counts, not the log, which is ahead of it where a run was killed between the two.
    finished = epochs < recipe.epochs or has_whole_result(folder)
    if has_begun(folder) and not is_run_of(folder, recipe):
        raise ValueError(
            f"{folder} holds a run of another recipe than this search's: see its recipe.json. Choose another --out, or "
            "remove the folder."
        )
    if has_diverged(folder) or (epochs_of(folder / "checkpoint.npz") >= epochs and finished):
        return
    train_or_diverge(recipe, data_dir, folder, until=epochs)


def report(search: Search, rungs: tuple[Rung, ...], out: Path) -> str:
    """Write result.json, curves.csv and the figure of a search into its folder."""
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
    """Environment of the first run, with the hardware and commits of all runs."""
    first, *others = (read_json(run / "environment.json") for run in runs)
    all_of = {key: "; ".join(dict.fromkeys(str(e[key]) for e in (first, *others))) for key in ("hardware", "commit")}
    return {**first, **all_of}


def summary(folder: Path, rungs: tuple[Rung, ...], classes: int = 10) -> dict:
    """Return the results of a cell."""
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
    recipe = read_json(folder / str(best) / "recipe.json")
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
    """Mean loss of the best runs, their number and their epochs, from the losses by run and epoch."""
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
    """Return a search's Markdown table."""
    top = max((row for row in result["cells"].values() if "top" in row), key=lambda row: row["top"], default=_NO_TOP)
    lines = head(
        f"| net | runs | diverged | at chance | best loss | epochs | test accuracy "
        f"| mean of the top {top['top']} at epoch {top['top_epochs']} |"
    )
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
    """Mean loss of the best runs; their number in brackets if other cells have more."""
    if row["top_mean_loss"] is None:
        return "-"
    return f"{row['top_mean_loss']:#.2g}" + (f" ({row['top']})" if row["top"] < count else "")


def draw(cells: dict, curves: Path, path: Path) -> None:
    """Draw [TVDN, Figure 1]: training loss of the best run of every cell by epoch, one panel per family of nets.

    A panel below shows the mean of the best runs by depth, if there are several depths.
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
    """Return number of layers of a fully connected net, e.g. 50 of `"highway_fc50_cifar100"`."""
    return int(cell.split("_fc")[1].split("_")[0])


def _read_curves(path) -> dict[tuple[str, int], list[float]]:
    """Losses of every run by cell and number."""
    run_losses: dict[tuple[str, int], list[float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            run_losses.setdefault((row["cell"], int(row["run"])), []).append(float(row["train_loss"]))
    return run_losses


def main(argv=None) -> None:
    """Parse the command line, search, write table and figure."""
    parser = argparse.ArgumentParser(
        prog="python -m training.search", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("search", help=", ".join(SEARCHES))
    parser.add_argument("--data", help="folder of mnist.npz, ... (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--out", type=Path, help="the search's folder (default: runs/SEARCH)")
    parser.add_argument("--rungs", help="RUNSxEPOCHS,... (default: the search's own extent)")
    parser.add_argument("--cells", nargs="+", metavar="RECIPE", help="search only these cells and report nothing")
    parser.add_argument("--tiny", action="store_true", help="tiny networks and made-up data, to try the command")
    args = parser.parse_args(argv)
    if args.search not in SEARCHES:
        parser.error(f"unknown search {args.search!r}.{did_you_mean(args.search, SEARCHES)}")
    search = SEARCHES[args.search]
    try:
        rungs = parse_rungs(args.rungs) if args.rungs else search.rungs
    except ValueError as error:
        parser.error(str(error))
    unknown = sorted(set(args.cells or ()) - set(search.cells))
    if unknown:
        parser.error(f"--cells are of {', '.join(search.cells)}. Received: {', '.join(unknown)}")
    out = args.out or Path("runs") / search.name
    with errors_in_a_line():
        run_search(search, rungs, args.data, out, args.tiny, args.cells)
        if not args.cells:
            print(report(search, rungs, out))


if __name__ == "__main__":
    main()
