"""Depth that pays: how many blocks the 50-layer MNIST net does without, alone and fine-tuned.

No test image chooses anything. Of the training images, drawn anew for each
seed, some give the order (the block whose removal costs the least loss goes
next), others decide how far to go; then trimmed and whole net are trained on
alike, and the test images are counted, once.
"""

import time

import keras
import numpy as np

import keras_highway as kh
from keras_highway import analysis
from keras_highway._support.keras_models import position_of
from keras_highway._support.numerics import rank_of
from keras_highway.analysis.plots import SMALL, draw_depth, write
from keras_highway.weights import registry

NET = "highway_fc50_tanh.tvdn"
SEEDS = (0, 1, 2)
ORDER_BY, CHOOSE_BY = 1_000, 20_000  # training images
BUDGET, CONFIDENCE = 0.001, 0.95  # 0.1 point
EPOCHS, RATE, BATCH = 3, 0.02, 100
DEPTHS = (24, 12)  # fine-tuned besides the depth that was chosen
PAIRS = 25
_MOST_ERROR = 6  # %, of what is drawn: above it all curves rise steeply


def trimming(data, net: str = NET) -> dict:
    """Trim with each seed, without fine-tuning; returns orders, depths and what they cost on the test images."""
    model, transform = kh.load(net), registry.find(net).images.apply
    test, rows = (data.x_test, data.y_test), []
    for seed in SEEDS:
        ordering, choosing = _draw_images(data, seed)
        kept = {"order": "greedy", "choose_on": choosing, "transform": transform}
        small = analysis.trim(model, ordering, BUDGET, confidence=CONFIDENCE, **kept)
        gone = small.curve.removed
        on_test = analysis.compare(model, _plans(gone), test, transform=transform)
        as_measured = int(np.flatnonzero(small.curve.accuracy >= small.curve.accuracy[0] - BUDGET - 1e-12).max())
        rows.append(
            {
                "seed": seed,
                "order": [_number(name) for name in gone],
                "removed": _cost(on_test, len(small.removed)),
                "removed_without_confidence": _cost(on_test, as_measured),
                "parameters": small.curve.parameters.tolist(),
                "accuracy": on_test.accuracy.tolist(),
                "loss": on_test.loss.tolist(),
                "lost": on_test.lost.tolist(),
                "gained": on_test.gained.tolist(),
            }
        )
    return {"ordered_by": ORDER_BY, "depth_chosen_on": CHOOSE_BY, "samples": len(test[0]), "seeds": rows}


def tuning(data, trimmed) -> dict:
    """Train whole and trimmed nets on alike, with each seed; returns what the trimmed ones cost."""
    transform = registry.find(NET).images.apply
    train, test = ((np.asarray(transform(x)), y) for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)))
    rows = []
    for row in trimmed["seeds"]:
        gone = [f"stage1_block{i}" for i in row["order"]]
        depths = sorted({len(gone), len(gone) - row["removed"]["blocks"], *DEPTHS}, reverse=True)
        right = {depth: _tuned(gone[: len(gone) - depth], train, test, row["seed"]) for depth in depths}
        rows.append({"seed": row["seed"], "depths": [_pair(depth, right) for depth in depths]})
    return {"epochs": EPOCHS, "rate": RATE, "samples": len(test[0]), "backend": keras.backend.backend(), "seeds": rows}


def latency(data, trimmed) -> dict:
    """Time the forward pass at the depths that were fine-tuned."""
    model, transform = kh.load(NET), registry.find(NET).images.apply
    first = trimmed["seeds"][0]
    gone = [f"stage1_block{i}" for i in first["order"]]
    chosen = {len(gone) - row["removed"]["blocks"] for row in trimmed["seeds"]}
    depths = sorted({len(gone), *chosen, *DEPTHS}, reverse=True)
    x = transform(data.x_test[:100])
    times = analysis.latency_curve(model, gone, x, depths=depths, repeats=PAIRS, clock=time.process_time)
    return {
        "pairs": PAIRS,
        "batch_size": times.batch_size,
        "clock": "processor seconds",
        "backend": keras.backend.backend(),
        "depths": [
            {
                "blocks_left": depth,
                "parameters": first["parameters"][len(gone) - depth],
                "speed_up_quartiles": times.speed_up[i].tolist(),
            }
            for i, depth in enumerate(depths)
        ],
    }


