"""What WEIGHTS means on the command line: a name of the zoo, a weight file, or the folder of one."""

import warnings
from pathlib import Path
from typing import NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import model_data_format
from keras_highway._support.terminal import Notice, did_you_mean
from keras_highway.applications import get_spec, model_of
from keras_highway.cli.errors import LanguageModelError, UsageError, usage_errors
from keras_highway.cli.tables import size
from keras_highway.data import Dataset, load_dataset
from keras_highway.data.class_labels import relabelled
from keras_highway.data.datasets import DATASETS, refuse_shards
from keras_highway.data.transforms import TRANSFORMS, Transform, imagenet_classes
from keras_highway.hub import is_hub_name
from keras_highway.models.builder import takes_any_size
from keras_highway.predictions import Prediction, best_classes
from keras_highway.specs import NetSpec
from keras_highway.tasks import IMAGES
from keras_highway.weights import registry
from keras_highway.weights.description import class_names, data_of, describe_weights, identified, published_for
from keras_highway.weights.resolve import WeightsFile, is_path, resolve, result_beside


class ImageClassifier(NamedTuple):
    """A trained image classifier: its weights, and how images are fed to it.

    Attributes:
        weights: As the user named them.
        data: The data set they are fed as.
        transform: What images go through.
        classes: Identifier and name of each class.
        result: What was measured of them, `{}` if nothing is recorded.
        file: Their file, where it has been read.
        named: Whether the classes are those that the weights or the user
            name, not a guess by their number and their variant.
    """

    weights: str
    data: str
    transform: Transform
    classes: tuple[tuple[str, str], ...]
    result: dict
    file: WeightsFile | None = None
    named: bool = True

    def class_names(self) -> list[str]:
        """Returns the names of the classes, in order; none where they are a guess."""
        return [name for _, name in self.classes] if self.named else []

    def model(self, **kwargs) -> keras.Model:
        """Returns the network; arguments as in `keras_highway.load`.

        Raises:
            UsageError: If the weights cannot be loaded, or their network
                takes other images than the data set's.
        """
        actual = (*self.transform.size, self.transform.channels)
        with usage_errors():
            file = self.file or resolve(self.weights)
            if file.archive is not None:  # a whole model, whose classifier may give logits
                model = model_of(file, classifier_activation=kwargs.get("classifier_activation", "softmax"))
            else:
                model = model_of(file, **_sized(get_spec(file.variant), actual, kwargs))
        expected = model.input_shape[1:]
        if any(side not in (None, own) for side, own in zip(expected, actual, strict=True)):
            if model_data_format(model) == "channels_first":  # a whole model that was saved so
                raise UsageError(
                    f"The network takes images channels first, {size(expected)}, and commands read them channels last: "
                    "save its weights, which are the same for both, keras_highway.save(model, 'net'). "
                    f"Received: {self.weights}"
                )
            raise UsageError(
                f"The network takes images of {size(expected)} and those of {self.data} are {size(actual)}: name the "
                f"data set it is for (--data-set). Received: {self.weights}"
            )
        return model

    def decode(self, probabilities: np.ndarray, top: int) -> list[list[Prediction]]:
        """Returns the best classes of each row of probabilities, best first.

        Raises:
            UsageError: If one is no number, so that no class is the best.
        """
        if not np.isfinite(probabilities).all():
            raise UsageError(
                f"The network gives values that are not finite: it names no class. Received: {self.weights}"
            )
        return best_classes(probabilities, self.classes, top)


