"""Networks with batch normalization folded into their convolutions, against the same with it, in inference."""

import keras
import numpy as np
import pytest
from comparison import compare
from litert import interpreted

import keras_highway as kh
from keras_highway.export import export, fold_batch_norm

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="exports come from TensorFlow")
SHAPE = (160, 160, 3)
BATCH = 4
NOISE = 1.03  # what is left of a model's ratio to itself on a busy machine


@pytest.fixture(scope="module", params=["resnet50", "highway50"])
def pair(request):
    """A net whose batch normalization does something, and the folded one."""
    model = kh.create_model(request.param, input_shape=SHAPE, classifier_activation=None)
    rng = np.random.default_rng(3)
    for weight in model.weights:
        if weight.name in ("moving_mean", "moving_variance", "gamma", "beta"):
            weight.assign(keras.ops.convert_to_numpy(weight) + rng.uniform(0.05, 0.2, weight.shape))
    return model, fold_batch_norm(model, kh.get_spec(request.param))


def keras_model(model, folder):
    return model.predict_on_batch


def tf_saved_model(model, folder):
    path = folder / model.name
    export(model, path, "tf_saved_model")
    layer = keras.layers.TFSMLayer(str(path), call_endpoint="serve")
    return lambda images: keras.ops.convert_to_numpy(layer(images))


def litert(model, folder):
    path = folder / f"{model.name}.tflite"
    export(model, path, "litert")
    return interpreted(path, (BATCH, *SHAPE))


@pytest.mark.filterwarnings("ignore::UserWarning")  # TensorFlow's: its interpreter will move to a package of its own
@pytest.mark.parametrize("form", [keras_model, tf_saved_model, litert], ids=lambda form: form.__name__)
def test_folding_makes_no_network_slower(benchmark, pair, form, tmp_path):
    model, folded = pair
    images = np.random.default_rng(0).random((BATCH, *SHAPE), "float32")
    reference, subject = (form(net, tmp_path) for net in (model, folded))
    expected = reference(images)
    np.testing.assert_allclose(subject(images), expected, rtol=0, atol=1e-4 * max(1.0, np.abs(expected).max()))
    name = f"{model.name} folded / with batch normalization, {form.__name__}"
    compare(benchmark, name, lambda: subject(images), lambda: reference(images)).check_at_most(NOISE)
