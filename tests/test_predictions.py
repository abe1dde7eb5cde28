"""preprocess_input and decode_predictions: pure, offline, bound to weights."""

import contextlib
import json

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.data.transforms import PixelRange
from keras_highway.export import _int8_options
from keras_highway.weights import files as weights_file


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


def test_analyses_and_calibration_warn_of_pixels_that_are_not_normalized(tmp_path):
    model = kh.load("mnist10_w16.tvdn")
    x, y = np.random.default_rng(0).integers(0, 256, (2, 28, 28, 1)).astype("float32"), np.zeros(2, int)
    normalized = kh.preprocess_input(x, model)
    for analysis in (
        lambda x: kh.analysis.trace(model, x),
        lambda x: kh.analysis.lesion_curve(model, (x, y), blocks=list(kh.analysis.blocks(model))[:1]),
        lambda x: kh.analysis.guided_backprop(model, x, next(iter(kh.analysis.blocks(model))), 0),
        lambda x: _int8_options(model, x),
    ):
        analysis(normalized)
        with pytest.warns(PixelRange, match="preprocess_input"):
            analysis(x)
    unscaled = kh.save(model, tmp_path / "net", transform=kh.data.Transform(size=(28, 28), channels=1, scale=1.0))
    kh.analysis.trace(kh.load(unscaled), x)
    whole = kh.load("mnist10_w16.tvdn", include_preprocessing=True)
    kh.analysis.trace(whole, x)
    with pytest.warns(PixelRange, match="multiply by 255"):
        kh.analysis.trace(whole, normalized)


def test_preprocess_input_refuses_other_channels():
    with pytest.raises(ValueError, match=r"1 channel.*\(1, 28, 28, 3\)"):
        kh.preprocess_input(np.zeros((1, 28, 28, 3)), "mnist")
    with pytest.raises(ValueError, match="Unknown weights"):
        kh.preprocess_input(np.zeros((1, 28, 28, 3)), "imagnet")


def as_tensors(pixels):
    """An array as tensors of every library at hand: Keras's backend's, and TensorFlow's whatever the backend."""
    yield keras.ops.convert_to_tensor(pixels)
    with contextlib.suppress(ImportError):
        import tensorflow as tf

        yield tf.constant(pixels)
    with contextlib.suppress(ImportError):
        import jax.numpy as jnp

        yield jnp.asarray(pixels)


@pytest.mark.parametrize("name", ["imagenet", "cifar10_contrast"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_tensors_of_any_library_stay_of_it(name, dtype):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(dtype)
    expected = kh.preprocess_input(pixels, name)
    for tensor in as_tensors(pixels):
        out = kh.preprocess_input(tensor, name)
        library = type(tensor).__module__.split(".")[0]
        assert type(out).__module__.split(".")[0] == library
        # NumPy sums in float64; XLA multiplies by the reciprocal of a constant.
        tolerance = 0 if name == "imagenet" and library == "tensorflow" else 2e-6
        np.testing.assert_allclose(np.asarray(out), expected, rtol=tolerance, atol=tolerance)


def test_inside_of_a_keras_model():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 4, 4, 3)).astype("float32")
    inputs = keras.Input((4, 4, 3))
    model = keras.Model(inputs, kh.preprocess_input(inputs))
    np.testing.assert_allclose(np.asarray(model(pixels)), kh.preprocess_input(pixels), rtol=1e-6, atol=1e-6)


def test_inside_of_tf_data():
    tf = pytest.importorskip("tensorflow")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), np.uint8)
    images = tf.data.Dataset.from_tensor_slices((pixels, np.arange(4))).batch(2)
    mapped = images.map(lambda x, y: (kh.preprocess_input(x), y))
    actual = np.concatenate([np.asarray(x) for x, _ in mapped])
    np.testing.assert_array_equal(actual, kh.preprocess_input(pixels))
    unknown = tf.data.Dataset.from_generator(lambda: iter(pixels), output_types=tf.uint8)
    assert unknown.element_spec.shape.rank is None
    np.testing.assert_array_equal(next(iter(unknown.map(kh.preprocess_input))), kh.preprocess_input(pixels[0]))


