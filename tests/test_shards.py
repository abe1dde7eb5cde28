"""Shards of a folder: the same batches, what is left out, what is made again."""

import dataclasses
import errno
import json
import os
import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_highway.training import shards
from keras_highway.training.data.samples import Shard
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
    folder, sharded = batches(recipe, photographs), batches(recipe, tmp_path / "shards")
    assert len(folder) == len(sharded) > 6
    for a, b in zip(folder, sharded, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("copies", [1, 3])
def test_an_image_that_cannot_be_read_is_named(photographs, tmp_path, copies):
    """TensorFlow's error does not say which it is."""
    recipe = dataclasses.replace(RECIPE, repeated_augmentation=copies)
    manifest = shards.write(photographs, tmp_path / "shards", images=4)
    for split, name in (("train", "dog/3.JPEG"), ("val", "cat/2.JPEG")):
        path, (shard, *_) = photographs / split / name, manifest["splits"][split]["shards"]
        content = path.read_bytes()
        path.write_bytes(content[:-400])
        with pytest.raises(ValueError, match=f"{path} cannot be read: .*(JPEG|jpeg).* names all broken images"):
            _ = batches(recipe, photographs)
        path.write_bytes(content)
        assert batches(recipe, photographs)
        file = tmp_path / "shards" / shard["file"]
        file.write_bytes(bytes(shard["bytes"]))
        with pytest.raises(ValueError, match=rf"{file}, the image at byte \d+, cannot be read: .*Copy it anew"):
            _ = batches(recipe, tmp_path / "shards")
        shutil.rmtree(tmp_path / "shards")
        shards.write(photographs, tmp_path / "shards", images=4)


def test_a_failing_file_system_is_not_laid_to_an_image(photographs, tmp_path, monkeypatch):
    """The run ends as of any fault, not as of one of its user: `supervise` begins it again."""
    shards.write(photographs, tmp_path / "shards", images=4)
    stale = OSError(errno.ESTALE, "Stale file handle")
    monkeypatch.setattr(os, "pread", Mock(side_effect=stale))
    with pytest.raises(tf.errors.OpError, match="Stale file handle"):
        _ = batches(RECIPE, tmp_path / "shards")


def test_a_missing_image_is_named(photographs):
    source = open_source(RECIPE, photographs)
    path = photographs / "val" / "cat" / "2.JPEG"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(ValueError, match=rf"{path} cannot be read: .*No such file"):
        _ = list(source.test_batches(4, Shard()))
    path.write_bytes(content)


def test_a_fault_that_has_passed_is_not_laid_to_an_image(photographs, monkeypatch):
    source = open_source(RECIPE, photographs)
    path = photographs / "train" / "dog" / "3.JPEG"
    content = path.read_bytes()
    path.write_bytes(b"")
    check = source._check
    monkeypatch.setattr(source, "_check", lambda image: (path.write_bytes(content), check(image)))
    with pytest.raises(tf.errors.InvalidArgumentError):
        _ = [list(source.batches(epoch, 0, Shard())) for epoch in range(6)]  # each has a third of the images


def test_other_programs_can_read_the_records(photographs, tmp_path):
    manifest = shards.write(photographs, tmp_path, images=4)
    names = [shard["file"] for shard in manifest["splits"]["train"]["shards"]]
    assert names == [f"train-{i:05d}-of-00004.tfrecord" for i in range(4)]
    spec = {
        "image/encoded": tf.io.FixedLenFeature([], tf.string),
        "image/class/label": tf.io.FixedLenFeature([], tf.int64),
        "image/class/name": tf.io.FixedLenFeature([], tf.string),
        "image/filename": tf.io.FixedLenFeature([], tf.string),
    }
    records = tf.data.TFRecordDataset([str(tmp_path / name) for name in names]).map(
        lambda record: tf.io.parse_single_example(record, spec)
    )
    rows = {row["image/filename"].decode(): row for row in records.as_numpy_iterator()}
    assert len(rows) == 14 and manifest["classes"] == ["cat", "dog"]
    for name, row in rows.items():
        assert row["image/encoded"] == (photographs / "train" / name).read_bytes()
        assert manifest["classes"][row["image/class/label"]] == row["image/class/name"].decode() == name.split("/")[0]


def test_broken_files_are_named_left_out_and_counted(photographs, tmp_path, capsys):
    whole = (photographs / "train" / "cat" / "3.JPEG").read_bytes()
    (photographs / "train" / "cat" / "3.JPEG").write_bytes(whole[: len(whole) // 2])
    (photographs / "train" / "dog" / "5.JPEG").write_bytes(b"")
    assert shards.main([str(photographs), "--out", str(tmp_path), "--images", "5"]) == 0
    out, err = capsys.readouterr()
    assert "train: 12 images in 3 shards, 2 broken ones left out" in out and "val: 9 images in 2 shards, 0" in out
    assert f"left out, not an image that can be decoded: {photographs}/train/cat/3.JPEG" in err
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["splits"]["train"]["broken"] == ["cat/3.JPEG", "dog/5.JPEG"]
    assert open_source(RECIPE, tmp_path).images == 12


def test_photographs_that_change_are_written_again(photographs, tmp_path, capsys):
    folder = photographs / "train" / "cat"
    whole = (folder / "3.JPEG").read_bytes()
    (folder / "3.JPEG").write_bytes(whole[:-200][: len(whole) // 2])
    written = shards.write(photographs, tmp_path, images=50)
    assert "3.JPEG" in capsys.readouterr().err
    assert shards.write(photographs, tmp_path, images=50) == written
    assert "left out, not an image" in capsys.readouterr().err  # said each time
    old = (tmp_path / "manifest.json").stat().st_mtime_ns - 10**12
    (folder / "3.JPEG").write_bytes(whole)
    os.utime(folder / "3.JPEG", ns=(old, old))  # moved here from an older copy
    mended = shards.write(photographs, tmp_path, images=50)
    assert mended["splits"]["train"]["broken"] == [] and mended["splits"]["train"]["images"] == 14
    (folder / "0.JPEG").write_bytes(whole)
    os.utime(folder / "0.JPEG", ns=(old, old))
    second = shards.write(photographs, tmp_path, images=50)
    assert second != mended
    (folder / "0.JPEG").write_bytes(whole[:-1] + b"x")  # as many bytes
    assert shards.write(photographs, tmp_path, images=50) != second


def test_a_manifest_of_another_program_makes_no_shards(photographs):
    (photographs / "manifest.json").write_text('{"version": 1}')
    assert open_source(RECIPE, photographs).images == 14


def test_a_name_that_is_no_text_is_named(photographs):
    image = photographs / "train" / "cat" / "0.JPEG"
    image.rename(Path(os.fsdecode(os.fsencode(str(image.parent)) + b"/caf\xe9.JPEG")))
    with pytest.raises(ValueError, match=r"is not UTF-8: rename it. Received: .*caf\\udce9"):
        open_source(RECIPE, photographs)


@pytest.mark.slow
def test_one_broken_file_in_a_thousand(photographs, tmp_path, capsys):
    """As real collections have them: named each, and all the others are read in an epoch."""
    sound = [(photographs / "train" / name / "0.JPEG").read_bytes() for name in ("cat", "dog")]
    for i in range(7, 1000):
        for name, content in zip(("cat", "dog"), sound, strict=True):
            cut = i == 500  # one of each thousand
            (photographs / "train" / name / f"{i}.JPEG").write_bytes(content[: len(content) // 3] if cut else content)
    assert shards.main([str(photographs), "--out", str(tmp_path), "--images", "256"]) == 0
    out, err = capsys.readouterr()
    assert "train: 1998 images in 8 shards, 2 broken ones left out" in out
    assert json.loads((tmp_path / "manifest.json").read_text())["splits"]["train"]["broken"] == [
        "cat/500.JPEG",
        "dog/500.JPEG",
    ]
    assert all(f"{photographs}/train/{name}/500.JPEG" in err for name in ("cat", "dog"))
    recipe = dataclasses.replace(RECIPE, batch_size=54, repeated_augmentation=1)
    source = open_source(recipe, tmp_path)
    assert source.images == 1998 == sum(len(labels) for _, labels, _ in source.batches(1, 0, Shard()))


def test_what_is_missing_is_made_again_and_nothing_else(photographs, tmp_path, monkeypatch, capsys):
    first = shards.write(photographs, tmp_path, images=4)
    stamps = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.tfrecord")}
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "train-00002-of-00004.tfrecord").unlink()
    with pytest.raises(ValueError, match=r"not finished: run `python -m keras_highway\.training\.shards` again"):
        open_source(RECIPE, tmp_path)

    def full(*args):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shards, "_example", full)
        with pytest.raises(OSError, match="No space"):
            shards.write(photographs, tmp_path, images=4)
    assert not (tmp_path / "train-00002-of-00004.tfrecord").exists() and not list(tmp_path.glob(".partial*"))
    assert shards.write(photographs, tmp_path, images=4) == first
    assert stamps.keys() == {path.name for path in tmp_path.glob("*.tfrecord")}
    changed = {name for name in stamps if (tmp_path / name).stat().st_mtime_ns != stamps[name]}
    assert changed == {"train-00002-of-00004.tfrecord"}
    assert shards.main([str(photographs), "--out", str(tmp_path), "--images", "3"]) == 2
    assert "shards of another division" in capsys.readouterr().err


def test_altered_and_cut_shards_are_found(photographs, tmp_path, capsys):
    shards.write(photographs, tmp_path, images=4)
    assert shards.main([str(tmp_path), "--check"]) == 0
    path = tmp_path / "train-00001-of-00004.tfrecord"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert shards.main([str(tmp_path), "--check"]) == 1
    assert f"missing or altered: {path}" in capsys.readouterr().err
    path.write_bytes(content[:-50])
    with pytest.raises(ValueError, match=rf"{path} has \d+ bytes and should have \d+"):
        open_source(RECIPE, tmp_path)


def test_an_altered_index_is_found_and_made_again(photographs, tmp_path, capsys):
    """It holds the labels: another one there would train without a word."""
    first = shards.write(photographs, tmp_path, images=4)
    path = tmp_path / "train-00001-of-00004.json"
    good = path.read_bytes()
    index = json.loads(good)
    index["labels"][0] = 1 - index["labels"][0]
    path.write_text(json.dumps(index))
    assert shards.main([str(tmp_path), "--check"]) == 1
    assert f"missing or altered: {path}" in capsys.readouterr().err
    with pytest.raises(ValueError, match=rf"{path} is not the index that was written with train-00001"):
        open_source(RECIPE, tmp_path)
    (tmp_path / "manifest.json").unlink()
    assert shards.write(photographs, tmp_path, images=4) == first and path.read_bytes() == good
    path.unlink()
    assert shards.main([str(tmp_path), "--check"]) == 1


def swapped(index):
    index["offsets"][:2] = index["offsets"][1::-1]  # two images swap positions
    index["lengths"][:2] = index["lengths"][1::-1]


ALTERATIONS = {
    "offsets": lambda index: index["offsets"].__setitem__(0, index["offsets"][0] + 1),
    "lengths": lambda index: index["lengths"].__setitem__(0, index["lengths"][0] - 1),
    "two images swapped": swapped,
    "one label more": lambda index: index["labels"].append(1),
    "one place more": lambda index: index["places"].append(3),
    "one offset less": lambda index: index["offsets"].pop(),
    "sha256": lambda index: index.update(sha256="0" * 64),
    "bytes": lambda index: index.update(bytes=index["bytes"] + 1),
    "broken": lambda index: index["broken"].append(index["files"][0]),
    "no offsets": lambda index: index.pop("offsets"),
}


def test_a_second_run_makes_altered_indexes_again_and_never_notes_their_hash(photographs, tmp_path):
    first = shards.write(photographs, tmp_path, images=2)
    indexes = sorted(path for path in tmp_path.glob("*.json") if path.name != "manifest.json")
    good = {path: path.read_text() for path in indexes}
    for path, alter in zip(indexes, ALTERATIONS.values(), strict=False):
        index = json.loads(good[path])
        alter(index)
        path.write_text(json.dumps(index))
    *_, torn, untouched = indexes
    torn.write_text("{")
    stamp = untouched.stat().st_mtime_ns
    assert len(indexes) >= len(ALTERATIONS) + 2
    assert shards.write(photographs, tmp_path, images=2) == first
    assert {path: path.read_text() for path in indexes} == good
    assert untouched.stat().st_mtime_ns == stamp


@pytest.mark.parametrize("hashed", [False, True])
def test_a_second_run_makes_an_altered_shard_again(photographs, tmp_path, hashed):
    """Even where the index has the altered shard's hash: its records have checksums."""
    first = shards.write(photographs, tmp_path, images=4)
    path = tmp_path / "train-00001-of-00004.tfrecord"
    good = path.read_bytes()
    path.write_bytes(good[:500] + bytes([good[500] ^ 1]) + good[501:])
    if hashed:
        index = json.loads(path.with_suffix(".json").read_text())
        index["sha256"] = shards.sha256_of(path)
        path.with_suffix(".json").write_text(json.dumps(index))
    assert shards.write(photographs, tmp_path, images=4) == first and path.read_bytes() == good


def photographs_in(folder, count):
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (8, 8), (200, 10, 10)).save(folder / split / name / f"{i}.jpg")
    return folder


def test_a_rest_of_a_killed_process_is_no_other_division(tmp_path):
    folder = photographs_in(tmp_path / "in", 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".partial-train-00000-of-00001.tfrecord").write_bytes(b"half")
    assert shards.write(folder, tmp_path / "out")["splits"]["train"]["images"] == 2


def test_a_folder_and_its_shards_are_the_same_data(tmp_path):
    folder = photographs_in(tmp_path / "in", 2)
    shards.write(folder, tmp_path / "shards", images=2)
    recipe = dataclasses.replace(RECIPES["resnet50_a2"], batch_size=2)
    known, sharded = (open_source(recipe, tmp_path / name).fingerprint for name in ("in", "shards"))
    assert known == sharded
    Image.new("RGB", (8, 8)).save(folder / "train" / "cat" / "2.jpg")
    assert open_source(recipe, folder).fingerprint != known


@pytest.fixture
def pets(tmp_path):
    """Three cats to one dog with ImageNet's names, and their shards."""
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        for name, count in (("cat", 3), ("dog", 1)):
            (tmp_path / "photographs" / split / name).mkdir(parents=True)
            for i in range(count):
                image = Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8))
                image.save(tmp_path / "photographs" / split / name / f"ILSVRC2012_val_{i + 1:08d}.JPEG")
    shards.write(tmp_path / "photographs", tmp_path / "shards", images=2)
    return tmp_path


def test_shards_are_read_as_their_folder_is(pets):
    from keras_highway.data.photographs import folder_test_set
    from keras_highway.training.data.shard_test_set import shard_test_set

    there = folder_test_set(pets / "photographs", 2, class_names=("dog", "cat"))
    here = shard_test_set(pets / "shards", 2, class_names=("dog", "cat"))
    assert here.images == there.images == 4
    for ours, other in zip(here.photographs, sorted(there.photographs), strict=True):
        assert (ours.file.read(), ours.label) == (Path(other.file).read_bytes(), other.label)
        assert Path(ours.file.name).name == other.file.name  # by which ReaL labels are found
    with pytest.raises(ValueError, match=r"weights' classes are not those of .*shards: it has cat, they have cow"):
        shard_test_set(pets / "shards", 2, class_names=("cow", "dog"))


def test_names_of_damaged_shards_are_refused(pets, tmp_path):
    from keras_highway.training.data.shard_test_set import shard_test_set

    manifest = shards.write(pets / "photographs", tmp_path / "one", images=4)
    (shard,) = manifest["splits"]["val"]["shards"]
    index = tmp_path / "one" / Path(shard["file"]).with_suffix(".json")
    known = json.loads(index.read_text())
    for changes, message in (({"files": ["cat/1.JPEG"]}, "names 1 images and places 4"), ({"files": 3}, "files")):
        index.write_text(json.dumps({**known, **changes}))
        shard["index_sha256"] = shards.sha256_of(index)
        (tmp_path / "one" / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ValueError, match=message):
            shard_test_set(tmp_path / "one", 2)
