"""Compare networks fairly: choose a rate for each on held-out training images, then train several seeds.

    python -m training.study designs --data DIR

Short runs, `OUT/rates/NET_RATE`, try the same rates for every network and are
tested on held-out training images. Then every seed is trained whole and tested
on the test set, `OUT/NET/SEED`. The same command resumes a study. SIGTERM saves
the state (exit code 75). Processes may share OUT if each trains other networks.
"""

import argparse
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from keras_highway._support.files import atomic_write_json, read_log
from keras_highway.tasks import plus_minus
from keras_highway.training.distributed.stopping import stop_requests
from keras_highway.training.recipe import Recipe, changed, with_settings
from keras_highway.training.recipes import RECIPES, cifar, imagenet, tiny
from keras_highway.training.run_folder import check_finished, has_whole_result
from keras_highway.training.train import errors_in_a_line
from training import read_json

SEEDS = (1, 2, 3)
RATE_EPOCHS = 5
_OWN = ("learning_rate", "seed", "holdout_images", "epochs", "warmup_epochs")  # fields that a study sets
_DIVERGED = "diverged.json"


class DivergedError(ValueError):
    """A network diverges at every rate."""


@dataclass(frozen=True, kw_only=True)
class Study:
    """A comparison of networks."""

    nets: tuple[str, ...]  # names of recipes, one per network
    base: str  # the recipe that the others are compared with
    rates: tuple[float, ...]  # peak learning rates to choose from, the same for every network
    held_out: int  # number of training images that test the short runs
    folder: str  # name of the folder in `runs/`
    rate_images: int | None = None  # `train_images` of the short runs
    suffix: str = ""  # appended to the recipe names of the whole runs, e.g. `"_5"`
    seeds: tuple[int, ...] = SEEDS  # seeds of the whole runs

    def run(self, nets, seeds, data_dir, out: Path, small: bool = False, settings=()) -> None:
        """Train the runs that are missing."""
        lost = []
        for net in nets:
            try:
                rate = self.chosen_rate(net, data_dir, out, small, settings)
            except DivergedError as error:
                lost.append(str(error))
                continue
            for seed in seeds:
                recipe = with_settings(self.seed_recipe(net, rate, seed, small), list(settings))
                _train(recipe, data_dir, self.run_folder(net, seed, out))
        if lost:
            raise DivergedError(" ".join(lost))

    def run_name(self, net: str) -> str:
        """Return the recipe name of a network's whole runs."""
        return f"{net}{self.suffix}"

    def seed_recipe(self, net: str, rate: float, seed: int, small: bool = False) -> Recipe:
        """Return the recipe of a whole run."""
        return _recipe(self.run_name(net), rate, seed, small)

    def rate_recipe(self, net: str, rate: float, small: bool = False) -> Recipe:
        """Return the recipe of a short run, tested on held-out training images."""
        epochs, held_out = (2, 20) if small else (RATE_EPOCHS, self.held_out)
        recipe = _recipe(net, rate, SEEDS[0], small)
        images = recipe.train_images if small or self.rate_images is None else self.rate_images
        return changed(recipe, epochs=epochs, warmup_epochs=1, holdout_images=held_out, train_images=images)

    def run_folder(self, net: str, seed: int, out: Path) -> Path:
        """Return the folder of a whole run."""
        return out / self.run_name(net) / str(seed)

    def rate_folders(self, net: str, out: Path) -> dict[float, Path]:
        """Return the folders of a network's short runs by rate."""
        return {rate: out / "rates" / f"{net}_{rate}" for rate in self.rates}

    def chosen_rate(self, net: str, data_dir, out: Path, small: bool = False, settings=()) -> float:
        """Train the short runs that are missing and return the rate of the best held-out accuracy.

        A tie goes to the lower rate. A run that diverged counts as accuracy 0.
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
        """Whether all short runs of a network diverged, so that it has no whole ones."""
        return all(map(has_diverged, self.rate_folders(net, out).values()))

    def known_rate(self, net: str, out: Path) -> float | None:
        """Return a network's chosen rate, `None` if short runs are missing or all diverged. Train nothing."""
        folders = self.rate_folders(net, out)
        known = all(map(_is_over, folders.values())) and not self.diverged_at_every_rate(net, out)
        return self._best_rate(folders) if known else None

    def _best_rate(self, folders: dict[float, Path]) -> float:
        return max(self.rates, key=lambda rate: (_accuracy(folders[rate]), -rate))

    def table(self, nets, seeds, out: Path) -> str:
        """Return the results as a Markdown table, each network against the base seed by seed.

        Means are over the runs that did not diverge.
        """
        lines = [
            f"| recipe | rate | seeds | diverged | training loss | test accuracy, % "
            f"| minus {self.run_name(self.base)}, points (95 % interval of the mean) |",
            "|---|---|---|---|---|---|---|",
        ]
        base = {seed: _last(self.run_folder(self.base, seed, out)) for seed in seeds}
        for net in nets:
            rows = {seed: _last(self.run_folder(net, seed, out)) for seed in seeds}
            done = {seed: row for seed, row in rows.items() if row is not None}
            rate = "none: all diverged" if self.diverged_at_every_rate(net, out) else self.known_rate(net, out) or "-"
            pairs = [100 * (row["test_accuracy"] - base[s]["test_accuracy"]) for s, row in done.items() if base[s]]
            cells = (
                self.run_name(net),
                rate,
                len(done),
                sum(has_diverged(self.run_folder(net, seed, out)) for seed in seeds),
                spread([row["train_loss"] for row in done.values()], 4),
                spread([100 * row["test_accuracy"] for row in done.values()], 2),
                "" if net == self.base else difference(pairs),
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
        return "\n".join(lines)


_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # 97.5 % quantile of Student's t by degrees of freedom
_PAIR = Study(
    nets=tuple(f"{net}_imagenette" for net in imagenet.PAIR),
    base="resnet50_imagenette",
    rates=imagenet.RATES,
    held_out=1_000,  # of 9,469
    folder="imagenette",
    seeds=(1,),
)
STUDIES = {
    "designs": Study(
        nets=tuple(map(cifar.variant_of, cifar.DESIGNS)),
        base=cifar.variant_of("resnet"),
        rates=cifar.RATES,
        held_out=5_000,  # of 50,000
        folder="designs",
    ),
    "block_forms": Study(
        nets=tuple(map(cifar.form_of, cifar.FORMS)),
        base=cifar.form_of("coupled"),  # highway20: its runs are those of `designs`
        rates=cifar.RATES,
        held_out=5_000,
        folder="designs",
    ),
    "imagenette_pair": _PAIR,
    "imagenette_pair_5": replace(_PAIR, suffix="_5", seeds=SEEDS),  # with the rates of `imagenette_pair`
    "imagenette_a3": replace(
        _PAIR,
        nets=tuple(f"{net}_imagenette_a3" for net in imagenet.PAIR),
        base="resnet50_imagenette_a3",
        rates=imagenet.A3_RATES,
    ),
    "imagenette_uie": replace(
        _PAIR, nets=tuple(f"{net}_64" for net in imagenet.UIE_NETS), base="resnet50_uie_64", rates=imagenet.UIE_RATES
    ),
    "tiny_imagenet": Study(
        nets=tuple(map(imagenet.tiny_imagenet_of, imagenet.PAIR)),
        base=imagenet.tiny_imagenet_of("resnet50"),
        rates=imagenet.RATES,
        held_out=5_000,  # of 100,000
        folder="tiny_imagenet",
        rate_images=25_000,
        seeds=(1,),
    ),
}


def has_diverged(folder: Path) -> bool:
    """Whether the run in a folder diverged."""
    return (folder / _DIVERGED).exists()


def train_or_diverge(recipe: Recipe, data_dir, folder: Path, until: int | None = None) -> None:
    """Train a run, or note in its folder that it diverged."""
    import keras

    from keras_highway.training.loop import train

    keras.utils.clear_session()
    with stop_requests() as stop, stop.honoured():
        try:
            train(recipe, data_dir, folder, until=until)
        except FloatingPointError as error:
            atomic_write_json(folder / _DIVERGED, {"error": str(error)})


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
    return read_json(folder / "result.json")["mean"] if has_whole_result(folder) else 0.0


def _last(folder: Path) -> dict[str, float] | None:
    """Last line of a finished run's log."""
    return read_log(folder / "log.csv")[-1] if has_whole_result(folder) else None


def spread(values: list[float], digits: int) -> str:
    """Return `mean ± standard deviation` of several values, the value of one, `-` of none."""
    if not values:
        return "-"
    more = f"{statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return plus_minus(f"{statistics.mean(values):.{digits}f}", more)


def difference(pairs: list[float]) -> str:
    """Return `spread` of paired differences, and the interval of their mean."""
    return "{} ({:.2f} to {:.2f})".format(spread(pairs, 2), *interval(pairs)) if len(pairs) > 1 else spread(pairs, 2)


def interval(pairs: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of differences (Student's t)."""
    half = _T[len(pairs) - 1] * statistics.stdev(pairs) / len(pairs) ** 0.5
    return statistics.mean(pairs) - half, statistics.mean(pairs) + half


def _run_and_print(study: Study, nets, args) -> None:
    """Run a study and print its table, also if a network diverged at every rate."""
    for setting in args.set:
        field = setting.partition("=")[0].strip()
        if field in _OWN or (field == "train_images" and study.rate_images is not None):
            raise ValueError(f"`{field}` is what a study sets itself: see --seeds. Received: --set {setting}")
    out, seeds = args.out or Path("runs") / study.folder, args.seeds or study.seeds
    out = out / "tiny" if args.tiny else out
    lost = None
    if not args.table:
        try:
            study.run(nets, () if args.rates_only else seeds, args.data, out, args.tiny, args.set)
        except DivergedError as error:
            lost = error
    print(study.table(nets, seeds, out))
    if lost:
        raise lost


def main(argv=None) -> int:
    """Parse the command line, train, print the table; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m training.study", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--data", help="folder of the data set (default: KERAS_HIGHWAY_DATA)")
    parser.add_argument("--nets", nargs="+", metavar="RECIPE", help="some recipes of the study (default: all)")
    parser.add_argument("--out", type=Path, help="folder of the study (default: runs/FOLDER)")
    parser.add_argument("--seeds", nargs="+", type=int, help="seeds of the whole runs (default: the study's own)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of all recipes: precision=float32"
    )
    parser.add_argument("--rates-only", action="store_true", help="choose the rates, train no seed")
    parser.add_argument("--tiny", action="store_true", help="tiny networks and made-up data, to try the command")
    parser.add_argument("--table", action="store_true", help="train nothing, print the table of the runs so far")
    args = parser.parse_args(argv)
    study = STUDIES[args.study]
    unknown = sorted(set(args.nets or ()) - set(study.nets))
    if unknown:
        parser.error(f"--nets are of {', '.join(study.nets)}. Received: {', '.join(unknown)}")
    with errors_in_a_line():
        _run_and_print(study, args.nets or study.nets, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
