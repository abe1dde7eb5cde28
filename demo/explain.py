"""What the demo computes: classes of an image, maps of its gates, and the same with blocks closed. No gradio here."""

import functools
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import keras_highway as kh
from keras_highway.data import load_image

DIGITS, PHOTOGRAPHS = "handwritten digits", "photographs"
# What each choice loads. The second is made of timm's ResNet50 on first use: a download of 100 MB.
WEIGHTS = {DIGITS: "mnist10_w32.tvdn", PHOTOGRAPHS: "highway_resnet50.a1"}
LEAST_OPEN, FROM_FIRST, FROM_LAST = "those that open least", "from the first", "from the last"
ORDERS = (LEAST_OPEN, FROM_FIRST, FROM_LAST)


class Explanation(NamedTuple):
    """What `explain` computes of one image."""

    pixels: np.ndarray  # what the network sees, uint8 `(height, width, channels)`
    classes: dict[str, float]  # names and scores of the likeliest classes
    # mean of the transform gate over channels: dict from block to `(height, width)`, in the order of the network
    gates: Mapping[str, np.ndarray]
    closed: tuple[str, ...]  # the blocks that were closed


@functools.cache
def network(kind: str) -> Any:
    """Load the network for a kind of images, once.

    Args:
        kind: `DIGITS` or `PHOTOGRAPHS`.

    Raises:
        ValueError: If it is another.
    """
    if kind not in WEIGHTS:
        raise ValueError(f"`kind` must be one of {', '.join(map(repr, WEIGHTS))}. Received: kind={kind!r}")
    return kh.load(WEIGHTS[kind])


@functools.cache
def tracer(kind: str) -> kh.analysis.Tracer:
    """Return a function that traces the network; making it once keeps the graph of layers small."""
    return kh.analysis.Tracer(network(kind))


@functools.cache
def closable(kind: str) -> tuple[str, ...]:
    """Return the blocks that can be closed: all but those that change the shape, which have no way around."""
    return tuple(name for name, block in kh.analysis.blocks(network(kind)).items() if not block.is_transition)


@functools.cache
def lesioned(kind: str, closed: frozenset[str]) -> Any:
    """Return the network with the transform gates of some blocks shut; it shares all weights."""
    return kh.analysis.rewire(network(kind), [kh.analysis.lesion(name) for name in closable(kind) if name in closed])


def explain(image, kind: str = DIGITS, close: int = 0, order: str = LEAST_OPEN, top: int = 5) -> Explanation:
    """Classifies an image with some blocks closed, and looks at the gates.

    Args:
        image: What Pillow opens: a path, or a `PIL.Image`.
        kind: `DIGITS` or `PHOTOGRAPHS`.
        close: Int, how many blocks to close. More than there are close all.
        order: Which first: one of `ORDERS`.
        top: Int, number of classes to return.

    Returns:
        An `Explanation`; its gates are those of the whole network, since a
        closed block has none.

    Raises:
        ValueError: If the image is not one, or a choice is not one of those.
    """
    if order not in ORDERS:
        raise ValueError(f"`order` must be one of {', '.join(map(repr, ORDERS))}. Received: order={order!r}")
    traced, name = tracer(kind), WEIGHTS[kind]
    pixels = load_image(_file(image), kh.get_transform(name))
    x = kh.preprocess_input(pixels[None], weights=name)
    traces = traced(x)
    gates = {block: _map(trace.t[0]) for block, trace in traces.items()}
    closed = in_order(gates, closable(kind), order)[: max(0, int(close))]
    scores = np.asarray(lesioned(kind, frozenset(closed))(x, training=False)) if closed else traces.output
    best = kh.decode_predictions(scores, top=top, weights=name)[0]
    return Explanation(pixels, {one.name: float(one.score) for one in best}, gates, closed)


def in_order(gates: Mapping[str, np.ndarray], names: tuple[str, ...], order: str) -> tuple[str, ...]:
    """Return names of blocks in the order in which they are closed.

    Args:
        gates: Maps of the gates, dict from block to array.
        names: Blocks that can be closed, in the order of the network.
        order: One of `ORDERS`.
    """
    if order == FROM_LAST:
        return names[::-1]
    return names if order == FROM_FIRST else tuple(sorted(names, key=lambda name: float(gates[name].mean())))


def draw(explanation: Explanation):
    """Draws the image and the map of each block's gates, closed blocks crossed out.

    Args:
        explanation: What `explain` returned.

    Returns:
        A `matplotlib.figure.Figure`.
    """
    from matplotlib.figure import Figure

    count = len(explanation.gates) + 1
    down = -(-count // 6)
    across = -(-count // down)
    figure = Figure(figsize=(1.7 * across, 1.95 * down + 0.35), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flat
    first = next(axes)
    first.imshow(explanation.pixels.squeeze(), cmap="gray", vmin=0, vmax=255)
    first.set_title("what the network sees", fontsize=8)
    heatmap = None
    for ax, (name, gate) in zip(axes, explanation.gates.items(), strict=False):
        is_closed = name in explanation.closed
        heatmap = ax.imshow(gate, cmap="viridis", vmin=0, vmax=1, alpha=0.2 if is_closed else 1.0)
        state = "closed" if is_closed else f"mean {gate.mean():.2f}"
        ax.set_title(f"{name.replace('_', ' ')}\n{state}", fontsize=8, color="firebrick" if is_closed else "black")
        if is_closed:
            ax.plot([0, 1], [0, 1], [0, 1], [1, 0], color="firebrick", transform=ax.transAxes)
    for ax in figure.axes:
        ax.set_axis_off()
    figure.colorbar(heatmap, ax=figure.axes, shrink=0.6, label="transform gate T: 0 carries, 1 transforms")
    return figure


def _map(gate) -> np.ndarray:
    """Mean over channels. A gate of one number per channel is the same everywhere: a map of one pixel."""
    gate = np.asarray(gate, "float32")
    return np.atleast_2d(gate.mean(-1))


def _file(image):
    """Pillow's images as a file in memory: `load_image` checks files."""
    if not hasattr(image, "save"):
        return image
    file = io.BytesIO()
    image.save(file, "PNG")
    file.seek(0)
    return file
