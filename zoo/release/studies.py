"""`python -m zoo.release.studies`: draws the curves of the comparisons whose runs are in zoo/runs, into docs/results.

`sections` are their parts of docs/results.md: the table, the paper's claims
beside what was measured seed by seed, and the picture.
"""

import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from keras_highway._support.log import read_log
from keras_highway.analysis.plots import write
from keras_highway.analysis.plots_training import Curve, draw_training, training_axes
from keras_highway.training.experiments import designs
from keras_highway.training.experiments.study import SEEDS, Study, spread

ROOT = Path(__file__).resolve().parents[2]
RUNS = ROOT / "zoo" / "runs"
PICTURES = ROOT / "docs" / "results"


@dataclass(frozen=True)
class Claim:
    """That one network is better than another.

    Attributes:
        text: What the paper says.
        better: Name of the recipe.
        worse: Name of the other.
        or_equal: Whether it holds of equal ones, too.
    """

    text: str
    better: str
    worse: str
    or_equal: bool = False


@dataclass(frozen=True)
class Comparison:
    """A study whose runs are kept.

    Attributes:
        name: Of its folder in `zoo/runs` and of its picture.
        title: Of its section.
        intro: What was done, one sentence.
        study: What is compared.
        claims: Of the paper.
    """

    name: str
    title: str
    intro: str
    study: Study
    claims: tuple[Claim, ...]


_DESIGNS = Comparison(
    name="designs",
    title="[BLOG] Evidence 1 and More Comparisons in small: six designs at 20 layers, CIFAR-10",
    intro="Parameters matched as in the blog, 15 epochs of one cycle; per design a rate chosen from the same three "
    "on 5,000 held-out training images; test accuracy of the last epoch. Differences are between runs of the same seed "
    "(`python -m keras_highway.training.experiments.designs --data DIR`).",
    study=designs.STUDY,
    claims=(
        Claim("highway nets match or beat ResNets", "highway20", "resnet20", or_equal=True),
        Claim("exclusive gating, one 1x1 convolution and post-activation, trains badly", "resnet20", "exclusive20"),
        Claim("so does pre-activation with a 1x1 gate", "resnet20", "preact20"),
        Claim("post-activation with two 3x3 convolutions a gate and zeroBN is good", "postact20_zerobn", "exclusive20"),
        Claim("without zeroBN it is unstable", "postact20_zerobn", "postact20"),
    ),
)
COMPARISONS = (_DESIGNS,)


def sections(runs: Path = RUNS) -> list[str]:
    """Returns the lines of all comparisons that have a finished run."""
    lines = []
    for comparison in COMPARISONS:
        if done := _finished(comparison, runs):
            lines += ["", f"## {comparison.title}", "", comparison.intro, ""]
            lines += [comparison.study.table(comparison.study.nets, SEEDS, runs / comparison.name), ""]
            lines += [f"- {_verdict(claim, comparison, runs, done)}" for claim in comparison.claims]
            picture = f"![{_described(comparison)}](results/{comparison.name}.png)"
            lines += ["", picture, "", _made(comparison, done, runs)]
    return lines


def draw(runs: Path = RUNS, out: Path = PICTURES) -> list[Path]:
    """Draws training loss and test accuracy of every comparison that has a finished run; returns the files."""
    files = []
    for comparison in COMPARISONS:
        if done := _finished(comparison, runs):
            figure, axes = training_axes(2, (9.6, 4.2))
            for axis, column, what in zip(axes, _COLUMNS, ("training loss", "test accuracy, %"), strict=True):
                draw_training(axis, _curves(done, column, axis), ylabel=what)
            files.append(out / f"{comparison.name}.png")
            out.mkdir(parents=True, exist_ok=True)
            write(figure, files[-1], None)
    return files


_COLUMNS = {"train_loss": 1, "test_accuracy": 100}  # and what they are multiplied by


def _curves(done, column, axis) -> list[Curve]:
    """Means over the seeds; shaded, from the lowest to the highest."""
    curves = []
    for i, (net, seeds) in enumerate(done.items()):
        values = _COLUMNS[column] * np.array([[row[column] for row in log] for log in seeds.values()])
        epochs, color = np.arange(1, values.shape[1] + 1), f"C{i}"
        axis.fill_between(epochs, values.min(0), values.max(0), color=color, alpha=0.15, lw=0)
        curves.append(Curve(epochs, values.mean(0), f"{net}, {len(values)} seeds", {"color": color, "lw": 1.2}))
    return curves


def _finished(comparison, runs) -> dict[str, dict[int, list[dict[str, float]]]]:
    """Logs of the finished runs, by net and seed."""
    logs = {}
    for net in comparison.study.nets:
        folders = {seed: comparison.study.folder(net, seed, runs / comparison.name) for seed in SEEDS}
        logs[net] = {seed: read_log(f / "log.csv") for seed, f in folders.items() if (f / "result.json").exists()}
    return {net: seeds for net, seeds in logs.items() if seeds}


def _verdict(claim: Claim, comparison: Comparison, runs: Path, done) -> str:
    """A claim, and whether it holds: by the runs that diverged, else by the mean of the seeds' differences."""
    gone, other = (_diverged(net, comparison, runs) for net in (claim.worse, claim.better))
    if gone > other:
        return f"{claim.text}: **holds**; seeds that diverged: {gone} of `{claim.worse}`, {other} of `{claim.better}`."
    better, worse = (done.get(net, {}) for net in (claim.better, claim.worse))
    pairs = [100 * (better[s][-1]["test_accuracy"] - worse[s][-1]["test_accuracy"]) for s in better if s in worse]
    if len(pairs) < 2:
        return f"{claim.text}: cannot be told yet from {len(pairs)} pairs of runs."
    difference = f"`{claim.better}` minus `{claim.worse}` is {spread(pairs, 2)} points, n = {len(pairs)}"
    return f"{claim.text}: **{_word(pairs, claim.or_equal)}**; {difference}."


def _word(pairs: list[float], or_equal: bool) -> str:
    """Differences whose mean is within their standard deviation are none."""
    mean, deviation = statistics.mean(pairs), statistics.stdev(pairs)
    if abs(mean) <= deviation:
        return "holds (no difference)" if or_equal else "cannot be told"
    return "holds" if mean > 0 else "does not hold"


def _diverged(net: str, comparison: Comparison, runs: Path) -> int:
    folders = [comparison.study.folder(net, seed, runs / comparison.name) for seed in SEEDS]
    return sum((folder / "diverged.json").exists() for folder in folders)


def _described(comparison) -> str:
    return f"Training loss and test accuracy, epoch by epoch: {', '.join(comparison.study.nets)}"


def _made(comparison, done, runs) -> str:
    """Where the runs were made."""
    folders = [comparison.study.folder(net, seed, runs / comparison.name) for net in done for seed in done[net]]
    results = [json.loads((folder / "result.json").read_text("utf-8")) for folder in folders]
    where = sorted({f"{r['backend']}, {r['precision']}, {r['hardware']}, `{r['commit'][:12]}`" for r in results})
    shades = "Lines: means of the seeds, shaded from the lowest to the highest"
    return f"{shades}. {'; '.join(where)}. Logs: `zoo/runs/{comparison.name}`."


if __name__ == "__main__":
    print(*draw(), sep="\n")
    sys.exit(0)
