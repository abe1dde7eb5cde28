"""Shards of a folder: the batches of the folder, broken files, damaged shards."""

import dataclasses
import json
import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_highway.cli import main
from keras_highway.data.photographs import folder_test_set
from keras_highway.training import shards
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.shards import shard_test_set
from keras_highway.training.data.source import open_source
from keras_highway.training.recipes import RECIPES

RECIPE = dataclasses.replace(
    RECIPES["highway50_a2"], transform="cifar10", batch_size=4, micro_batches=1, train_size=None, mixup=0.0, cutmix=0.0
)


@pytest.fixture
def photographs(tmp_path):
    draw = np.random.default_rng(0)
    for split, count in (("train", 7), ("val", 4)):
        for name in ("cat", "dog"):
            folder = tmp_path / "photographs" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                Image.fromarray(draw.integers(0, 256, (40 + i, 50, 3), np.uint8)).save(folder / f"{i}.JPEG")
    Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8)).save(folder / "9.JPEG", "PNG")  # ImageNet has one
    return tmp_path / "photographs"


def batches(recipe, data_dir):
    source = open_source(recipe, data_dir)
    epochs = [batch for epoch in range(1, 7) for batch in source.batches(epoch, 0, Shard())]
    result = [*epochs, *source.batches(0, 1, Shard(1, 2)), *source.test_batches(4, Shard())]
    return [array for batch in result for array in batch]


@pytest.mark.parametrize("changes", [{}, {"repeated_augmentation": 1, "holdout_images": 4, "train_images": 9}])
def test_shards_give_the_batches_of_their_folder(photographs, tmp_path, changes):
    shards.write(photographs, tmp_path / "shards", images=4, workers=2)
    recipe = dataclasses.replace(RECIPE, **changes)
    folder, sharded = (open_source(recipe, path) for path in (photographs, tmp_path / "shards"))
    assert folder.fingerprint == sharded.fingerprint and folder.class_names == sharded.class_names == ("cat", "dog")
    folder, sharded = batches(recipe, photographs), batches(recipe, tmp_path / "shards")
    assert len(folder) == len(sharded) > 6
    for a, b in zip(folder, sharded, strict=True):
        np.testing.assert_array_equal(a, b)


def test_shards_give_the_test_images_of_their_folder(photographs, tmp_path, capsys):
    shards.write(photographs, tmp_path / "shards", images=4)
    files = folder_test_set(photographs, 2, class_names=("dog", "cat")).photographs
    records = shard_test_set(tmp_path / "shards", 2, class_names=("dog", "cat")).photographs
    from_files = sorted((one.file.read_bytes(), one.label) for one in files)
    assert from_files == sorted((one.file.read(), one.label) for one in records) and len(from_files) == 9
    with pytest.raises(ValueError, match="has cat for cow"):
        shard_test_set(tmp_path / "shards", 2, class_names=("cow", "dog"))
    command = ["evaluate", "mnist10_w32.tvdn", "--data", str(tmp_path / "shards"), "--json"]
    assert main(command) == 2 and "classes" in capsys.readouterr().err


def test_an_image_that_cannot_be_read_is_named(photographs, tmp_path):
    """TensorFlow's error does not say which it is."""
    recipe = dataclasses.replace(RECIPE, repeated_augmentation=1)
    manifest = shards.write(photographs, tmp_path / "shards", images=4)
    path = photographs / "train/dog/3.JPEG"
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(ValueError, match=f"{path} cannot be read: .*(JPEG|jpeg).* names all broken images"):
        _ = batches(recipe, photographs)
    file = tmp_path / "shards" / next(iter(manifest["splits"]["train"]["files"]))
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(ValueError, match=rf"{file}, the image at byte \d+, cannot be read: .*Copy it again"):
        _ = batches(recipe, tmp_path / "shards")


@pytest.mark.parametrize(
    ("replace", "match"),
    [
        (lambda path: None, "No such file"),
        (os.mkfifo, "a pipe or a device"),
        (lambda path: path.symlink_to("/dev/zero"), "a pipe or a device"),
        (lambda path: (path.touch(), os.truncate(path, 50 * 2**30)), "is larger than"),
    ],
)
def test_an_image_that_is_no_file_of_usual_size_is_named(photographs, replace, match):
    source = open_source(RECIPE, photographs)
    path = photographs / "val" / "cat" / "2.JPEG"
    path.unlink()
    replace(path)
    with pytest.raises(ValueError, match=rf"{path} cannot be read: .*{match}"):
        _ = list(source.test_batches(4, Shard()))


