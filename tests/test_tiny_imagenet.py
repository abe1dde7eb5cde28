"""Tiny ImageNet: the layout of its archive, its transform, the recipe of both nets, the study's short runs."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from keras_highway.data.photographs import ANNOTATIONS, folder_test_set
from keras_highway.data.transforms import imagenet_classes
from keras_highway.training import shards
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.recipes import RECIPES

ROWS = (("b.JPEG", "n01629819"), ("c.JPEG", "n01443537"), ("a.JPEG", "n01629819"), ("d.JPEG", "n01443537"))
NAMES = ["n01443537", "n01629819"]  # ImageNet's 1 and 25: goldfish, European fire salamander
BOX = "\t0\t32\t44\t62"
SMALL = (("blocks", (1, 1)), ("widths", (4, 8)), ("stem_width", 8), ("input_shape", (64, 64, 3)))


def photograph(path, level):
    """Write a grey photograph, in one channel or three: a few of the archive's have one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (64, 64) if level % 2 else (64, 64, 3)
    Image.fromarray(np.full(shape, level, np.uint8)).save(path, quality=95)


@pytest.fixture
def archive(tmp_path):
    """As `tiny-imagenet-200.zip` unpacks: boxes next to the images, classes of the test images in a list."""
    root = tmp_path / "tiny-imagenet-200"
    for k, name in enumerate(NAMES):
        for i in range(4):
            photograph(root / "train" / name / "images" / f"{name}_{i}.JPEG", 100 * k + i)
        (root / "train" / name / f"{name}_boxes.txt").write_text(f"{name}_0.JPEG{BOX}\n")
    for file, name in ROWS:
        photograph(root / "val" / "images" / file, 100 * NAMES.index(name) + 10 * ord(file[0]) % 90)
    (root / "val" / ANNOTATIONS).write_text("".join(f"{file}\t{name}{BOX}\n" for file, name in ROWS))
    (root / "train" / ".DS_Store").write_bytes(b"of a file manager")
    return root


def plain(archive, root):
    """The same photographs in one folder per class."""
    for name in NAMES:
        for i in range(4):
            photograph(root / "train" / name / f"{name}_{i}.JPEG", 100 * NAMES.index(name) + i)
    for file, name in ROWS:
        photograph(root / "val" / name / file, 100 * NAMES.index(name) + 10 * ord(file[0]) % 90)
    return root


def recipe(**settings):
    return dataclasses.replace(RECIPES["highway50_tiny_imagenet"], overrides=SMALL, batch_size=2, **settings)


def epoch(source):
    trained = list(source.batches(0, 0, Shard()))
    return trained, list(source.test_batches(2, Shard()))


def same(one, other):
    return all(np.array_equal(x, y) for a, b in zip(one, other, strict=True) for x, y in zip(a, b, strict=True))


def test_the_archive_gives_the_batches_of_a_folder_per_class(archive, tmp_path):
    unpacked, folders = (open_source(recipe(), root) for root in (archive, plain(archive, tmp_path / "plain")))
    assert (unpacked.images, unpacked.test_images, unpacked.classes) == (8, 4, 2)
    assert list(unpacked.class_names) == NAMES
    for one, other in zip(epoch(unpacked), epoch(folders), strict=True):
        assert same(one, other)
    labels = np.concatenate([labels for _, labels, _ in epoch(unpacked)[1]])
    assert labels.tolist() == [0, 0, 1, 1]


def test_the_archive_as_a_test_set(archive):
    """Its classes are the weights', whose names are ImageNet's, in another order."""
    identified = dict(imagenet_classes())
    classes = tuple(identified[name] for name in reversed(NAMES))
    found = folder_test_set(archive, 2, class_names=classes)
    assert found.name == str(archive / "val")
    assert [(p.file.name, p.label) for p in found.photographs] == [
        ("c.JPEG", 1),
        ("d.JPEG", 1),
        ("a.JPEG", 0),
        ("b.JPEG", 0),
    ]
    of_imagenet = folder_test_set(archive, 1000)
    assert [p.label for p in of_imagenet.photographs] == [1, 1, 25, 25]


def test_shards_of_the_archive_train_as_the_archive(archive, tmp_path):
    manifest = shards.write(archive, tmp_path / "shards", 3)
    assert manifest["classes"] == NAMES and manifest["splits"]["val"]["images"] == 4
    from_files, from_shards = (epoch(open_source(recipe(), root)) for root in (archive, tmp_path / "shards"))
    for one, other in zip(from_files, from_shards, strict=True):
        assert same(one, other)


LISTED = "".join(f"{file}\t{name}\n" for file, name in ROWS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.JPEG\n", "its name, a tab, its class"),
        ("a.JPEG\tn01443537\nz.JPEG\tn01629819\n", "and no others"),
        (f"{LISTED}a.JPEG\tn01443537\n", "a UTF-8 line for each image"),
        (LISTED.encode("utf-16"), "UTF-8"),
        (b"a" * (2**24 + 1), "val_annotations.txt is larger than"),
    ],
)
def test_a_list_of_classes_that_is_not_of_the_images_is_refused(archive, text, message):
    (archive / "val" / ANNOTATIONS).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        open_source(recipe(), archive)
    with pytest.raises(ValueError, match=message):
        folder_test_set(archive, 2)


def test_a_list_that_is_missing_is_named(archive):
    (archive / "val" / ANNOTATIONS).unlink()
    for read in (lambda: open_source(recipe(), archive), lambda: folder_test_set(archive, 2)):
        with pytest.raises(ValueError, match="one sub-folder per class, or val_annotations"):
            read()
