"""Batch normalization: Keras's results, and on TensorFlow one operation that gives them."""

import keras
import numpy as np
import pytest
from contracts import check_config, miniature, to_numpy
from keras import ops

from keras_highway._support import fused_ops as fused_batch_norm
from keras_highway.layers import blocks as branch
from keras_highway.layers.ungated import BatchNormalization
from keras_highway.models.builder import build
from keras_highway.variants import VARIANTS

Stock = keras.layers.BatchNormalization
IMAGES = (4, 5, 6, 3)
PRECISION = {"rtol": 1e-5, "atol": 1e-5}

tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's operation")


def make(kind, shape=IMAGES, axis=-1, **options):
    """A built layer with weights that differ from each other and from a layer's first."""
    layer = kind(**{"axis": axis, "momentum": 0.9, "epsilon": 1e-5, **options})
    layer.build((None, *shape[1:]))
    rng = np.random.default_rng(5)
    layer.set_weights([rng.uniform(0.5, 1.5, w.shape) for w in layer.get_weights()])
    return layer


def images(shape=IMAGES):
    return (2 * np.random.default_rng(0).standard_normal(shape) + 3).astype("float32")


def step(layer, x, calls=1, jit=False, loss_shape=None, **kwargs):
    """Outputs, gradients by x and the trainable weights, and all weights, after `calls` uses in training."""
    weights = np.random.default_rng(1).standard_normal(loss_shape or x.shape).astype("float32")
    weights = ops.convert_to_tensor(weights)

    def forward(x, variables):
        state = [v.value for v in layer.non_trainable_variables]
        loss = 0.0
        for i in range(calls):
            y, state = layer.stateless_call(variables, state, x + 3 * i, **{"training": True, **kwargs})
            y = ops.cast(y, "float32")
            loss += ops.sum(y * weights)
        return loss, (y, state)

    variables = [v.value for v in layer.trainable_variables]
    x = ops.cast(x, layer.compute_dtype)
    if keras.backend.backend() == "jax":
        import jax

        (_, (y, state)), (dx, dv) = jax.value_and_grad(forward, (0, 1), has_aux=True)(x, variables)
    elif keras.backend.backend() == "torch":
        y, state, dx, dv = _on_torch(forward, x, variables)
    else:
        y, state, dx, dv = _on_tensorflow(forward, x, variables, jit)
    return [to_numpy(v) for v in (y, dx, *dv, *state)]


def _on_torch(forward, x, variables):
    import torch

    x, *variables = (v.detach().clone().requires_grad_() for v in (x, *variables))
    loss, (y, state) = forward(x, variables)
    dx, *dv = torch.autograd.grad(loss, [x, *variables])
    return y.detach(), [v.detach() for v in state], dx, dv


def _on_tensorflow(forward, x, variables, jit):
    import tensorflow as tf

    def run(x, *variables):
        with tf.GradientTape() as tape:
            tape.watch([x, *variables])
            loss, (y, state) = forward(x, list(variables))
        dx, *dv = tape.gradient(loss, [x, *variables])
        return y, [tf.convert_to_tensor(v) for v in state], dx, dv

    return (tf.function(run, jit_compile=True) if jit else run)(x, *(tf.convert_to_tensor(v) for v in variables))


def assert_equal_steps(x, options=None, **kwargs):
    options = {"shape": x.shape, **(options or {})}
    actual, expected = (step(make(kind, **options), x, **kwargs) for kind in (BatchNormalization, Stock))
    for a, b in zip(actual, expected, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1, np.abs(b).max()))


