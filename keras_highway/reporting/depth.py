"""The sections on depth: which blocks matter, whether their order does, what they refine, how many can go."""

import numpy as np

from keras_highway import analysis
from keras_highway.analysis.graph import stages
from keras_highway.reporting.section import ReportInput, Section, absent, picture

BUDGET = 0.001  # 0.1 point: what may be lost for free


def lesions(inputs: ReportInput) -> Section:
    """Accuracy with each block shut in turn."""
    key, title = "lesions", "Lesions"
    try:
        curve = analysis.lesion_curve(inputs.model, inputs.data, **inputs.options)
    except ValueError as error:
        return absent(key, title, error)
    cost = curve.intact_accuracy - curve.accuracy
    free = int((cost <= BUDGET + 1e-9).sum())
    worst = curve.blocks[int(cost.argmax())]
    left_out = (
        f" Not lesioned, since they change the shape: {', '.join(curve.transitions)}." if curve.transitions else ""
    )
    text = (
        "Each block in turn is reduced to its skip connection (T = 0), all others stay [TVDN, Figure 4]. The dashed "
        f"line is the network as it is. {free} of {len(curve.blocks)} blocks cost at most 0.1 point alone; {worst} "
        f"costs most, {100 * cost.max():.1f} points.{left_out}"
    )
    numbers = {
        "images": curve.samples,
        "intact_accuracy": curve.intact_accuracy,
        "intact_loss": curve.intact_loss,
        "blocks": list(curve.blocks),
        "accuracy": curve.accuracy.tolist(),
        "loss": curve.loss.tolist(),
        "free_blocks": free,
        "transitions": list(curve.transitions),
    }
    return Section(
        key,
        title,
        text,
        (picture(analysis.plot_lesion_curve(curve), "Error with one block lesioned; dashed: the network as it is"),),
        numbers,
    )


def orders(inputs: ReportInput) -> Section:
    """Accuracy with the blocks of a stage in another order."""
    key, title = "orders", "Orders"
    curves, reasons = {}, {}
    for stage in stages(analysis.blocks(inputs.model)):
        try:
            curves[stage] = analysis.reshuffle_curve(inputs.model, inputs.data, stage, **inputs.options)
        except ValueError as error:
            reasons[stage] = str(error).split(" Received:")[0]
    if not curves:
        return absent(key, title, f"No stage can be shuffled. {next(iter(reasons.values()))}")
    drawn = analysis.plot_reshuffle_curve(curves)
    worst = {stage: float(curve.accuracy.min()) for stage, curve in curves.items()}
    text = (
        "The blocks of a stage swap positions, a pair at a time; Kendall's tau is 1 for the trained order, 0 for a "
        "random one [UIE, 4]. A network whose blocks refine one representation degrades gently. Lowest accuracy by "
        f"stage: {', '.join(f'{stage} {100 * low:.1f} %' for stage, low in worst.items())}."
        + "".join(f" {stage} is left out: {reason}" for stage, reason in reasons.items())
    )
    numbers: dict = {
        stage: {
            "images": curve.samples,
            "blocks": list(curve.blocks),
            "intact_accuracy": curve.intact_accuracy,
            **{name: getattr(curve, name).tolist() for name in ("orders", "swaps", "seeds", "tau", "accuracy", "loss")},
        }
        for stage, curve in curves.items()
    }
    return Section(
        key,
        title,
        text,
        (picture(drawn, "Error against Kendall's tau of the order, one point per order; dashed: the trained order"),),
        numbers,
    )


def estimation(inputs: ReportInput) -> Section:
    """The estimation error of every block."""
    key, title = "estimation", "Iterative estimation"
    try:
        errors = analysis.estimation_error(inputs.model, inputs.images, **inputs.options)
    except ValueError as error:
        return absent(key, title, error)
    # The last block's error is zero by definition: its step carries no information.
    shares = {stage: (np.diff(e.std[:-1]) < 0).mean() for stage, e in errors.items() if len(e.blocks) > 2}
    listed = ", ".join(f"{stage} {100 * share:.0f} %" for stage, share in shares.items())
    text = (
        "How far each block's output is from the last of its stage: if the blocks refine one estimate step by step, "
        "the error is zero on average, and its spread shrinks from block to block [UIE, Figure 3]."
        + (f" Steps at which the spread shrinks: {listed}." if shares else "")
    )
    caption = (
        "Estimation error a − A: a is a block's output, A the last output of its stage. Points are means over images "
        "and units, bars reach one standard deviation up and down; σ(A) is the standard deviation of A, to "
        "compare them with"
    )
    drawn = picture(analysis.plot_estimation_error(errors), caption)
    numbers: dict = {
        stage: {
            "images": error.samples,
            "blocks": list(error.blocks),
            "mean": error.mean.tolist(),
            "std": error.std.tolist(),
            "scale": error.scale,
        }
        for stage, error in errors.items()
    }
    return Section(key, title, text, (drawn,), numbers)


def trimming(inputs: ReportInput) -> Section:
    """Accuracy and parameters at every depth."""
    key, title = "trim", "Depth"
    try:
        curve = analysis.trim_curve(inputs.model, inputs.data, order="lesion", **inputs.options)
    except ValueError as error:
        return absent(key, title, error)
    most = int(np.flatnonzero(curve.accuracy >= curve.accuracy[0] - BUDGET - 1e-9).max())
    text = (
        "Blocks are taken out permanently, the one that costs the least loss alone first. "
        f"{most} of {curve.depth[0]} blocks can go at a loss of at most 0.1 point, and with them "
        f"{curve.parameters[0] - curve.parameters[most]:,} of {curve.parameters[0]:,} parameters (here with the "
        "statistics of batch normalization). Order and accuracy "
        f"are of the same {curve.samples} images here: choose with others before you trust the number."
    )
    numbers = {
        "images": curve.samples,
        "removed": list(curve.removed),
        "removable": most,
        **{name: getattr(curve, name).tolist() for name in ("depth", "accuracy", "loss", "parameters")},
    }
    return Section(
        key,
        title,
        text,
        (picture(analysis.plot_trim_curve(curve), "Error and size against the number of blocks left"),),
        numbers,
    )
