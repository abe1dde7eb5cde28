"""`python -m zoo.figures --data DIR`: figures of the papers' analyses from trained weights, into `docs/analysis`."""

import argparse
import time
from pathlib import Path

import numpy as np

from keras_highway import analysis
from keras_highway import weights as rows
from keras_highway.applications import load
from keras_highway.data import load_dataset
from keras_highway.whole_file import write_json

OUT = Path(__file__).parents[1] / "docs" / "analysis"
DENSE, IMAGES = "highway_fc50_tanh.tvdn", "mnist10_w32.tvdn"
BUDGET = 0.001  # 0.1 point
UNIT = "stage1_block2", 11  # finds the end of a stroke at the lower right
EARLY = 15  # [TVDN, 4]: "most of the change in outputs happens in the early layers (about 15 for MNIST)"


def main(argv=None) -> None:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m zoo.figures", description=__doc__)
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--samples", type=int, default=10_000, help="test images at most (default: all)")
    parser.add_argument("--choose-on", type=int, default=1000, help="training images to order the blocks by")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = load_dataset("mnist", arguments.data)
    test = data.x_test[: arguments.samples], data.y_test[: arguments.samples]
    chosen = np.random.default_rng(0).permutation(len(data.x_train))[: arguments.choose_on]
    training = data.x_train[chosen], data.y_train[chosen]
    half = len(test[0]) // 2
    held_out, rest = (tuple(part[cut] for part in test) for cut in (slice(half, None), slice(half)))
    numbers = {
        DENSE: {
            "sha256": rows.get(DENSE).sha256,
            "gates": dense_gates(test, arguments.out),
            "lesions": lesions(test, arguments.out),
            "trim": trimming(training, held_out, rest, arguments.out),
        },
        IMAGES: {
            "sha256": rows.get(IMAGES).sha256,
            "estimation": image_gates(test, arguments.out),
            "unit": unit(test, arguments.out),
        },
    }
    write_json(arguments.out / "numbers.json", numbers)
    print(f"wrote the figures and their numbers to {arguments.out}")


def dense_gates(test, out) -> dict:
    """Figures 2 and 3 of TVDN; returns what the paper claims of them, in numbers."""
    model, transform = load(DENSE), rows.get(DENSE).images.apply
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
    model, transform = load(DENSE), rows.get(DENSE).images.apply
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


def trimming(training, held_out, test, out) -> dict:
    """Depth that pays: the order by training images, how far by half of the test set, the accuracy by the other.

    How far is not for the training images to say: the net has memorized them.
    """
    model, transform = load(DENSE), rows.get(DENSE).images.apply
    curve = analysis.trim_curve(model, training, order="greedy", transform=transform)
    return {"ordered_by": curve.samples, **depth_that_pays(model, curve, held_out, test, out)}


def depth_that_pays(model, curve, held_out, test, out) -> dict:
    """Chooses a depth on held-out images and measures all depths on the test images."""
    transform, gone = rows.get(DENSE).images.apply, curve.removed
    plans = [dict.fromkeys(gone[:k]) for k in range(len(gone) + 1)]
    seen = analysis.score(model, plans, held_out, transform=transform)
    accuracy, loss, samples = analysis.score(model, plans, test, transform=transform)
    curve = curve._replace(accuracy=accuracy, loss=loss, samples=samples)
    k = int(np.flatnonzero(seen.accuracy >= seen.accuracy[0] - BUDGET - 1e-9).max())
    depths = sorted({len(gone), len(gone) - k, 24, 0}, reverse=True)
    x = transform(test[0][:100])
    latency = analysis.latency_curve(model, gone, x, depths=depths, repeats=25, clock=time.process_time)
    analysis.plot_trim_curve(curve, latency, out / "trim.png", title=f"{DENSE}: depth that pays")
    ratios = latency.seconds[0] / latency.seconds[depths.index(len(gone) - k)]
    return {
        "depth_chosen_on": seen.samples,
        "samples": samples,
        "blocks": len(gone),
        "removed": k,
        "accuracy": accuracy[0],
        "accuracy_trimmed": accuracy[k],
        "parameters": int(curve.parameters[0]),
        "parameters_trimmed": int(curve.parameters[k]),
        "processor_seconds_ratio_quartiles": np.percentile(ratios, (25, 50, 75)).tolist(),
        "pairs": len(ratios),
    }


def image_gates(test, out) -> dict:
    """Where the gates of the convolutional net open, and its estimation errors."""
    model, transform = load(IMAGES), rows.get(IMAGES).images.apply
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


def unit(test, out) -> dict:
    """Figure 4 of UIE: what excites one unit of the convolutional net, over the blocks of its first stage."""
    model, transform = load(IMAGES), rows.get(IMAGES).transform.apply
    images, (block, channel) = test[0][:2000], UNIT
    best = analysis.top_patches(model, images, block, channel, transform=transform)
    analysis.plot_patches(best, out / "patches.png", title=f"{block}, channel {channel}: strongest patches")
    found = analysis.guided_backprop(model, images[best.image], block.split("_")[0], channel, transform=transform)
    title = f"{IMAGES}, as [UIE, Figure 4]: channel {channel}, its activation and guided derivative"
    analysis.plot_guided(found, images[best.image], out / "guided.png", title=title)
    return {
        "samples": len(images),
        "block": block,
        "channel": channel,
        "images": best.image.tolist(),
        "activation": best.value.tolist(),
    }


if __name__ == "__main__":
    main()
