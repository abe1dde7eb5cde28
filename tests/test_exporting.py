"""Exported networks compute what the Keras networks do; batch normalization folds away."""

import keras
import numpy as np
import pytest
from miniatures import MINIATURES, batch, miniature, numpy

import keras_highway as kh
from keras_highway import applications
from keras_highway.cli import main
from keras_highway.exporting import FORMATS, export, fold_batch_norm
from keras_highway.specs import override
from keras_highway.weights import file as weights_file

NAME = "mnist10_w16.tvdn"
on_tensorflow = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="exports come from TensorFlow")


def moved(model):
    """The network with BN statistics that are not those of its start; an identity would prove nothing."""
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
        pytest.param("bottleneck", {}, marks=pytest.mark.slow),
        pytest.param("bottleneck", {"gate": "channel"}, marks=pytest.mark.slow),
        pytest.param("bottleneck", {"gate": "tied"}, marks=pytest.mark.slow),
        pytest.param("conv_net", {}, marks=pytest.mark.slow),
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
    with pytest.raises(ValueError, match="no batch normalization"):
        fold_batch_norm(model, kh.get_spec("mnist10_w16"))


@on_tensorflow
@pytest.mark.parametrize(("export_format", "file"), [("tf_saved_model", "net"), ("litert", "net.tflite")])
def test_exported_networks_are_the_keras_network(export_format, file, tmp_path, capsys):
    assert main(["export", NAME, "--format", export_format, "--out", str(tmp_path / file)]) == 0
    assert f"wrote {tmp_path / file}; on random images it differs" in capsys.readouterr().out
    assert (tmp_path / file).exists()
    assert main(["export", NAME, "--format", export_format, "--out", str(tmp_path / file)]) == 2  # it exists


@on_tensorflow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_onnx(tmp_path):
    for package in ("tf2onnx", "onnxruntime"):
        pytest.importorskip(package)
    model = moved(miniature("bottleneck", input_shape=(32, 32, 3)))
    assert export(model, tmp_path / "net.onnx", "onnx") < 1e-4


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
    """What was exported is what `encode` returns, of words that both know and of words never seen."""
    if export_format == "onnx":
        pytest.importorskip("tf2onnx")
    words.save(tmp_path / "lm")
    out = tmp_path / {"tf_saved_model": "net", "litert": "net.tflite", "onnx": "net.onnx"}[export_format]
    assert main(["export", str(tmp_path / "lm"), "--format", export_format, "--out", str(out)]) == 0
    assert "on words of its vocabulary and words never seen it differs" in capsys.readouterr().out
    asked = ["the", "mat", "tamtam", "<unk>", "x"]
    computed = FORMATS[export_format](out, words.vocabulary.spell(asked))
    np.testing.assert_allclose(computed, words.encode(asked), rtol=1e-4, atol=1e-5)
    assert np.ptp(computed, axis=0).max() > 0.1


def test_what_a_language_model_has_not_is_not_exported(words, tmp_path, capsys):
    words.save(tmp_path / "lm")
    for option, match in (("--logits", "neither logits"), ("--fold-batch-norm", "no batch normalization")):
        command = ["export", str(tmp_path / "lm"), "--format", "litert", "--out", str(tmp_path / "x.tflite"), option]
        assert main(command) == 2
        assert match in capsys.readouterr().err and not (tmp_path / "x.tflite").exists()


@pytest.mark.slow
@on_tensorflow
def test_an_image_net_exported_with_folded_batch_norm(tmp_path, monkeypatch, capsys):
    spec = override(kh.get_spec("highway50"), blocks=(1, 1), widths=(2, 3), input_shape=(32, 32, 3), classes=5)
    monkeypatch.setattr(applications, "VARIANTS", {**applications.VARIANTS, "highway50": spec})
    path = tmp_path / "model.weights.h5"
    weights_file.save(moved(kh.create_model("highway50")), path, "highway50", 5)
    out = tmp_path / "net.tflite"
    assert main(["export", str(path), "--format", "litert", "--out", str(out), "--fold-batch-norm"]) == 0
    assert out.is_file() and "differs from the Keras network by" in capsys.readouterr().out


@on_tensorflow
def test_an_export_that_computes_something_else_is_removed(tmp_path, monkeypatch):
    model = miniature("dense_stack")
    monkeypatch.setitem(export.__globals__["FORMATS"], "litert", lambda path, images: np.zeros((3, 10)))
    with pytest.raises(ValueError, match="differs from the Keras network"):
        export(model, tmp_path / "net.tflite", "litert")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shape", "export_format", "match"),
    [((28, 28, 1), "pickle", "must be one of"), ((None, None, 3), "litert", "fixed image size")],
)
def test_exports_that_cannot_be(shape, export_format, match, tmp_path):
    variant = "highway110" if shape[0] is None else "mnist10_w16"
    spec = {"blocks": (1, 1, 1)} if variant == "highway110" else {}
    with pytest.raises(ValueError, match=match):
        export(kh.create_model(variant, input_shape=shape, **spec), tmp_path / "x", export_format)


def test_the_suffix_must_be_the_formats(tmp_path, capsys):
    assert main(["export", NAME, "--format", "onnx", "--out", str(tmp_path / "net.tflite")]) == 2
    assert "must name a .onnx file" in capsys.readouterr().err
