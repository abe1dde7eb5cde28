"""Classify image files, preprocess the input of networks and decode their predictions."""

import os
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple, cast, overload

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import channels_last, checked_data_format, model_data_format
from keras_highway._support.schema import check_choice, checked_size
from keras_highway._support.terminal import Notice
from keras_highway.applications import get_spec, model_of
from keras_highway.data.transforms import TRANSFORMS, Transform, check_pixels, imagenet_classes, library_of
from keras_highway.models.builder import takes_any_size
from keras_highway.tasks import IMAGES
from keras_highway.weights.describe import (
    Weights,
    class_names,
    classes_of,
    data_of,
    describe_weights,
    identified,
    published_for,
    transform_of,
)
from keras_highway.weights.info import described
from keras_highway.weights.sources import WeightsFile, is_path, resolve

_BATCH = 32
_Path = str | os.PathLike[str]


class Prediction(NamedTuple):
    """A predicted class: its identifier (WordNet's for ImageNet, else its number), name and score."""

    id: str
    name: str
    score: float


class LanguageModelError(ValueError):
    """The weights are of a language model, which does not read images."""

    def __init__(self, weights: object):
        super().__init__(f"{str(weights)!r} is a language model, which reads words: use kh.CharLM or `lm`.")


class ImageClassifier(NamedTuple):
    """A trained image classifier: its weights, and how images are fed to it."""

    weights: str  # the weights as the user named them
    data: str  # the data set of its images, `""` if unknown
    transform: Transform  # the transform of its images
    classes: tuple[tuple[str, str], ...]  # identifier and name of each class
    result: dict[str, Any]  # its recorded result, or `{}`
    file: WeightsFile | None = None  # its file, if it has been read
    activation: str = "softmax"  # it makes probabilities of logits: `"softmax"` or `"sigmoid"`
    named: bool = True  # whether the weights or the user name the classes; otherwise they are a guess by their number

    def class_names(self) -> list[str]:
        """Return the names of the classes in order, none if they are a guess."""
        return [name for _, name in self.classes] if self.named else []

    def model(self, logits: bool = False) -> keras.Model:
        """Load the network for images of the transform's size; raise a ValueError if it takes other images."""
        actual = (*self.transform.size, self.transform.channels)
        file = self.file or resolve(self.weights)
        spec = None if file.archive is not None else get_spec(file.info.variant)
        sized = spec is not None and takes_any_size(spec) and spec.input_shape[2:] == actual[2:]
        shape = {"input_shape": actual} if sized else {}
        model = model_of(file, classifier_activation=None if logits else self.activation, **shape)
        expected = model.input_shape[1:]
        if any(side not in (None, own) for side, own in zip(expected, actual, strict=True)):
            ours, theirs = ("x".join(map(str, shape)) for shape in (expected, actual))
            remedy = "name its data set (data_set, --data-set)"
            if model_data_format(model) == "channels_first":  # a whole model that was saved so
                remedy = "it has the channels first: use the folder of keras_highway.save(model, 'net')"
            raise ValueError(
                f"The network takes images of {ours}, but images of {self.data} are {theirs}: {remedy}. "
                f"Received: {self.weights}"
            )
        return model

    def classify(self, images: Sequence[np.ndarray], top: int) -> list[list[Prediction]]:
        """Return the `top` best classes of each image (uint8 pixels), best first; all for a sigmoid."""
        if not len(images):
            return []
        model, predictions = self.model(), []
        top = len(self.classes) if self.activation == "sigmoid" else top
        for start in range(0, len(images), _BATCH):
            x = self.transform.apply(np.stack(images[start : start + _BATCH]))
            # Called, not predict(): tracing the graph takes longer than a few images.
            predictions += self.decode(ops.convert_to_numpy(model(x, training=False)), top)
        return predictions

    def decode(self, probabilities: np.ndarray, top: int) -> list[list[Prediction]]:
        """Return the best classes of each row of probabilities, all for a sigmoid."""
        return best_classes(probabilities, self.classes, len(self.classes) if self.activation == "sigmoid" else top)

    def above(self, predictions: list[Prediction], threshold: float) -> list[Prediction]:
        """Return the labels of an image: of several independent ones, those with a score of at least `threshold`."""
        if self.activation != "sigmoid" or len(self.classes) == 1:
            return predictions
        return [prediction for prediction in predictions if prediction.score >= threshold]


def find_classifier(weights: str, data_set: str | None = None) -> ImageClassifier:
    """Look up the transform and the classes of weights; the network is not built yet."""
    check_choice("data_set", data_set, (None, *TRANSFORMS))
    file = resolve(weights) if is_path(weights) else None
    if file is None:
        row = describe_weights(weights)
        if row.transform is None:
            raise LanguageModelError(weights)
        data, transform, names, count, result = row.data, row.transform, row.classes, len(row.classes), row.metrics
        activation = row.scores(count)
    else:
        transform, names, count, result = file.info.transform, file.info.classes, file.classes, {}
        activation = file.info.scores(count)
        if file.archive is not None:
            data = data_of(file.archive.input_shape, file.archive.classes) or ""
            if data and data_set is None:
                warnings.warn(
                    f"{weights} does not name its classes: {data} is assumed by their number and the image size. Name "
                    "the data set (data_set, --data-set) if it is another.",
                    Notice,
                    stacklevel=2,
                )
        else:
            spec, result = get_spec(file.variant), described(file.info).metrics
            count = count or spec.classes
            if spec.task is not IMAGES:
                raise LanguageModelError(file.path)
            data = file.info.data or ("" if names else published_for(spec) or "")
    if data_set is not None:
        data = data_set
        if file is None or file.archive is None:  # a whole model keeps its transform
            transform = None
        if list(names) == list(map(str, range(len(names)))):
            names = ()
    if transform is None and data not in TRANSFORMS:
        raise ValueError(
            f"The preprocessing for {weights} is unknown: name its data set (data_set, --data-set), or save the model "
            "with keras_highway.save."
        )
    if not names or (data == "imagenet" and list(names) == [name for _, name in imagenet_classes()]):
        classes = identified(data, class_names(data, count))  # ImageNet's thousand have WordNet's identifiers
    else:
        classes = identified("", names)
    named = bool(names or data_set)
    transform = transform or TRANSFORMS[data]
    return ImageClassifier(weights, data, transform, classes, dict(result), file, activation, named)


