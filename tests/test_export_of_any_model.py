"""Exported: nets under a global policy, feature extractors, losses and classes of the user's, samples of any dtype."""

import sys

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway.export import export, fold_batch_norm, in_float32
from keras_highway.specs import override
from tests.test_lora import Scaled, X, squared_error

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="LiteRT files come from TensorFlow"),
]
SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = net()

    def call(self, x):
        return self.net(x)


def net(**changes):
    return kh.create_model("highway20", **{**SMALL, **changes})


def with_layers(*layers):
    """A body, layers of the user's, a head."""
    body = net(include_top=False)
    x = body.output
    for layer in layers:
        x = layer(x)
    return keras.Model(body.input, keras.layers.Dense(3, name="head")(keras.layers.GlobalAveragePooling2D()(x)))


@pytest.fixture(params=["mixed_float16", "mixed_bfloat16"])
def policy(request):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy(before)


def test_under_a_global_policy(policy, tmp_path):
    model = net()
    assert in_float32(model)(X).dtype == "float32"
    assert export(model, tmp_path / "x.tflite", "litert") < 1e-4


def test_a_net_of_float32_under_a_global_policy(tmp_path):
    model, before = net(), keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert export(model, tmp_path / "saved", "tf_saved_model") < 1e-4
    finally:
        keras.config.set_dtype_policy(before)


def test_a_loss_of_the_users(tmp_path):
    model = net(dtype="mixed_bfloat16")
    model.compile("adam", squared_error)
    assert export(model, tmp_path / "x.tflite", "litert") < 1e-4
    assert model.compiled


def test_a_users_layer_beside_updates(tmp_path):
    model = with_layers(Scaled(6, name="scale"))
    model.get_layer("scale").gamma.assign([1, 2, 3, 4, 5, 6])
    kh.enable_lora(model, 2)
    assert export(model, tmp_path / "x.tflite", "litert") < 1e-4


def test_features_of_one_stage(tmp_path):
    features = kh.features(net(), "stage3").model
    assert export(features, tmp_path / "x.tflite", "litert") < 1e-4
    assert export(features, tmp_path / "saved", "tf_saved_model") < 1e-4


def test_samples_of_another_dtype(tmp_path):
    samples = X.astype("float64")
    assert export(net(), tmp_path / "x.tflite", "litert", samples=samples) < 1e-4
    assert export(net(dtype="float64"), tmp_path / "y.tflite", "litert", samples=samples) < 1e-4


def test_a_subclassed_model_needs_samples(tmp_path):
    own = Own()
    own(X)
    with pytest.raises(ValueError, match="pass `samples`"):
        export(own, tmp_path / "x.tflite", "litert")
    assert export(own, tmp_path / "x.tflite", "litert", samples=X) < 1e-4


def test_a_spec_of_another_net_is_not_folded():
    spec = override(kh.get_spec("highway20"), **SMALL)
    model = net()
    np.testing.assert_allclose(to_numpy(fold_batch_norm(model, spec)(X)), to_numpy(model(X)), atol=1e-4)
    other = kh.reset_classifier(net(include_top=False), 3, pooling="max")
    with pytest.raises(ValueError, match="is not a network of this spec"):
        fold_batch_norm(other, spec)


class Two(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = net()

    def call(self, x):
        return self.net(x), self.net(x)


def test_a_subclassed_model_of_two_outputs_is_refused(tmp_path):
    two = Two()
    two(X)
    with pytest.raises(ValueError, match="returns 2 tensors"):
        export(two, tmp_path / "saved", "tf_saved_model", samples=X)
    with pytest.raises(ValueError, match="Only functional models are quantized"):
        export(two, tmp_path / "x.tflite", "litert", int8=X)


def test_a_wrong_merge_is_noticed(tmp_path, monkeypatch):
    model = net()
    kh.enable_lora(model, 2)

    def wrong(model):
        merged = kh.merge_lora(model)
        merged.get_layer("head").bias.assign([1, 2, 3])
        return merged

    monkeypatch.setattr(sys.modules[export.__module__], "without_updates", wrong)
    with pytest.raises(ValueError, match="differs from the Keras network"):
        export(model, tmp_path / "x.tflite", "litert")
    assert not (tmp_path / "x.tflite").exists()


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "float64"])
def test_nets_of_other_precisions_are_folded(dtype):
    folded = fold_batch_norm(net(dtype=dtype), override(kh.get_spec("highway20"), **SMALL))
    assert folded(X).dtype == ("float64" if dtype == "float64" else "float32")
