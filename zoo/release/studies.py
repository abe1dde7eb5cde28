"""Comparisons whose runs are in zoo/runs: their sections of docs/results.md and their curves in docs/results.

Differences are between runs of the same seed. Whether a network is ahead of
another is decided by the 95 % interval of the mean difference (Student's t).
"""

import json
import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from keras_highway._support.files import read_log
from keras_highway._support.keras_models import without_values
from keras_highway.analysis.plots import Curve, draw_training, legend_above, training_axes, write
from keras_highway.cli.listing import parameters
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.cifar import form_of as _form
from keras_highway.training.run_folder import has_whole_result
from keras_highway.variants import VARIANTS
from training.study import RATE_EPOCHS, STUDIES, Study, has_diverged, spread

MARGIN = 0.5  # points by which a network may be behind another that it matches
TRAINS = 20.0  # % of the test images right: twice chance, of ten classes
Kind = Literal["ahead", "matches", "fits", "diverges", "trains"]


@dataclass(frozen=True)
class Claim:
    """What is said of two networks.

    Attributes:
        text: The claim.
        first: Name of a recipe.
        second: Name of the other.
        kind: `"ahead"`: the first is better; `"matches"`: it is at most
            `MARGIN` behind; `"fits"`: its training loss is lower;
            `"diverges"`: runs of the second diverge, those of the first do
            not; `"trains"`, of one network, which is both: no run diverges,
            and all end above `TRAINS`.
    """

    text: str
    first: str
    second: str
    kind: Kind


@dataclass(frozen=True)
class Comparison:
    """A study whose runs are kept.

    Attributes:
        name: Of its picture.
        folder: Of its runs, in `zoo/runs`.
        title: Of its section.
        intro: What was done.
        study: What is compared.
        claims: Of the paper.
        goal: Test accuracy that was to be reached, %. Defaults to `None`.
        beside: Name of a comparison of the same networks, in the same order,
            whose accuracy is told beside. Defaults to `""`.
        epochs: After which losses and accuracies are told. Defaults to none.
        base_of_another: Whether the base's runs are another comparison's, and
            those of the other nets alone make it one. Defaults to `False`.
    """

    name: str
    folder: str
    title: str
    intro: str
    study: Study
    claims: tuple[Claim, ...]
    goal: float | None = None
    beside: str = ""
    epochs: tuple[int, ...] = ()
    base_of_another: bool = False


_HOW = (
    "Test accuracy of the last epoch, mean ± standard deviation over seeds. Differences are between runs of the same "
    f"seed, with the 95 % interval of their mean. A net matches another if it is at most {MARGIN} points behind."
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
    claims=(
        Claim("highway nets match ResNets or beat them, in test accuracy", "highway20", "resnet20", "matches"),
        Claim(
            "exclusive gating (a 1x1 gate, post-activation) is behind ResNets",
            "resnet20",
            "exclusive20",
            "ahead",
        ),
        Claim('pre-activation with a 1x1 gate is behind, too ("trains very poorly")', "resnet20", "preact20", "ahead"),
        Claim(
            "post-activation with gates of two 3x3 and zeroBN matches them", "postact20_zerobn", "resnet20", "matches"
        ),
        Claim("without zeroBN it is unstable: some run diverges", "postact20_zerobn", "postact20", "diverges"),
    ),
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
    claims=(
        Claim("gates that look at the data are ahead of those that do not", "highway20", _form("channel"), "ahead"),
        Claim("gates of low rank match those as deep as the transforms", _form("low_rank"), "highway20", "matches"),
        Claim("gates shared by the blocks of a stage match gates of their own", _form("tied"), "highway20", "matches"),
        Claim("transforms shared by the blocks of a stage match, too", _form("shared"), "highway20", "matches"),
        Claim("layer dropout is ahead of training whole", _form("stochastic_depth"), "highway20", "ahead"),
    ),
)


