"""Exported networks compute what the Keras networks do; batch normalization folds away."""

import glob
import sys

import keras
import numpy as np
import pytest
from contracts import to_numpy
from miniatures import MINIATURES, batch, miniature, numpy

import keras_highway as kh
from keras_highway import export as exporting
from keras_highway.cli import main
from keras_highway.cli.images import read_images
from keras_highway.export import FORMATS, _labels, export, fold_batch_norm
from keras_highway.predictions import find_classifier
from keras_highway.specs import override
from tests.test_lora import X

NAME = "mnist10_w16.tvdn"
BACKEND = keras.config.backend()
on_tensorflow = pytest.mark.skipif(BACKEND != "tensorflow", reason="exports come from TensorFlow")


def moved(model):
    """The network with BN statistics away from their start; an identity would prove nothing."""
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if weight.name in ("moving_mean", "moving_variance", "gamma", "beta"):
            weight.assign(numpy(weight) + rng.uniform(0.1, 0.5, weight.shape))
    return model


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("bottleneck", {"gating": "full"}),
        ("conv_net", {"gate": "pointwise", "post_activation": True}),
        ("conv_net", {"projection": "A", "gating": "residual", "neck_width": 5}),
        pytest.param("bottleneck", {"gate": "tied"}, marks=pytest.mark.slow),
    ],
)
def test_folding_keeps_the_function(family, changes):
    model = moved(miniature(family, input_shape=(32, 32, 3), **changes))
    folded = fold_batch_norm(model, override(MINIATURES[family], **changes))
    x = batch(model, 4)
    np.testing.assert_allclose(numpy(folded(x)), numpy(model(x)), rtol=1e-4, atol=1e-4)
    assert not [x for x in folded._flatten_layers() if isinstance(x, keras.layers.BatchNormalization)]
    assert numpy(model(x)).std() > 1e-3


def test_nothing_to_fold():
    model = kh.load(NAME)
    with pytest.raises(ValueError, match="with batch normalization"):
        fold_batch_norm(model, kh.get_spec("mnist10_w16"))


@on_tensorflow
@pytest.mark.parametrize(
    ("export_format", "file"),
    [pytest.param("tf_saved_model", "net", marks=pytest.mark.slow), ("litert", "net.tflite")],
)
def test_exported_networks_are_the_keras_network(export_format, file, tmp_path, capsys):
    assert main(["export", NAME, "--format", export_format, "--out", str(tmp_path / file)]) == 0
    assert f"wrote {tmp_path / file}; on random images it differs" in capsys.readouterr().out
    assert (tmp_path / file).exists()
    assert main(["export", NAME, "--format", export_format, "--out", str(tmp_path / file)]) == 2  # it exists


def any_of(export_format):
    """The file's name, where the packages that write the format are here."""
    if export_format == "onnx":
        for package in ("onnxruntime", *{"tensorflow": ["tf2onnx"], "jax": ["jax2onnx"]}.get(BACKEND, [])):
            pytest.importorskip(package)
    elif BACKEND != "tensorflow":
        pytest.skip("written on TensorFlow only")
    return {"tf_saved_model": "net", "litert": "net.tflite", "onnx": "net.onnx"}[export_format]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "export_format", ["onnx", *(pytest.param(f, marks=pytest.mark.slow) for f in ("litert", "tf_saved_model"))]
)
@pytest.mark.more
def test_any_image_size_and_a_network_of_mixed_precision(export_format, tmp_path):
    """One file takes images of two sizes; what computed in bfloat16 is exported with the same weights in float32."""
    path = tmp_path / any_of(export_format)
    model = moved(
        miniature(
            "bottleneck", input_shape=(None, None, 3), dtype="mixed_bfloat16", skip_dtype="bfloat16", blocks=(1, 1)
        )
    )
    assert export(model, path, export_format) < 1e-4
    exact = moved(miniature("bottleneck", input_shape=(None, None, 3), blocks=(1, 1)))
    exact.set_weights(model.get_weights())
    for size in (33, 48):
        x = np.random.default_rng(size).random((2, size, size + 7, 3), "float32")
        np.testing.assert_allclose(FORMATS[export_format](path, x), numpy(exact(x)), rtol=1e-4, atol=1e-5)
    assert np.abs(numpy(model(x)) - numpy(exact(x))).max() > 1e-4  # in bfloat16 it was another function


