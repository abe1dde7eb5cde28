"""Sets of TensorFlow Datasets, built from local files: order, resume, shards, errors."""

import dataclasses
import warnings

import numpy as np
import pytest

from keras_highway.data.photographs import tfds_test_set
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.loop import train
from keras_highway.training.recipes import RECIPES

pytestmark = pytest.mark.slow

tfds = pytest.importorskip("tensorflow_datasets")
SMALL = (("blocks", (1, 1)), ("widths", (2, 3)), ("stem_width", 4), ("input_shape", (32, 32, 3)))
RECIPE = dataclasses.replace(
    RECIPES["resnet50"], data="tfds:striped", transform="cifar10", batch_size=4, overrides=SMALL, epochs=1
)


COUNTS = {"train": 14, "test": 6}


class Striped(tfds.core.GeneratorBasedBuilder):
    """Images of one grey level each, 10 times their number."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(40, 36, 3)),
            "label": tfds.features.ClassLabel(num_classes=3),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in COUNTS}

    def _generate_examples(self, split):
        for i in range(COUNTS[split]):
            yield str(i), {"image": np.full((40, 36, 3), 10 * i, np.uint8), "label": i % 3}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorFlow Datasets' own
        Striped(data_dir=folder).download_and_prepare()
    return folder


def numbers(images):
    """Numbers of the images: a crop of one grey level is of that level."""
    grey = images.mean((1, 2, 3))
    if images.dtype != np.uint8:  # test images are normalized
        grey = 255 * (grey * np.mean(0.225) + np.mean(0.45))
    return np.round(grey / 10).astype(int)


def test_epochs_hold_other_images_in_another_order_each_once(prepared):
    source = open_source(RECIPE, prepared)
    assert (source.images, source.test_images, source.classes) == (14, 6, 3)
    first, again, second = (list(source.batches(epoch, 0, Shard())) for epoch in (0, 0, 1))
    assert [x.shape for x, _, _ in first] == [(4, 32, 32, 3)] * 3
    for (x, y, w), (x2, y2, _) in zip(first, again, strict=True):
        np.testing.assert_array_equal(x, x2)
        np.testing.assert_array_equal(y, y2)
        np.testing.assert_array_equal(w, np.ones(4))
        np.testing.assert_array_equal(numbers(x) % 3, y)  # an image keeps its label
    orders = [np.concatenate([numbers(x) for x, _, _ in batches]) for batches in (first, second)]
    assert len(set(orders[0])) == len(set(orders[1])) == 12 and not np.array_equal(*orders)


def test_parts_and_resumption(prepared):
    source = open_source(RECIPE, prepared)
    whole = [x for x, _, _ in source.batches(2, 0, Shard())]
    np.testing.assert_array_equal([x for x, _, _ in source.batches(2, 1, Shard())], whole[1:])
    parts = [[x for x, _, _ in source.batches(2, 0, Shard(i, 2))] for i in range(2)]
    for batch, left, right in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(batch, np.concatenate([left, right]))


def test_test_set_counts_every_image_once(prepared):
    batches = list(open_source(RECIPE, prepared).test_batches(4, Shard()))
    seen = np.concatenate([numbers(x) for x, _, _ in batches])
    weights = np.concatenate([w for _, _, w in batches])
    assert len(seen) == 8 and sorted(seen[weights == 1]) == list(range(6))


def test_the_last_of_the_training_files_are_held_out(prepared):
    whole = open_source(dataclasses.replace(RECIPE, batch_size=2), prepared)
    source = open_source(dataclasses.replace(RECIPE, batch_size=2, holdout_images=4), prepared)
    assert (source.images, source.test_images) == (10, 4)
    stored = np.array([int(label) for _, label in whole._encoded("train", 14)])
    tested = [(numbers(x), y) for x, y, _ in source.test_batches(2, Shard())]
    np.testing.assert_array_equal(np.concatenate([y for _, y in tested]), stored[10:])
    held_out = set(np.concatenate([n for n, _ in tested]))
    trained = set(np.concatenate([numbers(x) for x, _, _ in source.batches(0, 0, Shard())]))
    assert len(held_out) == 4 and trained == set(range(14)) - held_out
    with pytest.raises(ValueError, match="holdout_images=14"):
        open_source(dataclasses.replace(RECIPE, holdout_images=14), prepared)


@pytest.mark.slow
def test_it_trains(prepared, tmp_path):
    result = train(dataclasses.replace(RECIPE, learning_rate=0.01), prepared, tmp_path)
    assert result["data"] == "tfds:striped" and np.isfinite(result["train_loss"])


def test_sets_that_are_not_prepared_or_unknown(tmp_path):
    with pytest.raises(FileNotFoundError, match="not prepared striped"):
        open_source(RECIPE, tmp_path)
    with pytest.raises(ValueError, match="has no set"):
        open_source(dataclasses.replace(RECIPE, data="tfds:no_such_set"), tmp_path)


class Competition(Striped):
    """Its test images have no labels, as in a competition."""

    VERSION = tfds.core.Version("1.0.0")

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in ("train", "validation", "test")}

    def _generate_examples(self, split):
        for i in range(6):
            label = -1 if split == "test" else i % 3
            yield str(i), {"image": np.full((40, 36, 3), 10 * i, np.uint8), "label": label}


def made(kind, folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kind(data_dir=folder).download_and_prepare()
    return dataclasses.replace(RECIPE, data=f"tfds:{kind.name}")


def test_images_without_labels_are_not_tested_on(tmp_path):
    recipe = made(Competition, tmp_path)
    labels = [label for _, y, _ in open_source(recipe, tmp_path).test_batches(2, Shard()) for label in y]
    assert sorted(labels) == [0, 0, 1, 1, 2, 2]
    assert tfds_test_set("competition", str(tmp_path), 3).name == "competition validation"