def _photographs(name: str, title: str, what: str, *claims: Claim, **more: Any) -> Comparison:
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
    return Comparison(
        name=f"imagenette_{name}", folder="imagenette", title=title, intro=intro, study=study, claims=claims, **more
    )


_IN_SMALL = "[BLOG] Evidence 3 in small: Highway50 and ResNet50 on photographs"
_OF_THE_BLOG = "Highway50 matches ResNet50 or beats it, in test accuracy"
_PAIR = Claim(_OF_THE_BLOG, "highway50_imagenette", "resnet50_imagenette", "matches")
_BOARD = (
    "128 pixels, one recipe for both. The leaderboard has 85.77 % after 5 epochs (87.43 % in its newest version) by "
    'a "mini net", and 91.57 % after 20, by an SE-ResNeXt50 with Mish, self-attention and blurred pooling (n = 5).'
)
A3 = _photographs(
    "a3",
    '[BLOG] Evidence 3 in small: procedure A3 of "ResNet strikes back" on photographs',
    "Trained at 96 pixels and tested at 128, batch 128: LAMB, RandAugment, Mixup, CutMix.",
    Claim(_OF_THE_BLOG, "highway50_imagenette_a3", "resnet50_imagenette_a3", "matches"),
    beside="imagenette_pair",
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
    claims=(Claim(_OF_THE_BLOG, *_TINY.nets, "matches"),),
)


def _of_uie(text: str, first: str, second: str, kind: Kind) -> Claim:
    return Claim(text, f"{first}_64", f"{second}_64", kind)


def _trains(net: str, what: str) -> Claim:
    return _of_uie(f"without it {what} trains", f"{net}_uie_nobn", f"{net}_uie_nobn", "trains")


COMPARISONS = (
    DESIGNS,
    FORMS,
    _photographs("pair", f"{_IN_SMALL}, 20 epochs", _BOARD, _PAIR, goal=91.6),
    _photographs("pair_5", f"{_IN_SMALL}, 5 epochs", _BOARD, _PAIR, goal=85.8),
    A3,
    TINY_IMAGENET,
    _photographs(
        "uie",
        "[UIE] Table 1b in small: with and without batch normalization",
        "64 pixels, the same recipe for all six nets. A net fits better if its training loss in the last epoch is "
        "lower (augmented photographs; rates were chosen by held-out accuracy). A net trains if every run ends above "
        f"{TRAINS:.0f} % test accuracy.",
        _trains("highway50", "Highway"),
        _trains("highway_full50", "Highway-Full"),
        _trains("resnet50", "ResNet"),
        _of_uie("with it ResNet fits the training set better", "resnet50_uie", "highway50_uie", "fits"),
        _of_uie("with it Highway matches ResNet", "highway50_uie", "resnet50_uie", "matches"),
        _of_uie("with it Highway-Full matches ResNet", "highway_full50_uie", "resnet50_uie", "matches"),
        _of_uie("without it Highway fits better than ResNet", "highway50_uie_nobn", "resnet50_uie_nobn", "fits"),
        _of_uie("without it ResNet generalizes better", "resnet50_uie_nobn", "highway50_uie_nobn", "ahead"),
        _of_uie("Highway fits better without it than with it", "highway50_uie_nobn", "highway50_uie", "fits"),
        _of_uie("ResNet fits better without it than with it", "resnet50_uie_nobn", "resnet50_uie", "fits"),
        _of_uie("Highway generalizes better with it than without it", "highway50_uie", "highway50_uie_nobn", "ahead"),
        _of_uie("ResNet generalizes better with it than without it", "resnet50_uie", "resnet50_uie_nobn", "ahead"),
    ),
)


ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "zoo" / "runs"
PICTURES = ROOT / "docs" / "results"
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # 97.5 % quantile of Student's t by degrees of freedom
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
            lines += ["| claim | verdict | measured |", "|---|---|---|"]
            lines += [_verdict(claim, comparison, runs, done) for claim in comparison.claims]
            lines += [""]
            lines += [f"- {line}" for line in (*_goal(comparison, done, runs), *_beside(comparison, done, runs))]
            if comparison.epochs:
                lines += ["", *_losses(comparison, comparison.epochs, done)]
            picture = f"![{_described(comparison, done)}](results/{comparison.name}.png)"
            lines += ["", picture, "", _made(comparison, done, runs)]
    return lines


