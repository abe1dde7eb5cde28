"""Comparisons whose runs are in zoo/runs: their sections of docs/results.md and their curves in docs/results.

Differences are between runs of the same seed.
"""

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keras_highway._support.files import read_log
from keras_highway._support.keras_models import without_values
from keras_highway.analysis.plots import Curve, draw_training, legend_above, training_axes, write
from keras_highway.cli.listing import parameters
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import has_whole_result
from keras_highway.variants import VARIANTS
from training import head, read_json
from training.study import RATE_EPOCHS, STUDIES, Study, difference, spread


@dataclass(frozen=True)
class Comparison:
    """A study whose runs are kept."""

    name: str  # of its picture
    folder: str  # of its runs, in `zoo/runs`
    title: str  # of its section
    intro: str  # what was done
    study: Study  # what is compared
    epochs: tuple[int, ...] = ()  # after which losses and accuracies are told
    # whether the base's runs belong to another comparison, so that they alone make no section
    base_of_another: bool = False


_HOW = (
    "Test accuracy of the last epoch, mean ± standard deviation over seeds. Differences are between runs of the same "
    "seed, with the 95 % interval of their mean (Student's t). [Claims](claims.md) has the verdicts."
)
_ONE_SEED = "Test accuracy of the last epoch, one seed: no spread and no interval, so nothing is decided."
_DESIGNS, _FORMS, _TINY = (STUDIES[name] for name in ("designs", "block_forms", "tiny_imagenet"))
_RECIPE = RECIPES[_DESIGNS.base]
DESIGNS = Comparison(
    name="designs",
    folder="designs",
    title="[BLOG] Evidence 1 and More Comparisons in small: six designs at 20 layers, CIFAR-10",
    intro="`python -m training.study designs --data DIR`. `highway20` and `resnet20` have about the same number of "
    "parameters. `exclusive20` and `preact20` have ResNet's widths and 1x1 gates. Gate biases start at -2, the value "
    "for this depth [TVDN, 2.2]; with -6, as at 110 layers, `highway20` was worse on held-out images (52.0 against "
    f"75.5 %: one seed, 5 epochs, rate 0.1; not tried for the other designs). {_RECIPE.epochs} epochs with a one-cycle "
    f"rate. The peak rate of each design is the best of {', '.join(map(str, _DESIGNS.rates))} on "
    f"{_DESIGNS.held_out:,} held-out training images. Epochs are equal, time is not: an epoch of `highway20` takes "
    "about twice as long as one of `resnet20`. The blog's claim is about 110 layers, a bias of -6 and no warm-up; this "
    f"study differs in all three. {_HOW}",
    study=_DESIGNS,
)
FORMS = Comparison(
    name="block_forms",
    folder="designs",
    base_of_another=True,
    title="Forms of `highway20`'s block at equal parameters, CIFAR-10",
    intro="`python -m training.study block_forms --data DIR`. [BLOG] and [UIE, 4] suggest other forms: gates that do "
    "not depend on the data (one per channel), low-rank gates, gates or transforms shared by the blocks of a stage, "
    "and layer dropout (stochastic depth). The gates of `highway20` are as deep as its transforms. Widths are chosen "
    f"for equal parameters. {_RECIPE.epochs} epochs with a one-cycle rate. The peak rate of each form is the best of "
    f"{', '.join(map(str, _FORMS.rates))} on {_FORMS.held_out:,} held-out training images. No paper has these numbers. "
    f"{_HOW}",
    study=_FORMS,
)


