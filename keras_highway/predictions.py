"""To and from a network: `preprocess_input` and `decode_predictions`, bound to weights."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np
from keras import ops

from keras_highway._support.keras_models import checked_data_format
from keras_highway._support.schema import is_count
from keras_highway.data.libraries import library_of
from keras_highway.data.pixels import check_pixels
from keras_highway.data.transforms import Transform
from keras_highway.weights.description import Weights, classes_of, transform_of


class Prediction(NamedTuple):
    """One guess: a class's identifier (WordNet's for ImageNet, else its number), name and score."""

    id: str
    name: str
    score: float


def get_transform(weights: Weights) -> Transform:
    """Returns the transform of weights or of a data set.

    Args:
        weights: A data set (`"imagenet"`, `"cifar10"`, `"cifar100"`,
            `"mnist"`), another row of `TRANSFORMS` (`"imagenet_875"`, He et
            al.'s test crop), a variant's name, or whatever `describe_weights`
            takes: a weights name, a file or folder, `hf://org/name`, a model.

    Raises:
        ValueError: If there is none.
    """
    return transform_of(weights)


def preprocess_input(x: Any, weights: Weights = "imagenet", data_format: str | None = None) -> Any:
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
        weights: A weights name, a data set, a model, ..., see `get_transform`.
            Defaults to `"imagenet"`. `"channels_first"` and `"channels_last"`
            are read as `data_format`, whose place this is in
            keras.applications.
        data_format: `"channels_last"`, or `"channels_first"` for `(...,
            channels, height, width)`. Defaults to Keras's,
            `keras.config.image_data_format()`.

    Returns:
        float32 of the same shape: a NumPy array for what NumPy converts to
        one, else a tensor of the library of `x`.

    Raises:
        ValueError: If there are no such weights, the channels differ, or `x`
            cannot be pixels: bool, complex, text, NaN. Possible values that
            look like something else (all in [0, 1], negative, above 255) give
            a warning, `kh.PixelRange`.
    """
    if data_format is None and weights in ("channels_first", "channels_last"):
        weights, data_format = "imagenet", str(weights)
    transform = get_transform(weights)
    library = library_of(x)
    x = np.asarray(x) if library is None else x
    check_pixels(x, library)
    return transform.apply(x, checked_data_format(data_format))


def decode_predictions(
    predictions: Any,
    top: int = 5,
    weights: Weights | Sequence[str] = "imagenet",
    classes: Sequence[str] | None = None,
) -> list[list[Prediction]]:
    """Names the best classes of each sample, best first.

    Works offline: the ImageNet class index is part of the package.

    Args:
        predictions: Array `(batch, classes)`, probabilities or logits.
        top: Int, how many classes. Defaults to `5`.
        weights: The weights whose classes they are, see `get_transform`; or
            the names themselves. Defaults to `"imagenet"`.
        classes: Names of the classes, in order, instead of those of
            `weights`.

    Returns:
        A list of `Prediction(id, name, score)` per sample.

    Raises:
        ValueError: If the number of classes does not fit, or `top` is not
            positive.
    """
    if not is_count(top):
        raise ValueError(f"`top` must be a positive whole number of classes. Received: top={top!r}")
    scores = np.asarray(ops.convert_to_numpy(predictions) if ops.is_tensor(predictions) else predictions)
    if classes is None and isinstance(weights, list | tuple | np.ndarray):
        classes = list(weights)
    if isinstance(classes, str):
        raise ValueError(f"`classes` must be the names of the classes, one each. Received: classes={classes!r}")
    pairs = classes_of(cast(Weights, weights)) if classes is None else [(str(i), str(n)) for i, n in enumerate(classes)]
    if scores.ndim != 2 or scores.shape[1] != len(pairs):
        whose = f"of {weights!r} " if classes is None else f"of {len(pairs)} classes "
        raise ValueError(f"Predictions {whose}have shape (batch, {len(pairs)}). Received: shape {scores.shape}")
    return best_classes(scores, pairs, top)


def best_classes(scores: np.ndarray, classes: Sequence[tuple[str, str]], top: int) -> list[list[Prediction]]:
    """Returns the best classes of each row of scores, best first; of equal scores the class of the lower number.

    Args:
        scores: Array `(n, classes)`.
        classes: Identifier and name of each class.
        top: Int, how many of them.
    """
    best = np.argsort(-np.asarray(scores, np.float64), axis=1, kind="stable")[:, :top]  # unsigned ones would wrap
    return [[Prediction(*classes[i], float(row[i])) for i in order] for row, order in zip(scores, best, strict=True)]
