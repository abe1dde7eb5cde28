"""Preprocessing inside of the model: equal to the path outside of it, for any size, and it survives saving."""

import io
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.data import load_image
from keras_highway.data.transforms import CIFAR10_CONTRAST, IMAGENET, IMAGENET_64, Transform
from keras_highway.layers import Preprocessing

SIZES = ((90, 120), (47, 33), (64, 73), (10, 300), (1, 1))
LEVELS = Transform(size=(64, 64), channels=3, scale=1.0, crop=0.875)  # pixels as they are: no normalization


def picture(height, width, channels=3, seed=0):
    """A smooth picture with noise, uint8."""
    y, x, c = np.mgrid[0:height, 0:width, 0:channels]
    noise = np.random.default_rng(seed).integers(0, 60, (height, width, channels))
    return (98 + 97 * np.sin(0.11 * x * (c + 1) + 0.07 * y) + noise).astype(np.uint8)


def as_file(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(file, "png")
    file.seek(0)
    return file


def numpy(x) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(x))


SMALL = replace(IMAGENET_64, size=(32, 32))


def tiny(**kwargs):
    options = {"classes": 5, "blocks": (1, 1), "widths": (4, 4), "stem_width": 4, "include_preprocessing": SMALL}
    return kh.create_model("highway110", **{**options, **kwargs})


def body(model):
    """The network behind the layer `preprocessing`."""
    return keras.Model(model.get_layer("preprocessing").output, model.output)


@pytest.mark.parametrize("size", SIZES)
def test_resizing_is_pillows_but_for_ties(size):
    transform = replace(LEVELS, interpolation="bicubic")
    pixels = picture(*size)
    expected = load_image(as_file(pixels), transform)
    actual = numpy(Preprocessing(transform)(pixels[None]))[0]
    different = np.abs(actual - expected.astype(np.float32))
    assert float(different.max()) <= 1 and (different > 0).mean() < 0.02
    assert (different > 0).mean() < 5e-4


@pytest.mark.parametrize("transform", [IMAGENET, CIFAR10_CONTRAST])
def test_images_of_the_very_size_are_taken_as_they_are(transform):
    pixels = picture(*transform.size, transform.channels)[None]
    for x in (pixels, pixels.astype(np.float32) + np.float32(0.25) * (pixels < 255)):
        actual = numpy(Preprocessing(transform)(x))
        tolerance = 2e-6 if transform.contrast or keras.backend.backend() != "tensorflow" else 0
        np.testing.assert_allclose(actual, transform.apply(x), rtol=tolerance, atol=tolerance)


def test_an_open_size_in_a_graph_is_a_known_size():
    tf = pytest.importorskip("tensorflow")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("other backends compile for every size")
    layer = Preprocessing(LEVELS)
    compiled: Any = tf.function(layer, input_signature=[tf.TensorSpec((None, None, None, 3), tf.uint8)])
    for size in (*SIZES, (64, 64)):
        pixels = picture(*size)[None]
        different = np.abs(compiled(tf.constant(pixels)).numpy() - numpy(layer(pixels)))
        assert different.max() <= 1 and (different > 0).mean() < 5e-4
    floats = picture(64, 64)[None] + np.float32(0.3)
    compiled = tf.function(layer, input_signature=[tf.TensorSpec((None, None, None, 3), tf.float32)])
    np.testing.assert_array_equal(compiled(floats), floats)


def test_the_model_is_the_path_outside():
    model = tiny()
    assert model.input_shape == (None, None, None, 3) and model.output_shape == (None, 5)
    for size in ((32, 32), (90, 120)):
        pixels = picture(*size)
        inside = numpy(model(pixels[None].astype("float32")))
        tolerance = 1e-5 if size == (32, 32) else 1e-3  # a tie may be rounded the other way in another order of sums
        np.testing.assert_allclose(model.predict(pixels[None], verbose=0), inside, atol=tolerance)
        read = pixels if size == (32, 32) else load_image(as_file(pixels), SMALL)
        outside = numpy(body(model)(SMALL.apply(read[None])))
        np.testing.assert_allclose(inside, outside, atol=tolerance)


def test_trained_weights_bring_their_own_transform():
    name = "mnist10_w16.tvdn"
    model, plain = kh.load(name, include_preprocessing=True), kh.load(name)
    pixels = np.stack([load_image(f"samples/digit_{k}.png", kh.get_transform(name)) for k in (3, 7)])
    expected = numpy(plain(kh.preprocess_input(pixels, name)))
    np.testing.assert_allclose(numpy(model(pixels)), expected, atol=1e-5)
    large = np.asarray(Image.fromarray(pixels[0, ..., 0]).resize((100, 80)))[None, ..., None]
    assert numpy(model(large)).argmax() == 3


def test_it_survives_saving(tmp_path):
    model, pixels = tiny(), picture(90, 120)[None]
    model.save(tmp_path / "m.keras")
    loaded: Any = keras.saving.load_model(tmp_path / "m.keras")
    assert loaded.get_layer("preprocessing").transform == SMALL
    np.testing.assert_array_equal(numpy(loaded(pixels)), numpy(model(pixels)))


@pytest.mark.slow
def test_it_is_exported(tmp_path):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("exporting is TensorFlow's")
    pytest.importorskip("tf2onnx")
    from keras_highway.export import export

    model = tiny(input_shape=(90, 120, 3))
    pixels = np.stack([picture(90, 120, seed=k) for k in range(3)]).astype("float32")
    assert export(model, tmp_path / "m.onnx", "onnx", samples=pixels) < 1e-4


def test_weights_are_those_of_the_network_alone(tmp_path):
    model, plain = tiny(), tiny(include_preprocessing=False, input_shape=(32, 32, 3))
    assert [w.path for w in model.weights] == [w.path for w in plain.weights]
    model.save_weights(tmp_path / "m.weights.h5")
    plain.load_weights(tmp_path / "m.weights.h5")
    for actual, expected in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_array_equal(actual, expected)
