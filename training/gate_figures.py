"""Figures 2 and 3 of [TVDN] of one net."""

from pathlib import Path
from typing import Any

from keras_highway import analysis
from keras_highway.analysis.gates import GateActivity
from keras_highway.variants import VARIANTS
from keras_highway.weights import registry
from training.gate_claims import gate_numbers

FEW = 100  # of the test images: for these each layer's outputs are kept


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
    """Draw biases, gates and outputs of all layers (Figure 2), and how two classes differ in them (Figure 3).

    Args:
        model: The network.
        name: Its weights.
        test: Test images and labels.
        out: Folder of the figures.
        suffix: Of their files.
        classes: Whose means Figure 3 shows.
        early: How many of the blocks are early ones. Defaults to half of them.
        of: What the titles add. Defaults to `""`.

    Returns:
        What the paper claims of them, in numbers, and the gates' activity.
    """
    transform = registry.get(name).images.apply
    bias = analysis.gate_bias(model)
    activity = analysis.gate_activity(model, test[0], transform=transform, threshold=0.5)
    traces = analysis.trace(model, transform(test[0][:FEW]))
    path = out / f"tvdn_figure2{suffix}.png"
    analysis.plot_gate_summary(bias, activity, traces, path, title=f"{name}, as [TVDN, Figure 2]{of}")
    routing = analysis.gate_routing(model, test, transform=transform)
    path = out / f"tvdn_figure3{suffix}.png"
    analysis.plot_routing(routing, classes, path, title=f"{name}, as [TVDN, Figure 3]{of}")
    spec = VARIANTS[registry.get(name).variant]
    return gate_numbers(spec, bias, activity, traces, routing, early or len(bias) // 2), activity
