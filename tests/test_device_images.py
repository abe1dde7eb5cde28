"""Crops, mirroring and normalization on the device, against slices of padded NumPy images."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_highway.data import load_dataset
from keras_highway.data.transforms import MEAN_IMAGES, TRANSFORMS, mean_image, mean_image_of
from keras_highway.training.data.device_images import DeviceImages, resized_by_area
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.source import ArraySource
from keras_highway.training.recipes import RECIPES
from tests.miniatures import numpy

DRAW = np.random.default_rng(0)
IMAGES = DRAW.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8)
LABELS = np.array([3, 1, 4, 1, 5, 9])


def expected(transform, index, row, column, flip, pad=8):
    """Pads, slices, mirrors: no gathers."""
    image = IMAGES[index].astype(np.float64)
    if transform.contrast:
        image = (image - image.mean()) / image.std()
        if transform.mean_image:
            image = image - mean_image(transform.mean_image)
    padded = np.pad(image, ((pad, pad), (pad, pad), (0, 0)))
    crop = padded[pad + row : pad + row + 32, pad + column : pad + column + 32]
    crop = crop[:, ::-1] if flip else crop
    return crop if transform.contrast else (crop * transform.scale - transform.mean) / transform.std


@pytest.mark.parametrize("name", ["cifar10", "cifar100_contrast"])
def test_batches_are_slices_of_padded_images(name):
    transform = TRANSFORMS[name]
    samples = [(0, 0, 0, 0, 1), (5, -8, 8, 0, 1), (2, 3, -7, 1, 1), (2, 8, 8, 1, 0)]
    images, labels = DeviceImages(IMAGES, LABELS, transform)(keras.ops.convert_to_tensor(np.array(samples, np.int32)))
    np.testing.assert_array_equal(numpy(labels), [3, 9, 4, 4])
    for actual, (index, row, column, flip, _) in zip(numpy(images), samples, strict=True):
        np.testing.assert_allclose(actual, expected(transform, index, row, column, flip), atol=1e-5)


@pytest.mark.parametrize("name", ["cifar10", "cifar100_contrast"])
def test_uncropped_images_are_those_of_the_transform(name):
    samples = np.array([(i, 0, 0, 0, 1) for i in range(6)], np.int32)
    images, _ = DeviceImages(IMAGES, LABELS, TRANSFORMS[name])(keras.ops.convert_to_tensor(samples))
    np.testing.assert_allclose(numpy(images), TRANSFORMS[name].apply(IMAGES), atol=1e-6)


def source(**changes):
    recipe = dataclasses.replace(
        RECIPES["cifar10_19layer"], data="synthetic_cifar10", batch_size=32, train_images=None, **changes
    )
    return ArraySource(recipe, None)


def test_samples_are_a_function_of_seed_and_epoch():
    one = source()
    np.testing.assert_array_equal(one.samples(3), source().samples(3))
    assert not np.array_equal(one.samples(3), one.samples(4))
    assert not np.array_equal(one.samples(3), source(seed=2).samples(3))
    samples = np.concatenate([one.samples(epoch) for epoch in range(20)])
    assert sorted(one.samples(0)[:, 0]) == list(range(200))
    assert set(samples[:, 1]) == set(samples[:, 2]) == set(range(-8, 9))  # crops of 32 from 32 + 2 * 8
    assert 0.45 < samples[:, 3].mean() < 0.55 and set(samples[:, 4]) == {1}


def test_area_resizing_takes_the_mean_over_each_new_pixel():
    halves = IMAGES.reshape(6, 16, 2, 16, 2, 3).mean((2, 4))
    np.testing.assert_allclose(resized_by_area(IMAGES, (16, 16)), halves, atol=0.5)
    # 4 pixels to 3: a new pixel is an old one and a third of a neighbour, or two halves... of 4/3.
    ramp = np.array([0.0, 3.0, 6.0, 9.0], "float32")
    columns = resized_by_area(np.broadcast_to(ramp[None, :, None], (4, 4, 1)), (4, 3))
    np.testing.assert_allclose(columns[:, :, 0], np.tile([0.75, 4.5, 8.25], (4, 1)), rtol=1e-6)


def test_smaller_images_are_resized_before_their_contrast_is_normalized():
    data = source(train_sizes=((0.5, 16),), epochs=4, crop_padding=8).on_device()
    images, labels = data.smaller[16, 16](keras.ops.convert_to_tensor(np.array([[3, 0, 0, 0, 1]], np.int32)))
    pixels = resized_by_area(numpy(data.variables[0]).reshape(-1, 32, 32, 3)[3:4], (16, 16))
    normalized = (pixels - pixels.mean()) / pixels.std() - resized_by_area(mean_image("cifar10"), (16, 16))
    np.testing.assert_allclose(numpy(images), normalized, atol=1e-5)
    assert numpy(labels) == numpy(data.variables[1])[3]


def test_crops_are_smaller_where_images_are():
    one = source(train_sizes=((0.5, 16),), epochs=4, crop_padding=8)
    assert [np.abs(one.samples(epoch)[:, 1:3]).max() for epoch in range(4)] == [4, 4, 8, 8]


def test_alternating_flips_mirror_an_image_in_every_second_epoch():
    one = source(alternating_flip=True)
    flips = [dict(one.samples(epoch)[:, [0, 3]].tolist()) for epoch in range(3)]
    assert all(flips[0][i] != flips[1][i] == 1 - flips[2][i] for i in flips[0])
    assert 0.35 < np.mean(list(flips[0].values())) < 0.65


def test_shards_are_parts_of_the_same_batches_and_resume_in_the_middle():
    one = source()
    whole = [batch for (batch,) in one.batches(0, 0, Shard())]
    parts = [[batch for (batch,) in one.batches(0, 0, Shard(i, 2))] for i in range(2)]
    assert len(whole) == 200 // 32
    for batch, left, right in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(batch, np.concatenate([left, right]))
    later = [batch for (batch,) in one.batches(0, 4, Shard())]
    np.testing.assert_array_equal(later, whole[4:])


def test_test_batches_hold_every_test_image_once_by_weight():
    batches = np.concatenate([batch for (batch,) in source().test_batches(32, Shard())])
    assert len(batches) == 64
    assert sorted(batches[batches[:, 4] == 1, 0]) == list(range(200, 250))  # after the training images
    assert not batches[:, 1:4].any()


def test_the_mean_image_is_that_of_the_images():
    """Of 1,500 images, more than are summed at once, against NumPy on the whole."""
    images = DRAW.integers(0, 256, (1500, 4, 4, 3)).astype(np.uint8)
    x = images.astype(np.float64)
    x = (x - x.mean((1, 2, 3), keepdims=True)) / x.std((1, 2, 3), keepdims=True)
    np.testing.assert_allclose(mean_image_of(images), x.mean(0), atol=1e-6)


@pytest.mark.parametrize("data", MEAN_IMAGES)
def test_the_stored_mean_images_are_those_of_the_training_sets(data):
    try:
        images = load_dataset(data).x_train
    except (FileNotFoundError, ImportError) as error:
        pytest.skip(f"needs {data}: set KERAS_HIGHWAY_DATA ({error})")
    np.testing.assert_allclose(mean_image(data), mean_image_of(images), atol=2e-4)  # stored in float16


def test_held_out_images_are_the_last_of_the_training_set_and_tested_on():
    whole, one = source(), source(holdout_images=40)
    assert (one.images, one.test_images) == (160, 40)
    pixels = numpy(one.on_device().variables[0]).reshape(200, -1)
    np.testing.assert_array_equal(pixels, numpy(whole.on_device().variables[0]).reshape(250, -1)[:200])
    assert one.samples(0)[:, 0].max() < 160
