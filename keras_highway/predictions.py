"""Into and out of a network: `preprocess_input` and `decode_predictions`, bound to weights."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway.data.libraries import library_of
from keras_highway.data.pixels import check_pixels
from keras_highway.data.transforms import CLASSES, TRANSFORMS, Transform, imagenet_classes
from keras_highway.specs import NetSpec
from keras_highway.weights.resolve import describe_weights

_NUMBER_OF_CLASSES = {**{data: len(names) for data, names in CLASSES.items()}, "imagenet": 1000}


class Prediction(NamedTuple):
    """One guess: a class's identifier (WordNet's for ImageNet, else its number), name and score."""

    id: str
    name: str
    score: float


def get_transform(weights: str) -> Transform:
    """Returns the transform of weights or of a data set.

    Args:
        weights: A weights name (`"mnist10_w16.tvdn"`), a data set
            (`"imagenet"`, `"cifar10"`, `"cifar100"`, `"mnist"`), another row
            of `TRANSFORMS` (`"imagenet_875"`, He et al.'s test crop) or
            `"hf://org/name[@revision]"`.

    Raises:
        ValueError: If there is none.
    """
    return TRANSFORMS[weights] if weights in TRANSFORMS else describe_weights(weights).images


def published_for(spec: NetSpec) -> str | None:
    """Returns the data set of a spec's input shape and number of classes, None if there is none."""
    for data, transform in TRANSFORMS.items():
        if (*transform.size, transform.channels, _NUMBER_OF_CLASSES.get(data)) == (*spec.input_shape, spec.classes):
            return data
    return None


def preprocess_input(x, weights: str = "imagenet", data_format: str | None = None) -> Any:
    """Scales and normalizes images as the weights were trained; `x` is not changed.

    Takes arrays and tensors of any library, whatever Keras's backend, also
    inside of `tf.data.Dataset.map`, `jax.jit` and a Keras model. Resizing and
    cropping are not done here: see `keras_highway.data.load_image`.

    ```python
    photographs.map(lambda x, y: (kh.preprocess_input(x), y))
    ```

    Args:
        x: Array or tensor `(..., height, width, channels)`, RGB or greyscale
            values in [0, 255], uint8 or float.
        weights: A weights name or a data set, see `get_transform`. Defaults
            to `"imagenet"`.
        data_format: `"channels_last"`, or `"channels_first"` for `(...,
            channels, height, width)`. Defaults to Keras's,
            `keras.config.image_data_format()`.

    Returns:
        float32 of the same shape: a NumPy array for what NumPy makes one of,
        else a tensor of the library that `x` is of.

    Raises:
        ValueError: If there are no such weights, the channels differ, or `x`
            cannot be pixels: bool, complex, text, NaN. Values that can be and
            look like something else (all in [0, 1], negative, above 255) give
            a warning, `keras_highway.data.pixels.PixelRange`.
    """
    transform = get_transform(weights)
    library = library_of(x)
    x = np.asarray(x) if library is None else x
    check_pixels(x, library)
    return transform.apply(x, data_format or keras.config.image_data_format())


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
    return best_classes(scores, classes, top)


def best_classes(scores: np.ndarray, classes: Sequence[tuple[str, str]], top: int) -> list[list[Prediction]]:
    """Returns the best classes of each row of scores, best first; of equal scores the class of the lower number.

    Args:
        scores: Array `(n, classes)`.
        classes: Identifier and name of each class.
        top: Int, how many of them.
    """
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return [[Prediction(*classes[i], float(row[i])) for i in order] for row, order in zip(scores, best, strict=True)]


@functools.cache
def _classes(weights) -> tuple[tuple[str, str], ...]:
    row = None if weights in CLASSES or weights == "imagenet" else describe_weights(weights)
    if weights == "imagenet" or (row and row.data == "imagenet" and len(row.classes) == len(imagenet_classes())):
        return imagenet_classes()
    return tuple((str(i), name) for i, name in enumerate(row.classes if row else CLASSES[weights]))
