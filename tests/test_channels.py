"""Trained weights for images of other channels: the first convolution alone changes, as timm changes it."""

import numpy as np
import pytest
from miniatures import MINIATURES, miniature, numpy, replace_variants

import keras_highway as kh
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file

IMAGES = np.random.default_rng(0).normal(size=(2, 32, 32, 1)).astype("float32")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network of three channels, the name of its variant and its weight file."""
    name, patch, small = "small", pytest.MonkeyPatch(), {"blocks": (1, 1)}
    variants = {**VARIANTS, name: override(MINIATURES["conv_net"], name=name, **small)}
    replace_variants(patch, variants)
    model = miniature("conv_net", input_shape=(32, 32, 3), **small)
    path = tmp_path_factory.mktemp("weights") / "model.weights.h5"
    weights_file.save(model, path, name, model.output_shape[-1])
    yield model, name, path
    patch.undo()


def with_channels(trained, channels):
    _, name, path = trained
    return kh.create_model(name, weights=path, input_shape=(32, 32, channels), classifier_activation=None)


@pytest.mark.parametrize("channels", [1, 6])
def test_a_grey_image_gives_the_logits_of_its_three_equal_channels(trained, channels):
    expected = numpy(trained[0](np.repeat(IMAGES, 3, -1)))
    actual = numpy(with_channels(trained, channels)(np.repeat(IMAGES, channels, -1)))
    np.testing.assert_allclose(actual, expected, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
def test_the_kernels_are_timms(trained, channels):
    """timm's `adapt_input_conv`, by hand."""
    kernel = np.asarray(numpy(trained[0].get_layer("stem").weights[0]))
    red, green, blue = (kernel[:, :, [c]] for c in range(3))
    kernels = {
        1: [red + green + blue],
        2: [red * 1.5, green * 1.5],
        4: [0.75 * k for k in (red, green, blue, red)],
        6: [0.5 * k for k in (red, green, blue) * 2],
    }[channels]
    model = with_channels(trained, channels)
    np.testing.assert_allclose(
        numpy(model.get_layer("stem").weights[0]), np.concatenate(kernels, axis=2), rtol=1e-5, atol=1e-7
    )
    for actual, expected in zip(model.weights[1:], trained[0].weights[1:], strict=True):
        np.testing.assert_array_equal(numpy(actual), numpy(expected))


def test_a_net_of_grey_images_sees_colours():
    digits = np.random.default_rng(0).random((2, 28, 28, 1)).astype("float32")
    model = kh.load("mnist10_w16.tvdn", input_shape=(28, 28, 3))
    expected = numpy(kh.load("mnist10_w16.tvdn")(digits))
    np.testing.assert_allclose(numpy(model(np.repeat(digits, 3, -1))), expected, atol=1e-5)
