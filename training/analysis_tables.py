"""The tables of docs/analysis.md.

They come from `docs/analysis/numbers.json`, which `training.figures` makes.
"""

import itertools
import json
import statistics
from collections.abc import Callable
from pathlib import Path

from keras_highway.analysis import Paired
from keras_highway.tasks import plus_minus

NUMBERS = Path(__file__).resolve().parents[1] / "docs" / "analysis" / "numbers.json"
NET, CIFAR, IMAGES = "highway_fc50_tanh.tvdn", "highway_fc50_cifar100.tvdn", "mnist10_w32.tvdn"
PHOTOGRAPHS = "highway50.imagenette"
_FEW = 10  # percent of the gates
_CHEAP = 0.5  # points of accuracy
_CLOSE = 0.1  # of the standard deviation of a stage's output: an estimation error close to zero
CONV = {"cifar10_conv": "cifar10_19layer.fast", "cifar100_conv": "cifar100_19layer.fast"}  # by the name of their part


def figure4_table(path: Path = NUMBERS) -> str:
    """Return the cost of one lesioned block in highway, residual and plain nets [TVDN, Figure 4]."""
    lines = [
        "| net | images | error, % | blocks | cost at most 0.1 point | median cost, points | highest |",
        "|---|---|---|---|---|---|---|",
    ]
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


