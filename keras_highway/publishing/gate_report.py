"""How far the gates of trained weights open: mean and variance of each over a test set, or a vocabulary."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_highway.analysis import Tracer, blocks
from keras_highway.analysis.trace import Moments, kept_state
from keras_highway.data.transforms import Transform
from keras_highway.gating import get_gating


def gate_report(model: keras.Model, transform: Transform, images: np.ndarray, batch_size: int = 200) -> dict[str, Any]:
    """Measures the learned gates of every block, over images, positions and channels.

    Args:
        model: A network with gated blocks.
        transform: What the images go through.
        images: Pixels, `(n, height, width, channels)`.
        batch_size: Int, images at once. Defaults to `200`.

    Returns:
        `{"samples": n, "blocks": {block name: {"t": {"mean": ...,
        "variance": ...}}}}`, with `"c"` beside or in the place of `"t"` as
        the gating learns them; a coupled carry gate is left out.

    Raises:
        ValueError: If there are no images, or no block learns a gate.
    """
    if len(images) == 0:
        raise ValueError("A gate report needs images. Received: none")
    starts = range(0, len(images), batch_size)
    batches = (transform.apply(images[start : start + batch_size]) for start in starts)
    return {"samples": len(images), "blocks": gate_moments(model, batches)}


def gate_moments(model: keras.Model, batches: Iterable) -> dict[str, dict[str, dict[str, float]]]:
    """Measures the learned gates of every block over all samples, positions and channels of batches.

    Args:
        model: A network with gated blocks.
        batches: What it is called on.

    Returns:
        `{block name: {"t" or "c": {"mean": ..., "variance": ...}}}`.

    Raises:
        ValueError: If no block learns a gate.
    """
    learned = {name: get_gating(block.gating).learned_gates for name, block in blocks(model).items()}
    learned = {name: gates for name, gates in learned.items() if gates}
    if not learned:
        raise ValueError("A gate report needs blocks that learn a gate. Received: a network without any")
    tracer = Tracer(model, list(learned))
    moments: dict[str, dict[str, Moments]] = {}
    with kept_state(model):
        for batch in batches:
            for name, entry in tracer(batch, carry=True).items():
                gates = learned.get(name) or learned[name.rpartition(":")[0]]  # `name:2`: the second call of a block
                for gate, one in moments.setdefault(name, {gate: Moments() for gate in gates}).items():
                    one.add(np.broadcast_to(getattr(entry, gate), entry.x.shape).ravel())
    return {name: {gate: _rounded(one) for gate, one in gates.items()} for name, gates in moments.items()}


def _rounded(one: Moments) -> dict[str, float]:
    return {"mean": round(float(one.mean), 6), "variance": round(float(one.variance), 6)}