def _photographs(name: str, title: str, what: str, **more: Any) -> Comparison:
    """Return a study of Imagenette."""
    study = STUDIES[f"imagenette_{name}"]
    recipe = RECIPES[study.run_name(study.base)]
    intro = (
        f"`python -m training.study imagenette_{name} --data DIR`. Imagenette, ten classes; the photographs are the "
        "square copies of 224 x 224 pixels in github.com/thunderInfy/imagenette (the original leaderboard uses the "
        f"original proportions). {what} {recipe.epochs} epochs. The rate of each net is the best of "
        f"{', '.join(map(str, study.rates))} after {RATE_EPOCHS} epochs, on {study.held_out:,} held-out training "
        "photographs; 3,925 test photographs. Parameters are counted with a head for 1,000 classes. "
        f"{_HOW if len(study.seeds) > 1 else _ONE_SEED}"
    )
    return Comparison(name=f"imagenette_{name}", folder="imagenette", title=title, intro=intro, study=study, **more)


_IN_SMALL = "[BLOG] Evidence 3 in small: Highway50 and ResNet50 on photographs"
_BOARD = (
    "128 pixels, one recipe for both. The leaderboard has 85.77 % after 5 epochs (87.43 % in its newest version) by "
    'a "mini net", and 91.57 % after 20, by an SE-ResNeXt50 with Mish, self-attention and blurred pooling (n = 5).'
)
A3 = _photographs(
    "a3",
    '[BLOG] Evidence 3 in small: procedure A3 of "ResNet strikes back" on photographs',
    "Trained at 96 pixels and tested at 128, batch 128: LAMB, RandAugment, Mixup, CutMix.",
    epochs=(1, 5, 10),
)
TINY_IMAGENET = Comparison(
    name="tiny_imagenet",
    folder="tiny_imagenet",
    title="[BLOG] Evidence 3 in small: Highway50 and ResNet50 on Tiny ImageNet",
    intro="`python -m training.study tiny_imagenet --data DIR`. 200 classes of ImageNet, 100,000 photographs of "
    f"64 x 64 pixels. One recipe for both, {RECIPES[_TINY.base].epochs} epochs. The rate of each net is the best of "
    f"{', '.join(map(str, _TINY.rates))} after {RATE_EPOCHS} epochs on {_TINY.rate_images:,} training photographs, on "
    f"{_TINY.held_out:,} held-out ones; tested on the 10,000 photographs of the validation set. Parameters are counted "
    f"with a head for 1,000 classes. {_ONE_SEED}",
    study=_TINY,
)


COMPARISONS = (
    DESIGNS,
    FORMS,
    _photographs("pair", f"{_IN_SMALL}, 20 epochs", _BOARD),
    _photographs("pair_5", f"{_IN_SMALL}, 5 epochs", _BOARD),
    A3,
    TINY_IMAGENET,
    _photographs(
        "uie",
        "[UIE] Table 1b in small: with and without batch normalization",
        "64 pixels, the same recipe for all six nets. Training losses are of augmented photographs; rates were chosen "
        "by held-out accuracy.",
    ),
)


ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "zoo" / "runs"
PICTURES = ROOT / "docs" / "results"
_SIZES = ("input_shape", "classes")  # what makes no other form of a variant
_COLUMNS = {"train_loss": 1, "test_accuracy": 100}  # what is drawn, and what it is multiplied by


def short(commit: str) -> str:
    """Return the first 12 digits of a commit, and `-dirty` if files differed from it."""
    digits, dash, state = commit.partition("-")
    return digits[:12] + dash + state


def sections(runs: Path = RUNS) -> list[str]:
    """Return the lines of all comparisons that have a finished run of their own."""
    lines = []
    for comparison in COMPARISONS:
        if done := _compared(comparison, runs):
            lines += ["", f"## {comparison.title}", "", comparison.intro, ""]
            study = comparison.study
            lines += [study.table(study.nets, study.seeds, runs / comparison.folder), ""]
            lines += [" ".join((_sizes(study), *_ends(study, runs / comparison.folder))), ""]
            if comparison.epochs:
                lines += [*_losses(comparison, comparison.epochs, done), ""]
            picture = f"![{_described(comparison, done)}](results/{comparison.name}.png)"
            lines += [picture, "", _made(comparison, done, runs)]
    return lines


