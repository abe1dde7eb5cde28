"""Trainable weights after `freeze`, `unfreeze` and `enable_lora`: the same on every backend, of any compiled model."""

import math

import keras
import numpy as np
import pytest
from keras import ops

import keras_highway as kh

X, Y = np.random.default_rng(0).random((4, 32, 32, 3), "float32"), np.array([0, 1, 2, 3])


def tiny(variant="highway20", **kwargs):
    options = {"blocks": (1, 1, 1), "widths": (4, 4, 8), "stem_width": 4, "classes": 4, "input_shape": (32, 32, 3)}
    return kh.create_model(variant, **{**options, **kwargs})


def size(weights):
    return sum(math.prod(weight.shape) for weight in weights)


def trained(model):
    """Names of the layers with trainable weights."""
    return {layer.name for layer in model.layers if layer.trainable_weights}


def own_loss(true, predicted):
    """Not a registered function: Keras cannot make it again from a name."""
    return ops.mean(keras.losses.sparse_categorical_crossentropy(true, predicted))


class OwnSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Not a registered class."""

    def __call__(self, step):
        return ops.cast(0.25, "float32")

    def get_config(self):
        return {}


def test_earlier_layers_stay_frozen():
    model = tiny()
    kh.freeze(model)
    kh.unfreeze(model, since="stage3")
    assert trained(model) == {"stage3_block1", "head"}


def test_unfreeze_reaches_what_is_frozen_inside_of_a_block():
    resnet = tiny("resnet20")
    kh.freeze(resnet)
    highway = kh.highway_from_resnet(resnet)  # gates and classifier learn, branches do not
    frozen = size(highway.trainable_weights)
    kh.unfreeze(highway)
    assert frozen < size(highway.trainable_weights) == size(kh.highway_from_resnet(tiny("resnet20")).trainable_weights)
    kh.freeze(highway)
    kh.unfreeze(highway, since="stage2")
    assert trained(highway) == {"stage2_block1", "stage3_block1", "head"}
    kernel = highway.get_layer("stage2_block1").transform.conv1.kernel
    assert any(weight is kernel for weight in highway.trainable_weights)


@pytest.mark.parametrize("change", [kh.freeze, kh.enable_lora], ids=["freeze", "enable_lora"])
def test_losses_metrics_and_schedules_of_ones_own(change):
    model = tiny()
    metric = keras.metrics.MeanMetricWrapper(lambda true, predicted: ops.mean(predicted), name="mine")
    model.compile(keras.optimizers.SGD(OwnSchedule(), momentum=0.5), own_loss, metrics=[metric], jit_compile=False)
    model.fit(X, Y, verbose=0)
    before = [np.array(ops.convert_to_numpy(weight)) for weight in model.get_layer("stem").weights]
    old = model.optimizer
    change(model)
    assert model.compiled and model.loss is own_loss and not model.jit_compile
    assert model.optimizer is not old and model.optimizer.momentum == 0.5
    assert float(model.optimizer.learning_rate) == 0.25
    history = model.fit(X, Y, verbose=0).history
    assert {"loss", "mine"} <= set(history)
    after = [ops.convert_to_numpy(weight) for weight in model.get_layer("stem").weights[: len(before)]]
    if change is kh.freeze:
        for old_value, value in zip(before, after, strict=True):
            np.testing.assert_array_equal(value, old_value)


def test_freezing_a_model_with_updates_trains_updates():
    model = tiny()
    everything = kh.enable_lora(model, 2)
    kh.freeze(model, "stage2_block1")
    later = [weight.path for weight in model.trainable_weights]
    assert 0 < size(model.trainable_weights) < everything
    assert {path.split("/")[0] for path in later} == {"stage3_block1", "head"}
    assert all("lora_kernel" in path or path.startswith("head/") for path in later)
