"""Copies of frozen networks are frozen: loaded from a file, cloned, with a block left out."""

from dataclasses import replace

import keras
import numpy as np
import pytest
from keras import layers

import keras_highway as kh
from keras_highway.models.char_lm import build_char_lm
from keras_highway.variants import LM_VARIANTS

SMALL = {"blocks": (2, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3, "input_shape": (32, 32, 3)}


def image_net(**options):
    return kh.create_model("highway20", **{**SMALL, **options})


def language_model():
    small = {"kernels": (1, 2), "filters": (3, 5), "characters": 9, "units": 4, "lstms": 1, "streams": 2}
    return build_char_lm(replace(LM_VARIANTS["charlm_small_coupled"], **small, classes=11, input_shape=(6,)))


def dense_net(**options):
    x = inputs = keras.Input((6,))
    for name in ("b1", "b2"):
        x = kh.layers.HighwayDense(name=name, **options)(x)
    return keras.Model(inputs, layers.Dense(3, name="head")(x))


NETS = {
    "conv": image_net,
    "low_rank": lambda: image_net(gate="low_rank", gate_rank=2),
    "bottleneck": lambda: kh.create_model(
        "highway50", blocks=(2, 1, 1, 1), widths=(4, 4, 4, 4), classes=3, input_shape=(32, 32, 3)
    ),
    "dense": dense_net,
    "dense_full_low_rank": lambda: dense_net(gating="full", gate="low_rank", gate_rank=2),
    "stack": lambda: kh.create_model("highway_fc1000", depth=4, units=5, input_shape=(4, 4, 1)),
}


def trained_by(model):
    return [v.path for v in model.trainable_weights]


def copies(model, tmp_path):
    model.save(tmp_path / "net.keras")
    yield keras.models.load_model(tmp_path / "net.keras")
    yield keras.models.clone_model(model)


@pytest.mark.parametrize("name", NETS)
def test_copies_of_a_frozen_net_train_what_it_trains(name, tmp_path):
    model = NETS[name]()
    everything = len(model.trainable_weights)
    kh.freeze(model)
    assert len(model.trainable_weights) == 2  # kernel and bias of the head
    for copy in copies(model, tmp_path):
        assert len(copy.weights) == len(model.weights) and len(copy.trainable_weights) == 2
        for layer in copy.layers:
            layer.trainable = True  # nothing is frozen for good
        assert len(copy.trainable_weights) == everything


def test_copies_of_a_frozen_language_model_train_nothing(tmp_path):
    model = language_model()
    model.trainable = False
    for copy in copies(model, tmp_path):
        assert not copy.trainable_weights and copy.weights


def test_a_net_without_a_block_is_as_frozen():
    model = image_net()
    kh.freeze(model)
    assert len(kh.analysis.without(model, ["stage1_block2"]).trainable_weights) == 2


@pytest.mark.slow
def test_training_a_copy_moves_nothing_that_is_frozen(tmp_path):
    """Neither weights nor moving averages: batch normalization asks its own layer."""
    model = image_net()
    kh.freeze(model)
    x = np.random.default_rng(0).random((8, 32, 32, 3), "float32")
    for copy in copies(model, tmp_path):
        before = {v.path: np.array(v) for v in copy.weights}
        copy.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
        copy.fit(x, np.arange(8) % 3, batch_size=4, verbose=0)
        moved = {v.path for v in copy.weights if not np.array_equal(before[v.path], np.array(v))}
        assert moved == set(trained_by(copy)) and len(moved) == 2


@pytest.mark.more
def test_a_compiled_frozen_net_keeps_its_optimizers_state(tmp_path, recwarn):
    model = image_net()
    kh.freeze(model)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(np.ones((4, 32, 32, 3), "float32"), np.zeros(4), verbose=0)
    model.save(tmp_path / "net.keras")
    loaded = keras.models.load_model(tmp_path / "net.keras")
    assert not [w for w in recwarn if "optimizer" in str(w.message)]
    for ours, theirs in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs))