OPTIONS = {
    "gamma and beta": {},
    "no gamma": {"scale": False},
    "no beta": {"center": False},
    "neither": {"scale": False, "center": False},
    "gamma 0": {"gamma_initializer": "zeros"},
    "axis 3": {"axis": 3},
    "frozen": {"trainable": False},
    "renorm": {"renorm": True, "renorm_clipping": {"rmax": 3.0, "rmin": 0.3, "dmax": 5.0}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_of_training_is_kerass(name):
    assert_equal_steps(images(), OPTIONS[name])


@pytest.mark.parametrize("shape", [(7, 3), (4, 6, 3), (2, 3, 4, 2, 3)])
def test_so_it_is_in_other_ranks(shape):
    assert_equal_steps(images(shape))


def test_so_it_is_with_the_channels_first():
    assert_equal_steps(images((4, 3, 5, 6)), {"axis": 1})


def test_so_it_is_in_inference_and_of_a_layer_used_twice():
    assert_equal_steps(images(), training=False)
    assert_equal_steps(images(), calls=2)


def test_so_it_is_with_a_mask():
    mask = ops.convert_to_tensor(np.random.default_rng(2).random(IMAGES[:-1]) < 0.5)
    assert_equal_steps(images(), mask=mask)


@tensorflow
def test_so_it_is_compiled_by_xla():
    assert_equal_steps(images(), jit=True)


def test_the_moving_variance_is_over_n():
    """Of 0, 1, 2, 5: mean 2, variance 14 / 4 (over n - 1, 14 / 3)."""
    layer = BatchNormalization(momentum=0.9)
    layer(np.array([0.0, 1, 2, 5], "float32").reshape(1, 2, 2, 1), training=True)
    np.testing.assert_allclose(to_numpy(layer.moving_mean), [0.1 * 2], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(layer.moving_variance), [0.9 + 0.1 * 3.5], rtol=1e-6)


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=tensorflow)])
def test_one_pixel_and_zero_variance(jit):
    for x in (images((1, 1, 1, 3)), np.full(IMAGES, 2.0, "float32")):
        layer = make(BatchNormalization)
        before = to_numpy(layer.moving_variance)
        beta = to_numpy(layer.beta)
        y, dx, *_, moving_mean, moving_variance = step(layer, x, jit=jit)
        # XLA's one over the root of epsilon, 316, times what rounding leaves of x - mean: 1e-4.
        np.testing.assert_allclose(y, np.broadcast_to(beta, y.shape), atol=3e-4)
        np.testing.assert_allclose(moving_variance, 0.9 * before, rtol=1e-6)
        np.testing.assert_allclose(moving_mean, 0.9 * to_numpy(layer.moving_mean) + 0.1 * x[0, 0, 0], rtol=1e-6)
        assert np.isfinite(dx).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("training", [True, False])
def test_16_bits_are_as_near_to_float32_as_kerass(policy, training):
    shape = (8, 16, 16, 3)
    x = to_numpy(ops.cast(images(shape), policy.removeprefix("mixed_")))  # the same input for all three
    exact = step(make(Stock, shape, dtype="float32"), x, training=training)
    actual, expected = (step(make(k, shape, dtype=policy), x, training=training) for k in (BatchNormalization, Stock))
    for a, b, e in zip(actual, expected, exact, strict=True):
        scale = np.abs(e).max()
        assert np.abs(a - e).max() <= 1.05 * np.abs(b - e).max() + 1e-6 * scale


@tensorflow
def test_gamma_and_beta_are_not_rounded_to_16_bits():
    layer = make(BatchNormalization, dtype="mixed_bfloat16")
    assert {keras.backend.standardize_dtype(v.dtype) for v in layer.variables} == {"float32"}
    layer.set_weights([np.full(3, v) for v in (1.0, 0.0, 0.0, 1 - 1e-5)])
    x = ops.cast(np.full(IMAGES, 2.0, "float32"), "bfloat16")
    assert keras.backend.standardize_dtype(layer(x).dtype) == "bfloat16"
    # 2 (1 + 2^-9) - 2 = 2^-8; a gamma rounded to bfloat16 is 1 and leaves 0.
    layer.gamma.assign([1 + 2**-9] * 3)
    layer.beta.assign([-2.0] * 3)
    np.testing.assert_allclose(to_numpy(layer(x)), 2**-8, rtol=1e-2)


# --- Where it fuses -----------------------------------------------------------


@tensorflow
def test_where_it_fuses(monkeypatch):
    import tensorflow as tf

    def fuses(shape=IMAGES, axis=-1, dtype="float32", synchronized=False):
        return fused_batch_norm.fuses_batch_norm(tf.zeros(shape, dtype), axis, synchronized)

    assert all(fuses(dtype=dtype) for dtype in ("float32", "bfloat16", "float16"))
    assert fuses(axis=3) and fuses(synchronized=True)
    assert not fuses(dtype="float64") and not fuses(shape=(4, 5, 3)) and not fuses(axis=2)
    assert fuses(axis=1) == bool(tf.config.list_logical_devices("GPU"))
    with tf.device("CPU"):
        assert not fuses(axis=1) and not fuses(axis=-3)
    monkeypatch.setattr(fused_batch_norm, "_replicas", lambda: 2)
    assert fuses() and not fuses(synchronized=True)


@tensorflow
def test_compiled_by_xla_it_is_exact_where_the_mean_is_large():
    """Why it is not fused there: XLA makes the variance of its operation from the mean of squares."""
    import tensorflow as tf

    x = images() + 1000
    layer = BatchNormalization(momentum=0.0)
    tf.function(lambda: layer(x, training=True), jit_compile=True)()
    np.testing.assert_allclose(to_numpy(layer.moving_variance), x.astype("float64").var((0, 1, 2)), rtol=1e-5)


# --- Where channels of zeros are added ----------------------------------------


