"""Low-rank updates beside what users do: weights loaded again, losses and layers of their own; what is refused."""

import copy

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway.convert.torch_names import assign_torch_state
from keras_highway.layers import biased
from keras_highway.models.lora import has_lora

SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
X = np.random.default_rng(0).random((4, 32, 32, 3), "float32")
Y = np.array([0, 1, 2, 0])


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


def net(**changes):
    return kh.create_model("highway20", **{**SMALL, **changes})


def with_layers(*layers):
    """A body, layers of the user's, a head."""
    body = net(include_top=False)
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


def h5(model, folder):
    model.save(folder / "net.h5")
    return keras.models.load_model(folder / "net.h5")


def archived(model, folder):
    model.save(folder / "net.keras")
    return keras.models.load_model(folder / "net.keras")


def cloned(model, _):
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    return clone


def learning(model) -> dict[str, tuple[int, ...]]:
    """What learns, by its path; layers of Keras's own are named anew in copies, ours are not."""
    return {w.path: tuple(w.shape) for w in model.trainable_weights}


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"gate": "low_rank", "gate_rank": 2},
        {"gate": "tied"},
        pytest.param({"gate": "pointwise", "gating": "full"}, marks=pytest.mark.more),
        pytest.param({"batch_norm": False}, marks=pytest.mark.more),
    ],
)
@pytest.mark.parametrize("copied", [h5, archived, cloned, lambda model, _: copy.deepcopy(model)])
def test_copies_learn_by_the_same_updates(form, copied, tmp_path):
    """They trained whole kernels, and .h5 files could not be read: blocks did not name their updates."""
    model = net(**form)
    model.compile("sgd", squared_error)
    numbers = kh.enable_lora(model, 2)
    model.fit(X, Y, epochs=2, verbose=0)
    model.compile("sgd", keras.losses.MeanSquaredError())  # a function of one's own is not in files
    copy_ = copied(model, tmp_path)
    assert learning(copy_) == learning(model)
    assert sum(w.size for w in copy_.get_weights()) == sum(w.size for w in model.get_weights())
    assert sum(int(np.prod(shape)) for shape in learning(copy_).values()) == numbers
    np.testing.assert_allclose(to_numpy(copy_(X)), to_numpy(model(X)), atol=1e-5)
    copy_.compile("sgd", squared_error)
    assert {path for path in moved_by_fit(copy_) if path.endswith("lora_kernel_b")}
    np.testing.assert_allclose(to_numpy(kh.merge_lora(copy_)(X)), to_numpy(copy_(X)), atol=1e-5)


@pytest.mark.parametrize("variant", ["highway_fc10", "mnist10_w16"])
def test_copies_of_nets_of_other_layers_learn_by_the_same_updates(variant, tmp_path):
    """Their first layer is not a block; its bias, too, is frozen."""
    model = kh.create_model(variant, weights=None, gate="low_rank", gate_rank=2)
    numbers = kh.enable_lora(model, 2)
    for copied in (archived, cloned):
        assert learning(copied(model, tmp_path)) == learning(model)
    assert sum(int(np.prod(shape)) for shape in learning(model).values()) == numbers
    loaded = kh.load(str(tmp_path / "net.keras"))  # merged
    assert not has_lora(loaded) and len(loaded.trainable_weights) == len(kh.merge_lora(model).trainable_weights)


def test_updates_of_a_users_choice_are_copied():
    """One convolution, with a factor, whose bias learns on."""
    block = kh.layers.BasicBlock(4, batch_norm=False, name="block")
    block.build((None, 8, 8, 4))
    block.transform.conv2.enable_lora(2, lora_alpha=8)
    assert block.get_config()["lora_updates"] == {
        "transform/conv2": {"rank": 2, "alpha": 8.0, "kernel": False, "bias": True}
    }
    same = kh.layers.BasicBlock.from_config(block.get_config())
    assert same.get_config() == block.get_config()
    same.build((None, 8, 8, 4))
    assert same.transform.conv2.lora_alpha == 8 and same.get_config() == block.get_config()
    assert [w.path for w in same.trainable_weights] == [w.path for w in block.trainable_weights]


@pytest.mark.parametrize(
    "updates",
    [
        "transform",
        [],
        {"transform": 2},
        {"transform": {"rank": 2}},
        {"a": {"rank": 0, "alpha": 1, "kernel": False, "bias": True}},
        {"a": {"rank": 1, "alpha": 1, "kernel": 0, "bias": True}},
    ],
)
def test_updates_that_no_configuration_has(updates):
    with pytest.raises(ValueError, match="`lora_updates` must be a dict of sublayers"):
        kh.layers.BasicBlock(4, lora_updates=updates)


