"""`python -m zoo.release.studies`: draws the curves of the comparisons whose runs are in zoo/runs, into docs/results.

`sections` are their parts of docs/results.md: the table, the paper's claims
beside what was measured seed by seed, and the picture. A difference is that of
runs of the same seed; whether one network is ahead of another is decided by the
95 % interval of its mean (Student's t, as many degrees of freedom as seeds but
one), whether it trains or diverges by every run.
"""

import argparse
import json
import math
import statistics
from pathlib import Path

import numpy as np

from keras_highway._support.files import read_log
from keras_highway._support.keras_models import without_values
from keras_highway.analysis.plots import Curve, draw_training, legend_above, training_axes, write
from keras_highway.cli.listing import parameters
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.training.recipe import Recipe
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.run_folder import has_whole_result
from keras_highway.variants import VARIANTS
from training.study import Study, has_diverged, spread
from zoo.release.commits import short
from zoo.release.comparisons import A3, COMPARISONS, DESIGNS, MARGIN, TRAINS, Claim, Comparison

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "zoo" / "runs"
PICTURES = ROOT / "docs" / "results"
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # 97.5 % quantile of Student's t by degrees of freedom
_SIZES = ("input_shape", "classes")  # what makes no other form of a variant
_COLUMNS = {"train_loss": 1, "test_accuracy": 100}  # what is drawn, and what it is multiplied by


def sections(runs: Path = RUNS) -> list[str]:
    """Return the lines of all comparisons that have a finished run of their own."""
    lines = []
    for comparison in COMPARISONS:
        if done := _compared(comparison, runs):
            lines += ["", f"## {comparison.title}", "", comparison.intro, ""]
            study = comparison.study
            lines += [study.table(study.nets, study.seeds, runs / comparison.folder), ""]
            lines += [" ".join((_sizes(study), *_ends(study, runs / comparison.folder))), ""]
            lines += [f"- {_verdict(claim, comparison, runs, done)}" for claim in comparison.claims]
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
    listed = (
        f"`{study.run_name(net)}` {count:,} ({count / counts[study.base]:.2f} times)" for net, count in counts.items()
    )
    return f"Trainable parameters, beside those of `{study.run_name(study.base)}`: {', '.join(listed)}."


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
                f"Of {', '.join(nets)} the chosen rate, {end}, is the {word}: a {beyond} one might be better."
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
    """Return a claim, whether it holds, and what was measured."""
    gone = {net: _diverged(comparison, net, runs) for net in (claim.first, claim.second)}
    ended = {net: len(done.get(net, {})) + count for net, count in gone.items()}
    over = all(count == len(comparison.study.seeds) for count in ended.values())
    diverged = ", ".join(_share_diverged(comparison, net, gone[net], ended[net], runs) for net in gone)
    if claim.kind == "trains":
        accuracies = _last_accuracies(done.get(claim.first, {}))
        word = _word_of_training(accuracies, gone[claim.first])
        measured = f"test accuracy {spread(accuracies, 2)} %" if accuracies else "no run ended"
    else:
        pairs = _pairs(done.get(claim.first, {}), done.get(claim.second, {}), claim.kind)
        word = _word(claim.kind, pairs, gone[claim.first], gone[claim.second])
        measured = _measured(claim, comparison.study, pairs)
    return f"{claim.text}: **{word if over else 'not all runs are over'}**; {measured}; diverged: {diverged}."


def _share_diverged(comparison: Comparison, net: str, gone: int, ended: int, runs: Path) -> str:
    """Of how many of a network's runs that are over the loss was not finite."""
    name = f"`{comparison.study.run_name(net)}`"
    if comparison.study.diverged_at_every_rate(net, runs / comparison.folder):
        return f"{name} at every rate"
    return f"{gone} of {ended} of {name}" if ended else f"no run of {name} is over"


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
    return "does not hold" if gone or min(accuracies, default=0.0) <= TRAINS else "holds"


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
        return "holds" if second_gone and not first_gone else "does not hold"
    if first_gone != second_gone:
        return "holds" if second_gone > first_gone else "does not hold"
    if len(pairs) < 2:
        return "cannot be told"
    low, high = _interval(pairs)
    bound = -MARGIN if kind == "matches" else 0.0
    if low > bound:
        return "holds"
    return "does not hold" if high < bound else "cannot be told"


def _interval(pairs: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    half = _T[len(pairs) - 1] * statistics.stdev(pairs) / len(pairs) ** 0.5
    return statistics.mean(pairs) - half, statistics.mean(pairs) + half


def _measured(claim: Claim, study: Study, pairs: list[float]) -> str:
    first, second = study.run_name(claim.first), study.run_name(claim.second)
    between, unit, digits = f"`{first}` minus `{second}`", "points", 2
    if claim.kind == "fits":
        between, unit, digits = f"training loss of `{second}` minus that of `{first}`", "nats", 4
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
    shades = "Lines: means of the seeds, shaded from the lowest to the highest" if several else "Lines: one seed"
    return f"{shades}. {_hardware(comparison, done, runs)}. Logs: `zoo/runs/{comparison.folder}`."


def _hardware(comparison, done, runs) -> str:
    """Backend, precision, hardware and commit of the runs, each once; of several, the seeds that each has of a net."""
    where: dict[str, dict[str, list[int]]] = {}
    for net, seed in [(name, number) for name, numbers in done.items() for number in numbers]:
        folder = comparison.study.run_folder(net, seed, runs / comparison.folder)
        r = json.loads((folder / "result.json").read_text("utf-8"))
        place = f"{r['backend']}, {precision_of(r)}, {r['hardware']}, commit `{short(r['commit'])}`"
        where.setdefault(place, {}).setdefault(net, []).append(seed)
    if len(where) == 1:
        return next(iter(where))
    seeds = {
        place: ", ".join(f"`{net}` {' '.join(map(str, s))}" for net, s in nets.items()) for place, nets in where.items()
    }
    text, base = "; ".join(f"{place} (seeds of {seeds[place]})" for place in sorted(where)), comparison.study.base
    elsewhere = ", ".join(f"`{net}`" for net in done if not _ran_where(where, net, base))
    if not elsewhere:
        return text
    beyond = ", and their intervals do not cover" if len(comparison.study.seeds) > 1 else ""
    return (
        f"{text}. Of {elsewhere} not every seed had the processor and the commit of `{base}`'s: what these change, the "
        f"differences have{beyond}"
    )


def _ran_where(where, net, base) -> bool:
    """Whether each seed of a net ran where the base's did."""
    return all(set(nets.get(net, [])) <= set(nets.get(base, [])) for nets in where.values())


def precision_of(result) -> str:
    """Return the precision of a result's products; older results do not name it."""
    return result.get("precision", "float32").removeprefix("mixed_")


def main(argv=None) -> None:
    """Parse the command line and draws."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.studies", description=__doc__)
    parser.parse_args(argv)
    for path in draw():
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