@tensorflow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_branch_is_the_same_with_channels_of_zeros(policy, monkeypatch):
    """A branch of 14 and 6 channels is computed with 16; its outputs, gradients and statistics are Keras's."""
    x = images((4, 6, 6, 5))
    widths = []
    narrow = branch.narrow
    monkeypatch.setattr(branch, "narrow", lambda x, channels: widths.append(x.shape[-1]) or narrow(x, channels))

    def run(dtype):
        layer = branch.Branch((14, 6), (3, 3), (2, 1), final_bias=-1.0, activation="relu", dtype=dtype)
        layer.build(x.shape)
        rng = np.random.default_rng(3)
        layer.set_weights([rng.uniform(0.5, 1.5, w.shape) * rng.choice([-1, 1], w.shape) for w in layer.get_weights()])
        return step(layer, x, loss_shape=(4, 3, 3, 6))

    actual = run(policy)
    assert widths == [16]
    monkeypatch.setattr(BatchNormalization, "call", Stock.call)
    monkeypatch.setattr(branch.Branch, "_is_quicker_wide", lambda self, x: False)
    expected, exact = run(policy), run("float32")
    assert widths == [16]
    for a, b, e in zip(actual, expected, exact, strict=True):
        if policy == "float32":
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5 * max(1, np.abs(b).max()))
        else:
            norm = np.linalg.norm(e)
            assert np.linalg.norm(a - e) <= 1.1 * np.linalg.norm(b - e) + 1e-3 * norm


@tensorflow
def test_a_strided_branch_of_few_channels_trains_in_a_graph():
    """Padded images and a padded kernel in one graph end TensorFlow 2.21's process in a failed check."""
    import tensorflow as tf

    layer = branch.Branch((4,), (7,), (2,), activation="relu")
    layer.build((None, None, None, 3))
    variables = [v.value for v in layer.trainable_variables]

    @tf.function
    def gradients(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(x, training=True) ** 2)
        return tape.gradient(loss, variables)

    for size in (8, 12):
        actual = gradients(tf.constant(images((2, size, size, 3))))
        assert all(np.isfinite(g).all() and np.any(g) for g in actual)


def operations(function, *args) -> list[str]:
    import tensorflow as tf

    return [op.type for op in tf.function(function).get_concrete_function(*args).graph.get_operations()]


@tensorflow
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_every_normalization_of_a_training_step_is_fused(policy):
    model = build(miniature(VARIANTS["resnet50"]), dtype=policy)
    norms = [x for x in model._flatten_layers() if isinstance(x, Stock)]
    assert len(norms) == 1 + 3 * 3 + 2 and all(type(x) is BatchNormalization for x in norms)
    model.compile("sgd", "sparse_categorical_crossentropy")
    names = operations(model.train_step, (images((2, 32, 32, 3)), np.zeros(2, "int32")))
    assert names.count("FusedBatchNormV3") == names.count("FusedBatchNormGradV3") == len(norms)
    assert "SquaredDifference" not in names and names.count("Rsqrt") == 0  # what moments are made of


# --- The same layer to files --------------------------------------------------


def test_config_and_weights_are_kerass():
    options = {"momentum": 0.7, "center": False, "gamma_regularizer": "l2"}
    ours, theirs = (kind(**options, name="bn") for kind in (BatchNormalization, Stock))
    assert ours.get_config() == theirs.get_config()
    check_config(ours)
    for layer in (ours, theirs):
        layer.build(IMAGES)
    assert [w.path for w in ours.weights] == [w.path for w in theirs.weights]
    assert keras.saving.get_registered_name(BatchNormalization) == "keras_highway>BatchNormalization"


def test_weights_go_from_kerass_to_ours_and_back(tmp_path):
    def net(kind):
        return keras.Sequential([keras.Input(IMAGES[1:]), kind(name="bn"), keras.layers.Flatten()])

    x = images()
    for saver, loader in ((Stock, BatchNormalization), (BatchNormalization, Stock)):
        saved, loaded = net(saver), net(loader)
        saved(x, training=True)
        saved.save_weights(tmp_path / "bn.weights.h5")
        loaded.load_weights(tmp_path / "bn.weights.h5")
        np.testing.assert_allclose(to_numpy(loaded(x)), to_numpy(saved(x)), **PRECISION)
    saved = net(BatchNormalization)
    saved(x, training=True)
    saved.save(tmp_path / "bn.keras")
    again = keras.models.load_model(tmp_path / "bn.keras")
    assert again is not None and type(again.layers[0]) is BatchNormalization
    np.testing.assert_array_equal(to_numpy(again(x)), to_numpy(saved(x)))


@tensorflow
def test_export(tmp_path):
    import tensorflow as tf

    model = keras.Sequential([keras.Input(IMAGES[1:]), BatchNormalization()])
    model(images(), training=True)
    model.export(tmp_path, verbose=False)
    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_allclose(loaded.serve(images()), to_numpy(model(images())), **PRECISION)
