"""Accuracy and loss of many wirings of a network over a data set."""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np

from keras_highway.analysis.batches import batches
from keras_highway.analysis.fan import Fan, Wiring
from keras_highway.analysis.graph import is_functional

_AT_ONCE = 64  # wirings in a pass: the memory of the last block is that of as many batches


class Scores(NamedTuple):
    """How well networks classify.

    Attributes:
        accuracy: float64 `(networks,)`.
        loss: float64 `(networks,)`, mean cross-entropy in nats.
        samples: How many samples.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    samples: int


def score(model, plans: Sequence[Wiring], data, *, batch_size=100, transform=None, progress=False) -> Scores:
    """Measures `rewire(model, plan)` for each plan, in one pass over the data.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        plans: What `Fan` takes; `{}` is the model itself.
        data: A pair (samples, labels), or an iterable of such pairs; labels
            are class numbers.
        batch_size: Int, samples at once; behind the last block they are that
            many for each plan. Defaults to `100`.
        transform: Function from a batch of samples to the model's input.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        `Scores`, in the order of the plans.

    Raises:
        ValueError: If the plans do not fit the model, or the data are empty,
            unlabelled or of another shape.
    """
    logits = gives_logits(model)
    fans = [Fan(model, plans[i : i + _AT_ONCE]) for i in range(0, len(plans), _AT_ONCE)]
    hits, loss, count, samples = np.zeros(len(plans)), np.zeros(len(plans)), 0, 0
    feed = batches(
        data, model, labelled=True, batch_size=batch_size, transform=transform, progress=progress, what="score"
    )
    for x, labels in feed:
        outputs = np.concatenate([fan(x) for fan in fans])
        right, losses = _compare(outputs, labels, logits)
        hits += right
        loss += losses
        count += labels.size
        samples += len(labels)
    return Scores(hits / count, loss / count, samples)


def gives_logits(model) -> bool:
    """Whether a classifier ends in logits; else it ends in a softmax.

    Raises:
        ValueError: If it has several outputs or ends in another activation.
    """
    layer = model
    while is_functional(layer):
        if len(layer.outputs) != 1:
            raise ValueError(f"Accuracy needs one output. Received: {layer.name!r} with {len(layer.outputs)} outputs")
        layer = layer.outputs[0]._keras_history.operation
    activation = getattr(layer, "activation", None)
    if isinstance(layer, keras.layers.Softmax) or activation is keras.activations.softmax:
        return False
    if activation in (None, keras.activations.linear):
        return True
    raise ValueError(
        "Loss and accuracy are of a classifier that ends in a softmax or, built with classifier_activation=None, in "
        f"logits. Received: {model.name!r}, which ends in {activation.__name__}"
    )


def _compare(outputs, labels, logits) -> tuple[np.ndarray, np.ndarray]:
    """Hits and summed cross-entropy of outputs `(networks, n, ..., classes)`, each `(networks,)`."""
    classes = outputs.shape[-1]
    if outputs.shape[1:-1] != labels.shape or labels.max() >= classes:
        raise ValueError(
            f"The model gives {classes} classes for each of {outputs.shape[1:-1]}, so labels must have that shape and "
            f"be below {classes}. Received: labels of shape {labels.shape}, up to {labels.max()}"
        )
    over = tuple(range(1, labels.ndim + 1))
    hits = (outputs.argmax(-1) == labels).sum(over)
    scores = outputs.astype(np.float64)
    true = np.take_along_axis(scores, np.broadcast_to(labels, outputs.shape[:-1])[..., None], -1)[..., 0]
    if logits:
        top = scores.max(-1)
        likelihood = true - top - np.log(np.exp(scores - top[..., None]).sum(-1))
    else:
        likelihood = np.log(np.maximum(true, np.finfo(np.float32).tiny))  # a float32 softmax may round to 0
    return hits, -likelihood.sum(over)
