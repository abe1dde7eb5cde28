"""The papers' analyses of trained weights, into `docs`.

    python -m training.figures --data DIR

Their numbers go into `numbers.json` beside them; `--only PART` makes some of
them anew and leaves the others as they are. Without `--runs`, `baselines` draws
what was measured before. `trim`, and `tune`, which trains, are faster with
KERAS_BACKEND=jax. `--draw-only` draws and leaves `numbers.json` as it is: from
the numbers there, or, where a picture shows more than these, from a measurement
that is compared with them.
"""

import argparse
import functools
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from keras_highway import analysis
from keras_highway._support.files import atomic_write_json
from keras_highway.applications import load
from keras_highway.data import load_dataset
from keras_highway.training.run_folder import environment
from keras_highway.weights import registry
from training import depth, figure4, net_figures, photograph_figures, read_json
from training.analysis_tables import CONV, PHOTOGRAPHS
from training.net_figures import draw_gates

OUT = Path(__file__).parents[1] / "docs" / "analysis"
DENSE, CIFAR, IMAGES = "highway_fc50_tanh.tvdn", "highway_fc50_cifar100.tvdn", "mnist10_w32.tvdn"
BLOCK = "stage1_block2"  # of `IMAGES`, whose strongest unit is shown: it sees 9 x 9 of 28 x 28 pixels
# Where most change happens according to [TVDN, 4]: "the early layers (about 15 for MNIST and 40 for CIFAR-100)".
EARLY = {DENSE: 15, CIFAR: 40}


def main(argv=None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.figures", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--runs", type=Path, help="folder of the runs of Figure 4's residual and plain nets")
    parser.add_argument("--draw-only", action="store_true", help="draw, and leave numbers.json as it is")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    arguments = parser.parse_args(argv)
    arguments.out.mkdir(parents=True, exist_ok=True)
    data = functools.cache(lambda name: _read_data(name, arguments.data))
    for name in arguments.only or [name for name in PARTS if all(w in registry.WEIGHTS for w in needed(name))]:
        if arguments.draw_only:
            redraw(name, data, arguments.out)
        else:
            make(name, data, arguments.out, arguments.runs)
    print(f"wrote the figures and their numbers to {arguments.out}")


def needed(name) -> tuple[str, ...]:
    """Return the weights without which a part cannot be made."""
    return tuple(photograph_figures.NETS.values()) if name == "imagenette" else (PARTS[name][0],)


def _read_data(name, folder):
    if name == "imagenette":
        return photograph_figures.read(folder, registry.find(PHOTOGRAPHS).images)
    return load_dataset(name, folder)


def make(name, data, out, runs=None) -> None:
    """Make one part and add its numbers to numbers.json."""
    path = out / "numbers.json"
    weights, part = PARTS[name]
    here = _here()
    measured = part(data, out, runs, _known(_read(path), weights))
    numbers = _read(path)  # another part may have been made meanwhile
    sha256 = registry.find(weights).sha256
    others = _known(numbers, weights)
    made = {**others.get("made", {}), name: here} if measured != others.get(name) else others.get("made", {})
    numbers[weights] = {**others, "sha256": sha256, name: measured, "made": made}
    atomic_write_json(path, numbers)


def _known(numbers, weights) -> dict:
    """Numbers of these weights from before. Other weights of the same name have none."""
    known = numbers.get(weights, {})
    return known if known.get("sha256") == registry.find(weights).sha256 else {}


def redraw(name, data, out) -> None:
    """Draw one part again and leave the numbers unchanged."""
    if name in _NOT_DRAWN:
        return
    weights, part = PARTS[name]
    known = _known(_read(out / "numbers.json"), weights)
    if name not in known:
        raise ValueError(f"{out / 'numbers.json'} has no {name} of these weights of {weights}: measure it first.")
    if name == "latency":
        depth.draw(known["trim"], known["tune"], known["latency"], out)
        return
    measured = json.loads(json.dumps(part(data, out, None, known), default=float))
    if not _alike(measured, known.get(name)):
        raise ValueError(f"{name} differs from {out / 'numbers.json'}: measure it anew, without --draw-only.")


