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
    logits = np.asarray(logits, np.float64)
    p = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return -np.log(np.take_along_axis(p, targets[..., None], -1)[..., 0]), p - np.eye(logits.shape[-1])[targets]


def test_values_and_derivative():
    losses, derivative = by_definition(LOGITS, TARGETS)
    np.testing.assert_allclose(ops.convert_to_numpy(cross_entropy(LOGITS, TARGETS)), losses, rtol=1e-5)
    mine = input_gradient(lambda x: cross_entropy(x, TARGETS), LOGITS)
    np.testing.assert_allclose(ops.convert_to_numpy(mine), derivative, atol=1e-6)


def test_derivative_of_weighted_losses_is_that_of_keras():
    weights = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(4, 3)

    def keras_loss(x):
        return keras.losses.sparse_categorical_crossentropy(TARGETS, x, from_logits=True)

    mine, theirs = (
        ops.convert_to_numpy(input_gradient(lambda x, loss=loss: weights * loss(x), LOGITS))
        for loss in (lambda x: cross_entropy(x, TARGETS), keras_loss)
    )
    np.testing.assert_allclose(mine, theirs, atol=1e-6)


def test_large_logits():
    logits = np.array([[1e4, -1e4, 0.0], [-3e38, 3e38, 0.0]], np.float32)
    losses = ops.convert_to_numpy(cross_entropy(logits, np.array([0, 1])))
    np.testing.assert_array_equal(losses, [0.0, 0.0])


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
