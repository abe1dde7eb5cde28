"""Compare Highway50 with ResNet50, both trained on Imagenette: [UIE, Figures 3 and 4], gates, lesions, trimming.

The order in which blocks are removed comes from training images, not from test images.
"""

from pathlib import Path
from typing import Any

import numpy as np

from keras_highway import analysis
from keras_highway.applications import load
from keras_highway.data.datasets import Dataset
from keras_highway.data.photographs import data_folder, folder_test_set, read_all, some_of
from keras_highway.data.transforms import Transform
from keras_highway.gating import get_gating
from keras_highway.weights import registry
from training import net_figures
from training.analysis_tables import PHOTOGRAPHS

NETS = {"highway50": PHOTOGRAPHS, "resnet50": "resnet50.imagenette"}
BLOCK = "stage2_block2"  # whose strongest unit is shown: it sees 59 x 59 of 128 x 128 pixels
FEWER = 2_000  # test photographs of estimation errors, gate maps and units
ORDER_BY = 1_000  # training photographs
_BATCH = 50


def read(folder: str | Path | None, transform: Transform) -> Dataset:
    """Read the photographs of Imagenette."""
    root, classes = data_folder("imagenette", folder), registry.find(NETS["highway50"]).classes
    splits = (("train", ORDER_BY), ("val", None))
    train, test = (_pixels(root / split, transform, count, classes) for split, count in splits)
    return Dataset(*train, *test, classes)


def _pixels(
    folder: Path, transform: Transform, count: int | None, classes: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    known = folder_test_set(folder, len(classes), class_names=classes)
    chosen = known if count is None else some_of(known, count)
    batches = list(read_all(chosen, transform, _BATCH))
    drawn = np.random.default_rng(0).permutation(chosen.images)
    pixels, labels = (np.concatenate([batch[i] for batch in batches]) for i in (0, 1))
    return pixels[drawn], labels[drawn]


def both_nets(data: Dataset, out: Path) -> dict[str, Any]:
    """Draw and measures both nets."""
    if len({registry.find(name).images for name in NETS.values()}) > 1:
        raise ValueError(f"Photographs go through one transform, and {' and '.join(NETS.values())} have two.")
    numbers, lesions, depths = {}, {}, {}
    for net, name in NETS.items():
        numbers[net], lesions[net], depths[net] = _net(net, name, data, out)
    title = "Imagenette, one block lesioned (test set)"
    analysis.plot_lesion_curve(lesions, out / "lesions_imagenette.png", title=title)
    title = "Imagenette, blocks taken out (test set)"
    analysis.plot_trim_curve(depths, path=out / "trim_imagenette.png", title=title)
    return numbers


def _net(net, name, data, out) -> tuple[dict[str, Any], analysis.LesionCurve, analysis.TrimCurve]:
    model, transform, suffix = load(name), registry.find(name).images.apply, f"_imagenette_{net}"
    test, fewer = (data.x_test, data.y_test), data.x_test[:FEWER]
    title = f"{name}, as [UIE, Figure 3]"
    estimation = net_figures.estimate(model, transform, fewer, out / f"estimation{suffix}.png", title, _BATCH)
    curve = analysis.lesion_curve(model, test, batch_size=_BATCH, transform=transform)
    depths = _trimmed(model, (data.x_train, data.y_train), test, transform)
    numbers = {
        "sha256": registry.find(name).sha256,
        "estimation": estimation,
        "unit": net_figures.strongest_unit(model, name, transform, fewer, out, suffix, BLOCK),
        "lesions": net_figures.lesion_numbers(curve),
        "trim": {
            "ordered_by": len(data.x_train),
            "samples": depths.samples,
            "removed": list(depths.removed),
            "accuracy": depths.accuracy.tolist(),
            "parameters": depths.parameters.tolist(),
        },
    }
    if any(get_gating(block.gating).learned_gates for block in analysis.blocks(model).values()):
        numbers["gates"] = _gates(model, name, transform, fewer, out, suffix)
    return numbers, curve, depths


def _trimmed(model, training, test, transform) -> analysis.TrimCurve:
    """Every depth on the test photographs, in the order that training photographs give."""
    order = analysis.trim_curve(model, training, batch_size=_BATCH, transform=transform)
    plans = [dict.fromkeys(order.removed[:count]) for count in range(len(order.removed) + 1)]
    on_test = analysis.compare(model, plans, test, batch_size=_BATCH, transform=transform)
    return order._replace(accuracy=on_test.accuracy, loss=on_test.loss, samples=on_test.samples)


def _gates(model, name, transform, images, out, suffix) -> dict[str, Any]:
    """Where gates open; returns the mean gate of every block."""
    activity = analysis.gate_activity(model, images, batch_size=_BATCH, transform=transform)
    title = f"{name}, mean of {activity.samples:,} test photographs"
    analysis.plot_gate_maps(activity, out / f"gate_maps{suffix}.png", title=title)
    return {"samples": activity.samples, "mean": {block: float(mean.mean()) for block, mean in activity.mean.items()}}