@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
@pytest.mark.parametrize("copied", [h5, archived, cloned])
@pytest.mark.parametrize("until", [None, "stage3"])
def test_copies_of_what_was_unfrozen_learn_all_of_it(copied, until, tmp_path):
    """Kernels then learn beside their updates, and biases."""
    model = net(batch_norm=False)
    kh.enable_lora(model, 2)
    kh.unfreeze(model, until)
    assert any(w.path.endswith("conv1/kernel") for w in model.trainable_weights)
    assert learning(copied(model, tmp_path)) == learning(model)


def test_a_layer_that_is_not_built_yet_keeps_what_learns():
    dense = biased.Dense(3)
    dense.build((None, 4))
    dense.enable_lora(2)
    dense.bias.trainable = False
    config = dense.get_config()
    again = biased.Dense.from_config(config)
    assert again.get_config() == config
    twice = biased.Dense.from_config(again.get_config())
    twice.build((None, 4))
    assert [w.name for w in twice.trainable_weights] == ["lora_kernel_a", "lora_kernel_b"]
    with pytest.raises(ValueError, match="`lora_learning_beside` says whether kernel and bias"):
        biased.Dense.from_config({**config, "lora_learning_beside": 3})


def test_numbers_of_numpy_in_a_configuration():
    updates = {"transform": {"rank": np.int64(2), "alpha": np.float32(2), "kernel": False, "bias": True}}
    config = kh.layers.HighwayDense(lora_updates=updates).get_config()["lora_updates"]
    assert config == {"transform": {"rank": 2, "alpha": 2.0, "kernel": False, "bias": True}}
    assert type(config["transform"]["rank"]) is int


@pytest.mark.parametrize("path", ["transform/conv3", "carry/conv1"])
def test_updates_of_parts_that_are_not_there(path):
    updates = {path: {"rank": 2, "alpha": 2, "kernel": False, "bias": False}}
    with pytest.raises(ValueError, match=r"has no part for updates. Received: '.*/conv"):
        kh.layers.BasicBlock(4, lora_updates=updates).build((None, 8, 8, 4))


@pytest.mark.more
def test_updates_learn_on_after_weights_were_loaded(tmp_path):
    model = net()
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
        (lambda: biased.Dense(3), (2, 4)),
        (lambda: biased.Conv1D(3, 2), (2, 5, 4)),
        (lambda: biased.Conv2D(3, 2), (2, 5, 5, 4)),
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
    model = net()
    kh.enable_lora(model, 2)
    model.compile("adam", squared_error)
    model.fit(X, Y, verbose=0)
    merged = kh.merge_lora(model)
    assert not merged.compiled and model.compiled and not has_lora(merged)
    np.testing.assert_allclose(to_numpy(merged(X)), to_numpy(model(X)), atol=1e-5)
    folder = kh.save(model, tmp_path / "net", ["a", "b", "c"], transform="cifar10")
    np.testing.assert_allclose(to_numpy(kh.load(folder)(X)), to_numpy(model(X)), atol=1e-5)
    assert len(kh.load(folder).trainable_weights) == len(net().trainable_weights)


def test_a_nested_compiled_model_is_merged():
    inner = net(include_top=False)
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
        self.net = net()

    def call(self, x):
        return self.net(x)


def test_what_is_refused_in_a_sentence():
    own = Own()
    own(X)
    with pytest.raises(ValueError, match="merge the functional model in it"):
        kh.merge_lora(own)
    model = kh.create_model("resnet20", **SMALL)
    kh.enable_lora(model, 2)
    with pytest.raises(ValueError, match=r"assign to kh\.merge_lora\(model\)"):
        assign_torch_state(model, {})


def test_a_model_of_several_outputs_gets_no_classifier():
    model = net()
    two = keras.Model(model.input, [model.layers[-3].output, model.output])
    with pytest.raises(ValueError, match="with 2 outputs"):
        kh.reset_classifier(two, 5)


def test_a_model_compiled_to_be_evaluated_is_frozen():
    model = net()
    model.compile(optimizer=None, loss="sparse_categorical_crossentropy")
    kh.freeze(model)
    assert [w.path for w in model.trainable_weights] == ["head/kernel", "head/bias"]
    assert np.isfinite(model.evaluate(X, Y, verbose=0))


@pytest.mark.more
@pytest.mark.filterwarnings("ignore:.* does not have a `quantize` method", "ignore:The convolutions and dense layers")
def test_a_quantized_net_is_not_converted():
    model = kh.create_model("resnet20", post_activation=True, **SMALL)
    model.quantize("int8")
    with pytest.raises(ValueError, match=r"convert the model first and quantize then.* in int8"):
        kh.highway_from_resnet(model)
