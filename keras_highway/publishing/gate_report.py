"""How far the gates of trained weights open: mean and variance of T over a test set, or a vocabulary."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_highway.analysis import Tracer
from keras_highway.analysis.moments import Moments
from keras_highway.data.transforms import Transform


def gate_report(model: keras.Model, transform: Transform, images: np.ndarray, batch_size: int = 200) -> dict[str, Any]:
    """Measures the transform gate of every block, over images, positions and channels.

    Args:
        model: A network with gated blocks.
        transform: What the images go through.
        images: Pixels, `(n, height, width, channels)`.
        batch_size: Int, images at once. Defaults to `200`.

    Returns:
        `{"samples": n, "blocks": {block name: {"mean": ..., "variance": ...}}}`.

    Raises:
        ValueError: If there are no images, or the network has no blocks.
    """
    if len(images) == 0:
        raise ValueError("A gate report needs images. Received: none")
    starts = range(0, len(images), batch_size)
    batches = (transform.apply(images[start : start + batch_size]) for start in starts)
    return {"samples": len(images), "blocks": gate_moments(model, batches)}


def gate_moments(model: keras.Model, batches: Iterable) -> dict[str, dict[str, float]]:
    """Measures the transform gate of every block over all samples, positions and channels of batches.

    Args:
        model: A network with gated blocks.
        batches: What it is called on.

    Returns:
        `{block name: {"mean": ..., "variance": ...}}`.
    """
    tracer = Tracer(model)
    moments: dict[str, Moments] = {}
    for batch in batches:
        for name, entry in tracer(batch).items():
            moments.setdefault(name, Moments()).add(np.broadcast_to(entry.t, entry.x.shape).ravel())
    return {
        name: {"mean": round(float(one.mean), 6), "variance": round(float(one.variance), 6)}
        for name, one in moments.items()
    }