def designs_table(runs: Path = RUNS) -> str:
    """Return the six designs in short: parameters, test accuracy, difference to the base's."""
    study = DESIGNS.study
    done = _finished(DESIGNS, runs)
    lines = head(
        f"| {RECIPES[study.base].epochs} epochs of CIFAR-10 | parameters | seeds | test accuracy, % "
        f"| minus `{study.base}`, points (95 % interval of the mean) |"
    )
    for net, seeds in done.items():
        accuracy = spread([100 * log[-1]["test_accuracy"] for log in seeds.values()], 2)
        pairs = [] if net == study.base else _pairs(seeds, done.get(study.base, {}))
        behind = difference(pairs) if pairs else ""
        lines.append(f"| `{net}` | {parameters()[RECIPES[net].variant]:,} | {len(seeds)} | {accuracy} | {behind} |")
    return "\n".join([*lines, "", f"±: standard deviation over seeds. {_hardware(DESIGNS, done, runs)}."])


def a3_losses_table(runs: Path = RUNS) -> str:
    """Losses and accuracies of procedure A3 in small, after some epochs and the last."""
    done, last = _finished(A3, runs), RECIPES[A3.study.run_name(A3.study.base)].epochs
    made = f"{_hardware(A3, done, runs)}. Logs: `zoo/runs/{A3.folder}`."
    return "\n".join([*_losses(A3, (*A3.epochs, last), done), "", made])


def _sizes(study: Study) -> str:
    """How many parameters each network has, and how many times the base's."""
    counts = {net: _parameters(RECIPES[net]) for net in study.nets}
    listed = (f"`{study.run_name(net)}` {count:,} ({count / counts[study.base]:.2f})" for net, count in counts.items())
    return f"Trainable parameters, and relative to `{study.run_name(study.base)}`: {', '.join(listed)}."


def _parameters(recipe: Recipe) -> int:
    """Trainable parameters of a recipe's network: those of its variant, unless it is another form of it."""
    form = {key: value for key, value in recipe.overrides if key not in _SIZES}
    if not form:
        return parameters()[recipe.variant]
    model = without_values(lambda: build(override(VARIANTS[recipe.variant], **form)))
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def _ends(study: Study, folder: Path) -> list[str]:
    """Whose chosen rate is the highest or the lowest of those that were tried: the best one may lie beyond."""
    rates = {net: study.known_rate(net, folder) for net in study.nets}
    sentences = []
    for end, word, beyond in ((max(study.rates), "highest", "higher"), (min(study.rates), "lowest", "lower")):
        if nets := [f"`{study.run_name(net)}`" for net, rate in rates.items() if rate == end]:
            sentences.append(
                f"The chosen rate of {', '.join(nets)} is the {word} tried, {end}; a {beyond} one may be better."
            )
    return sentences


def draw(runs: Path = RUNS, out: Path = PICTURES) -> list[Path]:
    """Draws training loss and test accuracy of every comparison that has a finished run; returns the files."""
    files = []
    for comparison in COMPARISONS:
        if done := _compared(comparison, runs):
            figure, axes = training_axes(2, 6.8)
            for axis, column, what in zip(axes, _COLUMNS, ("training loss", "test accuracy, %"), strict=True):
                draw_training(axis, _curves(comparison, done, column, axis), ylabel=what)
            legend_above(axes[0])
            axes[1].get_legend().remove()  # the same
            files.append(out / f"{comparison.name}.png")
            out.mkdir(parents=True, exist_ok=True)
            write(figure, files[-1], None)
    return files


