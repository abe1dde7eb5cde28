"""Low-rank updates (LoRA): what learns, how many numbers, what is saved."""

import keras
import numpy as np
import pytest
from contracts import to_numpy
from miniatures import MINIATURES, batch, miniature

import keras_highway as kh
from keras_highway.export import export, fold_batch_norm, in_float32
from keras_highway.layers import ungated
from keras_highway.models.transfer import has_lora, without_updates
from keras_highway.specs import override
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


@pytest.mark.slow
def test_fit_moves_the_updates_alone():
    net = miniature("conv_net", **SIZES)
    net.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    kh.enable_lora(net, rank=2)
    before = {w.path: to_numpy(w) for w in net.weights}
    net.fit(batch(net, 4), np.arange(4), verbose=0)
    moved = {w.path for w in net.weights if np.any(to_numpy(w) != before[w.path])}
    assert {path for path in moved if "lora_kernel_b" in path}
    assert all("lora" in path or path.startswith("head/") for path in moved), moved


def test_what_is_refused():
    net = miniature("dense_stack")
    with pytest.raises(ValueError, match="positive integer"):
        kh.enable_lora(net, rank=0)
    kh.enable_lora(net)
    with pytest.raises(ValueError, match="merge_lora"):
        kh.enable_lora(net)
    with pytest.raises(ValueError, match="convolutions or dense layers"):
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


def test_guided_derivatives_of_a_model_with_updates():
    net, merged = updated(miniature("dense_stack", depth=4))
    x = batch(net, 2)
    actual, expected = (kh.analysis.guided_backprop(model, x, "stage1", 1) for model in (net, merged))
    np.testing.assert_allclose(actual.gradient, expected.gradient, atol=1e-6)
    np.testing.assert_allclose(
        actual.value[-1], to_numpy(kh.analysis.trace(net, x)["stage1_block3"].y)[:, 1], atol=1e-5
    )
    assert np.abs(actual.gradient).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="LiteRT files come from TensorFlow")
def test_an_exported_model_has_its_updates(dtype, tmp_path):
    net, merged = updated(miniature("dense_stack", depth=4, dtype=dtype))
    assert export(net, tmp_path / "net.tflite", "litert") < 1e-4  # beside the merged network, in float32
    copy = in_float32(without_updates(net))
    for a, b in zip(copy.weights, merged.weights, strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b))
    x = batch(net, 3)
    np.testing.assert_allclose(to_numpy(copy(x)), to_numpy(net(x)), atol=1e-5 if dtype == "float32" else 0.1)


@pytest.mark.more
def test_resnets_with_updates_are_converted_and_folded():
    changes = {"gating": "residual", "post_activation": True, **SIZES}
    net, _ = updated(miniature("conv_net", **changes))
    x = batch(net, 3)
    highway = kh.highway_from_resnet(net)
    assert not any("lora" in w.path for w in highway.weights)
    np.testing.assert_allclose(to_numpy(highway(x)), to_numpy(net(x)), rtol=1e-3, atol=1e-4)
    changes = {key: value for key, value in changes.items() if key not in ("input_shape", "min_size")}
    folded = fold_batch_norm(net, override(MINIATURES["conv_net"], min_size=8, **changes))
    np.testing.assert_allclose(to_numpy(folded(x)), to_numpy(net(x)), rtol=1e-3, atol=1e-4)


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


def moved_by_fit(model) -> set[str]:
    before = {w.path: to_numpy(w) for w in model.trainable_weights}
    model.fit(X, Y, epochs=2, verbose=0)
    return {w.path for w in model.trainable_weights if np.any(to_numpy(w) != before[w.path])}


def test_a_users_layer_keeps_its_weight_and_is_frozen():
    model = with_layers(Scaled(6, name="scale"))
    model.get_layer("scale").gamma.assign([1, 2, 3, 4, 5, 6])
    kh.enable_lora(model, 2)
    assert not [w.path for w in model.trainable_weights if "gamma" in w.path]
    merged = kh.merge_lora(model)
    np.testing.assert_array_equal(to_numpy(merged.get_layer("scale").gamma), [1, 2, 3, 4, 5, 6])
    np.testing.assert_allclose(to_numpy(merged(X)), to_numpy(model(X)), atol=1e-5)


@pytest.mark.more
def test_updates_learn_on_after_weights_were_loaded(tmp_path):
    model = small_net()
    kh.enable_lora(model, 2)
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    moved_by_fit(model)
    model.save_weights(tmp_path / "a.weights.h5")
    before = to_numpy(model(X))
    model.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_allclose(to_numpy(model(X)), before, atol=1e-5)
    moved = moved_by_fit(model)
    assert {"lora_kernel_a", "lora_kernel_b"} <= {path.split("/")[-1] for path in moved}


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: ungated.Dense(3), (2, 4)),
        (lambda: ungated.Conv1D(3, 2), (2, 5, 4)),
        (lambda: ungated.Conv2D(3, 2), (2, 5, 5, 4)),
    ],
)
def test_loading_keeps_one_factor_and_sets_the_other_to_zero(layer, shape):
    layer = layer()
    layer.build(shape)
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.ones(layer.lora_kernel_b.shape))
    kernel, factor, store = to_numpy(layer.kernel), to_numpy(layer.lora_kernel_a), {}
    layer.save_own_variables(store)
    layer.load_own_variables({key: to_numpy(value) for key, value in store.items()})
    np.testing.assert_allclose(to_numpy(layer.kernel), kernel, atol=1e-6)
    assert np.all(to_numpy(layer.lora_kernel_b) == 0) and np.all(factor != 0)
    np.testing.assert_array_equal(to_numpy(layer.lora_kernel_a), factor)


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


def test_a_nested_compiled_model_is_merged():
    inner = small_net(include_top=False)
    inner.compile("adam", squared_error)
    x = keras.Input((32, 32, 3))
    model = keras.Model(x, keras.layers.Dense(3, name="head")(keras.layers.GlobalAveragePooling2D()(inner(x))))
    kh.enable_lora(model, 2)
    np.testing.assert_allclose(to_numpy(kh.merge_lora(model)(X)), to_numpy(model(X)), atol=1e-5)
    assert inner.compiled


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
    with pytest.raises(ValueError, match="takes a functional model"):
        kh.merge_lora(own)
    model = kh.create_model("resnet20", **NET)
    kh.enable_lora(model, 2)
    with pytest.raises(ValueError, match=r"assign to kh\.merge_lora\(model\)"):
        assign_torch_state(model, {})


def test_a_model_of_several_outputs_gets_no_classifier():
    model = small_net()
    two = keras.Model(model.input, [model.layers[-3].output, model.output])
    with pytest.raises(ValueError, match="takes a model of one output"):
        kh.reset_classifier(two, 5)


def test_a_model_compiled_to_be_evaluated_is_frozen():
    model = small_net()
    model.compile(optimizer=None, loss="sparse_categorical_crossentropy")
    kh.freeze(model)
    assert [w.path for w in model.trainable_weights] == ["head/kernel", "head/bias"]
    assert np.isfinite(model.evaluate(X, Y, verbose=0))


@pytest.mark.more
@pytest.mark.filterwarnings("ignore:.* does not have a `quantize` method", "ignore:Layers of keras_highway")
def test_a_quantized_net_is_not_converted():
    model = kh.create_model("resnet20", post_activation=True, **NET)
    model.quantize("int8")
    with pytest.raises(ValueError, match="convert the model first and quantize then"):
        kh.highway_from_resnet(model)
