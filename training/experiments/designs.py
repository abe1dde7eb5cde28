"""`python -m training.experiments.designs`: six designs of gated blocks at 20 layers, compared fairly.

[BLOG], Evidence 1 and "More Comparisons", in small. For each design a rate is
chosen from the same three by short runs that are tested on held-out training
images, `OUT/rates/VARIANT_RATE`; then every seed is trained whole and tested
on the test set, `OUT/VARIANT/SEED`. Started again it goes on where it stopped;
SIGTERM saves the state (exit code 75). Several processes may share OUT if each
is given designs of its own. With `--table` nothing is trained.
"""

import argparse
import csv
import json
import statistics
import sys
from pathlib import Path

from training.recipe import Recipe, changed
from training.recipes import RECIPES
from training.recipes.cifar_20 import DESIGNS, RATES, variant_of
from training.tiny import tiny

HELD_OUT = 5_000  # of CIFAR-10's 50,000 training images
RATE_EPOCHS = 5
SEEDS = (1, 2, 3)


def main(argv=None) -> int:
    """Parses the command line, trains, prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m training.experiments.designs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help="folder of cifar10.npz (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--out", type=Path, default=Path("runs/designs"), help="default: runs/designs")
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=DESIGNS, help="default: all six")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="default: 1 2 3")
    parser.add_argument("--rates-only", action="store_true", help="choose the rates, train no seed")
    parser.add_argument("--tiny", action="store_true", help="tiny nets and made-up data: to try the way")
    parser.add_argument("--table", action="store_true", help="print the table of the runs as they are")
    args = parser.parse_args(argv)
    for design in () if args.table else args.designs:
        rate = chosen_rate(design, args.data, args.out, args.tiny)
        for seed in () if args.rates_only else args.seeds:
            _train(seed_recipe(design, rate, seed, args.tiny), args.data, args.out / variant_of(design) / str(seed))
    print(table(args.designs, args.seeds, args.out))
    return 0


def seed_recipe(design: str, rate: float, seed: int, small: bool = False) -> Recipe:
    """Returns the recipe of a whole run."""
    recipe = RECIPES[variant_of(design)]
    return changed(tiny(recipe) if small else recipe, learning_rate=rate, seed=seed)


def rate_recipe(design: str, rate: float, small: bool = False) -> Recipe:
    """Returns the recipe of a short run, tested on images held out of the training set."""
    epochs, held_out = (2, 20) if small else (RATE_EPOCHS, HELD_OUT)
    recipe = seed_recipe(design, rate, SEEDS[0], small)
    return changed(recipe, epochs=epochs, warmup_epochs=1, holdout_images=held_out)


def chosen_rate(design: str, data_dir, out: Path, small: bool = False) -> float:
    """Trains what is missing of a design's short runs; returns the rate of the best accuracy on held-out images.

    Of equal ones the lower rate is taken; a run that diverged counts as accuracy 0.
    """
    folders = rate_folders(design, out)
    for rate, folder in folders.items():
        _train(rate_recipe(design, rate, small), data_dir, folder)
    return _best_rate(folders)


def _best_rate(folders: dict[float, Path]) -> float:
    return max(RATES, key=lambda rate: (_accuracy(folders[rate]), -rate))


def _is_over(folder: Path) -> bool:
    """Whether a run has finished or diverged."""
    return (folder / "result.json").exists() or (folder / "diverged.json").exists()


def rate_folders(design: str, out: Path) -> dict[float, Path]:
    """Returns the folders of a design's short runs, by rate."""
    return {rate: out / "rates" / f"{variant_of(design)}_{rate}" for rate in RATES}


def _train(recipe: Recipe, data_dir, folder: Path) -> None:
    if _is_over(folder):
        return

    import keras

    from keras_highway._support.files import atomic_write_json
    from training.loop import train

    keras.utils.clear_session()
    try:
        train(recipe, data_dir, folder)
    except FloatingPointError as error:
        atomic_write_json(folder / "diverged.json", {"error": str(error)})


def _accuracy(folder: Path) -> float:
    result = folder / "result.json"
    return json.loads(result.read_text("utf-8"))["mean"] if result.exists() else 0.0


def _last(folder: Path) -> dict[str, float] | None:
    """The last line of a finished run's log."""
    if not (folder / "result.json").exists():
        return None
    with (folder / "log.csv").open(newline="") as file:
        return {key: float(value) for key, value in list(csv.DictReader(file))[-1].items()}


def table(designs, seeds, out: Path) -> str:
    """Returns what was measured, each design against `resnet` seed by seed."""
    lines = [
        "| variant | rate | seeds | training loss | test accuracy, % | minus resnet20, points |",
        "|---|---|---|---|---|---|",
    ]
    base = {seed: _last(out / variant_of("resnet") / str(seed)) for seed in seeds}
    for design in designs:
        rows = {seed: _last(out / variant_of(design) / str(seed)) for seed in seeds}
        done = {seed: row for seed, row in rows.items() if row is not None}
        folders = rate_folders(design, out)
        rate = _best_rate(folders) if all(map(_is_over, folders.values())) else "-"
        pairs = [100 * (row["test_accuracy"] - base[s]["test_accuracy"]) for s, row in done.items() if base[s]]
        cells = (
            variant_of(design),
            rate,
            len(done),
            spread([row["train_loss"] for row in done.values()], 4),
            spread([100 * row["test_accuracy"] for row in done.values()], 2),
            "" if design == "resnet" else spread(pairs, 2),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def spread(values: list[float], digits: int) -> str:
    """Returns `mean ± standard deviation` of several values, the value of one, `-` of none."""
    if not values:
        return "-"
    more = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{more}"


if __name__ == "__main__":
    sys.exit(main())
