"""`python -m zoo.figures --data DIR`: figures of the papers' analyses from trained weights, into `docs/analysis`."""

import argparse
import time
from pathlib import Path

import numpy as np

from keras_highway import analysis
from keras_highway import weights as rows
from keras_highway.applications import load
from keras_highway.data import load_dataset
from training.run_folder import write_json

OUT = Path(__file__).parents[1] / "docs" / "analysis"
DENSE, IMAGES = "highway_fc50_tanh.tvdn", "mnist10_w32.tvdn"
EARLY = 15  # [TVDN, 4]: "most of the change in outputs happens in the early layers (about 15 for MNIST)"


def main(argv=None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.figures", description=__doc__)
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--samples", type=int, default=10_000, help="test images at most (default: all)")
    parser.add_argument("--choose-on", type=int, default=1000, help="images to choose blocks by, at most")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = load_dataset("mnist", arguments.data)
    test = data.x_test[: arguments.samples], data.y_test[: arguments.samples]
    half = len(test[0]) // 2
    choosing = tuple(part[half : half + arguments.choose_on] for part in test)
    numbers = {
        DENSE: {
            "sha256": rows.get(DENSE).sha256,
            "gates": dense_gates(test, arguments.out),
            "lesions": lesions(test, arguments.out),
            "trim": trimming(choosing, tuple(part[:half] for part in test), arguments.out),
        },
        IMAGES: {"sha256": rows.get(IMAGES).sha256, "estimation": image_gates(test, arguments.out)},
    }
    write_json(arguments.out / "numbers.json", numbers)
    print(f"wrote the figures and their numbers to {arguments.out}")


def dense_gates(test, out) -> dict:
    """Figures 2 and 3 of TVDN; returns what the paper claims of them, in numbers."""
    model, transform = load(DENSE), rows.get(DENSE).transform.apply
    bias = analysis.gate_bias(model)
    activity = analysis.gate_activity(model, test[0], transform=transform, threshold=0.5)
    traces = analysis.trace(model, transform(test[0][:100]))
    analysis.plot_gate_summary(bias, activity, traces, out / "tvdn_figure2.png", title=f"{DENSE}, as [TVDN, Figure 2]")
    routing = analysis.gate_routing(model, test, transform=transform)
    analysis.plot_routing(routing, (0, 7), out / "tvdn_figure3.png", title=f"{DENSE}, as [TVDN, Figure 3]")
    biases = np.stack(list(bias.values()))
    change = np.array([np.abs(entry.y - entry.x).mean() for entry in traces.values()])
    spread = np.stack([np.abs(d).mean((0, 1)) for d in routing.difference.values()])
    return {
        "samples": activity.samples,
        "bias_start": -2.0,
        "bias_mean": biases.mean(),
        "bias_share_that_fell": (biases < -2.0).mean(),
        "mean_gate": np.mean([m.mean() for m in activity.mean.values()]),
        "open_for_one_sample": np.mean([share.mean() for share in activity.open_share.values()]),
        "open_for_some_sample": np.mean([(top > 0.5).mean() for top in activity.highest.values()]),
        "change_in_first_15_blocks": float(change[:EARLY].sum() / change.sum()),
        "class_difference_in_first_15_blocks": spread[:EARLY].sum() / spread.sum(),
    }


def lesions(test, out) -> dict:
    """Figure 4 of TVDN, and the orders and removals of UIE, for the 50-layer net."""
    model, transform = load(DENSE), rows.get(DENSE).transform.apply
    curve = analysis.lesion_curve(model, test, transform=transform)
    analysis.plot_lesion_curve(curve, out / "tvdn_figure4.png", title=f"{DENSE}, as [TVDN, Figure 4] (test set)")
    fewer = test[0][:2000], test[1][:2000]
    shuffled = analysis.reshuffle_curve(model, fewer, transform=transform)
    analysis.plot_reshuffle_curve(shuffled, out / "reshuffle.png", title=f"{DENSE}: blocks in another order")
    dropped = analysis.drop_k_curve(model, fewer, transform=transform)
    analysis.plot_drop_curve(dropped, out / "drop.png", title=f"{DENSE}: random blocks lesioned")
    errors = analysis.estimation_error(model, fewer[0], transform=transform)
    analysis.plot_estimation_error(errors, out / "estimation_dense.png", title=DENSE)
    cost = curve.intact_accuracy - curve.accuracy
    return {
        "samples": curve.samples,
        "intact_accuracy": curve.intact_accuracy,
        "blocks": len(curve.blocks),
        "blocks_that_cost_at_most_0.1_point": int((cost <= 0.001 + 1e-9).sum()),
        "worst_block": curve.blocks[int(cost.argmax())],
        "worst_cost": cost.max(),
    }


def trimming(choosing, test, out) -> dict:
    """Blocks chosen by one half of the test images, accuracy by the other, time by the processor's clock.

    Not by training images: the net has memorized them, so that they do not show what a block is good for.
    """
    model, transform = load(DENSE), rows.get(DENSE).transform.apply
    small = analysis.trim(model, choosing, 0.001, order="greedy", transform=transform)
    gone = small.curve.removed
    plans = [dict.fromkeys(gone[:k]) for k in range(len(gone) + 1)]
    accuracy, loss, samples = analysis.score(model, plans, test, transform=transform)
    curve = small.curve._replace(accuracy=accuracy, loss=loss, samples=samples)
    depths = sorted({len(gone), len(gone) - len(small.removed), 24, 0}, reverse=True)
    x = transform(test[0][:100])
    latency = analysis.latency_curve(model, gone, x, depths=depths, repeats=25, clock=time.process_time)
    analysis.plot_trim_curve(curve, latency, out / "trim.png", title=f"{DENSE}: depth that pays")
    k = len(small.removed)
    ratios = latency.seconds[depths.index(len(gone))] / latency.seconds[depths.index(len(gone) - k)]
    return {
        "chosen_on": small.curve.samples,
        "samples": samples,
        "blocks": len(gone),
        "removed": k,
        "accuracy": accuracy[0],
        "accuracy_trimmed": accuracy[k],
        "most_removed_within_0.1_point_of_test": int(np.flatnonzero(accuracy >= accuracy[0] - 0.001 - 1e-9).max()),
        "parameters": int(curve.parameters[0]),
        "parameters_trimmed": int(curve.parameters[k]),
        "processor_seconds_ratio_quartiles": np.percentile(ratios, (25, 50, 75)).tolist(),
        "pairs": len(ratios),
    }


def image_gates(test, out) -> dict:
    """Where the gates of the convolutional net open, and its estimation errors."""
    model, transform = load(IMAGES), rows.get(IMAGES).transform.apply
    fewer = test[0][:1000]
    activity = analysis.gate_activity(model, fewer, batch_size=50, transform=transform)
    analysis.plot_gate_maps(activity, out / "gate_maps.png", title=f"{IMAGES}, {activity.samples} test images")
    errors = analysis.estimation_error(model, fewer, batch_size=50, transform=transform)
    analysis.plot_estimation_error(errors, out / "estimation_images.png", title=f"{IMAGES}, as [UIE, Figure 3]")
    return {
        stage: {
            "samples": error.samples,
            "scale": error.scale,
            "mean": error.mean.tolist(),
            "std": error.std.tolist(),
        }
        for stage, error in errors.items()
    }


if __name__ == "__main__":
    main()
