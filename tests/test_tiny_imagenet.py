"""Tiny ImageNet: the layout of its archive, its transform, the recipe of both nets, the study's short runs."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

from keras_highway.data.images import load_image
from keras_highway.data.photographs import ANNOTATIONS, folder_test_set
from keras_highway.data.transforms import TRANSFORMS, imagenet_classes
from keras_highway.training import loop, shards
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import open_source
from keras_highway.training.recipes import RECIPES
from training.study import STUDIES, main

STUDY = STUDIES["tiny_imagenet"]
ROWS = (("b.JPEG", "n01629819"), ("c.JPEG", "n01443537"), ("a.JPEG", "n01629819"), ("d.JPEG", "n01443537"))
NAMES = ["n01443537", "n01629819"]  # ImageNet's 1 and 25: goldfish, European fire salamander
BOX = "\t0\t32\t44\t62"
SMALL = (("blocks", (1, 1)), ("widths", (4, 8)), ("stem_width", 8), ("input_shape", (64, 64, 3)))


def photograph(path, level):
    """Of one grey, in one channel or three: a few of the archive's have one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (64, 64) if level % 2 else (64, 64, 3)
    Image.fromarray(np.full(shape, level, np.uint8)).save(path, quality=95)


@pytest.fixture
def archive(tmp_path):
    """As `tiny-imagenet-200.zip` unpacks: boxes beside the images, classes of the test images in a list."""
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
        ("a.JPEG\t\n", "its name, a tab, its class"),
        ("a.JPEG\tn01443537\nz.JPEG\tn01629819\n", "and no others"),
        (f"{LISTED}Z.JPEG\tn01443537\n", "and no others"),
        (f"{LISTED}a.JPEG\tn01443537\n", "a UTF-8 line for each image"),
        ("", "a UTF-8 line for each image"),
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


@pytest.mark.parametrize("text", ["\ufeff" + LISTED, LISTED.replace("\n", "\r\n"), f"{LISTED}\n\n"])
def test_a_list_that_an_editor_saved_reads_the_same(archive, text):
    expected = folder_test_set(archive, 2).photographs
    (archive / "val" / ANNOTATIONS).write_bytes(text.encode())
    assert folder_test_set(archive, 2).photographs == expected


@pytest.mark.parametrize("left", ["nothing", "images"])
def test_images_that_were_moved_to_sub_folders_count_not_the_list(archive, left):
    """As scripts do that prepare the archive for other programs."""
    for file, name in ROWS:
        (archive / "val" / name).mkdir(exist_ok=True)
        (archive / "val" / "images" / file).rename(archive / "val" / name / file)
    if left == "nothing":
        (archive / "val" / "images").rmdir()
    assert [(p.file.name, p.label) for p in folder_test_set(archive, 2).photographs] == [
        ("c.JPEG", 0),
        ("d.JPEG", 0),
        ("a.JPEG", 1),
        ("b.JPEG", 1),
    ]
    assert open_source(recipe(), archive).classes == 2


def test_a_list_that_is_missing_is_named(archive):
    (archive / "val" / ANNOTATIONS).unlink()
    for read in (lambda: open_source(recipe(), archive), lambda: folder_test_set(archive, 2)):
        with pytest.raises(ValueError, match="one sub-folder per class, or val_annotations"):
            read()


def test_a_class_may_be_called_images(tmp_path):
    for name in ("images", "pictures"):
        photograph(tmp_path / "val" / name / "a.png", 3)
    found = folder_test_set(tmp_path, 2, class_names=("pictures", "images")).photographs
    assert {p.file.parent.name: p.label for p in found} == {"pictures": 0, "images": 1}


def test_test_images_are_whole_and_not_resampled(archive):
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(pixels).save(archive / "own.png")
    np.testing.assert_array_equal(load_image(archive / "own.png", TRANSFORMS["tiny_imagenet"]), pixels)


def test_both_nets_have_one_recipe():
    one, other = (RECIPES[name].to_dict() for name in STUDY.nets)
    differ = {key for key in one if one[key] != other[key]}
    assert {"name", "variant", "weights"} <= differ <= {"name", "variant", "weights", "learning_rate"}
    assert {r["learning_rate"] for r in (one, other)} <= set(STUDY.rates)
    assert dict(one["overrides"])["input_shape"][:2] == TRANSFORMS[one["transform"]].size


def test_rates_are_tried_on_some_of_the_images_that_are_not_held_out():
    short, whole = STUDY.rate_recipe(STUDY.nets[0], 1e-3), STUDY.seed_recipe(STUDY.nets[0], 1e-3, 1)
    assert (short.train_images, short.holdout_images, short.epochs) == (25_000, 5_000, 5)
    assert (whole.train_images, whole.holdout_images, whole.epochs) == (None, None, 15)


def test_images_of_short_runs_are_even_over_classes_and_not_held_out(archive):
    whole = open_source(recipe(holdout_images=4), archive)
    source = open_source(recipe(holdout_images=4, train_images=2), archive)
    (paths, labels), (held_out, _) = source._files["train"], source._files["val"]
    assert labels.tolist() == [0, 1] and len(held_out) == 4
    assert set(paths) < set(whole._files["train"][0]) and not set(paths) & set(held_out)


def test_the_images_of_short_runs_are_the_studys(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["tiny_imagenet", "--set", "train_images=1000", "--table"])
    assert ended.value.code == 2
    assert "`train_images` is what a study sets itself" in capsys.readouterr().err


@pytest.mark.slow
def test_the_study_runs_small(tmp_path, capsys):
    assert main(["tiny_imagenet", "--tiny", "--nets", "highway50_tiny_imagenet", "--out", str(tmp_path)]) == 0
    assert "| highway50_tiny_imagenet |" in capsys.readouterr().out
    assert (tmp_path / "tiny" / "highway50_tiny_imagenet" / "1" / "result.json").exists()


@pytest.mark.slow
def test_the_loss_falls_on_the_archive_and_the_result_names_the_set(archive, tmp_path):
    small = recipe(epochs=6, warmup_epochs=1, precision="float32")
    result = loop.train(small, archive, tmp_path / "run")
    losses = np.genfromtxt(tmp_path / "run" / "log.csv", delimiter=",", names=True)["test_loss"]
    assert losses[-1] < 0.8 * losses[0] and result["mean"] == 1.0  # two greys
    assert result["data"] == "tiny_imagenet"
    assert result["class_names"] == [dict(imagenet_classes())[name] for name in NAMES]
