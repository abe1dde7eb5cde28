"""Low-rank updates (LoRA): what learns, how many numbers, what is saved."""

import keras
import numpy as np
import pytest
from contracts import to_numpy
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway.models.transfer import has_lora

# In whole lanes of channels, see tests/test_remat.py.
SIZES = {"blocks": (1, 1), "widths": (16, 32), "stem_width": 16, "input_shape": (8, 8, 3), "min_size": 8}
FAMILIES = {"conv_net": SIZES, "conv_stack": {}, "dense_stack": {}}
NET = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
X = np.random.default_rng(0).random((4, 32, 32, 3), "float32")


@pytest.mark.parametrize("family", FAMILIES)
def test_lora_keeps_the_function_and_trains_few_numbers(family):
    net = miniature(family, **FAMILIES[family])
    x = batch(net)
    before = to_numpy(net(x, training=False))
    count = kh.enable_lora(net, rank=2)
    np.testing.assert_allclose(to_numpy(net(x, training=False)), before, atol=1e-5)
    names = {weight.path.split("/")[-1] for weight in net.trainable_weights}
    assert names == {"lora_kernel_a", "lora_kernel_b", "kernel", "bias"}  # the last two of the head alone
    assert [w.path for w in net.trainable_weights if "lora" not in w.path] == ["head/kernel", "head/bias"]
    assert count == sum(int(np.prod(w.shape)) for w in net.trainable_weights)


def test_the_number_of_parameters_by_hand():
    """9 inputs of a 3x3 kernel per channel: rank · (9 · in + out) per convolution, T and H of each block."""
    net = miniature("conv_net", **SIZES)
    stem = 2 * (9 * 3 + 16)
    first = 2 * 2 * 2 * (9 * 16 + 16)  # two paths of two convolutions
    second = 2 * 2 * ((9 * 16 + 32) + (9 * 32 + 32)) + 2 * (16 + 32)  # and the projection, 1x1
    assert kh.enable_lora(net, rank=2) == stem + first + second + (32 * 10 + 10)


def learned():
    net = kh.create_model("mnist10_w16", weights="mnist")
    kh.enable_lora(net, rank=2)
    rng = np.random.default_rng(0)
    for weight in net.trainable_weights:
        weight.assign(to_numpy(weight) + rng.normal(0, 0.05, weight.shape))
    return net


def test_saving_merges(tmp_path):
    """`kh.save`, `save_weights` and `kh.merge_lora` put the updates into the kernels; the model keeps its own."""
    net = learned()
    x = batch(net, 3)
    expected = to_numpy(net(x))
    assert np.abs(expected - to_numpy(kh.load("mnist10_w16.tvdn")(x))).max() > 1e-3
    kh.save(net, tmp_path / "own")
    again = kh.load(tmp_path / "own")
    assert [w.path for w in again.weights] == [w.path for w in kh.create_model("mnist10_w16").weights]
    np.testing.assert_allclose(to_numpy(again(x)), expected, atol=1e-5)
    np.testing.assert_allclose(to_numpy(kh.merge_lora(net)(x)), expected, atol=1e-5)
    assert any("lora" in w.path for w in net.weights)
    net.save_weights(tmp_path / "keras.weights.h5")
    plain = kh.create_model("mnist10_w16")
    plain.load_weights(tmp_path / "keras.weights.h5")
    np.testing.assert_allclose(to_numpy(plain(x)), expected, atol=1e-5)


def test_what_is_refused():
    net = miniature("dense_stack")
    with pytest.raises(ValueError, match="positive integer"):
        kh.enable_lora(net, rank=0)
    kh.enable_lora(net)
    with pytest.raises(ValueError, match="merge_lora"):
        kh.enable_lora(net)
    with pytest.raises(ValueError, match="no convolution or dense layer"):
        kh.enable_lora(keras.Sequential([keras.Input((4,)), keras.layers.BatchNormalization()]))


def updated(net):
    """A net with low-rank updates that are not zero, and that net merged."""
    kh.enable_lora(net, rank=2)
    rng = np.random.default_rng(0)
    for weight in net.trainable_weights:
        weight.assign(to_numpy(weight) + rng.normal(0, 0.05, weight.shape))
    return net, kh.merge_lora(net)


def test_blocks_are_left_out_of_a_model_with_updates():
    net, merged = updated(miniature("dense_stack", depth=4))
    x = batch(net, 6)
    short = kh.analysis.without(net, ["stage1_block2"])
    assert not any("lora" in w.path for w in short.weights) and any("lora" in w.path for w in net.weights)
    np.testing.assert_allclose(to_numpy(short(x)), to_numpy(kh.analysis.without(merged, ["stage1_block2"])(x)))
    wired = kh.analysis.rewire(net, {"stage1_block2": None})
    np.testing.assert_allclose(to_numpy(short(x)), to_numpy(wired(x)), atol=1e-5)
    assert np.abs(to_numpy(short(x)) - to_numpy(net(x))).max() > 1e-3
    trimmed = kh.analysis.trim(net, (x, np.arange(6)), 1.0)
    assert trimmed.curve.parameters[0] == merged.count_params()
    assert trimmed.curve.parameters[-1] == trimmed.model.count_params()


def test_updates_inside_a_nested_model_are_merged():
    net = miniature("conv_net", **SIZES)
    inputs = keras.Input(net.input_shape[1:])
    outer = keras.Model(inputs, keras.layers.Dense(3, name="head")(net(keras.layers.Rescaling(0.5)(inputs))))
    kh.enable_lora(outer, rank=2)
    kernel = next(weight for weight in outer.trainable_weights if weight.path.endswith("lora_kernel_b"))
    kernel.assign(keras.ops.ones(kernel.shape))
    merged = kh.merge_lora(outer)
    assert not has_lora(merged) and len(merged.trainable_weights) > len(outer.trainable_weights)
    x = batch(net)
    np.testing.assert_allclose(to_numpy(merged(x)), to_numpy(outer(x)), atol=1e-5)


@pytest.mark.parametrize("variant", ["highway20", "mnist10_w16"])
def test_a_saved_model_comes_back_merged(variant, tmp_path):
    model = small_net() if variant == "highway20" else kh.create_model(variant)
    plain = [(w.path, w.shape) for w in model.trainable_weights]
    updated(model)
    model.save(tmp_path / "net.keras")
    x = batch(model, 2)
    again = kh.load(tmp_path / "net.keras")
    assert [(w.path, w.shape) for w in again.trainable_weights] == plain
    for loaded in (again, keras.saving.load_model(tmp_path / "net.keras")):
        np.testing.assert_allclose(to_numpy(loaded(x)), to_numpy(model(x)), atol=1e-5)


def small_net(**changes):
    return kh.create_model("highway20", **{**NET, **changes})
