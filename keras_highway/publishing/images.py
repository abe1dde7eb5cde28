"""Weights of image networks, as publishing treats them."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from keras_highway._support.keras_models import channels_last
from keras_highway._support.terminal import python_string
from keras_highway.analysis.scores import check_images, measure
from keras_highway.applications import build_with, create_model
from keras_highway.data.class_labels import relabelled
from keras_highway.data.datasets import DATA_VARIABLE, DATASETS, FOLDERS, load_dataset
from keras_highway.data.transforms import CLASSES, TRANSFORMS, Transform, imagenet_classes
from keras_highway.layers.blocks import channel_axis
from keras_highway.publishing.form import image_shape
from keras_highway.publishing.gate_report import gate_moments, gate_report
from keras_highway.publishing.task_weights import CardParts, Measured, TaskWeights, details_of, kind_of
from keras_highway.tasks import IMAGES, metric_name
from keras_highway.weights.info import WeightsInfo
from keras_highway.weights.overrides import from_json_values

if TYPE_CHECKING:
    from keras_highway.data.photographs import PhotographSet

# The Hub's names of the data sets.
_DATA_SETS = {
    "mnist": "ylecun/mnist",
    "cifar10": "uoft-cs/cifar10",
    "cifar100": "uoft-cs/cifar100",
    "imagenet": "ILSVRC/imagenet-1k",
}
_PHOTOGRAPHS = 50  # at once
_EXAMPLE = """weights = {loaded_by}
model = kh.load(weights)
probabilities = model.predict(kh.preprocess_input(images, weights=weights))   # uint8 (n, {height}, {width}, {channels})
print(kh.decode_predictions(probabilities, weights=weights))"""


class ClassifierWeights(TaskWeights):
    """Weights of an image network."""

    task = IMAGES
    inputs = ("pixels",)

    @classmethod
    def open(cls, row: WeightsInfo, path: Path) -> "ClassifierWeights":
        head = {"classes": len(row.classes), "classifier_activation": None}
        return cls(row, create_model(row.variant, str(path), dtype="float32", **head))  # whatever the global policy

    @classmethod
    def new_row(cls, result, stamp) -> WeightsInfo:
        """As of every task. Classes that neither the result nor the data set has names for are numbered."""
        data, classes = result.get("data", ""), stamp["classes"]
        transform = stamp.get("transform") or data
        if transform not in TRANSFORMS:
            raise ValueError(f"The preprocessing of the training images is unknown. Received: data {data!r}")
        own = tuple(result.get("class_names", ()))
        known = _classes_of(data)
        names = next((names for names in (own, known) if len(names) == classes), tuple(map(str, range(classes))))
        return WeightsInfo(
            name=result["weights"],
            variant=result["variant"],
            data=data,
            recipe=result["weights"].split(".")[0],
            classes=names,
            transform=TRANSFORMS[transform],
            sha256="",
            licence="",
            overrides=stamp.get("overrides", {}),
            removed=tuple(stamp.get("removed", ())),
        )

    @classmethod
    def card(cls, row: WeightsInfo, loaded_by: str, recipe: dict) -> CardParts:
        """As of every task."""
        images, data = row.images, _DATA_SETS.get(row.data, "")
        known = (_classes_of(row.data), tuple(map(str, range(len(row.classes)))))  # numbers: the names are unknown
        own = bool(data) and row.classes not in known  # arrays, or folders, of one's own in that form
        (height, width), channels = images.size, images.channels
        words = metric_name(row.metrics, "test accuracy")
        return CardParts(
            task="image-classification",
            task_name=None,
            data="" if own else data,
            data_name=f"other classes than those of {row.data}" if own else data or row.data,
            language=None,
            kind=f"{kind_of(row)} network",
            example=_EXAMPLE.format(loaded_by=python_string(loaded_by), height=height, width=width, channels=channels),
            by_name=f"kh.load({python_string(row.name)})",
            alone=f"Input: what `preprocess_input` gives, float32 (n, {height}, {width}, {channels}); output: "
            "probabilities.",
            knows=(
                "classes",
                f"{len(row.classes)}: {', '.join(row.classes[:10])}{', ...' if len(row.classes) > 10 else ''}",
            ),
            input=f"{described(images)}; central crop {images.crop}, {images.interpolation}",
            details=tuple(details_of(row.metrics, lambda value: f"{words} {100 * value:.2f} %")),
            conditions={},
        )

    def with_softmax(self) -> keras.Model:
        shape = image_shape(self.network)
        form = dict(from_json_values(self.row.overrides))
        form.pop("input_shape", None)  # that of the inputs
        classes, removed = len(self.row.classes), tuple(self.row.removed)
        with channels_last():  # as the card has it
            inputs = keras.Input(shape, name="images", dtype="float32")  # Keras would number its name
            return build_with(
                self.row.variant, None, removed, input_tensor=inputs, classes=classes, dtype="float32", **form
            )

    def example(self) -> dict[str, np.ndarray]:
        """Return a smooth picture and its mirror image: noise would look alike to every pooling layer."""
        transform = self.row.images
        height, width = transform.size
        y, x = np.mgrid[0:height, 0:width] / max(height, width)
        waves = [127.5 * (1 + np.sin(9 * x * (c + 1) + 7 * y)) for c in range(transform.channels)]
        picture = np.stack(waves, axis=-1).astype("uint8")
        return {"pixels": np.stack([picture, picture[:, ::-1]])}

    def computed(self, inputs) -> dict[str, np.ndarray]:
        images = self.row.images.apply(inputs["pixels"])
        logits, gates = self.traced(np.moveaxis(images, -1, channel_axis(keras.config.image_data_format())))
        return {"logits": logits, **gates}

    def measure(self, data_dir=None, batch_size: int = 500) -> Measured:
        if self.row.data not in DATASETS:
            return self._measure_photographs(data_dir, min(batch_size, _PHOTOGRAPHS))
        data = relabelled(f"{self.row.data}.npz", load_dataset(self.row.data, data_dir), self.row.classes)
        check_images(self.network, data.x_test, self.row.data)
        accuracy, _ = measure(
            self.network,
            (data.x_test, data.y_test),
            batch_size=batch_size,
            transform=self.row.images.apply,
            progress=sys.stderr.isatty(),
        )
        images = len(data.x_test)
        return Measured(accuracy, f"on the {images} test images of {self.row.data}", images)

    def gate_report(self, data_dir=None) -> dict[str, Any]:
        transform = self.row.images
        if self.row.data in DATASETS:
            return gate_report(self.network, transform, load_dataset(self.row.data, data_dir).x_test)
        from keras_highway.data.photographs import read_all  # Pillow: importing the package does without

        photographs = self._photographs(data_dir)
        batches = (transform.apply(batch.pixels) for batch in read_all(photographs, transform, _PHOTOGRAPHS))
        return {"samples": photographs.images, "blocks": gate_moments(self.network, batches)}

    def _photographs(self, data_dir) -> "PhotographSet":
        from keras_highway.data.photographs import data_test_set, folder_test_set, holds_photographs

        folder, classes = data_dir or os.environ.get(DATA_VARIABLE), self.row.classes
        if self.row.data in FOLDERS:
            return data_test_set(self.row.data, data_dir, len(classes), classes)
        if not holds_photographs(folder):
            raise ValueError(
                "The weights name no data set that is known: name the folder of their test photographs, "
                f"DIR/val/CLASS/* or DIR/CLASS/*. Received: data_dir={folder!r}, data={self.row.data!r}"
            )
        return folder_test_set(folder, len(classes), class_names=classes)

    def _measure_photographs(self, data_dir, batch_size) -> Measured:
        from keras_highway.analysis.scores import measure_photographs
        from keras_highway.data.images import ImageError

        photographs = self._photographs(data_dir)
        scores = measure_photographs(self.network, self.row.images, photographs, batch_size)
        if scores.broken:
            raise ImageError(f"{photographs.name}: {scores.broken} photographs cannot be read.")
        where = f"on the {scores.images} test photographs of {self.row.data or photographs.name}"
        return Measured(scores.top1 / scores.images, where, scores.images)


def _classes_of(data: str) -> tuple[str, ...]:
    """Names of a data set's classes, none where it is not known."""
    return tuple(name for _, name in imagenet_classes()) if data == "imagenet" else CLASSES.get(data, ())


def described(transform: Transform) -> str:
    """Return in words how pixels become a network's input."""
    height, width = transform.size
    text = f"pixels in [0, 255] of {height}x{width}, {'greyscale' if transform.channels == 1 else 'RGB'}"
    if transform.contrast:
        text += "; each image minus its mean, over its standard deviation"
        return f"{text}; then minus the mean image of {transform.mean_image}" if transform.mean_image else text
    text += f", times {transform.scale:g}" if transform.scale >= 1 else f", times 1/{1 / transform.scale:g}"
    if any(transform.mean) or any(std != 1 for std in transform.std):
        text += f", minus {transform.mean}, over {transform.std}"
    return text
