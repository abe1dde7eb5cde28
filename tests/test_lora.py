"""Low-rank updates (LoRA): what learns, how many numbers, what is saved."""

import keras
import numpy as np
import pytest
from contracts import to_numpy
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway.models.transfer import has_lora
from keras_highway.weights.torch_names import assign_torch_state

# In whole lanes of channels, see tests/test_remat.py.
SIZES = {"blocks": (1, 1), "widths": (16, 32), "stem_width": 16, "input_shape": (8, 8, 3), "min_size": 8}
FAMILIES = {"conv_net": SIZES, "conv_stack": {}, "dense_stack": {}}
NET = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
X = np.random.default_rng(0).random((4, 32, 32, 3), "float32")
Y = np.array([0, 1, 2, 0])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_computes_what_it_did_then_learns_in_few_numbers(family):
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


def test_a_merged_model_is_fed_and_named_as_before():
    merged = kh.merge_lora(learned())
    assert kh.get_transform(merged) == kh.get_transform("mnist10_w16.tvdn")
    [[best]] = kh.decode_predictions(np.eye(10)[[7]], top=1, weights=merged)
    assert best.name == "7"
    with pytest.raises(ValueError, match="was not loaded"):
        kh.get_transform(kh.merge_lora(miniature("dense_stack")))


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


@pytest.mark.parametrize("variant", ["highway20", "mnist10_w16", "highway_fc10"])
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


@keras.saving.register_keras_serializable("tests")
class Scaled(keras.layers.Layer):
    """A layer with a layer in it and a weight of its own beside."""

    def __init__(self, filters, **kwargs):
        super().__init__(**kwargs)
        self.filters = filters
        self.conv = keras.layers.Conv2D(filters, 3, padding="same")

    def build(self, shape):
        self.conv.build(shape)
        self.gamma = self.add_weight(shape=(self.filters,), initializer="ones", name="gamma")

    def call(self, x):
        return self.conv(x) * self.gamma

    def compute_output_shape(self, shape):
        return (*shape[:-1], self.filters)

    def get_config(self):
        return {**super().get_config(), "filters": self.filters}


def squared_error(y, p):
    return keras.ops.mean((p - keras.ops.one_hot(keras.ops.cast(y, "int32"), 3)) ** 2)


def small_net(**changes):
    return kh.create_model("highway20", **{**NET, **changes})


def with_layers(*layers):
    """A body, layers of the user's, a head."""
    body = small_net(include_top=False)
    x = body.output
    for layer in layers:
        x = layer(x)
    return keras.Model(body.input, keras.layers.Dense(3, name="head")(keras.layers.GlobalAveragePooling2D()(x)))


@pytest.mark.more
def test_a_model_with_a_loss_of_the_users_is_merged_and_saved(tmp_path):
    model = small_net()
    kh.enable_lora(model, 2)
    model.compile("adam", squared_error)
    model.fit(X, Y, verbose=0)
    merged = kh.merge_lora(model)
    assert not merged.compiled and model.compiled and not has_lora(merged)
    np.testing.assert_allclose(to_numpy(merged(X)), to_numpy(model(X)), atol=1e-5)
    folder = kh.save(model, tmp_path / "net", ["a", "b", "c"], transform="cifar10")
    np.testing.assert_allclose(to_numpy(kh.load(folder)(X)), to_numpy(model(X)), atol=1e-5)
    assert len(kh.load(folder).trainable_weights) == len(small_net().trainable_weights)


def test_kernels_with_a_constraint_are_frozen():
    model = with_layers(keras.layers.Conv2D(4, 1, kernel_constraint="max_norm", name="held"))
    model.compile("adam", "mse")
    kh.enable_lora(model, 2)
    assert not model.get_layer("held").trainable_weights and has_lora(model)


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda: [keras.layers.Dense(3)],
        lambda: [keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])],
        lambda: [keras.layers.Dense(3), keras.layers.LayerNormalization()],
    ],
)
def test_wrapped_layers_are_merged_and_all_train(wrapped):
    x = y = keras.Input((5, 4))
    for layer in wrapped():
        y = keras.layers.TimeDistributed(layer)(y)
    model = keras.Model(x, y)
    before = len(model.trainable_weights)
    kh.enable_lora(model, 2)
    merged = kh.merge_lora(model)
    assert has_lora(model) and not has_lora(merged) and len(merged.trainable_weights) == before
    steps = np.random.default_rng(1).random((2, 5, 4), "float32")
    np.testing.assert_allclose(to_numpy(merged(steps)), to_numpy(model(steps)), atol=1e-6)


class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.net = small_net()

    def call(self, x):
        return self.net(x)


def test_models_that_cannot_be_merged_or_take_weights_of_pytorch_are_refused():
    own = Own()
    own(X)
    with pytest.raises(ValueError, match="must be functional"):
        kh.merge_lora(own)
    model = kh.create_model("resnet20", **NET)
    kh.enable_lora(model, 2)
    with pytest.raises(ValueError, match=r"assign to kh\.merge_lora\(model\)"):
        assign_torch_state(model, {})


def test_a_model_of_several_outputs_gets_no_classifier():
    model = small_net()
    two = keras.Model(model.input, [model.layers[-3].output, model.output])
    with pytest.raises(ValueError, match="must have one output"):
        kh.reset_classifier(two, 5)


def test_a_users_layer_keeps_its_weight_and_is_frozen():
    model = with_layers(Scaled(6, name="scale"))
    model.get_layer("scale").gamma.assign([1, 2, 3, 4, 5, 6])
    kh.enable_lora(model, 2)
    assert not [w.path for w in model.trainable_weights if "gamma" in w.path]
    merged = kh.merge_lora(model)
    np.testing.assert_array_equal(to_numpy(merged.get_layer("scale").gamma), [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(to_numpy(merged(X)), to_numpy(model(X)), atol=1e-5)
