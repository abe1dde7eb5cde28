"""Folders of class sub-folders: order, augmentation, parts, errors."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from training import loop, sources
from training.recipes import RECIPES
from training.run_folder import RunFolder
from training.sources import Shard
from training.strategy import Strategy

SMALL = (("blocks", (1, 1)), ("widths", (2, 3)), ("stem_width", 4), ("input_shape", (32, 32, 3)))


@pytest.fixture
def images(tmp_path):
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8)).save(folder / f"{i}.png")
    return tmp_path


def test_image_folder_is_a_function_of_seed_and_epoch(images):
    recipe = dataclasses.replace(RECIPES["highway50"], batch_size=2)
    source = sources.open_source(recipe, images)
    assert (source.images, source.classes) == (6, 2)
    first, again, second = ([(x, y) for x, y, _ in source.batches(epoch, 0, Shard())] for epoch in (0, 0, 1))
    assert [x.shape for x, _ in first] == [(2, 224, 224, 3)] * 3
    for (x, y), (x2, y2) in zip(first, again, strict=True):
        np.testing.assert_array_equal(x, x2)
        np.testing.assert_array_equal(y, y2)
    assert not np.array_equal(first[0][0], second[0][0])
    assert sorted(np.concatenate([y for _, y in first])) == [0, 0, 0, 1, 1, 1]


def test_image_folder_resumes_and_divides(images):
    recipe = dataclasses.replace(RECIPES["highway50"], batch_size=2)
    source = sources.open_source(recipe, images)
    whole = [x for x, _, _ in source.batches(0, 0, Shard())]
    np.testing.assert_array_equal([x for x, _, _ in source.batches(0, 2, Shard())], whole[2:])
    parts = [[x for x, _, _ in source.batches(0, 0, Shard(i, 2))] for i in range(2)]
    for batch, left, right in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(batch, np.concatenate([left, right]))
    tested = list(source.test_batches(4, Shard()))
    assert [x.shape for x, _, _ in tested] == [(4, 224, 224, 3)] * 2
    np.testing.assert_array_equal(np.concatenate([w for _, _, w in tested]), [1] * 6 + [0] * 2)
    np.testing.assert_array_equal(np.concatenate([y for _, y, _ in tested])[:6], [0, 0, 0, 1, 1, 1])


def test_image_folder_trains(images, tmp_path):
    recipe = dataclasses.replace(
        RECIPES["resnet50"], batch_size=2, epochs=1, transform="cifar10", overrides=SMALL, learning_rate=0.01
    )
    result = loop.train(recipe, images, tmp_path / "run")
    rows = RunFolder(tmp_path / "run", recipe.to_dict(), Strategy()).rows()
    assert result["data"] == "imagenet" and rows[0]["step"] == "3" and 0 <= float(rows[0]["waiting"]) < 1


def test_image_folder_errors(images, tmp_path):
    recipe = RECIPES["highway50"]
    with pytest.raises(FileNotFoundError, match="train"):
        sources.open_source(recipe, tmp_path / "none")
    (images / "val" / "bird").mkdir()
    with pytest.raises(ValueError, match="different classes: bird"):
        sources.open_source(recipe, images)
    (images / "train" / "bird").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        sources.open_source(recipe, images)


def test_fewer_images_than_a_batch_are_refused(images):
    with pytest.raises(ValueError, match=r"6 training images, less than a batch. Received: batch_size=256"):
        sources.open_source(RECIPES["highway50"], images)


def test_part_of_a_folder_is_spread_over_its_classes(images):
    recipe = dataclasses.replace(RECIPES["highway50"], batch_size=2, train_images=4, test_images=2)
    source = sources.open_source(recipe, images)
    assert (source.images, source.test_images) == (4, 2)
    np.testing.assert_array_equal(np.concatenate([y for _, y, _ in source.test_batches(2, Shard())]), [0, 1])
