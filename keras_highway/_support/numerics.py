"""Numbers on the backend in use: which sums lose digits in 16 bits; ranks of labels; gradients of an input."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

# By backend, dtypes in which the derivative of a broadcast adds up on CPU; nothing is known of others.
_LOSSY = {"tensorflow": ("float16",), "jax": ("bfloat16", "float16")}
_NEVER = 2**31 - 1  # a rank that is not below any k


def loses_sums(dtype) -> bool:
    """Whether the derivative of a broadcast adds up in this dtype, which loses most of a long sum of like terms.

    Args:
        dtype: A dtype or its name.
    """
    return keras.backend.standardize_dtype(dtype) in _LOSSY.get(keras.backend.backend(), ())


def rank_of(labels, scores):
    """Returns how many classes score higher than the labels: a label is among the k likeliest where that is below k.

    Of equal scores the first class counts as the likelier, as an arg-max has
    it. A label is not among any number of classes where a score is NaN or its
    own is infinite: a softmax of such scores is NaN, too.

    Args:
        labels: Integers `(...)`, from 0 and below the number of classes.
        scores: Logits or probabilities `(..., classes)`.

    Returns:
        An int32 tensor `(...)`.
    """
    scores, labels = ops.convert_to_tensor(scores), ops.cast(labels, "int32")[..., None]
    own = ops.take_along_axis(scores, labels, axis=-1)
    before = ops.arange(scores.shape[-1], dtype="int32") < labels
    rank = ops.sum(ops.cast((scores > own) | ((scores == own) & before), "int32"), axis=-1)
    wrong = ops.any(ops.isnan(scores), axis=-1) | ~ops.isfinite(own[..., 0])
    return ops.where(wrong, _NEVER, rank)


def with_rows(x: Any, rows: int):
    """Returns a tensor whose number of rows is checked where it is known, on TensorFlow when the graph runs.

    Args:
        x: Tensor `(rows, ...)`.
        rows: Int, how many it must have.

    Raises:
        tensorflow.errors.InvalidArgumentError: On TensorFlow, if it has others.
    """
    if x.shape[0] is not None or keras.backend.backend() != "tensorflow":
        return x  # elsewhere shapes are known before a step runs
    import tensorflow as tf

    return tf.ensure_shape(x, (rows, *x.shape[1:]))


def input_gradient(function: Callable, x):
    """Returns the derivative of the sum of a function's values with respect to its input.

    Args:
        function: Function from a tensor to a tensor.
        x: Array or tensor, floating point.

    Returns:
        A tensor of the shape of `x`.

    Raises:
        ValueError: On other backends than TensorFlow, JAX and PyTorch.
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
    if backend == "torch":
        import torch  # pyright: ignore[reportMissingImports] (an extra)

        with torch.enable_grad():
            x = ops.convert_to_tensor(x).detach().requires_grad_()
            return torch.autograd.grad(ops.sum(function(x)), x)[0]
    raise ValueError(f"Gradients are taken on TensorFlow, JAX and PyTorch. Received: KERAS_BACKEND={backend}")


def with_gradient(function: Callable) -> Callable:
    """Returns a function that brings its own derivative, called in one way on every backend.

    `keras.ops.custom_gradient` calls the derivative in another way on each
    backend, and on PyTorch knows functions of one output only.

    Args:
        function: Function from tensors to its outputs and their derivative.
            The outputs are a tensor or a tuple of them. The derivative is a
            function from the derivatives by the outputs, one argument each, to
            those by the tensors: one, or a tuple.

    Returns:
        A function from tensors to the outputs.
    """
    if keras.backend.backend() == "torch":
        return _with_gradient_on_torch(function)

    @ops.custom_gradient
    def differentiable(*tensors):
        outputs, gradient = function(*tensors)

        def of_outputs(*upstream):
            # TensorFlow passes a derivative an argument, JAX a tuple of them in one.
            return gradient(*(upstream[0] if isinstance(upstream[0], (tuple, list)) else upstream))

        return outputs, of_outputs

    return differentiable


def _with_gradient_on_torch(function):
    import torch  # pyright: ignore[reportMissingImports] (an extra)

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *tensors):
            outputs, ctx.gradient = function(*tensors)
            return outputs

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, *upstream):
            return ctx.gradient(*upstream)

    return Differentiable.apply
