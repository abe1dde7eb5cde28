"""Test sets of photographs that TensorFlow Datasets has prepared; nothing is downloaded."""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any

from keras_highway._support.backend import tensorflow
from keras_highway.data.class_labels import class_labels
from keras_highway.data.images import EncodedImage
from keras_highway.data.photographs import Photograph, PhotographSet


def labelled_split(builder: Any) -> str | None:
    """Return the split of a prepared set of TensorFlow Datasets to test on: `test`, or else `validation`.

    A split whose first label is -1, as of what was kept for a competition, has
    none; `None` if no split is left.
    """
    there = (split for split in ("test", "validation") if split in builder.info.splits)
    return next((split for split in there if _has_labels(builder, split)), None)


def _has_labels(builder: Any, split: str) -> bool:
    return all(int(row["label"]) >= 0 for row in encoded_rows(builder, f"{split}[:1]").as_numpy_iterator())


def encoded_rows(builder: Any, split: str) -> Any:
    """Return a split's examples in the order of its files, as a `tf.data.Dataset`; images are not decoded."""
    decoders = {"image": _tfds("data").decode.SkipDecoding()}
    return builder.as_dataset(split, shuffle_files=False, decoders=decoders)


def check_features(name: str, builder: Any) -> Any:
    """Return the label feature of a set of images with one class each."""
    features = builder.info.features or {}
    if not {"image", "label"} <= set(features):
        raise ValueError(f"{name} is not a set of labelled images: it has {list(features)}.")
    for key, known in (("image", "Image"), ("label", "ClassLabel")):
        if not isinstance(features[key], getattr(_tfds("data").features, known)):
            raise ValueError(
                f"{name} is not a set of labelled images: `{key}` must be a feature of the kind {known}. "
                f"Received: {features[key]!r}"
            )
    return features["label"]


def tfds_builder(name: str, data_dir: str | None, option: str) -> Any:
    """Return the builder of a prepared set; `option` is what the user passed, for the error without the library."""
    tfds = _tfds(option)
    try:
        builder = tfds.builder(name, data_dir=data_dir)
    except (tfds.core.registered.DatasetNotFoundError, ValueError, AssertionError) as error:  # or no such version
        raise ValueError(f"TensorFlow Datasets knows no set of that name: {error} Received: {name!r}") from error
    if not builder.is_prepared():
        raise FileNotFoundError(
            f"TensorFlow Datasets has not prepared {name} in {builder.data_path}; nothing is downloaded here. "
            f"To prepare it: python -c \"import tensorflow_datasets as t; t.load('{name}')\""
        )
    return builder


def _tfds(option: str) -> Any:
    try:
        library = importlib.import_module("tensorflow_datasets")  # an extra
    except ImportError as error:
        raise ImportError(f'{option} needs TensorFlow Datasets: pip install "keras-highway[tfds]".') from error
    tensorflow()
    return library


def tfds_test_set(name: str, data_dir: str | None, classes: int, class_names: Sequence[str] = ()) -> PhotographSet:
    """Open the split `test`, or else `validation`, of a set that TensorFlow Datasets has prepared.

    Of `imagenet2012` it is `validation`, since its `test` has no labels.
    """
    builder = tfds_builder(name, data_dir, "--tfds")
    info = builder.info
    label = check_features(name, builder)
    split = labelled_split(builder)
    if split is None:
        raise ValueError(f"{name} has no labelled images to test on, no split test or validation: {list(info.splits)}.")
    labels = _labels(name, label, classes, class_names)
    rows = encoded_rows(builder, split)

    def photographs() -> Iterator[Photograph]:
        for i, row in enumerate(rows.as_numpy_iterator()):
            file = row["file_name"].decode() if "file_name" in row else f"{name} {split} {i}"
            yield Photograph(EncodedImage(row["image"], file), labels[int(row["label"])])

    return PhotographSet(f"{name} {split}", info.splits[split].num_examples, photographs())


def _labels(name: str, feature: Any, classes: int, class_names: Sequence[str]) -> Sequence[int]:
    """Return the class of the weights that each label stands for; -1, which no split with labels has, for none."""
    names = list(getattr(feature, "names", None) or ())
    numbers = [str(i) for i in range(len(names))]
    if names != numbers:
        numbered = sorted(names) == sorted(numbers) != sorted(class_names)
        known = class_labels(name, names, classes, numbered, class_names)
        return [*(known[one] for one in names), -1]
    if feature.num_classes != classes:
        raise ValueError(f"The weights have {classes} classes, {name} has {feature.num_classes}.")
    return [*range(classes), -1]
