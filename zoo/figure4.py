"""[TVDN, Figure 4] with its twins: highway, residual and plain nets, each block lesioned in turn."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

import keras_highway as kh
from keras_highway import analysis
from keras_highway import weights as rows
from keras_highway.analysis.plots import write
from training.recipes import RECIPES

RUNS = Path(__file__).parent / "runs"
HIGHWAY, CIFAR = "highway_fc50_tanh", "highway_fc50_cifar100"
TWINS = ("residual_fc50_tanh", "plain_fc50_tanh", "plain_fc10_tanh")
FREE = 0.001  # 0.1 point
TRAINING = 20_000  # images of the training set


def twins(data: Callable, out: Path, runs: Path | None) -> dict:
    """The curves of the highway net and its twins on MNIST, and of the CIFAR-100 net, side by side.

    Args:
        data: Function from a data set's name to its arrays.
        out: Folder of the figures.
        runs: Folder of the twins' finished runs, each in a folder of its
            recipe's name; their weights are not in the zoo.
    """
    if runs is None:
        raise ValueError("Figure 4 side by side needs the twins' weights: train them, and pass --runs FOLDER")
    nets = {name: _trained(name, runs) for name in (HIGHWAY, *TWINS, CIFAR)}
    curves = {name: _curves(name, net, data(RECIPES[name].data)) for name, net in nets.items()}
    _draw(curves, out)
    return {name: {**_provenance(name), **_numbers(curve)} for name, curve in curves.items()}


def _trained(name, runs):
    """The network of a recipe: from the zoo, or from its run."""
    recipe = RECIPES[name]
    if recipe.weights in rows.WEIGHTS:
        return kh.load(recipe.weights)
    net = kh.create_model(recipe.variant, **dict(recipe.overrides))
    net.load_weights(runs / name / rows.FILE)
    return net


def _curves(name, net, data) -> dict[str, analysis.LesionCurve]:
    transform = kh.get_transform(RECIPES[name].transform).apply
    drawn = np.sort(np.random.default_rng(0).permutation(len(data.x_train))[:TRAINING])
    parts = {"training": (data.x_train[drawn], data.y_train[drawn]), "test": (data.x_test, data.y_test)}
    return {part: analysis.lesion_curve(net, pair, transform=transform) for part, pair in parts.items()}


def _draw(curves, out) -> None:
    """Every net on the images it was trained on; the highway and the residual net once more where they are good."""
    for part in ("training", "test"):
        four = {name: curves[name][part] for name in (HIGHWAY, *TWINS)}
        figure = analysis.plot_lesion_curve(four)
        figure.axes[0].set_yscale("log")
        write(
            figure,
            out / f"tvdn_figure4_twins_{part}.png",
            f"MNIST, {part} set, as [TVDN, Figure 4]: one block lesioned",
        )
    figure = analysis.plot_lesion_curve({f"{part} set": curve for part, curve in curves[CIFAR].items()})
    write(figure, out / "tvdn_figure4_cifar100.png", f"{CIFAR}, as [TVDN, Figure 4]")


def _provenance(name) -> dict:
    """Where the weights come from."""
    weights = RECIPES[name].weights
    shipped = weights in rows.WEIGHTS
    result = rows.result(weights) if shipped else json.loads((RUNS / name / "result.json").read_text("utf-8"))
    seed = {"seed": result["seeds"][0]}  # of several runs, the first gives the weights
    return {**seed, **{key: result[key] for key in ("epochs", "commit", "backend", "hardware")}}


def _numbers(curves) -> dict:
    found = {}
    for part, curve in curves.items():
        cost = curve.intact_accuracy - curve.accuracy
        found[part] = {
            "samples": curve.samples,
            "intact_accuracy": round(curve.intact_accuracy, 6),
            "blocks": len(curve.blocks),
            "blocks_that_cost_at_most_0.1_point": int((cost <= FREE + 1e-9).sum()),
            "worst_block": curve.blocks[int(cost.argmax())],
            "worst_cost": round(float(cost.max()), 6),
            "accuracy": curve.accuracy.round(6).tolist(),
            "loss": curve.loss.round(6).tolist(),
        }
    return found
