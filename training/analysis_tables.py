"""The tables of docs/analysis.md.

They come from `docs/analysis/numbers.json`, which `training.figures` makes.
"""

import statistics
from pathlib import Path

from keras_highway.analysis import Paired
from keras_highway.tasks import plus_minus
from training import head, read_json

NUMBERS = Path(__file__).resolve().parents[1] / "docs" / "analysis" / "numbers.json"
NET, CIFAR, IMAGES = "highway_fc50_tanh.tvdn", "highway_fc50_cifar100.tvdn", "mnist10_w32.tvdn"
PHOTOGRAPHS = "highway50.imagenette"
CONV = {"cifar10_conv": "cifar10_19layer.fast", "cifar100_conv": "cifar100_19layer.fast"}  # by the name of their part


def figure4_table(path: Path = NUMBERS) -> str:
    """Return the cost of one lesioned block in highway, residual and plain nets [TVDN, Figure 4]."""
    lines = head("| net | images | error, % | blocks | cost at most 0.1 point | median cost, points | highest |")
    baselines = _numbers(path)["baselines"]
    for name, row in baselines.items():
        for part in ("training", "test"):
            one = row[part]
            cost = [100 * (one["intact_accuracy"] - accuracy) for accuracy in one["accuracy"]]
            lines.append(
                f"| `{name}` | {one['samples']:,} {part} | {100 * (1 - one['intact_accuracy']):.2f} | {one['blocks']} "
                f"| {one['blocks_that_cost_at_most_0.1_point']} | {statistics.median(cost):.2f} "
                f"| {max(cost):.2f}, {one['worst_block'].removeprefix('stage1_')} |"
            )
    where = sorted({f"{row['backend']}, {row['hardware']}" for row in baselines.values()})
    seeds = sorted({row["seed"] for row in baselines.values()})
    epochs = _one([row["epochs"] for row in baselines.values()])
    note = f"n = 1 net each, seed {', '.join(map(str, seeds))}, {epochs} epochs"
    return "\n".join([*lines, "", f"{note}. Trained on {'; '.join(where)}."])


def trim_table(path: Path = NUMBERS) -> str:
    """Return the cost of fewer blocks in the 50-layer net, trimmed and fine-tuned, on the test images."""
    numbers = _numbers(path)
    trimmed, tuned, speed = (numbers[key] for key in ("trim", "tune", "latency"))
    ratios = {row["blocks_left"]: row["speed_up_quartiles"] for row in speed["depths"]}
    sizes = {row["blocks_left"]: row["parameters"] for row in speed["depths"]}
    lines = head("| blocks left | parameters | speed-up | trimmed: cost, points | fine-tuned, too: cost, points |")
    whole = len(trimmed["seeds"][0]["order"])
    chosen = [whole - row["removed"]["blocks"] for row in trimmed["seeds"]]
    others = sorted(set(ratios) - {whole, *chosen}, reverse=True)
    for depths, what in [(chosen, " (chosen)"), *(([depth] * len(chosen), "") for depth in others)]:
        costs = [
            _trimmed(row, whole - depth, trimmed["samples"])
            for row, depth in zip(trimmed["seeds"], depths, strict=True)
        ]
        after = [_tuned(row, depth) for row, depth in zip(tuned["seeds"], depths, strict=True)]
        lines.append(
            f"| {_range(depths, ',.0f')}{what} | {_range([sizes[d] for d in depths], ',.0f')} "
            f"| {_range([ratios[d][1] for d in depths], '.2f')} | {_mean(costs)} | {_mean(after)} |"
        )
    after = _range([100 * _row(row, whole)["accuracy"] for row in tuned["seeds"]], ".2f")
    made = numbers["made"]
    before = f"{100 * trimmed['seeds'][0]['accuracy'][0]:.2f}"
    note = (
        f"Of {whole} blocks; {trimmed['samples']:,} test images, {len(chosen)} seeds: mean ± standard error of the "
        "pairs; the seeds share the net and the test images. Fine-tuned "
        f"{tuned['epochs']} epochs, against the whole net fine-tuned alike ({after} %; before, {before} %). "
        f"Speed-up: processor time of a batch of {speed['batch_size']}, median of {speed['pairs']} pairs. "
        f"{made['tune']['backend']}, speed-up {made['latency']['backend']}, {made['latency']['hardware']}."
    )
    return "\n".join([*lines, "", note])


def _numbers(path) -> dict:
    return read_json(path)[NET]


def _trimmed(row, k, n) -> tuple[float, float]:
    """Cost of `k` blocks on `n` images and its standard error."""
    pairs = Paired(row["lost"][k], row["gained"][k], n)
    return pairs.cost, float(pairs.standard_error)


def _row(seed, depth) -> dict:
    return next(row for row in seed["depths"] if row["blocks_left"] == depth)


def _tuned(seed, depth) -> tuple[float, float]:
    row = _row(seed, depth)
    return row["cost"], row["standard_error"]


def _mean(costs) -> str:
    """Points: the mean cost, and the mean standard error, since the seeds share the images."""
    cost, error = (100 * statistics.mean(part) for part in zip(*costs, strict=True))
    return plus_minus(f"{round(cost, 2) + 0.0:.2f}", f"{error:.2f}")  # + 0.0: no negative zero


def _range(values, form) -> str:
    low, high = (format(value, form) for value in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def _one(values):
    (value,) = set(values)
    return value
