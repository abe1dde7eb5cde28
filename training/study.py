"""Networks compared fairly: for each a rate chosen on held-out training images, then whole runs of several seeds.

Short runs, `OUT/rates/NET_RATE`, try the same rates for every net and are
tested on held-out training images; then every seed is trained whole and tested
on the test set, `OUT/NET/SEED`. Started again a study resumes where it stopped;
SIGTERM saves the state (exit code 75). Several processes may share OUT if each
trains nets of its own.
"""

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path

from keras_highway._support.log import read_log
from keras_highway.tasks import plus_minus
from keras_highway.training.recipe import Recipe, changed, with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.run_folder import check_finished, has_whole_result
from keras_highway.training.tiny import tiny
from keras_highway.training.train import errors_in_a_line
from training.divergence import has_diverged, train_or_diverge

SEEDS = (1, 2, 3)
RATE_EPOCHS = 5
_OWN = ("learning_rate", "seed", "holdout_images", "epochs", "warmup_epochs")  # what a study sets itself


class DivergedError(ValueError):
    """A network that diverges at every rate."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """What is compared.

    Attributes:
        nets: Names of recipes, one per network.
        base: The one with which the others are compared.
        rates: The highest rates that each may have.
        held_out: Training images that the short runs are tested on.
        rate_images: Training images of the short runs, as a recipe's
            `train_images`. Defaults to `None`, those of the recipe.
        suffix: Of the names of the whole runs' recipes, where these are not
            the `nets` themselves, e.g. `"_5"`. Defaults to `""`.
        seeds: Of the whole runs. Defaults to 1, 2 and 3.
    """

    nets: tuple[str, ...]
    base: str
    rates: tuple[float, ...]
    held_out: int
    rate_images: int | None = None
    suffix: str = ""
    seeds: tuple[int, ...] = SEEDS

    def run(self, nets, seeds, data_dir, out: Path, small: bool = False, settings=()) -> None:
        """Trains what is missing.

        Args:
            nets: Some of `nets`.
            seeds: Of the whole runs, may be empty.
            data_dir: Folder of the data set.
            out: The study's folder.
            small: Tiny nets and made-up data, to try the way.
            settings: Of all recipes, see `with_settings`.

        Raises:
            DivergedError: If a network diverged at every rate; the others are
                trained first.
        """
        lost = []
        for net in nets:
            try:
                rate = self.chosen_rate(net, data_dir, out, small, settings)
            except DivergedError as error:
                lost.append(str(error))
                continue
            for seed in seeds:
                recipe = with_settings(self.seed_recipe(net, rate, seed, small), list(settings))
                _train(recipe, data_dir, self.folder(net, seed, out))
        if lost:
            raise DivergedError(" ".join(lost))

    def run_name(self, net: str) -> str:
        """Returns the name of the recipe of a net's whole runs."""
        return f"{net}{self.suffix}"

    def seed_recipe(self, net: str, rate: float, seed: int, small: bool = False) -> Recipe:
        """Returns the recipe of a whole run."""
        return _recipe(self.run_name(net), rate, seed, small)

    def rate_recipe(self, net: str, rate: float, small: bool = False) -> Recipe:
        """Returns the recipe of a short run, tested on images held out of the training set."""
        epochs, held_out = (2, 20) if small else (RATE_EPOCHS, self.held_out)
        recipe = _recipe(net, rate, SEEDS[0], small)
        images = recipe.train_images if small or self.rate_images is None else self.rate_images
        return changed(recipe, epochs=epochs, warmup_epochs=1, holdout_images=held_out, train_images=images)

    def folder(self, net: str, seed: int, out: Path) -> Path:
        """Returns the folder of a whole run."""
        return out / self.run_name(net) / str(seed)

    def rate_folders(self, net: str, out: Path) -> dict[float, Path]:
        """Returns the folders of a net's short runs, by rate."""
        return {rate: out / "rates" / f"{net}_{rate}" for rate in self.rates}

    def chosen_rate(self, net: str, data_dir, out: Path, small: bool = False, settings=()) -> float:
        """Trains what is missing of a net's short runs; returns the rate of the best accuracy on held-out images.

        Of equal ones the lower rate is taken; a run that diverged counts as accuracy 0.

        Raises:
            DivergedError: If all diverged.
        """
        folders = self.rate_folders(net, out)
        for rate, folder in folders.items():
            _train(with_settings(self.rate_recipe(net, rate, small), list(settings)), data_dir, folder)
        if self.diverged_at_every_rate(net, out):
            raise DivergedError(
                f"{net} diverged at every rate, {self.rates}: see {next(iter(folders.values())).parent}."
            )
        return self._best_rate(folders)

    def diverged_at_every_rate(self, net: str, out: Path) -> bool:
        """Whether all of a net's short runs diverged, so that it has no whole ones."""
        return all(map(has_diverged, self.rate_folders(net, out).values()))

    def known_rate(self, net: str, out: Path) -> float | None:
        """Returns a net's chosen rate, `None` where short runs are missing or all diverged. Nothing is trained."""
        folders = self.rate_folders(net, out)
        known = all(map(_is_over, folders.values())) and not self.diverged_at_every_rate(net, out)
        return self._best_rate(folders) if known else None

    def _best_rate(self, folders: dict[float, Path]) -> float:
        return max(self.rates, key=lambda rate: (_accuracy(folders[rate]), -rate))

    def table(self, nets, seeds, out: Path) -> str:
        """Returns what was measured, each net against the base seed by seed.

        Means are of the runs that did not diverge; how many did is a column.
        """
        lines = [
            f"| recipe | rate | seeds | diverged | training loss | test accuracy, % "
            f"| minus {self.run_name(self.base)}, points |",
            "|---|---|---|---|---|---|---|",
        ]
        base = {seed: _last(self.folder(self.base, seed, out)) for seed in seeds}
        for net in nets:
            rows = {seed: _last(self.folder(net, seed, out)) for seed in seeds}
            done = {seed: row for seed, row in rows.items() if row is not None}
            rate = "none: all diverged" if self.diverged_at_every_rate(net, out) else self.known_rate(net, out) or "-"
            pairs = [100 * (row["test_accuracy"] - base[s]["test_accuracy"]) for s, row in done.items() if base[s]]
            cells = (
                self.run_name(net),
                rate,
                len(done),
                sum(has_diverged(self.folder(net, seed, out)) for seed in seeds),
                spread([row["train_loss"] for row in done.values()], 4),
                spread([100 * row["test_accuracy"] for row in done.values()], 2),
                "" if net == self.base else spread(pairs, 2),
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
        return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser, out: str) -> None:
    """Adds what every study takes on the command line.

    Args:
        parser: Of the experiment.
        out: The default folder.
    """
    parser.add_argument("--out", type=Path, default=Path(out), help=f"default: {out}")
    parser.add_argument("--seeds", nargs="+", type=int, help="of the whole runs (default: those that the study keeps)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a field of all recipes, e.g. precision=float32",
    )
    parser.add_argument("--rates-only", action="store_true", help="choose the rates, train no seed")
    parser.add_argument("--tiny", action="store_true", help="tiny nets and made-up data: to try the way")
    parser.add_argument("--table", action="store_true", help="train nothing, print the table of the runs as they are")


