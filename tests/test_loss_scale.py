"""Float16 needs scaled losses: Keras's `compile` adds them to nets that compute in it."""

import keras
import pytest

import keras_highway as kh

SMALL = {"blocks": (2, 1, 1), "widths": (4, 4, 8), "stem_width": 4, "classes": 3, "input_shape": (32, 32, 3)}
MAKE = {
    "reset": lambda net: kh.reset_classifier(net, 5),
    "rewired": lambda net: kh.analysis.rewire(net, {"stage1_block2": None}),
    "shorter": lambda net: kh.analysis.without(net, ["stage1_block2"]),
    "converted": kh.highway_from_resnet,
}


def scales(model):
    model.compile("sgd", "sparse_categorical_crossentropy")
    return isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def net(dtype):
    return kh.create_model("resnet20", dtype=dtype, **SMALL)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", None])
def test_nets_of_float16_alone(dtype):
    assert scales(net(dtype)) == (dtype == "mixed_float16")


@pytest.mark.parametrize("name", MAKE)
def test_nets_that_are_made_of_them(name):
    assert scales(MAKE[name](net("mixed_float16")))


def test_updates_and_a_choice_against_it():
    model = net("mixed_float16")
    kh.enable_lora(model, 2)
    assert scales(kh.merge_lora(model))
    model.compile("sgd", "sparse_categorical_crossentropy", auto_scale_loss=False)
    kh.freeze(model)
    assert isinstance(model.optimizer, keras.optimizers.SGD)


def test_language_models():
    assert scales(kh.create_model("charlm_small_coupled", classes=20, units=4, streams=2, dtype="mixed_float16"))