def test_other_programs_can_read_the_records(photographs, tmp_path):
    manifest = shards.write(photographs, tmp_path / "out", images=4)
    names = [name for name in manifest["splits"]["train"]["files"] if name.endswith(".tfrecord")]
    assert names == [f"train-{i:05d}-of-00004.tfrecord" for i in range(4)]
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
    }
    records = tf.data.TFRecordDataset([str(tmp_path / "out" / name) for name in names]).map(
        lambda record: tf.io.parse_single_example(record, spec)
    )
    rows = {row["image/filename"].decode(): row for row in records.as_numpy_iterator()}
    assert len(rows) == 14 and manifest["classes"] == ["cat", "dog"]
    for name, row in rows.items():
        assert row["image/encoded"] == (photographs / "train" / name).read_bytes()
        assert manifest["classes"][row["image/class/label"]] == name.split("/")[0]


def test_broken_files_are_named_left_out_and_counted(photographs, tmp_path, capsys):
    whole = (photographs / "train" / "cat" / "3.JPEG").read_bytes()
    (photographs / "train" / "cat" / "3.JPEG").write_bytes(whole[: len(whole) // 2])
    (photographs / "train" / "dog" / "5.JPEG").write_bytes(b"")
    (photographs / "val" / "dog" / "link.JPEG").symlink_to("nowhere")
    os.mkfifo(photographs / "val" / "dog" / "pipe.JPEG")
    out = tmp_path / "out"
    assert shards.main([str(photographs), "--out", str(out), "--images", "5"]) == 0
    output, err = capsys.readouterr()
    assert "train: 12 images, 2 broken ones left out" in output and "val: 9 images, 2 broken" in output
    assert f"left out, cannot be decoded: {photographs}/train/cat/3.JPEG" in err
    assert json.loads((out / "shards.json").read_text())["splits"]["train"]["broken"] == ["cat/3.JPEG", "dog/5.JPEG"]
    assert open_source(RECIPE, out).images == 12
    assert shards.main([str(photographs), "--out", str(out)]) == 2
    assert "not empty" in capsys.readouterr().err
    with pytest.raises(ValueError, match="`images` must be a positive integer"):
        shards.write(photographs, out / "again", images=0)


def test_altered_and_cut_shards_are_found(photographs, tmp_path, capsys):
    out = tmp_path / "out"
    shards.write(photographs, out, images=4)
    assert shards.main([str(out), "--check"]) == 0
    path = out / "train-00001-of-00004.tfrecord"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert shards.main([str(out), "--check"]) == 1
    assert f"missing or altered: {path}" in capsys.readouterr().err
    path.write_bytes(content[:-2000])
    with pytest.raises(ValueError, match="--check"):
        open_source(RECIPE, out)
    path.unlink()
    assert shards.main([str(out), "--check"]) == 1
    with pytest.raises(ValueError, match="--check"):
        open_source(RECIPE, out)
    (out / "shards.json").unlink()
    assert shards.main([str(out), "--check"]) == 2
    assert "no finished shards" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [
        {"places": np.zeros((14, 2), np.int64)},
        {"places": np.full((14, 3), 2**62)},
        {"labels": np.full(14, 2)},
        {"names": np.array(["a"])},
    ],
)
def test_hostile_indexes_are_refused(photographs, tmp_path, change):
    shards.write(photographs, tmp_path / "out")
    index = tmp_path / "out" / "train.npz"
    with np.load(index) as arrays:
        content = dict(arrays)
    np.savez(index, **(content | change))
    with pytest.raises(ValueError, match=r"train\.npz"):
        open_source(RECIPE, tmp_path / "out")


@pytest.mark.parametrize(
    "change",
    [
        {"format": "keras_highway shards 1"},
        {"classes": [1]},
        {"splits": {"train": {"files": {}}}},
        {"splits": {"train": {"files": {"../../x.tfrecord": ""}}, "val": {"files": {}}}},
    ],
)
def test_hostile_manifests_are_refused(photographs, tmp_path, change):
    manifest = shards.write(photographs, tmp_path / "out")
    (tmp_path / "out" / "shards.json").write_text(json.dumps(manifest | change))
    for read in (lambda: open_source(RECIPE, tmp_path / "out"), lambda: shards.check(tmp_path / "out")):
        with pytest.raises(ValueError, match=r"shards\.json is not a manifest of shards"):
            read()
