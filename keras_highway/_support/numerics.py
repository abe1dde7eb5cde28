"""Sums and derivatives on the backend in use: which sums lose digits in 16 bits; gradients of an input."""

from collections.abc import Callable

import keras
from keras import ops

# By backend, dtypes in which the derivative of a broadcast adds up on CPU; nothing is known of others.
_LOSSY = {"tensorflow": ("float16",), "jax": ("bfloat16", "float16")}


def loses_sums(dtype) -> bool:
    """Whether the derivative of a broadcast adds up in this dtype, which loses most of a long sum of like terms.

    Args:
        dtype: A dtype or its name.
    """
    return keras.backend.standardize_dtype(dtype) in _LOSSY.get(keras.backend.backend(), ())


def input_gradient(function: Callable, x):
    """Returns the derivative of the sum of a function's values with respect to its input.

    Args:
        function: Function from a tensor to a tensor.
        x: Array or tensor, floating point.

    Returns:
        A tensor of the shape of `x`.

    Raises:
        ValueError: On other backends than TensorFlow and JAX.
    """
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = function(x)
        return tape.gradient(y, x)
    if backend == "jax":
        import jax

        return jax.jit(jax.grad(lambda x: ops.sum(function(x))))(ops.convert_to_tensor(x))
    raise ValueError(f"Gradients are taken on TensorFlow and JAX. Received: KERAS_BACKEND={backend}")