def claims_table(path: Path = NUMBERS) -> str:
    """Return the claims of [TVDN, 4] and [UIE, 4.2] next to what our nets do."""
    numbers = json.loads(path.read_text("utf-8"))
    mnist, cifar = numbers[NET]["gates"], numbers[CIFAR]["cifar_gates"]
    claims = [
        ("most gate biases fall during training", _fallen(mnist), _fallen(cifar)),
        (
            "CIFAR-100's biases rise with depth and go against the gates' mean activity, MNIST's to a lesser extent",
            _slope(mnist),
            _slope(cifar),
        ),
        ("most gates are active on average, above all CIFAR-100's", _active(mnist), _active(cifar)),
        ("a sample opens few gates, other samples others", _opened(mnist), _opened(cifar)),
        (
            "most change happens in the early layers: 15 for MNIST, 40 for CIFAR-100; here: more than their share",
            _changed(mnist),
            _changed(cifar),
        ),
        (
            "lesioned alone, MNIST's layers 15 to 45 have close to no effect, CIFAR-100's first 40 have one",
            *_lesioned(numbers[NET]["baselines"]),
        ),
        (
            "[UIE, 4.2] the mean estimation error of blocks is close to zero (in the first three stages of a ResNet50)",
            _estimated(numbers[IMAGES]["images"]["estimation"], f"the convolutional stages of `{IMAGES}`"),
            "-",
        ),
    ]
    lines = ["| claim [TVDN, 4] | MNIST | CIFAR-100 |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in claims)])


def conv_claims_table(path: Path = NUMBERS) -> str:
    """Return the papers' claims next to what the convolutional nets for CIFAR do; empty without these nets."""
    numbers = json.loads(path.read_text("utf-8"))
    nets = {weights: numbers[weights][part] for part, weights in CONV.items() if weights in numbers}
    if not nets:
        return ""
    claims: list[tuple[str, Callable[[dict], str]]] = [
        ("[TVDN, 4] most gate biases fall during training", lambda net: _fallen(net["gates"])),
        ("[TVDN, 4] biases rise with depth and go against the gates' mean activity", lambda net: _slope(net["gates"])),
        ("[TVDN, 4] most gates are active on average", lambda net: _active(net["gates"])),
        ("[TVDN, 4] a sample opens few gates, other samples others", lambda net: _opened(net["gates"])),
        ("[TVDN, 4] the early layers change most", lambda net: _changed(net["gates"])),
        (
            "[TVDN, 4] lesioned alone, MNIST's layers 15 to 45 have close to no effect, CIFAR-100's first 40 have one",
            _one_lesioned,
        ),
        ("[UIE, 4.4] shuffling the layers of a stage is often of moderate effect", _one_swap),
        ("[UIE, 4.2] the mean estimation error of blocks is close to zero (first three stages of a ResNet50)", _errors),
    ]
    lines = [f"| claim of another net | {' | '.join(f'`{name}`' for name in nets)} |", "|---" * (1 + len(nets)) + "|"]
    lines += [f"| {claim} | {' | '.join(map(shown, nets.values()))} |" for claim, shown in claims]
    note = (
        "[TVDN]'s claims are of fully connected nets of 50 layers, these have 14 gated blocks in three stages: "
        "correlations are over 14 values. Shares of gates, at all positions and channels, are means over blocks; few "
        "are at most a tenth. n = 1 net each."
    )
    return "\n".join([*lines, "", note])


def photographs_table(path: Path = NUMBERS) -> str:
    """Return the analyses of Highway50 and ResNet50 on Imagenette; empty before they are measured."""
    nets = json.loads(path.read_text("utf-8")).get(PHOTOGRAPHS, {}).get("imagenette", {})
    if not nets:
        return ""
    rows: list[tuple[str, Callable[[dict], str]]] = [
        (
            "[UIE, 4.2] the mean estimation error of blocks is close to zero (first three stages of a ResNet50)",
            _errors_of_three,
        ),
        ("one block lesioned", _one_lesioned),
        ("blocks taken out, one after the other", _taken_out),
        ("mean transform gate, stage by stage", _open_by_stage),
    ]
    lines = [f"| | {' | '.join(f'`{net}.imagenette`' for net in nets)} |", "|---" * (1 + len(nets)) + "|"]
    lines += [f"| {what} | {' | '.join(map(shown, nets.values()))} |" for what, shown in rows]
    (ordered_by,) = {net["trim"]["ordered_by"] for net in nets.values()}
    note = (
        f"The order in which blocks go comes from {ordered_by:,} training photographs, their cost is that on all test "
        "photographs. n = 1 net each."
    )
    return "\n".join([*lines, "", note])


def _errors_of_three(net) -> str:
    stages = sorted(net["estimation"])[:3]
    return _estimated({stage: net["estimation"][stage] for stage in stages}, "these")


def _taken_out(net) -> str:
    whole, *fewer = (100 * accuracy for accuracy in net["trim"]["accuracy"])
    gone = len(list(itertools.takewhile(lambda accuracy: whole - accuracy <= _CHEAP, fewer)))
    sizes, cost = net["trim"]["parameters"], f"for at most {_CHEAP} points of {whole:.2f} %"
    if gone == len(fewer):
        return f"all {gone} can go {cost}"
    if not gone:
        return f"in this order not even the first of {len(fewer)} can go {cost}: {fewer[0]:.2f} % without it"
    return (
        f"in this order {gone} of {len(fewer)} can go {cost}: {sizes[0]:,} parameters become {sizes[gone]:,}; "
        f"without the next, {fewer[gone]:.2f} %"
    )


def _open_by_stage(net) -> str:
    if "gates" not in net:
        return "-"
    by_stage: dict[str, list[float]] = {}
    for block, mean in net["gates"]["mean"].items():
        by_stage.setdefault(block.split("_")[0], []).append(mean)
    means = [f"{statistics.mean(values):.2f} ({stage})" for stage, values in by_stage.items()]
    return f"{_listed(means)}; {net['gates']['samples']:,} test photographs"


def _errors(net) -> str:
    return _estimated(net["estimation"])


def _changed(gates) -> str:
    share, early = gates["change_in_early_blocks"], gates["early_blocks"]
    return (
        f"{_holds(share > early / gates['blocks'])}{100 * share:.0f} % of the change is in the first {early} of "
        f"{gates['blocks']} blocks, {100 * early / gates['blocks']:.0f} % of them (mean absolute y - x, 100 images)"
    )


def _one_lesioned(net) -> str:
    curve = net["lesions"]
    cost = {block: 100 * (curve["intact_accuracy"] - accuracy) for block, accuracy in curve["accuracy"].items()}
    free = sum(points <= 0.1 + 1e-9 for points in cost.values())
    worst = max(cost, key=lambda block: cost[block])
    return (
        f"{free} of {len(cost)} cost at most 0.1 point of accuracy on {curve['samples']:,} test images, the median "
        f"{statistics.median(cost.values()):.2f} points, the most, {worst}, {cost[worst]:.2f}"
    )


def _one_swap(net) -> str:
    curve = net["reshuffle"]
    cost = {stage: 100 * (curve["intact_accuracy"] - accuracy) for stage, accuracy in curve["one_swap"].items()}
    words = _listed([f"{points:.2f} ({stage})" for stage, points in cost.items()])
    drawn = f"means of three random draws of a pair, {curve['samples']:,} images"
    return f"two blocks in each other's place cost {words} points; {drawn}"


def _fallen(gates) -> str:
    start, share = gates["bias_start"], 100 * gates["bias_share_that_fell"]
    return f"{share:.0f} % end below the {start:g} they started from; their mean is {gates['bias_mean']:.2f}"


def _slope(gates) -> str:
    depth, activity = gates["bias_with_depth"], gates["bias_with_activity"]
    return (
        f"{_holds(depth > 0 > activity)}Pearson's correlation of a block's mean bias with its depth is {depth:+z.2f}, "
        f"with its mean gate {activity:+z.2f}"
    )


def _active(gates) -> str:
    share, mean = gates["open_on_average"], gates["mean_gate"]
    return f"{_holds(share > 0.5)}the mean gate is {mean:.3f}; on average {100 * share:.2g} % are above 0.5"


def _opened(gates) -> str:
    one, some = (100 * gates[f"open_for_{which}_sample"] for which in ("one", "some"))
    return (
        f"{_holds(one <= _FEW)}{one:.2g} % of the gates are above 0.5 for one sample, {some:.1f} % for at least one of "
        f"the {gates['samples']:,}"
    )


def _lesioned(baselines) -> tuple[str, str]:
    """Costs on training images, in points; blocks count from 1."""
    mnist, cifar = (baselines[name.removesuffix(".tvdn")] for name in (NET, CIFAR))
    (one, samples), (other, others) = (
        ([100 * (part["intact_accuracy"] - accuracy) for accuracy in part["accuracy"]], part["samples"])
        for part in (mnist["training"], cifar["training"])
    )
    cheap, blocks = (mnist["test"][key] for key in ("blocks_that_cost_at_most_0.1_point", "blocks"))
    early, middle, late = (statistics.mean(part) for part in (other[:12], other[12:40], other[40:]))
    return (
        f"on {samples:,} training images, blocks 15 to 45 cost at most {max(one[14:45]):.3f} points each, the first "
        f"{one[0]:.2f}; on the test images {cheap} of {blocks} cost at most 0.1 point",
        f"on {others:,} training images, blocks 1 to 12 cost {early:.2f} points on average, 13 to 40 {middle:.2f}, "
        f"the last {len(other) - 40} {late:.2f}",
    )


def _estimated(errors, stages="its stages") -> str:
    worst = [max(abs(mean) for mean in stage["mean"]) / stage["scale"] for stage in errors.values()]
    return (
        f"{_holds(max(worst) <= _CLOSE)}in {stages} it is up to "
        f"{_listed([f'{value:.2f}' for value in worst])} of the standard deviation of the stage's output "
        f"(close to zero: at most {_CLOSE}, a bound of ours; [UIE, Figure 3] is in the activations' own units)"
    )


def _holds(claim: bool) -> str:
    return "" if claim else "**not here**: "


def _listed(words) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"


def trim_table(path: Path = NUMBERS) -> str:
    """Return the cost of fewer blocks in the 50-layer net, trimmed and fine-tuned, on the test images."""
    numbers = _numbers(path)
    trimmed, tuned, speed = (numbers[key] for key in ("trim", "tune", "latency"))
    ratios = {row["blocks_left"]: row["speed_up_quartiles"] for row in speed["depths"]}
    sizes = {row["blocks_left"]: row["parameters"] for row in speed["depths"]}
    lines = [
        "| blocks left | parameters | speed-up | trimmed: cost, points | fine-tuned, too: cost, points |",
        "|---|---|---|---|---|",
    ]
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
    return json.loads(path.read_text("utf-8"))[NET]


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
