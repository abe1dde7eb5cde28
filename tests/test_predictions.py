"""preprocess_input and decode_predictions: pure, offline, bound to weights."""

import numpy as np
import pytest

import keras_highway as kh


def test_preprocess_input_values():
    pixels = np.full((1, 2, 2, 3), 255, np.uint8)
    expected = (1 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(kh.preprocess_input(pixels)[0, 0, 0], expected, rtol=1e-6)
    digits = np.full((1, 28, 28, 1), 128, np.uint8)
    assert kh.preprocess_input(digits, "mnist10_w16.tvdn").max() == 0.5  # Caffe's 1/256


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("name", ["imagenet", "cifar10"])
def test_preprocess_input_is_pure(dtype, name):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype(dtype)
    copy = pixels.copy()
    out = kh.preprocess_input(pixels, name)
    np.testing.assert_array_equal(pixels, copy)
    assert out.dtype == np.float32 and not np.shares_memory(out, pixels)


def test_preprocess_input_refuses_other_channels():
    with pytest.raises(ValueError, match=r"1 channel.*\(1, 28, 28, 3\)"):
        kh.preprocess_input(np.zeros((1, 28, 28, 3)), "mnist")
    with pytest.raises(ValueError, match="Unknown weights"):
        kh.preprocess_input(np.zeros((1, 28, 28, 3)), "imagnet")


def test_decode_predictions_of_imagenet():
    scores = np.zeros((2, 1000), np.float32)
    scores[0, 207], scores[0, 1], scores[1, 999] = 0.7, 0.2, 0.5
    best, second = kh.decode_predictions(scores, top=2)[0]
    assert best == ("n02099601", "golden_retriever", pytest.approx(0.7))
    assert second.name == "goldfish"
    assert kh.decode_predictions(scores, top=1)[1][0].id == "n15075141"


def test_decode_predictions_of_digits():
    scores = np.eye(10, dtype=np.float32)[[3]]
    assert kh.decode_predictions(scores, top=1, weights="mnist10_w32.tvdn") == [[("3", "3", 1.0)]]
    assert len(kh.decode_predictions(scores, top=50, weights="mnist")[0]) == 10


def test_decode_predictions_refuses_other_class_counts():
    with pytest.raises(ValueError, match=r"shape \(batch, 1000\).*\(1, 10\)"):
        kh.decode_predictions(np.zeros((1, 10)))