def _curves(comparison, done, column, axis) -> list[Curve]:
    """Means over the seeds; shaded, from the lowest to the highest."""
    curves = []
    for i, (net, seeds) in enumerate(done.items()):
        if len({len(log) for log in seeds.values()}) > 1:
            raise ValueError(
                f"Runs of zoo/runs/{comparison.folder}/{net} have different numbers of epochs: draw those of one "
                "recipe."
            )
        values = _COLUMNS[column] * np.array([[row[column] for row in log] for log in seeds.values()])
        epochs, color, name = np.arange(1, values.shape[1] + 1), f"C{i}", comparison.study.run_name(net)
        axis.fill_between(epochs, values.min(0), values.max(0), color=color, alpha=0.15, lw=0)
        curves.append(Curve(epochs, values.mean(0), f"{name}, {_seeds(len(values))}", {"color": color, "lw": 1.2}))
    return curves


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def _finished(comparison, runs) -> dict[str, dict[int, list[dict[str, float]]]]:
    """Log of the finished runs, by net and seed."""
    logs = {}
    for net in comparison.study.nets:
        seeds = comparison.study.seeds
        folders = {seed: comparison.study.run_folder(net, seed, runs / comparison.folder) for seed in seeds}
        logs[net] = {seed: read_log(f / "log.csv") for seed, f in folders.items() if has_whole_result(f)}
    return {net: seeds for net, seeds in logs.items() if seeds}


def _compared(comparison, runs):
    """As `_finished`; nothing, where the base alone has runs that are another comparison's."""
    done = _finished(comparison, runs)
    return {} if comparison.base_of_another and set(done) == {comparison.study.base} else done


def _losses(comparison: Comparison, epochs: tuple[int, ...], done) -> list[str]:
    """Return a table of losses and accuracies after some epochs, means over the seeds."""
    lines = head("| recipe | epoch | training loss | test loss | test accuracy, % |")
    for net, logs in done.items():
        for epoch in epochs:
            rows = [row for log in logs.values() for row in log if row["epoch"] == epoch]
            if len(rows) < len(logs):
                raise ValueError(f"A log of zoo/runs/{comparison.folder}/{net} has no epoch {epoch}: draw whole runs.")
            train, test, accuracy = (
                statistics.mean(row[key] for row in rows) for key in ("train_loss", "test_loss", "test_accuracy")
            )
            name = comparison.study.run_name(net)
            lines.append(f"| `{name}` | {epoch} | {train:.4f} | {test:.4f} | {100 * accuracy:.2f} |")
    note = (
        "Training loss: the mean sigmoid's cross-entropy over the classes of mixed images; test loss: the softmax's "
        "cross-entropy."
    )
    return [*lines, "", note]


def _pairs(first, second) -> list[float]:
    """Return by how many points of test accuracy the first is better, for each seed that both have."""
    return [100 * (first[s][-1]["test_accuracy"] - second[s][-1]["test_accuracy"]) for s in first if s in second]


def _described(comparison: Comparison, done) -> str:
    return f"Training loss and test accuracy, epoch by epoch: {', '.join(map(comparison.study.run_name, done))}"


def _made(comparison, done, runs) -> str:
    """Where the runs were made."""
    several = len(comparison.study.seeds) > 1
    shades = "Lines: means over seeds; shaded: lowest to highest" if several else "Lines: one seed"
    return f"{shades}. {_hardware(comparison, done, runs)}. Logs: `zoo/runs/{comparison.folder}`."


def _hardware(comparison, done, runs) -> str:
    """Return backend, precision, hardware and commit of the runs, each once."""
    places = set()
    for net, seed in [(name, number) for name, numbers in done.items() for number in numbers]:
        folder = comparison.study.run_folder(net, seed, runs / comparison.folder)
        r = read_json(folder / "result.json")
        places.add(f"{r['backend']}, {precision_of(r)}, {r['hardware']}, commit `{short(r['commit'])}`")
    differ = ". Processors and commits differ too" if len(places) > 1 else ""
    return "; ".join(sorted(places)) + differ


def precision_of(result) -> str:
    """Return the precision of a result's products; older results do not name it."""
    return result.get("precision", "float32").removeprefix("mixed_")
