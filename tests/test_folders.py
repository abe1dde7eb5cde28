"""Folders of class sub-folders: order, augmentation, parts, errors."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway._support.files import atomic_write
from keras_highway.cli import main
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training import checkpoint, loop, shards
from keras_highway.training.data import source as sources
from keras_highway.training.data.samples import Shard, split_off
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.program import ImageProgram
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import RunFolder
from tests.checkpoints import arrays

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


@pytest.fixture
def labelled(tmp_path):
    """Images that are red, green, both or neither."""
    draw, names = np.random.default_rng(0), ("", "green", "red", "green;red")
    for split, count in (("train", 16), ("val", 8)):
        lines = [f"images/{i}.png,{names[i % 4]}" for i in range(count)]
        (tmp_path / split / "images").mkdir(parents=True)
        (tmp_path / split / "labels.csv").write_text("\n".join(["image,labels", *lines]))
        for i in range(count):
            pixels = draw.integers(0, 90, (40, 40, 3), np.uint8)
            pixels[..., 0] += 150 * ("red" in names[i % 4])
            pixels[..., 1] += 150 * ("green" in names[i % 4])
            Image.fromarray(pixels).save(tmp_path / split / "images" / f"{i}.png")
    return tmp_path


def test_labels_of_a_csv_file_train_a_sigmoid_head(labelled, tmp_path, capsys):
    recipe = dataclasses.replace(
        RECIPES["resnet50"], batch_size=4, epochs=2, transform="cifar10", overrides=SMALL, learning_rate=0.01
    )
    with pytest.raises(ValueError, match="loss=bce"):
        sources.open_source(recipe, labelled)
    recipe = dataclasses.replace(recipe, loss="bce")
    source = sources.open_source(recipe, labelled)
    (_, targets, weights), (_, more, _) = source.test_batches(4, Shard())
    assert targets.tolist() == more.tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]] and weights.tolist() == [1] * 4
    result = loop.train(recipe, labelled, tmp_path / "run")
    assert result["class_names"] == ["green", "red"]
    net = kh.load(tmp_path / "run")
    assert net.get_layer("head").activation is keras.activations.sigmoid and net.output_shape == (None, 2)
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(labelled), "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    header, *_, last = (line.split(",") for line in (tmp_path / "run" / "log.csv").read_text().splitlines())
    row = dict(zip(header, map(float, last), strict=True))
    assert measured["accuracy"] == result["mean"] == row["test_accuracy"]
    assert measured["per_label"] == pytest.approx(row["test_label_accuracy"])
    assert measured["loss"] == pytest.approx(row["test_loss"], rel=1e-3)


class Killed(BaseException):
    """Stands for a process that dies."""


@pytest.mark.slow
def test_it_trains_at_one_size_is_tested_at_another_and_resumes_exactly(images, tmp_path, monkeypatch):
    """A3 trains at 160 and tests at 224; here 48 and 32, cut off in the middle of an epoch."""
    small = dataclasses.replace(
        RECIPES["resnet50"], batch_size=2, epochs=2, transform="cifar10", overrides=SMALL, learning_rate=0.01
    )
    recipe = with_settings(small, ["train_size=48"])
    source = sources.open_source(recipe, images)
    assert next(source.batches(0, 0, Shard()))[0].shape == (2, 48, 48, 3)
    assert next(source.test_batches(2, Shard()))[0].shape == (2, 32, 32, 3)
    assert ImageProgram(recipe, source, None).net.input_shape == (None, None, None, 3)
    whole = loop.train(recipe, images, tmp_path / "whole")
    rows = RunFolder(tmp_path / "whole", recipe, Strategy()).rows()
    assert (
        whole["data"] == ""
        and whole["class_names"] == ["cat", "dog"]
        and rows[0]["step"] == "3"
        and 0 <= float(rows[0]["waiting"]) < 1
    )

    saved = []

    def dies(path, write):
        if len(saved) == 2:
            raise Killed
        atomic_write(path, write)
        saved.append(path)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "atomic_write", dies)
        with pytest.raises(Killed):
            loop.train(recipe, images, tmp_path / "cut", save_steps=1)
    with np.load(tmp_path / "cut" / "checkpoint.npz") as file:
        header = json.loads(str(file["header"]))
    assert (header["epoch"], header["step"]) == (0, 2)
    resumed = loop.train(recipe, images, tmp_path / "cut")
    assert resumed["values"] == whole["values"] and resumed["train_loss"] == whole["train_loss"]
    a, b = (arrays(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut"))
    assert list(a) == list(b)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    # The saved network has the variant's own size.
    net = kh.create_model("resnet50", str(tmp_path / "whole" / "model.weights.h5"), classes=2, **dict(SMALL))
    assert net.input_shape == (None, 32, 32, 3)


def test_image_folder_errors(images, tmp_path):
    recipe = RECIPES["highway50"]
    with pytest.raises(FileNotFoundError, match="train"):
        sources.open_source(recipe, tmp_path / "none")
    for split in ("train", "val"):
        (images / split / "dog").rename(images / f"{split}_dog")
    with pytest.raises(ValueError, match="train has one class, cat"):
        sources.open_source(recipe, images)
    for split in ("train", "val"):
        (images / f"{split}_dog").rename(images / split / "dog")
    (images / "val" / "bird").mkdir()
    with pytest.raises(ValueError, match="different classes: bird"):
        sources.open_source(recipe, images)
    (images / "train" / "bird").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        sources.open_source(recipe, images)


def test_names_of_classes_that_no_result_may_have_are_refused_before_training(images, tmp_path):
    for split in ("train", "val"):
        (images / split / "dog").rename(images / split / "d\ng")
    recipe = dataclasses.replace(RECIPES["highway50"], batch_size=2, transform="cifar10", overrides=SMALL)
    with pytest.raises(ValueError, match=r"train needs .*printable"):
        loop.train(recipe, images, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="printable"):
        shards.write(images, tmp_path / "shards")
    assert not (tmp_path / "shards").exists()


def test_part_of_a_folder_is_spread_over_its_classes(images):
    recipe = dataclasses.replace(RECIPES["highway50"], batch_size=2, train_images=4, test_images=2)
    source = sources.open_source(recipe, images)
    assert (source.images, source.test_images) == (4, 2)
    np.testing.assert_array_equal(np.concatenate([y for _, y, _ in source.test_batches(2, Shard())]), [0, 1])


def test_every_class_loses_the_same_share_of_its_images():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    rest, held_out = split_off(labels, 10)
    assert np.bincount(labels[held_out]).tolist() == [6, 3, 1]
    assert sorted([*rest, *held_out]) == list(range(100))
    assert set(held_out) < set(split_off(labels, 20)[1])  # a larger one contains it
    np.testing.assert_array_equal(split_off(labels, 10)[1], held_out)
    assert set(held_out) != {*range(54, 60), *range(87, 90), 99}  # shuffled: not the last files of each class
    with pytest.raises(ValueError, match=r"100 training images.*holdout_images=100"):
        split_off(labels, 100)


def test_held_out_images_are_tested_on_and_not_trained_on(images):
    """Made of one grey level each, images show which they are; the seed of the run has no part in the choice."""
    for i, path in enumerate(sorted((images / "train").rglob("*.png"))):
        Image.fromarray(np.full((40, 50, 3), 40 * i, np.uint8)).save(path)
    choices = []
    for seed in (0, 1):
        recipe = dataclasses.replace(
            RECIPES["highway50"], batch_size=2, holdout_images=2, transform="cifar10", overrides=SMALL, seed=seed
        )
        source = sources.open_source(recipe, images)
        assert (source.images, source.test_images) == (4, 2)
        trained = np.concatenate([x.mean((1, 2, 3)) for x, _, _ in source.batches(0, 0, Shard())])
        ((x, y, w),) = source.test_batches(2, Shard())
        levels = TRANSFORMS["cifar10"].apply(np.array([[[[40 * i] * 3]] for i in range(6)], np.uint8))
        held_out = {int(np.abs(levels.mean((1, 2, 3)) - mean).argmin()) for mean in x.mean((1, 2, 3))}
        assert {round(level / 40) for level in trained} == set(range(6)) - held_out
        assert y.tolist() == [0, 1] and w.tolist() == [1, 1]  # a class each
        choices.append(held_out)
    assert choices[0] == choices[1] and len(choices[0]) == 2
