"""Derivatives with respect to an input, on the backend in use: Keras has no function of its own for them."""

from collections.abc import Callable

import keras
from keras import ops


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