def study_main(
    study: Study,
    module: str,
    doc: str,
    part: str,
    names: dict[str, str],
    argv=None,
    data: str = "folder of cifar10.npz (default: KERAS_HIGHWAY_DATA)",
) -> int:
    """The command of a study all of whose nets a word names: trains, prints the table.

    Args:
        study: What is compared.
        module: Name of the experiment's module.
        doc: Its docstring.
        part: What a net is called here, e.g. `"designs"`: the option `--designs`.
        names: Recipe of each word.
        argv: The arguments. Defaults to the process's.
        data: What is said of `--data`. Defaults to CIFAR-10's.

    Returns:
        The exit code.

    Raises:
        SystemExit: For what `run_and_print` raises, with the exit codes of
            `keras_highway.training.train`.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m training.{module}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", help=data)
    parser.add_argument(f"--{part}", dest="nets", nargs="+", choices=names, default=list(names), help="default: all")
    add_arguments(parser, f"runs/{module}")
    args = parser.parse_args(argv)
    with errors_in_a_line():
        run_and_print(study, tuple(names[net] for net in args.nets), args)
    return 0


def run_and_print(study: Study, nets, args) -> None:
    """Runs a study by the arguments of `add_arguments` and `--data`, and prints the table.

    Raises:
        ValueError: If a setting is one that the study makes itself.
        DivergedError: If a network diverged at every rate; the others are
            trained, and the table is printed.
    """
    for setting in args.set:
        field = setting.partition("=")[0].strip()
        if field in _OWN or (field == "train_images" and study.rate_images is not None):
            raise ValueError(f"`{field}` is what a study sets itself: see --seeds. Received: --set {setting}")
    out, seeds = args.out / "tiny" if args.tiny else args.out, args.seeds or study.seeds
    lost = None
    if not args.table:
        try:
            study.run(nets, () if args.rates_only else seeds, args.data, out, args.tiny, args.set)
        except DivergedError as error:
            lost = error
    print(study.table(nets, seeds, out))
    if lost:
        raise lost


def _recipe(name, rate, seed, small) -> Recipe:
    recipe = RECIPES[name]
    return changed(tiny(recipe) if small else recipe, learning_rate=rate, seed=seed)


def _is_over(folder: Path) -> bool:
    """Whether a run has finished or diverged."""
    return has_whole_result(folder) or has_diverged(folder)


def _train(recipe: Recipe, data_dir, folder: Path) -> None:
    if _is_over(folder):
        check_finished(folder, recipe)
    else:
        train_or_diverge(recipe, data_dir, folder)


def _accuracy(folder: Path) -> float:
    return json.loads((folder / "result.json").read_text("utf-8"))["mean"] if has_whole_result(folder) else 0.0


def _last(folder: Path) -> dict[str, float] | None:
    """The last line of a finished run's log."""
    if not has_whole_result(folder):
        return None
    return read_log(folder / "log.csv")[-1]


def spread(values: list[float], digits: int) -> str:
    """Returns `mean ± standard deviation` of several values, the value of one, `-` of none."""
    if not values:
        return "-"
    more = f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return plus_minus(f"{statistics.mean(values):.{digits}f}", more)