def test_a_layer_that_stays_in_16_bits_is_refused(tmp_path):
    class Stays(keras.layers.Layer):
        def __init__(self, **kwargs):
            super().__init__(**{**kwargs, "dtype": "bfloat16"})

        def call(self, x):
            return x

    inputs = keras.Input((3,))
    model = keras.Model(inputs, Stays()(inputs))
    with pytest.raises(ValueError, match="dtype='float32'"):
        export(model, tmp_path / "x.onnx", "onnx")


@on_tensorflow
@pytest.mark.slow
def test_int8_keeps_the_digits_and_is_less_than_half_the_size(tmp_path, capsys, monkeypatch):
    """On the digits of samples/, and pieces of them: 30 images."""
    classifier = find_classifier(NAME)
    pixels, errors = read_images(sorted(glob.glob("samples/digit_*.png")), classifier, False)
    assert not errors
    images = np.concatenate(
        [np.roll(classifier.transform.apply(np.stack(list(pixels.values()))), s, (1, 2)) for s in (-1, 0, 1)]
    )
    model = kh.load(NAME)
    export(model, tmp_path / "exact.tflite", "litert")
    assert export(model, tmp_path / "net.tflite", "litert", int8=images) >= 0.9
    # 70 KB of 177 KB: of wider nets it is less, as scales and descriptions of layers weigh less there.
    assert (tmp_path / "net.tflite").stat().st_size < (tmp_path / "exact.tflite").stat().st_size / 2
    computed = FORMATS["litert"](tmp_path / "net.tflite", images)
    assert computed.dtype == np.float32 and np.abs(computed - numpy(model(images))).max() < 0.1
    monkeypatch.setattr(exporting, "_INT8_AGREEMENT", 1.1)
    with pytest.raises(ValueError, match="agrees with the Keras network on"):
        export(model, tmp_path / "other.tflite", "litert", int8=images)
    assert not (tmp_path / "other.tflite").exists()


@pytest.fixture(scope="module")
def words():
    """A language model of a few hundred parameters."""
    keras.utils.set_random_seed(1)
    vocabulary = kh.Vocabulary.of(["the", "cat", "sat", "on", "the", "mat"])
    small = {"kernels": (1, 2), "filters": (4, 5), "char_units": 3, "units": 4, "init_range": 0.7}
    return kh.CharLM(None, "charlm_small_coupled", vocabulary, **small)


@on_tensorflow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("export_format", [pytest.param("tf_saved_model", marks=pytest.mark.slow), "litert", "onnx"])
def test_the_part_of_a_language_model_that_makes_vectors_of_words(words, export_format, tmp_path, capsys):
    """The file gives the vectors of `encode`, for known words and for words never seen."""
    if export_format == "onnx":
        pytest.importorskip("tf2onnx")
    words.save(tmp_path / "lm")
    out = tmp_path / {"tf_saved_model": "net", "litert": "net.tflite", "onnx": "net.onnx"}[export_format]
    assert main(["export", str(tmp_path / "lm"), "--format", export_format, "--out", str(out)]) == 0
    assert "on words of its vocabulary and words never seen it differs" in capsys.readouterr().out
    inputs = ["the", "mat", "tamtam", "<unk>", "x"]
    computed = FORMATS[export_format](out, words.vocabulary.spell(inputs))
    np.testing.assert_allclose(computed, words.encode(inputs), rtol=1e-4, atol=1e-5)
    assert np.ptp(computed, axis=0).max() > 0.1


def test_what_a_language_model_has_not_is_not_exported(words, tmp_path, capsys):
    words.save(tmp_path / "lm")
    options = {"--logits": "`logits` and", "--fold-batch-norm": "with batch normalization", "--any-size": "any_size"}
    for option, match in options.items():
        command = ["export", str(tmp_path / "lm"), "--format", "litert", "--out", str(tmp_path / "x.tflite"), option]
        assert main(command) == 2
        assert match in capsys.readouterr().err and not (tmp_path / "x.tflite").exists()


