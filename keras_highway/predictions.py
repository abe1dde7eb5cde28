"""Into and out of a network: `preprocess_input` and `decode_predictions`, bound to weights."""

import functools
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway import weights as zoo
from keras_highway.transforms import CLASSES, TRANSFORMS, Transform


class Prediction(NamedTuple):
    """One guess: a class's identifier (WordNet's for ImageNet, else its number), name and score."""

    id: str
    name: str
    score: float


def get_transform(weights: str) -> Transform:
    """Returns the transform of weights or of a data set.

    Args:
        weights: A weights name (`"mnist10_w16.tvdn"`) or a data set
            (`"imagenet"`, `"cifar10"`, `"cifar100"`, `"mnist"`).

    Raises:
        ValueError: If there is none.
    """
    return TRANSFORMS[weights] if weights in TRANSFORMS else zoo.get(weights).transform


def preprocess_input(x, weights: str = "imagenet") -> np.ndarray:
    """Scales and normalizes images as the weights were trained; `x` is not changed.

    Resizing and cropping are not done here: see
    `keras_highway.data.load_image`.

    Args:
        x: Array `(..., height, width, channels)`, RGB or greyscale values in
            [0, 255], uint8 or float.
        weights: A weights name or a data set, see `get_transform`. Defaults
            to `"imagenet"`.

    Returns:
        float32 array of the same shape.

    Raises:
        ValueError: If there are no such weights, or the channels differ.
    """
    return get_transform(weights).apply(x)


def decode_predictions(predictions, top: int = 5, weights: str = "imagenet") -> list[list[Prediction]]:
    """Names the best classes of each sample, best first.

    Works offline: the ImageNet class index is part of the package.

    Args:
        predictions: Array `(batch, classes)`, probabilities or logits.
        top: Int, how many classes. Defaults to `5`.
        weights: A weights name or a data set. Defaults to `"imagenet"`.

    Returns:
        A list a sample of `Prediction(id, name, score)`.

    Raises:
        ValueError: If the number of classes does not fit the weights.
    """
    scores = np.asarray(predictions)
    classes = _classes(weights)
    if scores.ndim != 2 or scores.shape[1] != len(classes):
        raise ValueError(
            f"Predictions of {weights!r} have shape (batch, {len(classes)}). Received: shape {scores.shape}"
        )
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return [[Prediction(*classes[i], float(row[i])) for i in order] for row, order in zip(scores, best, strict=True)]


@functools.cache
def _classes(weights) -> tuple[tuple[str, str], ...]:
    if weights == "imagenet":
        path = Path(__file__).parent / "data" / "imagenet_class_index.json"
        index = json.loads(path.read_text("utf-8"))
        return tuple(tuple(index[str(i)]) for i in range(len(index)))
    names = CLASSES[weights] if weights in CLASSES else zoo.get(weights).classes
    return tuple((str(i), name) for i, name in enumerate(names))
