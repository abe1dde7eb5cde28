"""Training images of photographs: decoded where they are cropped, drawn by seed, augmented. timm's: test_rsb_oracle."""

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from keras_highway.training.data.augment import OPERATIONS, Augment, Context, RandAugment, argument, random_crop
from keras_highway.training.distributed.stopping import Stopped
from keras_highway.training.loop import Run, train
from keras_highway.training.recipe import parse_policy
from keras_highway.training.recipes import RECIPES, tiny
from tests.checkpoints import arrays

DRAW = np.random.default_rng(0)
PHOTO = np.asarray(
    Image.fromarray(DRAW.integers(0, 256, (12, 16, 3), np.uint8)).resize((96, 70), Image.Resampling.BICUBIC)
)
RSB = dataclasses.replace(
    tiny(RECIPES["highway50_a2"]),
    overrides=(("input_shape", (64, 64, 3)), ("blocks", (2,)), ("widths", (4,)), ("stem_width", 4),
               ("stochastic_depth", 0.5)),
    batch_size=8,
    train_images=52,
)  # fmt: skip


def encoded(image, form):
    file = io.BytesIO()
    Image.fromarray(image).save(file, form, **({"quality": 90, "subsampling": 0} if form == "JPEG" else {}))
    return file.getvalue()


def seeds(count):
    return [np.array([7, i], np.int64) for i in range(count)]


@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_a_crop_is_that_of_the_whole_decoded_image(form):
    """Decoded alone it is the part of the whole, which Pillow decodes."""
    data, augment = encoded(PHOTO, form), Augment((32, 24))
    whole = np.asarray(Image.open(io.BytesIO(data)))
    mirrored = 0
    for seed in seeds(12):
        top, left, height, width = random_crop(70, 96, np.random.default_rng((*seed.tolist(), 3)))
        crop = Image.fromarray(whole[top : top + height, left : left + width])
        expected = np.asarray(crop.resize((24, 32), Image.Resampling.BICUBIC)).astype(int)
        actual = augment(tf.constant(data), tf.constant(seed)).numpy()
        assert actual.shape == (32, 24, 3) and actual.dtype == np.uint8
        errors = [np.abs(actual - image).max() for image in (expected, expected[:, ::-1])]
        # JPEGs here have colours at full resolution: of others a crop lacks the neighbours outside of its edge.
        assert min(errors) == 0 < max(errors)
        mirrored += errors[1] < errors[0]
    assert 2 <= mirrored <= 10


def test_copies_of_an_image_are_those_made_one_by_one():
    data, augment = tf.constant(encoded(PHOTO, "JPEG")), Augment((32, 24), "m7-mstd0.5-inc1")
    actual = augment.copies(data, tf.constant(np.stack(seeds(3)))).numpy()
    np.testing.assert_array_equal(actual, [augment(data, tf.constant(seed)).numpy() for seed in seeds(3)])


def test_draws_of_rand_augment():
    augment, draw, n = RandAugment("m7-mstd0.5-inc1", interpolation="random"), np.random.default_rng(0), 6000
    lists = [augment.drawn(draw) for _ in range(n)]
    operations = [operation for drawn in lists for operation in drawn]
    assert [np.mean([len(d) == k for d in lists]) for k in (0, 1, 2)] == pytest.approx([0.25, 0.5, 0.25], abs=0.02)
    counts = np.array([sum(name == key for name, _, _ in operations) for key in OPERATIONS])
    assert np.abs(counts / (n / 15) - 1).max() < 4 / np.sqrt(n / 15)
    degrees = np.array([value for name, value, _ in operations if name == "Rotate"])
    assert 0.4 < (degrees < 0).mean() < 0.6
    assert np.abs(degrees).mean() == pytest.approx(21, abs=0.3) and np.abs(degrees).std() == pytest.approx(1.5, abs=0.2)
    assert 0.46 < np.mean([resample == Image.Resampling.BILINEAR for _, _, resample in operations]) < 0.54
    strong = RandAugment("m10-mstd5-inc1")
    magnitudes = [value / 0.3 * 10 for _ in range(500) for name, value, _ in strong.drawn(draw) if name == "ShearX"]
    assert np.abs(magnitudes).max() == pytest.approx(10) and {f for *_, f in strong.drawn(draw)} <= {
        Image.Resampling.BICUBIC
    }


def test_arguments_by_hand():
    at = [argument(name, 6.0, True) for name in ("Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "ShearY")]
    assert at == pytest.approx([-18, 2, 103, 66, -0.54, -0.18])
    assert argument("TranslateXRel", 10.0, False) == pytest.approx(0.45) and argument("Posterize", 10.0, False) == 0
    black = OPERATIONS["Posterize"].apply(Image.fromarray(PHOTO), 0, Context((0, 0, 0), Image.Resampling.BICUBIC))
    assert not np.asarray(black).any()  # Pillow's own refuses 0 bits


@pytest.mark.parametrize("policy", ["m7", "m11-mstd0.5-inc1"])
def test_policies_that_are_refused(policy):
    with pytest.raises(ValueError, match=f"`rand_augment` must be .*'{policy}'"):
        parse_policy(policy)
    with pytest.raises(ValueError, match="`interpolation` must be one of"):
        RandAugment("m7-mstd0.5-inc1", interpolation="nearest")


@pytest.mark.slow
def test_a_run_stopped_in_the_middle_of_an_epoch_ends_like_one_left_alone(tmp_path, monkeypatch):
    """LAMB's moments, the schedule, the order with its copies, crops, RandAugment, mixing, skipped blocks return."""
    train(RSB, None, tmp_path / "whole")
    save, saved = Run.save, []

    def save_and_stop(self, place):
        save(self, place)
        saved.append(place)
        if len(saved) == 9:  # after step 3 of the second epoch; its own save at the first one's end is one of them
            raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", save_and_stop)
        with pytest.raises(Stopped):
            train(RSB, None, tmp_path / "cut", save_steps=1)
    assert (saved[-1].epoch, saved[-1].step) == (1, 2)
    train(RSB, None, tmp_path / "cut")
    whole, cut = (arrays(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut"))
    assert list(whole) == list(cut) and any("momentum" in name for name in whole)
    for name, value in whole.items():
        np.testing.assert_array_equal(cut[name], value, err_msg=name)