def designs_table(runs: Path = RUNS) -> str:
    """Return the six designs in short: parameters, test accuracy, difference to the base's."""
    study = DESIGNS.study
    done = _finished(DESIGNS, runs)
    lines = [
        f"| {RECIPES[study.base].epochs} epochs of CIFAR-10 | parameters | seeds | test accuracy, % "
        f"| minus `{study.base}`, points (95 % interval of the mean) |",
        "|---|---|---|---|---|",
    ]
    for net, seeds in done.items():
        accuracy = spread([100 * log[-1]["test_accuracy"] for log in seeds.values()], 2)
        pairs = [] if net == study.base else _pairs(seeds, done.get(study.base, {}))
        difference = "{} ({:.2f} to {:.2f})".format(spread(pairs, 2), *_interval(pairs)) if len(pairs) > 1 else ""
        lines.append(f"| `{net}` | {parameters()[RECIPES[net].variant]:,} | {len(seeds)} | {accuracy} | {difference} |")
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


def _verdict(claim: Claim, comparison: Comparison, runs: Path, done) -> str:
    """Return a row of the table of claims."""
    gone = {net: _diverged(comparison, net, runs) for net in (claim.first, claim.second)}
    ended = {net: len(done.get(net, {})) + count for net, count in gone.items()}
    over = all(count == len(comparison.study.seeds) for count in ended.values())
    diverged = ", ".join(_share_diverged(comparison, net, gone[net], ended[net], runs) for net in gone if gone[net])
    if claim.kind == "trains":
        accuracies = _last_accuracies(done.get(claim.first, {}))
        word = _word_of_training(accuracies, gone[claim.first])
        measured = f"test accuracy {spread(accuracies, 2)} %" if accuracies else "no run ended"
    else:
        pairs = _pairs(done.get(claim.first, {}), done.get(claim.second, {}), claim.kind)
        word = _word(claim.kind, pairs, gone[claim.first], gone[claim.second])
        measured = _measured(claim, comparison.study, pairs)
    measured += f"; diverged: {diverged}" if diverged else ""
    return f"| {claim.text} | **{word if over else 'not all runs are finished'}** | {measured} |"


def _share_diverged(comparison: Comparison, net: str, gone: int, ended: int, runs: Path) -> str:
    """Of how many of a network's runs that are over the loss was not finite."""
    name = f"`{comparison.study.run_name(net)}`"
    if comparison.study.diverged_at_every_rate(net, runs / comparison.folder):
        return f"{name} at every rate"
    return f"{gone} of {ended} of {name}"


def _diverged(comparison: Comparison, net: str, runs: Path) -> int:
    """Of how many seeds a network's run diverged: of all where none of its rates ended."""
    study, folder = comparison.study, runs / comparison.folder
    if study.diverged_at_every_rate(net, folder):
        return len(study.seeds)
    return sum(has_diverged(study.run_folder(net, seed, folder)) for seed in study.seeds)


def _last_accuracies(logs) -> list[float]:
    """Test accuracies after the last epoch, %, of a network's finished runs."""
    return [100 * log[-1]["test_accuracy"] for log in logs.values()]


def _word_of_training(accuracies: list[float], gone: int) -> str:
    return "contradicted" if gone or min(accuracies, default=0.0) <= TRAINS else "holds"


