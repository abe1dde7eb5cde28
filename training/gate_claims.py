"""What [TVDN, 4] claims of the gates of trained nets, in numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from keras_highway.analysis.gates import GateActivity, Routing
from keras_highway.analysis.trace import BlockTrace
from keras_highway.models.gate_bias import initial_gate_bias
from keras_highway.specs import NetSpec


def gate_numbers(
    spec: NetSpec,
    bias: Mapping[str, np.ndarray],
    activity: GateActivity,
    traces: Mapping[str, BlockTrace],
    routing: Routing,
    early: int,
) -> dict[str, Any]:
    """Return the numbers behind the claims; of several widths, each block counts the same.

    Args:
        spec: Of the variant.
        bias: What `gate_bias(model)` returned.
        activity: What `gate_activity(model, data, threshold=0.5)` returned.
        traces: What `trace(model, x)` returned.
        routing: What `gate_routing(model, data)` returned.
        early: How many of the blocks are early ones.

    Returns:
        A dict of numbers, as `docs/analysis/numbers.json` has them.
    """
    start = initial_gate_bias(spec)
    biases = np.array([values.mean() for values in bias.values()])
    means = np.array([activity.mean[block].mean() for block in bias])
    change = np.array([np.abs(entry.y - entry.x).mean() for entry in traces.values()])
    spread = np.array([np.abs(difference).mean() for difference in routing.difference.values()])
    return {
        "samples": activity.samples,
        "bias_start": start,
        "bias_mean": biases.mean(),
        "bias_share_that_fell": _mean(values < start for values in bias.values()),
        "bias_with_depth": _pearson(biases, np.arange(len(biases))),
        "bias_with_activity": _pearson(biases, means),
        "mean_gate": means.mean(),
        "open_on_average": _mean(activity.mean[block] > 0.5 for block in bias),
        "open_for_one_sample": _mean(activity.open_share.values()),
        "open_for_some_sample": _mean(top > 0.5 for top in activity.highest.values()),
        "blocks": len(biases),
        "early_blocks": early,
        "change_in_early_blocks": _share(change, early),
        "class_difference_in_early_blocks": _share(spread, early),
    }


def _share(values: np.ndarray, early: int) -> float:
    return float(values[:early].sum() / values.sum())


def _mean(blocks) -> float:
    return float(np.mean([np.mean(values) for values in blocks]))


def _pearson(a, b) -> float:
    return float(np.corrcoef(a, b)[0, 1])