@overload
def classify(
    images: _Path, weights: _Path, top: int = 5, data_set: str | None = None, threshold: float = 0.5
) -> list[Prediction]: ...
@overload
def classify(
    images: list[_Path], weights: _Path, top: int = 5, data_set: str | None = None, threshold: float = 0.5
) -> list[list[Prediction]]: ...
def classify(
    images: _Path | list[_Path], weights: _Path, top: int = 5, data_set: str | None = None, threshold: float = 0.5
) -> list[Prediction] | list[list[Prediction]]:
    """Name what an image file shows.

    ```python
    kh.classify("digit.png", "mnist10_w32.tvdn")[0].name
    ```

    Every call loads the network: pass all images in one list.

    Args:
        images: Path of an image file, or a list of paths.
        weights: Weights of an image classifier, as in `kh.load`.
        top: Int, number of classes. Defaults to `5`.
        data_set: `"mnist"`, `"cifar10"`, `"cifar100"` or `"imagenet"`: the
            preprocessing, and the class names of weights without names.
            Defaults to the training data of the weights.
        threshold: Float, the least score of a label, for sigmoid heads of
            several outputs, where an image has any number of labels. Defaults
            to `0.5`.

    Returns:
        A list of `Prediction(id, name, score)`, best first; for a list of
        paths one such list per image. A head with one output gives one
        prediction: the probability of class 1.

    Raises:
        ValueError: If there are no such weights, they are of a language
            model, or their preprocessing is unknown.
        ImageError: A `ValueError`; if a file cannot be read.
    """
    from keras_highway.data.images import load_image  # Pillow: importing the package does without

    top = checked_size(top, "top")
    one = isinstance(images, str | os.PathLike)
    classifier = find_classifier(os.fspath(weights), data_set)
    pixels = [load_image(path, classifier.transform) for path in ([images] if one else images)]
    with channels_last():  # the form of image files, whatever keras.json says
        predictions = [classifier.above(labels, threshold) for labels in classifier.classify(pixels, top)]
    return predictions[0] if one else predictions


def get_transform(weights: Weights) -> Transform:
    """Return the transform of weights or of a data set.

    Args:
        weights: A data set (`"imagenet"`, `"cifar10"`, `"cifar100"`,
            `"mnist"`), another row of `TRANSFORMS` (`"imagenet_875"`, He et
            al.'s test crop), a variant, or anything that `describe_weights`
            takes: a weights name, a file or folder, `hf://org/name`, a model.

    Raises:
        ValueError: If no transform is known.
    """
    return transform_of(weights)


def preprocess_input(x: Any, weights: Weights = "imagenet", data_format: str | None = None) -> Any:
    """Scale and normalize images as in the training of the weights; `x` is not changed.

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
            are read as `data_format`, the second argument in
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
    predictions: Any, top: int = 5, weights: Weights | Sequence[str] = "imagenet", classes: Sequence[str] | None = None
) -> list[list[Prediction]]:
    """Name the best classes of each sample, best first.

    Works offline: the ImageNet class index is part of the package.

    Args:
        predictions: Array `(batch, classes)`, probabilities or logits.
        top: Int, how many classes. Defaults to `5`.
        weights: The weights whose classes they are, see `get_transform`; or
            the names themselves. Defaults to `"imagenet"`.
        classes: Names of the classes, in order; replace the classes of
            `weights`.

    Returns:
        A list of `Prediction(id, name, score)` per sample.

    Raises:
        ValueError: If the number of classes does not fit, or `top` is not
            positive.
    """
    top = checked_size(top, "top")
    scores = np.asarray(ops.convert_to_numpy(predictions) if ops.is_tensor(predictions) else predictions)
    if classes is None and isinstance(weights, list | tuple | np.ndarray):
        classes = list(weights)
    if isinstance(classes, str | set | frozenset):
        raise ValueError(f"`classes` must be the names of the classes, in order. Received: classes={classes!r}")
    pairs = classes_of(cast(Weights, weights)) if classes is None else [(str(i), str(n)) for i, n in enumerate(classes)]
    if scores.ndim != 2 or scores.shape[1] != len(pairs):
        whose = f"of {weights!r} " if classes is None else f"of {len(pairs)} classes "
        raise ValueError(f"Predictions {whose}have shape (batch, {len(pairs)}). Received: shape {scores.shape}")
    return best_classes(scores, pairs, top)


def best_classes(scores: np.ndarray, classes: Sequence[tuple[str, str]], top: int) -> list[list[Prediction]]:
    """Return the best classes of each row of scores, best first; equal scores keep the order of the classes."""
    if np.isnan(scores).any():
        raise ValueError("The network's outputs are not finite, so they name no class. Received: NaN")
    best = np.argsort(-np.asarray(scores, np.float64), axis=1, kind="stable")[:, :top]  # unsigned ones would wrap
    return [[Prediction(*classes[i], float(row[i])) for i in order] for row, order in zip(scores, best, strict=True)]
