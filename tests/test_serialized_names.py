"""Classes that files name keep the names they are registered by, whatever they are called in code."""

import keras

from keras_highway.training.optimizers import CaffeSGD


def test_an_optimizer_saved_under_its_former_name_loads():
    saved = {
        "module": "keras_highway.training.optimizers",
        "class_name": "PaperSGD",
        "registered_name": "keras_highway_training>PaperSGD",
        "config": CaffeSGD(0.25, momentum=0.5, nesterov=False, l2=0.125).get_config(),
    }
    optimizer = keras.saving.deserialize_keras_object(saved)
    assert type(optimizer) is CaffeSGD
    assert (float(optimizer.learning_rate), optimizer.momentum, optimizer.nesterov, optimizer.l2) == (
        0.25,
        0.5,
        False,
        0.125,
    )


def test_it_is_saved_under_that_name():
    saved = keras.saving.serialize_keras_object(CaffeSGD())
    assert saved["registered_name"] == "keras_highway_training>PaperSGD"
    assert type(keras.saving.deserialize_keras_object(saved)) is CaffeSGD