@on_tensorflow
def test_an_export_that_computes_something_else_is_removed(tmp_path, monkeypatch):
    model = miniature("dense_stack")
    monkeypatch.setitem(export.__globals__["FORMATS"], "litert", lambda path, images: np.zeros((3, 10)))
    with pytest.raises(ValueError, match="differs from the Keras network"):
        export(model, tmp_path / "net.tflite", "litert")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("export_format", "options", "match"),
    [("pickle", {}, "must be one of"), ("onnx", {"int8": np.zeros((9, 28, 28, 1))}, "Only LiteRT files")],
)
def test_exports_that_cannot_be(export_format, options, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        export(miniature("dense_stack"), tmp_path / "x", export_format, **options)


@pytest.mark.skipif(keras.config.backend() != "jax", reason="on JAX Keras needs a package of its own")
def test_what_onnx_needs_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax2onnx", None)
    with pytest.raises(ImportError, match="on jax needs jax2onnx: pip install jax2onnx"):
        export(miniature("dense_stack"), tmp_path / "x.onnx", "onnx")


def test_what_lies_at_the_path_is_refused_before_the_work(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "note").write_text("keep")
    with pytest.raises(ValueError, match="is a folder: remove it"):
        export(model, tmp_path / "old", "onnx")
    assert [path.name for path in (tmp_path / "old").iterdir()] == ["note"]


SMALL = {"blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}


@on_tensorflow
@pytest.mark.parametrize("dtype", ["uint8", pytest.param("float64", marks=pytest.mark.slow)])
def test_networks_of_pixels_and_of_double_precision(dtype, tmp_path):
    """The file is compared on images as the network takes them, open in size."""
    if dtype == "uint8":
        pixels = keras.Input((None, None, 3), dtype="uint8")
        model = kh.create_model("highway20", include_preprocessing="cifar10", input_tensor=pixels, **SMALL)
        images = np.random.default_rng(1).integers(0, 256, (3, 40, 48, 3), np.uint8)
    else:
        model = kh.create_model("highway20", input_shape=(None, None, 3), dtype="float64", **SMALL)
        images = np.random.default_rng(1).standard_normal((3, 40, 48, 3)).astype("float32")
    export(moved(model), tmp_path / "net", "tf_saved_model")
    run = keras.layers.TFSMLayer(str(tmp_path / "net"), call_endpoint="serve")
    np.testing.assert_allclose(numpy(run(images)), numpy(model(images)), atol=1e-4)


def test_what_has_several_outputs_is_refused_before_anything_is_written(tmp_path):
    pyramid = kh.features(kh.create_model("highway20", input_shape=(32, 32, 3), **SMALL)).model
    export_format = "tf_saved_model" if BACKEND == "tensorflow" else "onnx"
    with pytest.raises(ValueError, match="one input and one output"):
        export(pyramid, tmp_path / "net", export_format)
    assert not list(tmp_path.iterdir())


TINY_NET = {
    "input_shape": (32, 32, 3),
    "blocks": (1, 1, 1),
    "widths": (4, 8, 8),
    "stem_width": 4,
    "classes": 3,
}


class OwnModel(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = net()

    def call(self, x):
        return self.net(x)


def net(**changes):
    return kh.create_model("highway20", **{**TINY_NET, **changes})


@on_tensorflow
@pytest.mark.more
def test_a_subclassed_model_needs_samples(tmp_path):
    own = OwnModel()
    own(X)
    with pytest.raises(ValueError, match="needs `samples`"):
        export(own, tmp_path / "x.tflite", "litert")
    assert export(own, tmp_path / "x.tflite", "litert", samples=X) < 1e-4


def test_a_spec_of_another_net_is_not_folded():
    spec = override(kh.get_spec("highway20"), **TINY_NET)
    model = net()
    np.testing.assert_allclose(to_numpy(fold_batch_norm(model, spec)(X)), to_numpy(model(X)), atol=1e-4)
    other = kh.reset_classifier(net(include_top=False), 3, pooling="max")
    with pytest.raises(ValueError, match="is no network of spec"):
        fold_batch_norm(other, spec)


@on_tensorflow
@pytest.mark.more
def test_a_net_with_a_net_inside_is_exported_in_float32(tmp_path):
    body, images = net(include_top=False, pooling="avg", dtype="mixed_bfloat16"), keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.Dense(3, dtype="mixed_bfloat16")(body(images)))
    assert export(model, tmp_path / "n", "tf_saved_model") < 1e-3


@pytest.mark.parametrize(
    ("activation", "outputs", "labels"),
    [
        (keras.activations.softmax, [[0.2, 0.8], [0.6, 0.4]], [[1], [0]]),
        (keras.activations.linear, [[-3.0], [0.2]], [[False], [True]]),
        (keras.activations.sigmoid, [[0.6, 0.7], [0.6, 0.2]], [[True, True], [True, False]]),
    ],
)
def test_labels_of_a_sigmoid_are_compared_one_by_one(activation, outputs, labels):
    assert _labels(np.array(outputs), activation).tolist() == labels