def _draw_images(data, seed):
    """Training images that order, and others that choose."""
    drawn = np.random.default_rng(seed).permutation(len(data.x_train))
    parts = drawn[:ORDER_BY], drawn[ORDER_BY : ORDER_BY + CHOOSE_BY]
    return [(data.x_train[part], data.y_train[part]) for part in parts]


def _number(name) -> int:
    """Return number of a block in the only stage of `NET`."""
    position = position_of(name)
    assert position is not None
    return position[1]


def _plans(gone):
    return [dict.fromkeys(gone[:k]) for k in range(len(gone) + 1)]


def _cost(comparison, i) -> dict:
    """Cost of plan `i`, which removes `i` blocks."""
    pairs = comparison.paired
    return {"blocks": i, "cost": float(pairs.cost[i]), "standard_error": float(pairs.standard_error[i])}


def _tuned(gone, train, test, seed) -> np.ndarray:
    """Whether a fine-tuned net without some blocks is right, image by image."""
    keras.utils.set_random_seed(seed)
    net = analysis.without(kh.load(NET), gone)
    rate = keras.optimizers.schedules.CosineDecay(RATE, EPOCHS * (len(train[0]) // BATCH))
    net.compile(keras.optimizers.SGD(rate, 0.9), "sparse_categorical_crossentropy")
    net.fit(*train, batch_size=BATCH, epochs=EPOCHS, verbose=0)
    scores = net.predict(test[0], batch_size=500, verbose=0)
    return keras.ops.convert_to_numpy(rank_of(test[1], scores)) < 1


def _pair(depth, right) -> dict:
    """Return a trimmed net against the whole one, both fine-tuned."""
    ours, whole = right[depth], right[max(right)]
    pairs = analysis.Paired(int((whole & ~ours).sum()), int((ours & ~whole).sum()), len(ours))
    return {
        "blocks_left": depth,
        "accuracy": float(ours.mean()),
        "cost": pairs.cost,
        "standard_error": float(pairs.standard_error),
    }


def draw(trimmed, tuned, times, out) -> None:
    """Draw everything against depth."""
    curves = {f"trimmed, seed {row['seed']}": _curve(row, trimmed["samples"]) for row in trimmed["seeds"]}
    accuracies: dict[int, list[float]] = {}
    for row in (row for seed in tuned["seeds"] for row in seed["depths"]):
        accuracies.setdefault(row["blocks_left"], []).append(row["accuracy"])
    depths = np.array(sorted(accuracies, reverse=True))
    whole = next(iter(curves.values()))
    curves["trimmed and fine-tuned, mean"] = whole._replace(
        depth=depths,
        accuracy=np.array([np.mean(accuracies[depth]) for depth in depths]),
        parameters=whole.parameters[whole.depth[0] - depths],
    )
    rows = times["depths"]
    figure = draw_depth(
        curves, ([row["blocks_left"] for row in rows], np.array([row["speed_up_quartiles"] for row in rows]))
    )
    errors = figure.axes[0]
    errors.set_ylim(2, _MOST_ERROR)
    style = {"transform": errors.transAxes, "ha": "right", "va": "top", "fontsize": SMALL, "color": "0.3"}
    errors.text(0.98, 0.94, f"cut off at {_MOST_ERROR} %", **style)
    write(figure, out / "trim.png", f"{NET}: depth that pays")


def _curve(row, samples) -> analysis.TrimCurve:
    """Return a seed's curve on the test images."""
    return analysis.TrimCurve(
        removed=tuple(f"stage1_block{i}" for i in row["order"]),
        depth=len(row["order"]) - np.arange(len(row["accuracy"])),
        accuracy=np.array(row["accuracy"]),
        loss=np.array(row["loss"]),
        parameters=np.array(row["parameters"]),
        samples=samples,
    )