def find_classifier(weights: str, data_set: str | None = None) -> ImageClassifier:
    """Looks up weights; the network is not built yet.

    Args:
        weights: A weights name, a `.weights.h5` file or the folder of one,
            `hf://org/name[@revision]`, or a `.keras` file of a net of this
            package.
        data_set: The data set they are fed as. Defaults to that of a name's
            row in the zoo; for a file, to the data set its variant was published
            for (that of the variant's input shape and number of classes).

    Raises:
        UsageError: If there are no such weights or no such data set.
        LanguageModelError: If they are of a language model.
    """
    with usage_errors():
        if is_hub_name(weights) or weights in registry.WEIGHTS or not is_path(weights):
            row = describe_weights(weights)
            if row.transform is None:
                raise LanguageModelError(weights)
            data, classes, result = row.data, row.classes, dict(row.metrics)
            transform = row.transform if data_set is None else _transform(data_set)
            return ImageClassifier(weights, data_set or data, transform, _numbered(classes), result)
        file = resolve(weights)
        if file.archive is not None:
            return _of_model(weights, file, data_set)
        if not file.variant:
            raise UsageError(f"{file.path} does not name its variant: keras_highway.weights.file.save records it.")
        spec = get_spec(file.variant)
        if spec.task is not IMAGES:
            raise LanguageModelError(file.path)
        data = data_set or file.data or ("" if file.class_names else published_for(spec))
        if data is None:
            raise UsageError(f"The data set of variant {spec.name!r} is unknown: pass --data-set.")
        transform = _transform(data) if data_set or file.transform is None else file.transform
        # ImageNet's thousand have WordNet's identifiers, too; numbers stand for names that a data set may have.
        numbers = data_set and list(file.class_names) == list(map(str, range(len(file.class_names))))
        whole = data == "imagenet" and list(file.class_names) == [name for _, name in imagenet_classes()]
        named = bool(file.class_names)
        own = named and not numbers and not whole
        classes = _numbered(file.class_names) if own else identified(data, class_names(data, file.classes))
        return ImageClassifier(
            weights, data, transform, classes, result_beside(file.path), file, bool(named or data_set)
        )


def _sized(spec: NetSpec, actual: tuple[int, ...], kwargs: dict) -> dict:
    """Arguments with an input shape: a fully convolutional network takes images of the size it was trained on."""
    if takes_any_size(spec) and spec.input_shape[2:] == actual[2:]:
        return {"input_shape": actual, **kwargs}
    return {**kwargs, "input_shape": spec.input_shape} if "input_shape" in kwargs else kwargs


def _of_model(weights: str, file: WeightsFile, data_set: str | None) -> ImageClassifier:
    """A `.keras` file: it carries its transform where the model normalizes images itself, and no names of classes."""
    assert file.archive is not None
    data = data_set or data_of(file.archive.input_shape, file.archive.classes) or ""
    if not data and file.transform is None:
        raise UsageError(
            f"The preprocessing of images for {weights} is unknown: pass --data-set, or save the model with "
            "keras_highway.save, which keeps it and the names of the classes."
        )
    if data and not data_set:
        warnings.warn(
            f"{weights} does not name its classes: by their number and the size of its images they are taken for those "
            f"of {data}. Pass --data-set for those of another set; keras_highway.save keeps their names.",
            Notice,
            stacklevel=2,
        )
    transform = _transform(data) if file.transform is None else file.transform
    classes = identified(data, class_names(data, file.classes))
    return ImageClassifier(weights, data, transform, classes, {}, file, bool(data_set))


def find_classifier_and_data(weights: str, data_set: str | None, folder: str | None) -> tuple[ImageClassifier, Dataset]:
    """Looks up weights and reads the data set they are fed as.

    Args:
        weights: See `find_classifier`.
        data_set: The same.
        folder: Folder of data sets, `None` for `KERAS_HIGHWAY_DATA`.

    Raises:
        UsageError: If there are none, or the weights have another number of
            classes, or classes of other names.
    """
    classifier = find_classifier(weights, data_set)
    if classifier.data not in DATASETS:
        with usage_errors():
            refuse_shards(folder)
    if classifier.data not in DATASETS and folder and not Path(folder).is_dir():
        raise UsageError(f"{folder} is no folder: --data DIR of DIR/val/CLASS/* or DIR/CLASS/*.")
    if not classifier.data:
        raise UsageError(
            f"{weights} does not name its data set: pass --data-set, or the folder of its photographs, --data DIR of "
            "DIR/val/CLASS/* without mnist.npz, cifar10.npz or cifar100.npz."
        )
    with usage_errors():
        data = load_dataset(classifier.data, folder)
    if len(data.classes) != len(classifier.classes):
        raise UsageError(
            f"The weights have {len(classifier.classes)} classes, {classifier.data} has {len(data.classes)}: name the "
            f"data set they are for (--data-set). Received: {classifier.weights}"
        )
    with usage_errors():
        return classifier, relabelled(f"{classifier.data}.npz", data, classifier.class_names())


def _transform(data_set) -> Transform:
    if data_set not in TRANSFORMS:
        raise UsageError(
            f"Unknown data set.{did_you_mean(data_set, TRANSFORMS)} Known: {', '.join(TRANSFORMS)}. "
            f"Received: --data-set {data_set}"
        )
    return TRANSFORMS[data_set]


def _numbered(names) -> tuple[tuple[str, str], ...]:
    return tuple((str(i), name) for i, name in enumerate(names))
