"""A random search, a recipe of recipes.

    python -m training.search figure1 --data DIR --out DIR

Figure 1 of [TVDN]: plain and highway nets of 10, 20, 50 and 100 layers on
MNIST, the best of a random search over rate, momentum, decay, activation and
gate bias each. `cifar100`: the net of [TVDN, Figures 2 to 4] for CIFAR-100, "best
by search" there, whose activation and gate bias are known. A search resumes where
it stopped; its rungs may be few runs ("10x40": ten runs of 40 epochs) or halve
("10x4,3x12,1x40": the best three of ten runs of 4 epochs continue to 12, the best
of these to 40; successive halving, Jamieson and Talwalkar 2016). Processes may
share OUT if each searches cells of its own, `--cells`; without these it reports,
when all are there.
"""

import argparse
from pathlib import Path

import numpy as np

from keras_highway._support.suggest import did_you_mean
from keras_highway.training.recipe import Recipe, changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.tiny import tiny
from keras_highway.training.train import errors_in_a_line
from training.divergence import has_diverged, train_or_diverge
from training.rungs import Rung, Search, loss_at, parse_rungs
from training.search_report import report


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
    """Returns the recipe of a cell's i-th run, a function of its position alone."""
    base = tiny(RECIPES[cell]) if small else RECIPES[cell]
    settings = search.draw(np.random.default_rng((search.cells.index(cell), i)), base)
    settings["overrides"] = tuple({**dict(base.overrides), **dict(settings["overrides"])}.items())
    return changed(base, name=f"{search.name}_{cell}_{i}", epochs=epochs, seed=i, **settings)


def run_search(search: Search, rungs: tuple[Rung, ...], data_dir, out: Path, small: bool = False, cells=None) -> None:
    """Runs a search, or resumes it: every run in a folder of its own, `OUT/CELL/I`.

    Args:
        search: What to search.
        rungs: Its extent.
        data_dir: Folder of data sets.
        out: The search's folder.
        small: Tiny forms of the nets, on synthetic data.
        cells: Some of the search's. Defaults to `None`: all.
    """
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
    from keras_highway.training.runs.checkpoint import epochs_of
    from keras_highway.training.runs.run_folder import has_begun, has_whole_result, is_run_of

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


def main(argv=None) -> None:
    """Parses the command line, searches, writes table and figure."""
    parser = argparse.ArgumentParser(
        prog="python -m training.search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("search", help=", ".join(SEARCHES))
    parser.add_argument("--data", help="folder of mnist.npz, ... (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--out", type=Path, help="the search's folder (default: runs/SEARCH)")
    parser.add_argument("--rungs", help="RUNSxEPOCHS,... (default: the search's own extent)")
    parser.add_argument("--cells", nargs="+", metavar="RECIPE", help="search these alone, and report nothing")
    parser.add_argument("--tiny", action="store_true", help="small nets and made-up data, to try the way")
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