def _goal(comparison: Comparison, done, runs: Path) -> list[str]:
    """Whether each network whose runs are over reached what was to be reached, in the mean of its seeds."""
    lines, seeds = [], len(comparison.study.seeds)
    for net in comparison.study.nets if comparison.goal is not None else ():
        logs, gone = done.get(net, {}), _diverged(comparison, net, runs)
        if len(logs) + gone < seeds:
            continue
        if gone:
            word = f"**missed**: {gone} of {seeds} diverged"
        else:
            short_of = comparison.goal - statistics.mean(_last_accuracies(logs))
            word = "**reached**" if short_of <= 0 else f"**missed** by {short_of:.2f} points"
            word += f", {_seeds(seeds)}"
        lines.append(f"goal {comparison.goal} %, `{comparison.study.run_name(net)}`: {word}.")
    return lines


def _beside(comparison: Comparison, done, runs: Path) -> list[str]:
    """Return the accuracy of the same networks by another recipe."""
    if not comparison.beside:
        return []
    (other,) = (one for one in COMPARISONS if one.name == comparison.beside)
    known, lines = _finished(other, runs), []
    for net, plain in zip(comparison.study.nets, other.study.nets, strict=True):
        if net in done and plain in known:
            ours, theirs = (spread(_last_accuracies(logs), 2) for logs in (done[net], known[plain]))
            name, recipe = comparison.study.run_name(net), other.study.run_name(plain)
            lines.append(f"`{name}` {ours} %, by the recipe `{recipe}`, {RECIPES[recipe].epochs} epochs: {theirs} %.")
    return lines


def _losses(comparison: Comparison, epochs: tuple[int, ...], done) -> list[str]:
    """Return a table of losses and accuracies after some epochs, means over the seeds.

    Raises:
        ValueError: If a log has no such epoch.
    """
    lines = ["| recipe | epoch | training loss | test loss | test accuracy, % |", "|---|---|---|---|---|"]
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


def _pairs(first, second, kind: str = "ahead") -> list[float]:
    """By how much the first is better after the last epoch, in test accuracy, points, or by its training loss, nats.

    Of the seeds that both networks have.
    """
    column, scale = ("train_loss", -1) if kind == "fits" else ("test_accuracy", 100)
    return [scale * (first[s][-1][column] - second[s][-1][column]) for s in first if s in second]


def _word(kind: str, pairs: list[float], first_gone: int, second_gone: int) -> str:
    if kind == "diverges":
        return "holds" if second_gone and not first_gone else "contradicted"
    if first_gone != second_gone:
        return "holds" if second_gone > first_gone else "contradicted"
    if len(pairs) < 2:
        return "cannot be decided"
    low, high = _interval(pairs)
    bound = -MARGIN if kind == "matches" else 0.0
    if low > bound:
        return "holds"
    return "contradicted" if high < bound else "cannot be decided"


def _interval(pairs: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    half = _T[len(pairs) - 1] * statistics.stdev(pairs) / len(pairs) ** 0.5
    return statistics.mean(pairs) - half, statistics.mean(pairs) + half


def _measured(claim: Claim, study: Study, pairs: list[float]) -> str:
    first, second = study.run_name(claim.first), study.run_name(claim.second)
    between, unit, digits = f"`{first}` minus `{second}`", "points", 2
    if claim.kind == "fits":
        between, unit, digits = f"training loss of `{second}` minus `{first}`", "nats", 4
    if not pairs:
        return f"{between}: no pair of seeds"
    if len(pairs) == 1:
        return f"{between} is {pairs[0]:.{digits}f} {unit}, n = 1: no interval"
    low, high = _interval(pairs)
    return f"{between} is {spread(pairs, digits)} {unit} ({low:.{digits}f} to {high:.{digits}f}), n = {len(pairs)}"


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
        r = json.loads((folder / "result.json").read_text("utf-8"))
        places.add(f"{r['backend']}, {precision_of(r)}, {r['hardware']}, commit `{short(r['commit'])}`")
    differ = ". Processors and commits differ too" if len(places) > 1 else ""
    return "; ".join(sorted(places)) + differ


def precision_of(result) -> str:
    """Return the precision of a result's products; older results do not name it."""
    return result.get("precision", "float32").removeprefix("mixed_")