@pytest.mark.parametrize("name", ["imagenet", "cifar10_contrast"])
def test_channels_first(name):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    expected = kh.preprocess_input(pixels, name).transpose(0, 3, 1, 2)
    first = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
    for x in (first, *as_tensors(first)):
        out = kh.preprocess_input(x, name, data_format="channels_first")
        np.testing.assert_allclose(np.asarray(out), expected, rtol=2e-6, atol=2e-6)
    with pytest.raises(ValueError, match=r"3 channel.*\(\.\.\., 3, height, width\)"):
        kh.preprocess_input(pixels, name, data_format="channels_first")


@pytest.mark.parametrize("value", [True, "a"])
def test_preprocess_input_refuses_what_no_pixel_is(value):
    with pytest.raises(ValueError, match=r"whole or floating-point numbers.*Received: dtype"):
        kh.preprocess_input(np.full((1, 2, 2, 3), value))


@pytest.mark.parametrize("value", [np.nan])
def test_preprocess_input_refuses_what_is_not_finite(value):
    pixels = np.full((1, 2, 2, 3), 100.0, np.float32)
    pixels[0, 1, 1, 2] = value
    for x in (pixels, *as_tensors(pixels)):
        with pytest.raises(ValueError, match="finite"):
            kh.preprocess_input(x)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.linspace(0, 1, 12, dtype="float32"), "multiply by 255"),
        (np.linspace(-2, 2, 12, dtype="float32"), "normalized before"),
        (np.linspace(0, 65535, 12).astype("uint16"), "16 bits"),
    ],
)
def test_preprocess_input_warns_of_other_ranges(pixels, message):
    for x in (pixels.reshape(1, 2, 2, 3), *as_tensors(pixels.reshape(1, 2, 2, 3))):
        with pytest.warns(PixelRange, match=message):
            kh.preprocess_input(x)


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


def test_decode_predictions_by_names_of_ones_own():
    scores = np.array([[0.1, 0.7, 0.2]])
    expected = [[("1", "cat", pytest.approx(0.7)), ("2", "hamster", pytest.approx(0.2))]]
    names = ["dog", "cat", "hamster"]
    assert kh.decode_predictions(scores, top=2, classes=names) == expected
    assert kh.decode_predictions(scores, top=2, weights=names) == expected
    with pytest.raises(ValueError, match=r"of 2 classes have shape \(batch, 2\).*\(1, 3\)"):
        kh.decode_predictions(scores, classes=["dog", "cat"])
    for classes in ("cat", {*names}):
        with pytest.raises(ValueError, match="names of the classes"):
            kh.decode_predictions(scores, classes=classes)
    with pytest.raises(ValueError, match="not finite"):
        kh.decode_predictions(scores * np.nan, classes=names)
    for top in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            kh.decode_predictions(scores, top=top, classes=names)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """The folder of a run as training leaves it: weights that know their transform, and a result."""
    folder = tmp_path_factory.mktemp("run")
    weights_file.save(kh.create_model("mnist10_w16"), folder / "model.weights.h5", "mnist10_w16", 10, transform="mnist")
    result = {"data": "mnist", "recipe": "mnist10_w16", "metric": "accuracy", "mean": 0.5, "std": None, "n": 1}
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_weights_are_named_by_variant_folder_file_and_model(run_folder):
    file = run_folder / "model.weights.h5"
    loaded = kh.load(run_folder)
    for weights in (run_folder, str(run_folder), file, loaded):
        row = kh.describe_weights(weights)
        assert (row.variant, row.data, row.metrics["mean"], row.licence) == ("mnist10_w16", "mnist", 0.5, "")
    for weights in (run_folder, file, loaded, "mnist10_w16", "mnist10_w16.tvdn", kh.load("mnist10_w16.tvdn")):
        assert kh.get_transform(weights) == kh.get_transform("mnist")
        assert kh.decode_predictions(np.eye(10)[[3]], 1, weights) == [[("3", "3", 1.0)]]
    assert kh.describe_weights("mnist10_w16").name == "mnist10_w16.tvdn"
    assert kh.describe_weights(kh.load("mnist10_w16.tvdn")) == kh.describe_weights("mnist10_w16.tvdn")
    assert kh.get_transform("highway101") == kh.get_transform("imagenet")  # a variant without weights
    with pytest.raises(ValueError, match="No weights of variant 'highway101'"):
        kh.describe_weights("highway101")
    with pytest.raises(ValueError, match="was not loaded from weights"):
        kh.get_transform(kh.create_model("mnist10_w16"))
