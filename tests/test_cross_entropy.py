"""The softmax's cross-entropy of integer targets: equal to the definition and to Keras's, values and derivative."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_highway._support.numerics import cross_entropy, input_gradient

LOGITS = np.random.default_rng(0).normal(0.0, 3.0, (4, 3, 11)).astype(np.float32)
TARGETS = np.random.default_rng(1).integers(0, 11, (4, 3)).astype(np.int32)


def by_definition(logits, targets):
    """In float64: minus the log-probabilities, and the derivative of their sum."""
    shifted = np.asarray(logits, np.float64)
    shifted = shifted - shifted.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return -np.take_along_axis(log_p, targets[..., None], -1)[..., 0], np.exp(log_p) - np.eye(shifted.shape[-1])[
        targets
    ]


def test_values_and_derivative():
    losses, derivative = by_definition(LOGITS, TARGETS)
    np.testing.assert_allclose(ops.convert_to_numpy(cross_entropy(LOGITS, TARGETS)), losses, rtol=1e-5)
    mine = input_gradient(lambda x: cross_entropy(x, TARGETS), LOGITS)
    np.testing.assert_allclose(ops.convert_to_numpy(mine), derivative, atol=1e-6)


def test_derivative_of_weighted_losses_is_that_of_keras():
    weights = np.linspace(-1.0, 1.75, 12, dtype=np.float32).reshape(4, 3)

    assert 0 in weights

    def keras_loss(x):
        return keras.losses.sparse_categorical_crossentropy(TARGETS, x, from_logits=True)

    mine, theirs = (
        ops.convert_to_numpy(input_gradient(lambda x, loss=loss: ops.convert_to_tensor(weights) * loss(x), LOGITS))
        for loss in (lambda x: cross_entropy(x, TARGETS), keras_loss)
    )
    np.testing.assert_allclose(mine, theirs, atol=1e-6)


LARGE = np.array(
    [[1e4, 1e4, -1e4], [1e6, 1e6 - 1, 0.0], [1e8, 1e8, 1e8], [1e4, 0.0, -1e4], [-3e38, 3e38, 0.0], [0.0, -np.inf, 1.0]],
    np.float32,
)


def test_large_logits_lose_no_digits():
    """Sums with such logits would: log(2) + 1e8 - 1e8 is 0 in float32."""
    targets = np.array([0, 1, 2, 1, 1, 0])
    losses, derivative = by_definition(LARGE, targets)
    assert losses[:4] == pytest.approx([np.log(2), 1 + np.log1p(np.exp(-1)), np.log(3), 1e4])
    np.testing.assert_allclose(ops.convert_to_numpy(cross_entropy(LARGE, targets)), losses, rtol=1e-6)
    mine = input_gradient(lambda x: cross_entropy(x, targets), LARGE)
    np.testing.assert_allclose(ops.convert_to_numpy(mine), derivative, atol=1e-6)


@pytest.mark.parametrize("targets", [TARGETS.T, TARGETS[0], TARGETS[..., None], TARGETS[:1]])
def test_targets_of_another_shape_are_refused(targets):
    with pytest.raises(
        ValueError, match=r"an axis of classes after it.*logits of shape \(4, 3, 11\), targets of shape"
    ):
        cross_entropy(LOGITS, targets)


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_integers_of_any_dtype_are_targets(dtype):
    losses, _ = by_definition(LOGITS, TARGETS)
    np.testing.assert_allclose(ops.convert_to_numpy(cross_entropy(LOGITS, TARGETS.astype(dtype))), losses, rtol=1e-5)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="graphs of unknown shapes are TensorFlow's")
@pytest.mark.parametrize("jit_compile", [False, True])
def test_graph_of_unknown_shapes(jit_compile):
    import tensorflow as tf

    @tf.function(
        input_signature=[tf.TensorSpec((None, None, 11), tf.float32), tf.TensorSpec((None, None), tf.int32)],
        jit_compile=jit_compile,
    )
    def both(logits, targets):
        return cross_entropy(logits, targets), input_gradient(lambda x: cross_entropy(x, targets), logits)

    for mine, expected in zip(both(LOGITS, TARGETS), by_definition(LOGITS, TARGETS), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_logits_of_16_bits(dtype):
    """Computed in float32 from what the 16 bits hold; the derivative comes back in their dtype."""
    rounded = ops.cast(LOGITS, dtype)
    losses, derivative = by_definition(ops.convert_to_numpy(ops.cast(rounded, "float32")), TARGETS)
    value = cross_entropy(rounded, TARGETS)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    np.testing.assert_allclose(ops.convert_to_numpy(value), losses, rtol=1e-5)
    mine = input_gradient(lambda x: cross_entropy(x, TARGETS), rounded)
    assert keras.backend.standardize_dtype(mine.dtype) == dtype
    np.testing.assert_allclose(ops.convert_to_numpy(ops.cast(mine, "float32")), derivative, atol=4e-3)