def _alike(a, b) -> bool:
    """Whether two trees of numbers are the same up to rounding, which differs between machines."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_alike, a, b))
    if isinstance(a, float) or isinstance(b, float):
        return bool(np.isclose(a, b, rtol=1e-4, atol=1e-6))
    return a == b


@functools.cache  # asked before the first part is written, which git would call a change
def _here() -> dict:
    """Commit, backend and hardware of this run."""
    provenance = environment(SimpleNamespace(name="none", replicas=1))
    return {key: provenance[key] for key in ("commit", "backend", "hardware")}


def _read(path) -> dict:
    return read_json(path) if path.exists() else {}


def _test(data, name) -> tuple:
    dataset = data(registry.find(name).data)
    return dataset.x_test, dataset.y_test


def dense_gates(name, suffix, test, out, classes) -> dict:
    """Draw [TVDN, Figures 2 and 3] and return the numbers behind the paper's claims."""
    return draw_gates(load(name), name, test, out, suffix, classes=classes, early=EARLY[name])[0]


def lesions(test, out) -> dict:
    """Figure 4 of TVDN, and the orders and removals of UIE, for the 50-layer net."""
    model, transform = load(DENSE), registry.find(DENSE).images.apply
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


def image_gates(test, out) -> dict:
    """Where the gates of the convolutional net open, its estimation errors and its lesions."""
    model, transform = load(IMAGES), registry.find(IMAGES).images.apply
    fewer = test[0][:1000]
    activity = analysis.gate_activity(model, fewer, batch_size=50, transform=transform)
    analysis.plot_gate_maps(activity, out / "gate_maps.png", title=f"{IMAGES}, {activity.samples} test images")
    title = f"{IMAGES}, as [UIE, Figure 3]"
    estimation = net_figures.estimate(model, transform, fewer, out / "estimation_images.png", title, 50)
    curve = analysis.lesion_curve(model, (fewer, test[1][:1000]), batch_size=50, transform=transform)
    analysis.plot_lesion_curve(curve, out / "lesions_images.png", title=f"{IMAGES}, one block lesioned (test set)")
    return {
        "estimation": estimation,
        "lesions": net_figures.lesion_numbers(curve),
        "gini": net_figures.gini_numbers(IMAGES, model, test[0]),
    }


def unit(test, out) -> dict:
    """Figure 4 of UIE: what excites one unit of the convolutional net, over the blocks of its first stage."""
    transform = registry.find(IMAGES).images.apply
    return net_figures.strongest_unit(load(IMAGES), IMAGES, transform, test[0][:2000], out, block=BLOCK)


def timed(data, out, known) -> dict:
    """Return the speed-up of depth, and the picture of all that depth costs and gives."""
    times = depth.latency(data("mnist"), known["trim"])
    depth.draw(known["trim"], known["tune"], times, out)
    return times


def _conv_net(name, weights):
    return lambda data, out, runs, known: net_figures.conv_net(weights, f"_{name}", _test(data, weights), out)


# What can be made: a function of (data, out, runs, the numbers that there are), and whose numbers it gives.
PARTS = {
    "gates": (DENSE, lambda data, out, runs, known: dense_gates(DENSE, "", _test(data, DENSE), out, (0, 7))),
    "cifar_gates": (
        CIFAR,
        lambda data, out, runs, known: dense_gates(CIFAR, "_cifar100", _test(data, CIFAR), out, (0, 1)),
    ),
    "lesions": (DENSE, lambda data, out, runs, known: lesions(_test(data, DENSE), out)),
    "baselines": (DENSE, lambda data, out, runs, known: figure4.baselines(data, out, runs, known.get("baselines"))),
    "trim": (DENSE, lambda data, out, runs, known: depth.trimming(data("mnist"))),
    "cifar_trim": (CIFAR, lambda data, out, runs, known: depth.trimming(data("cifar100"), CIFAR)),
    "tune": (DENSE, lambda data, out, runs, known: depth.tuning(data("mnist"), known["trim"])),
    "latency": (DENSE, lambda data, out, runs, known: timed(data, out, known)),
    "images": (IMAGES, lambda data, out, runs, known: image_gates(_test(data, IMAGES), out)),
    "unit": (IMAGES, lambda data, out, runs, known: unit(_test(data, IMAGES), out)),
    "imagenette": (PHOTOGRAPHS, lambda data, out, runs, known: photograph_figures.both_nets(data("imagenette"), out)),
    **{name: (weights, _conv_net(name, weights)) for name, weights in CONV.items()},
}

_NOT_DRAWN = ("trim", "cifar_trim", "tune")  # numbers alone

if __name__ == "__main__":
    main()
