"""Draw [TVDN, Figure 4] for highway, residual and plain nets: each block lesioned in turn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

import keras_highway as kh
from keras_highway import analysis
from keras_highway.analysis.plots import SMALL, legend_above, write
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import registry
from training import read_json

RUNS = Path(__file__).parents[1] / "zoo" / "runs"
HIGHWAY, CIFAR = "highway_fc50_tanh", "highway_fc50_cifar100"
BASELINES = ("residual_fc50_tanh", "plain_fc50_tanh", "plain_fc10_tanh")
LABELS = dict(zip((HIGHWAY, *BASELINES), ("highway", "residual", "plain", "plain, 10 layers"), strict=True))
FREE = 0.001  # 0.1 point
TRAINING = 20_000  # images of the training set
LINEAR = 0.01  # %, below which Figure 4's scale is linear, down to 0: the highway net has the whole training set right


def baselines(data: Callable, out: Path, runs: Path | None, known: dict | None = None) -> dict:
    """Measure and draw the curves of the MNIST nets and of the CIFAR-100 net."""
    if runs is not None:
        curves = {name: _measured(name, data, runs) for name in (HIGHWAY, *BASELINES, CIFAR)}
    elif known:
        curves = known
    else:
        raise ValueError("Figure 4 side by side needs the baselines' weights: train them, and pass --runs FOLDER")
    _draw(curves, out)
    return curves


def _measured(name, data, runs) -> dict:
    return {**_provenance(name), **_numbers(_curves(name, _trained(name, runs), data(RECIPES[name].data)))}


def _trained(name, runs):
    """Return the network of a recipe: from the zoo, or from its run."""
    recipe = RECIPES[name]
    if recipe.weights in registry.WEIGHTS:
        return kh.load(recipe.weights)
    here, known = (read_json(folder / name / "result.json") for folder in (runs, RUNS))
    if here != known:
        raise ValueError(f"{runs / name} is not the run of {RUNS / name}, which records where the numbers come from.")
    net = kh.create_model(recipe.variant, **dict(recipe.overrides))
    net.load_weights(runs / name / registry.FILE)
    return net


def _curves(name, net, data) -> dict[str, analysis.LesionCurve]:
    transform = kh.get_transform(RECIPES[name].transform).apply
    drawn = np.sort(np.random.default_rng(0).permutation(len(data.x_train))[:TRAINING])
    parts = {"training": (data.x_train[drawn], data.y_train[drawn]), "test": (data.x_test, data.y_test)}
    return {part: analysis.lesion_curve(net, pair, transform=transform) for part, pair in parts.items()}


def _draw(curves, out) -> None:
    ticks = {"training": (0, 0.01, 0.1, 1, 10, 100), "test": (2, 5, 10, 20, 50, 100)}
    for part, at in ticks.items():
        nets = {LABELS[name]: _curve(curves[name][part]) for name in (HIGHWAY, *BASELINES)}
        figure = analysis.plot_lesion_curve(nets)
        axis = figure.axes[0]
        if at[0] == 0:
            axis.set_yscale("symlog", linthresh=LINEAR)
            mark_break(axis, LINEAR, "linear below this line, logarithmic above")
        else:
            axis.set_yscale("log")
        axis.minorticks_off()
        axis.set(ylim=(at[0] - LINEAR / 10, 150), yticks=at, yticklabels=map(str, at))
        legend_above(axis, axis.get_legend().legend_handles, columns=3)
        write(figure, out / f"tvdn_figure4_baselines_{part}.png", f"MNIST, {part} set: error with one block lesioned")
    figure = analysis.plot_lesion_curve(_curve(curves[CIFAR]["training"]))
    write(figure, out / "tvdn_figure4_cifar100.png", f"{CIFAR}, as [TVDN, Figure 4] (training set)")


def mark_break(axis, at: float, text: str) -> None:
    """Mark where the scale of a vertical axis changes: two strokes, a dotted line, and a text below."""
    across = axis.get_yaxis_transform()  # x in parts of the axis, y in data
    stroke = {"marker": [(-1, -0.6), (1, 0.6)], "markersize": 9, "color": "k", "linestyle": "none", "clip_on": False}
    axis.plot([0, 0], [at * 0.9, at * 1.1], transform=across, label="_break", **stroke)
    axis.axhline(at, color="0.4", lw=0.8, ls=":", label="_break")
    below = {"textcoords": "offset points", "ha": "center", "va": "top", "fontsize": SMALL, "color": "0.3"}
    axis.annotate(text, (0.5, at), (0, -2), across, **below)


def _curve(row) -> analysis.LesionCurve:
    """Return the stored numbers, to be drawn."""
    blocks = tuple(f"stage1_block{i}" for i in range(1, row["blocks"] + 1))
    accuracy, loss = np.array(row["accuracy"]), np.array(row["loss"])
    return analysis.LesionCurve(blocks, accuracy, loss, row["intact_accuracy"], float("nan"), row["samples"], ())


def _provenance(name) -> dict:
    """Where the weights come from."""
    weights = RECIPES[name].weights
    shipped = weights in registry.WEIGHTS
    result = registry.result(weights) if shipped else read_json(RUNS / name / "result.json")
    seed = {"seed": result["seeds"][0]}  # of several runs, the first gives the weights
    return {**seed, **{key: result[key] for key in ("epochs", "commit", "backend", "hardware")}}


def _numbers(curves) -> dict:
    numbers = {}
    for part, curve in curves.items():
        cost = curve.intact_accuracy - curve.accuracy
        numbers[part] = {
            "samples": curve.samples,
            "intact_accuracy": round(curve.intact_accuracy, 6),
            "blocks": len(curve.blocks),
            "blocks_that_cost_at_most_0.1_point": int((cost <= FREE + 1e-9).sum()),
            "worst_block": curve.blocks[int(cost.argmax())],
            "worst_cost": round(float(cost.max()), 6),
            "accuracy": curve.accuracy.round(6).tolist(),
            "loss": curve.loss.round(6).tolist(),
        }
    return numbers
