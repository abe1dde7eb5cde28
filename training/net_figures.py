"""Draw and measure the analyses of one trained net: gates, lesions, orders of blocks, estimation errors, units."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_highway import analysis
from keras_highway.analysis.gates import GateActivity, Routing
from keras_highway.analysis.trace import BlockTrace
from keras_highway.analysis.trace import stages as stages_of
from keras_highway.applications import load
from keras_highway.specs import NetSpec, initial_gate_bias
from keras_highway.variants import VARIANTS
from keras_highway.weights import registry

FEW = 100  # of the test images: for these each layer's outputs are kept
SAMPLES = 200  # test images of Gini indices
FEWER = 2_000  # test images of what takes a pass for each order, removal or unit
BLOCK = "stage2_block1"  # whose strongest unit is shown: it sees 20 x 20 pixels of 32 x 32
FIRST = 200  # of the test images, among which that unit is looked for


def conv_net(name: str, suffix: str, test: tuple[Any, Any], out: Path) -> dict[str, Any]:
    """Draw and measures one net."""
    model, transform = load(name), registry.find(name).images.apply
    fewer = test[0][:FEWER], test[1][:FEWER]
    return {
        "gates": _gates(model, name, test, out, suffix),
        "lesions": _lesions(model, name, transform, test, out, suffix),
        **_rearranged(model, name, transform, fewer, out, suffix),
        "estimation": _estimation(model, name, transform, fewer[0], out, suffix),
        "unit": strongest_unit(model, name, transform, fewer[0], out, suffix),
    }


def _gates(model, name, test, out, suffix) -> dict[str, Any]:
    of = ": channels, means over positions"
    numbers, activity = draw_gates(model, name, test, out, suffix, classes=(0, 1), of=of)
    analysis.plot_gate_maps(activity, out / f"gate_maps{suffix}.png", title=f"{name}, {activity.samples:,} test images")
    return numbers


def _lesions(model, name, transform, test, out, suffix) -> dict[str, Any]:
    curve = analysis.lesion_curve(model, test, transform=transform)
    title = f"{name}, as [TVDN, Figure 4] (test set)"
    analysis.plot_lesion_curve(curve, out / f"tvdn_figure4{suffix}.png", title=title)
    return lesion_numbers(curve)


def _rearranged(model, name, transform, test, out, suffix) -> dict[str, Any]:
    """Blocks of a stage in other orders, and several lesioned at once."""
    stages = stages_of(analysis.gate_bias(model))
    shuffled = {stage: analysis.reshuffle_curve(model, test, stage, transform=transform) for stage in stages}
    title = f"{name}: blocks of a stage in another order"
    analysis.plot_reshuffle_curve(shuffled, out / f"reshuffle{suffix}.png", title=title)
    dropped = analysis.drop_k_curve(model, test, transform=transform)
    analysis.plot_drop_curve(dropped, out / f"drop{suffix}.png", title=f"{name}: random blocks lesioned")
    one_swap = {stage: curve.accuracy[curve.swaps == 1].mean() for stage, curve in shuffled.items()}
    return {
        "reshuffle": {"samples": len(test[0]), "intact_accuracy": dropped.intact_accuracy, "one_swap": one_swap},
        "drop": {"k": dropped.k.tolist(), "accuracy": dropped.accuracy.mean(1).tolist()},
    }


def _estimation(model, name, transform, images, out, suffix) -> dict[str, Any]:
    title = f"{name}, as [UIE, Figure 3]"
    return estimate(model, transform, images, out / f"estimation{suffix}.png", title)


def strongest_unit(
    model, name: str, transform, images, out: Path, suffix: str = "", block: str = BLOCK
) -> dict[str, Any]:
    """Draw what excites one unit of a block, see `draw_unit`.

    The unit is the channel whose nine strongest activations on the first images are farthest above its mean. Measured
    in standard deviations it would be a channel that opens only at a border.
    """
    outputs = analysis.trace(model, transform(images[:FIRST]), [block])[block].y
    strongest = np.sort(outputs.max((1, 2)), 0)[-9:].mean(0)
    channel = int((strongest - outputs.mean((0, 1, 2))).argmax())
    return draw_unit(model, name, transform, images, (block, channel), out, suffix)


def lesion_numbers(curve: analysis.LesionCurve) -> dict[str, Any]:
    """Return the numbers of a lesion curve."""
    return {
        "samples": curve.samples,
        "intact_accuracy": curve.intact_accuracy,
        "accuracy": dict(zip(curve.blocks, curve.accuracy.tolist(), strict=True)),
    }


def estimate(model, transform, images, path: Path, title: str, batch_size: int = 100) -> dict[str, Any]:
    """Draw the estimation errors of a network by stage, and return their numbers, also before training."""
    errors, before = (
        analysis.estimation_error(net, images, batch_size=batch_size, transform=transform)
        for net in (model, untrained(model))
    )
    analysis.plot_estimation_error(errors, path, title=title)
    numbers = estimation_numbers(before)
    return {
        stage: {**values, "untrained": {key: numbers[stage][key] for key in ("mean", "std")}}
        for stage, values in estimation_numbers(errors).items()
    }


def estimation_numbers(errors: Mapping[str, analysis.EstimationError]) -> dict[str, Any]:
    """Return the numbers of estimation errors by stage."""
    return {
        stage: {"samples": error.samples, "scale": error.scale, "mean": error.mean.tolist(), "std": error.std.tolist()}
        for stage, error in errors.items()
    }


def draw_unit(model, name, transform, images, unit: tuple[str, int], out: Path, suffix: str = "") -> dict[str, Any]:
    """Draw what excites one unit, over the blocks of its stage [UIE, Figure 4], and return where it is most active."""
    block, channel = unit
    best = analysis.top_patches(model, images, block, channel, transform=transform)
    title = f"{name}, {block}, channel {channel}: strongest patches"
    analysis.plot_patches(best, out / f"patches{suffix}.png", title=title)
    guided = analysis.guided_backprop(model, images[best.image], block.split("_")[0], channel, transform=transform)
    title = f"{name}, as [UIE, Figure 4]: channel {channel}, its activation and guided derivative"
    analysis.plot_guided(guided, images[best.image], out / f"guided{suffix}.png", title=title)
    return {
        "samples": len(images),
        "block": block,
        "channel": channel,
        "images": best.image.tolist(),
        "activation": best.value.tolist(),
    }


def draw_gates(
    model,
    name: str,
    test: tuple[Any, Any],
    out: Path,
    suffix: str,
    *,
    classes: tuple[int, int],
    early: int | None = None,
    of: str = "",
) -> tuple[dict[str, Any], GateActivity]:
    """Draw biases, gates and outputs of all layers (Figure 2), and how two classes differ in them (Figure 3)."""
    transform = registry.find(name).images.apply
    bias = analysis.gate_bias(model)
    activity = analysis.gate_activity(model, test[0], transform=transform, threshold=0.5)
    traces = analysis.trace(model, transform(test[0][:FEW]))
    path = out / f"tvdn_figure2{suffix}.png"
    analysis.plot_gate_summary(bias, activity, traces, path, title=f"{name}, as [TVDN, Figure 2]{of}")
    routing = analysis.gate_routing(model, test, transform=transform)
    path = out / f"tvdn_figure3{suffix}.png"
    analysis.plot_routing(routing, classes, path, title=f"{name}, as [TVDN, Figure 3]{of}")
    spec = VARIANTS[registry.find(name).variant]
    numbers = gate_numbers(spec, bias, activity, traces, routing, early or len(bias) // 2)
    return {**numbers, "gini": gini_numbers(name, model, test[0])}, activity


def untrained(model):
    """Return a network as it is before training (seed 1)."""
    keras.utils.set_random_seed(1)
    return keras.models.clone_model(model)


def gini_numbers(name: str, model, images) -> dict[str, float]:
    """Return the Gini indices of a layer's transform gates, for one sample and of their mean over samples.

    0: all gates are equally open; near 1: one of many is open [Hurley and Rickard 2009]. Means over blocks, and, of
    the first, over samples.
    """
    images, numbers = registry.find(name).images.apply(images[:SAMPLES]), {"samples": SAMPLES}
    for start, net in (("", model), ("untrained_", untrained(model))):
        one, of_mean = [], []
        for block in analysis.blocks(net):
            gates = analysis.trace(net, images, [block])[block].t.reshape(len(images), -1)
            one.append(_gini(gates).mean())
            of_mean.append(_gini(gates.mean(0)))
        numbers |= {f"{start}sample": float(np.mean(one)), f"{start}mean": float(np.mean(of_mean))}
    return numbers


def _gini(values: np.ndarray) -> np.ndarray:
    """Return the Gini index over the last axis."""
    ranks = np.arange(1, values.shape[-1] + 1)
    return np.sort(values, -1) @ (2 * ranks - len(ranks) - 1) / (len(ranks) * values.sum(-1))


def gate_numbers(
    spec: NetSpec,
    bias: Mapping[str, np.ndarray],
    activity: GateActivity,
    traces: Mapping[str, BlockTrace],
    routing: Routing,
    early: int,
) -> dict[str, Any]:
    """Return the numbers behind the claims of [TVDN, 4]. Each block counts the same, whatever its width."""
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
