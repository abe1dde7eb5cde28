"""The sections on gates: how far they open, and for which classes."""

import numpy as np

from keras_highway import analysis
from keras_highway.analysis.gates import check_learned
from keras_highway.gating import get_gating
from keras_highway.reporting.section import Picture, ReportInput, Section, absent, picture

CLASSES = 10  # at most; each takes the memory of all gates of one sample


def gates(inputs: ReportInput) -> Section:
    """Biases, means and open shares of every block."""
    key, title = "gates", "Gates"
    try:
        which = learned_gate(inputs.model)
    except ValueError as error:
        return absent(key, title, error)
    bias, without_bias = _bias(inputs.model, which)
    activity = analysis.gate_activity(inputs.model, inputs.images, gate=which, **inputs.options)
    pictures = _gate_pictures(inputs, which, bias, activity)
    numbers = _gate_numbers(which, bias, activity)
    text = (
        f"The gate {which} decides how much of a block's input is {_MEANING[which]}. Over {activity.samples} images it "
        f"is {numbers['mean_gate']:.3f} on average; of a block's gates {100 * numbers['open_for_one_image']:.1f} % are "
        f"above one half for a given image, and {100 * numbers['open_for_some_image']:.1f} % for at least one "
        f"(means over blocks).{without_bias}"
    )
    return Section(key, title, text, tuple(pictures), numbers)


def routing(inputs: ReportInput) -> Section:
    """How the gates differ between classes."""
    key, title = "routing", "Routing"
    shown = np.unique(inputs.labels)[:CLASSES]
    among = np.isin(inputs.labels, shown).reshape(len(inputs.labels), -1).any(1)
    data = inputs.images[among], inputs.labels[among]
    try:  # no gates, or labels of positions
        which = learned_gate(inputs.model)
        routes = analysis.gate_routing(inputs.model, data, gate=which, **inputs.options)
    except ValueError as error:
        return absent(key, title, error)
    names = [inputs.classes[k] for k in routes.classes]
    pictures = [
        picture(
            analysis.plot_routing_profile(routes, names),
            "One row per class, one column per block: how far the mean gates of the class are from those of all images",
        )
    ]
    table = {block: np.abs(d).reshape(len(names), -1).mean(1) for block, d in routes.difference.items()}
    total = np.sum(list(table.values()), 0)
    block = max(table, key=lambda name: table[name].mean())
    text = (
        "If gates route information, they open differently for different classes: here a class's mean gates minus the "
        f"mean over all {int(routes.samples.sum())} images of {len(names)} classes [TVDN, Figure 3]. The class that "
        f"differs most is {names[int(total.argmax())]}; the block whose gates tell classes apart most is {block}."
    )
    numbers = {
        "gate": which,
        "classes": names,
        "images": routes.samples.tolist(),
        "mean_absolute_difference": {name: row.tolist() for name, row in table.items()},
    }
    return Section(key, title, text, tuple(pictures), numbers)


def learned_gate(model) -> str:
    """Returns the gate to analyse: `"t"`, or `"c"` where only that is learned.

    Raises:
        ValueError: If no gate is learned; the message states what there is
            instead.
    """
    known = analysis.blocks(model)
    gates_learned = {gate for block in known.values() for gate in get_gating(block.gating).learned_gates}
    if "t" in gates_learned or not gates_learned:
        check_learned(known, "t")
        return "t"
    return "c"


def _bias(model, which) -> tuple[dict[str, np.ndarray] | None, str]:
    """The biases of the gates, or `None` and a sentence that says why there are none."""
    try:
        return analysis.gate_bias(model, which), ""
    except ValueError as error:
        return None, f" Their biases are left out. {error}".split(" Received:")[0]


def _gate_pictures(inputs, which, bias, activity) -> list[Picture]:
    caption = (
        "Block by block: the mean gate, the share of gates above one half for one image (the mean over images) and "
        "for any of them"
    )
    if bias is not None:
        caption += ", and the gate biases; the band reaches from the lowest of a block to the highest"
    pictures = [picture(analysis.plot_gate_profile(activity, bias), caption)]
    ranks = {mean.shape for mean in activity.mean.values()}
    if all(len(shape) == 3 for shape in ranks):
        drawn = analysis.plot_gate_maps(activity)
        pictures.append(
            picture(drawn, "Where in the image the gates open: mean over images and channels, 0 shut and 1 open")
        )
    elif bias is not None and which == "t" and len(ranks) == 1 and len(next(iter(ranks))) == 1:
        x = inputs.images[:1] if inputs.transform is None else inputs.transform(inputs.images[:1])
        # Of blocks with such a gate: others may stand beside them.
        traces = analysis.trace(inputs.model, x, blocks={name.split(":")[0] for name in activity.mean})
        caption = (
            "Every unit of every block: gate bias, mean gate, and for one image the gate and the output "
            "[TVDN, Figure 2]. Colours of gates follow the square root; an arrow on a bar: a few values lie beyond"
        )
        pictures.append(picture(analysis.plot_gate_summary(bias, activity, traces), caption))
    return pictures


_MEANING = {"t": "transformed; 0 carries it on unchanged", "c": "carried on beside the transform"}


def _gate_numbers(which, bias, activity) -> dict:
    blocks = {
        name: {
            **({} if bias is None else {"bias": float(bias[name.split(":")[0]].mean())}),
            "mean": float(activity.mean[name].mean()),
            "variance": float(activity.variance[name].mean()),
            "open_for_one_image": float(activity.open_share[name].mean()),
            "open_for_some_image": float((activity.highest[name] > activity.threshold).mean()),
        }
        for name in activity.mean
    }
    return {
        "gate": which,
        "images": activity.samples,
        "threshold": activity.threshold,
        "mean_gate": float(np.mean([row["mean"] for row in blocks.values()])),
        "open_for_one_image": float(np.mean([row["open_for_one_image"] for row in blocks.values()])),
        "open_for_some_image": float(np.mean([row["open_for_some_image"] for row in blocks.values()])),
        "blocks": blocks,
    }
