"""Batch normalization: Keras's results, and on TensorFlow one operation that gives them."""

import keras
import numpy as np
import pytest
from contracts import check_config, to_numpy
from keras import ops

from keras_highway.layers import blocks as branch
from keras_highway.layers.ungated import BatchNormalization

Stock = keras.layers.BatchNormalization
IMAGES = (4, 5, 6, 3)
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


OPTIONS = {"gamma and beta": {}, "neither": {"scale": False, "center": False}, "frozen": {"trainable": False}}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_step_of_training_is_kerass(name):
    assert_equal_steps(images(), OPTIONS[name])


@pytest.mark.parametrize("shape", [(7, 3), (2, 3, 4, 2, 3)])
def test_so_it_is_in_other_ranks(shape):
    assert_equal_steps(images(shape))


def test_so_it_is_with_the_channels_first():
    assert_equal_steps(images((4, 3, 5, 6)), {"axis": 1})


def test_so_it_is_in_inference_and_of_a_layer_used_twice():
    assert_equal_steps(images(), training=False)
    assert_equal_steps(images(), calls=2)


@tensorflow
def test_so_it_is_compiled_by_xla():
    assert_equal_steps(images(), jit=True)


def test_the_moving_variance_is_over_n():
    """Of 0, 1, 2, 5: mean 2, variance 14 / 4 (over n - 1, 14 / 3)."""
    layer = BatchNormalization(momentum=0.9)
    layer(np.array([0.0, 1, 2, 5], "float32").reshape(1, 2, 2, 1), training=True)
    np.testing.assert_allclose(to_numpy(layer.moving_mean), [0.1 * 2], rtol=1e-6)
    np.testing.assert_allclose(to_numpy(layer.moving_variance), [0.9 + 0.1 * 3.5], rtol=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_16_bits_are_as_near_to_float32_as_kerass(training):
    shape = (8, 16, 16, 3)
    x = to_numpy(ops.cast(images(shape), "bfloat16"))  # the same input for all three
    exact = step(make(Stock, shape, dtype="float32"), x, training=training)
    actual, expected = (
        step(make(k, shape, dtype="mixed_bfloat16"), x, training=training) for k in (BatchNormalization, Stock)
    )
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


def test_config_and_weights_are_kerass():
    options = {"momentum": 0.7, "center": False, "gamma_regularizer": "l2"}
    ours, theirs = (kind(**options, name="bn") for kind in (BatchNormalization, Stock))
    assert ours.get_config() == theirs.get_config()
    check_config(ours)
    for layer in (ours, theirs):
        layer.build(IMAGES)
    assert [w.path for w in ours.weights] == [w.path for w in theirs.weights]
    assert keras.saving.get_registered_name(BatchNormalization) == "keras_highway>BatchNormalization"
