"""The claims of the three papers, each with a verdict and what was measured here: docs/claims.md.

`zoo/claims.json` has the claims. `{name}` in their texts is a value of `values`,
which reads results and analyses. A claim that is a published accuracy names its
weights.
"""

import statistics
from pathlib import Path
from typing import Any

from training import read_json
from training.analysis_tables import CIFAR, CONV, IMAGES, NET, NUMBERS, PHOTOGRAPHS
from training.net_figures import SAMPLES
from training.study import difference, spread
from zoo.release import studies
from zoo.release.studies import COMPARISONS, DESIGNS, FORMS

ROOT = Path(__file__).resolve().parents[2]
PAPERS = {
    "TVDN": "Training Very Deep Networks",
    "UIE": "Highway and Residual Networks Learn Unrolled Iterative Estimation",
    "BLOG": "Weighted Skip Connections are Not Harmful for Deep Nets",
}
VERDICTS = ("holds", "holds in part", "contradicted", "cannot be decided", "not tested")
_DEPTHS = (10, 20, 50, 100)


def page() -> str:
    """Return the text of docs/claims.md."""
    known, rows = values(), read_json(ROOT / "zoo/claims.json")
    judged = [row | (_published(row) if "weights" in row else {}) for row in rows]
    for row in judged:
        row["verdict"] = row["verdict"].format(**known)
        if row["verdict"] not in VERDICTS:
            raise ValueError(f"Verdicts are {', '.join(VERDICTS)}. Received: {row['verdict']!r} for {row['claim']!r}")
    counts = ", ".join(f"{sum(row['verdict'] == verdict for row in judged)} {verdict}" for verdict in VERDICTS)
    lines = [
        "# Claims of the papers",
        "",
        f"{len(judged)} claims, in the order of the papers: {counts}. Numbers are measured here, n = 1 net unless "
        "stated. Intervals are 95 % intervals of a mean difference. A published accuracy counts as reached above its "
        "mean minus two standard deviations. Gini index: 0 if all gates of a layer are equally open, near 1 if one of "
        f"many is. {SAMPLES} test images. Untrained: the net as its recipe starts it now, seed 1.",
        "",
    ]
    for paper, title in PAPERS.items():
        lines += [f"## [{paper}] {title}", "", "| where | claim | verdict | measured here |", "|---|---|---|---|"]
        lines += [
            f"| [{row['where'].removeprefix(f'{paper} ')}]({row['link']}) | {row['claim']} | **{row['verdict']}** "
            f"| {row['measured'].format(**known)} |"
            for row in judged
            if row["where"].startswith(paper)
        ]
        lines.append("")
    lines.pop()
    return "\n".join(lines) + "\n"


def values() -> dict[str, Any]:
    """Return the measured values that texts of claims name."""
    return {**_depth(), **_gates(), **_blocks(), **_trained()}


def _depth() -> dict[str, Any]:
    cells = read_json(ROOT / "zoo/searches/figure1/result.json")["cells"]
    found: dict[str, Any] = {"deep": 100 * read_json(ROOT / "zoo/runs/highway_fc1000/result.json")["mean"]}
    for kind in ("plain", "highway"):
        for key, name in (("best_loss", "losses"), ("top_mean_loss", "top")):
            row = {depth: cells[f"{kind}_fc{depth}"][key] for depth in _DEPTHS}
            found[f"{kind}_{name}"] = ", ".join(f"{loss:.2g}" for loss in row.values())
            found |= {f"{kind}{depth}": loss for depth, loss in row.items()} if name == "losses" else {}
    ahead = [cells[f"highway_fc{d}"]["top_mean_loss"] < cells[f"plain_fc{d}"]["top_mean_loss"] for d in _DEPTHS]
    return found | {"ratio": found["plain100"] / found["highway100"], "faster": _word(ahead)}


def _gates() -> dict[str, Any]:
    numbers = read_json(NUMBERS)
    nets = {NET: numbers[NET]["gates"], CIFAR: numbers[CIFAR]["cifar_gates"]}
    nets |= {name: numbers[name][part]["gates"] for part, name in CONV.items()}
    gini = {name: net["gini"] for name, net in (nets | {IMAGES: numbers[IMAGES]["images"]}).items() if "gini" in net}
    weak = 100 * _result(CIFAR)["mean"]
    return {
        "fell": _listed({name: 100 * net["bias_share_that_fell"] for name, net in nets.items()}, ".0f", " %"),
        "fell_verdict": _word([net["bias_share_that_fell"] > 0.5 for net in nets.values()]),
        "cifar_depth": nets[CIFAR]["bias_with_depth"],
        "cifar_activity": nets[CIFAR]["bias_with_activity"],
        "weak": f"our net classifies {weak:.0f} % of the test images correctly, too few to decide",
        "gini_sample": _listed({name: one["sample"] for name, one in gini.items()}),
        "gini_mean": _listed({name: one["mean"] for name, one in gini.items()}),
        "gini_untrained": _listed({name: one["untrained_sample"] for name, one in gini.items()}),
        "gini_mean_untrained": _listed({name: one["untrained_mean"] for name, one in gini.items()}),
        "sparse_verdict": _word([one["sample"] > one["untrained_sample"] for one in gini.values()]),
        "average_verdict": _word([one["mean"] < one["sample"] for one in gini.values()]),
        "change": 100 * nets[NET]["change_in_early_blocks"],
        "class_change": 100 * nets[NET]["class_difference_in_early_blocks"],
    }


def _blocks() -> dict[str, Any]:
    numbers = read_json(NUMBERS)
    photographs = numbers[PHOTOGRAPHS]["imagenette"]
    dense = {name: _costs(net["test"]) for name, net in numbers[NET]["baselines"].items()}
    training = numbers[NET]["baselines"]["highway_fc50_tanh"]["training"]
    cost = _costs(training)
    medians = {name: dense[name] for name in ("highway_fc50_tanh", "residual_fc50_tanh")}
    medians |= {f"{net}.imagenette": _costs(one["lesions"]) for net, one in photographs.items()}
    errors = {IMAGES: numbers[IMAGES]["images"]["estimation"]}
    errors |= {name: numbers[name][part]["estimation"] for part, name in CONV.items()}
    errors |= {f"{net}.imagenette": one["estimation"] for net, one in photographs.items()}
    steps = _falls(errors)
    before = {name: {s: v["untrained"] for s, v in net.items()} for name, net in errors.items() if _has_control(net)}
    largest, untrained = (
        {name: max(abs(mean) for stage in _column(net, "mean")[:3] for mean in stage) for name, net in nets.items()}
        for nets in (errors, before)
    )
    swaps = {name: _swap_costs(numbers[name][part]["reshuffle"]) for part, name in CONV.items()}
    stage4 = photographs["resnet50"]["estimation"]["stage4"]["mean"][:-1]
    return {
        "middle": max(cost[14:45]),
        "first": cost[0],
        "idle": training["blocks_that_cost_at_most_0.1_point"],
        "plain_median": statistics.median(dense["plain_fc50_tanh"]),
        "medians": _listed({name: statistics.median(costs) for name, costs in medians.items()}),
        "swaps": _listed({name: max(costs) for name, costs in swaps.items()}, ".1f", " in the most sensitive stage"),
        "errors": _listed(largest),
        "errors_untrained": _listed(untrained),
        "falls": sum(steps),
        "falls_untrained": sum(_falls(before)),
        "steps_untrained": len(_falls(before)),
        "steps": len(steps),
        "falls_verdict": _word(steps),
        "stage4": ", ".join(f"{mean:+.2f}" for mean in stage4),
    }


def _trained() -> dict[str, Any]:
    gatings = ("full", "coupled", "c_only", "t_only", "residual", "plain")
    perplexity = {gating: _result(f"charlm_large_{gating}.ptb")["mean"] for gating in gatings}
    losses = {
        net.replace("_uie", "").removesuffix("_64"): logs[1][-1]["train_loss"]
        for net, logs in studies._finished(_named("imagenette_uie"), studies.RUNS).items()
    }
    at_20 = {net: _difference(DESIGNS, f"{net}20", "resnet20") for net in ("highway", "exclusive", "preact", "postact")}
    forms = ("channel", "low_rank", "tied", "shared", "stochastic_depth")
    return {
        "perplexities": ", ".join(f"{gating} {value:.2f}" for gating, value in perplexity.items()),
        "plain": perplexity["plain"],
        "small": "20 layers, 15 epochs and a bias of -2, where the blog has 110 layers",
        **losses,
        **at_20,
        "photographs": _difference(_named("imagenette_pair_5"), "highway50_imagenette", "resnet50_imagenette"),
        "postact_zerobn": _difference(DESIGNS, "postact20_zerobn", "resnet20"),
        **{form: _difference(FORMS, f"highway20_{form}", "highway20") for form in forms},
    }


def _published(row) -> dict[str, str]:
    """Judge a published accuracy, whose mean and deviation are in the text of the claim."""
    mean, *rest = row["claim"].partition(": ")[2].split(" %")[0].split(" ± ")
    result = _result(row["weights"])
    ours, std = 100 * result["mean"], 100 * (result["std"] or 0)
    reached = ours >= float(mean) - 2 * (float(rest[0] if rest else 0) ** 2 + std**2) ** 0.5
    measured = f"`{row['weights']}`: {spread(tuple(100 * v for v in result['values']), 2)} %, n = {result['n']}"
    text = f"{measured}, {result['epochs']} epochs"
    return {"verdict": "holds" if reached else "not tested", "measured": text if reached else f"{text}: too short"}


def _named(name: str):
    return next(comparison for comparison in COMPARISONS if comparison.name == name)


def _difference(comparison, first: str, second: str) -> str:
    done = studies._finished(comparison, studies.RUNS)
    pairs = studies._pairs(done[first], done[second])
    return f"`{first}` minus `{second}`: {difference(pairs)} points, n = {len(pairs)}"


def _costs(curve) -> list[float]:
    """Return the cost of each block in points."""
    accuracy = curve["accuracy"]
    values = accuracy.values() if isinstance(accuracy, dict) else accuracy
    return [100 * (curve["intact_accuracy"] - one) for one in values]


def _swap_costs(curve) -> list[float]:
    return _costs(curve | {"accuracy": curve["one_swap"]})


def _has_control(net) -> bool:
    return all("untrained" in stage for stage in net.values())


def _falls(errors) -> list[bool]:
    """Return for each step from block to block whether the spread falls; the last block has no error by definition."""
    return [std[i] > std[i + 1] for net in errors.values() for std in _column(net, "std") for i in range(len(std) - 2)]


def _column(net, key) -> list[list[float]]:
    return [net[stage][key] for stage in sorted(net)]


def _word(found: list[bool]) -> str:
    if not found:
        return "not tested"
    return "holds" if all(found) else "holds in part" if any(found) else "contradicted"


def _listed(found: dict[str, float], form: str = ".2f", unit: str = "") -> str:
    return ", ".join(f"`{name}` {value:{form}}{unit}" for name, value in found.items())


def _result(name: str) -> dict[str, Any]:
    return read_json(ROOT / "zoo/weights" / name / "result.json")
