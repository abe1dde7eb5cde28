"""Numbers on the backend in use: sums in 16 bits, ranks, gradients, the operands of `mix`, cross-entropy."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

# Dtypes in which a backend sums a derivative in 16 bits on CPU, so that long sums lose most of their terms:
# the derivative of a broadcast, and of `keras.ops.add(x, bias)` by the bias. No other backend is known to do so.
_LOSSY_BROADCAST = {"tensorflow": ("float16",), "jax": ("bfloat16", "float16")}
_LOSSY_BIAS = {"tensorflow": ("bfloat16",), "jax": ("bfloat16", "float16")}
_NEVER = 2**31 - 1  # a rank that is not below any k


def loses_sums(dtype) -> bool:
    """Whether the derivative of a broadcast is summed in this dtype, which loses most of a long sum of like terms."""
    return keras.backend.standardize_dtype(dtype) in _LOSSY_BROADCAST.get(keras.backend.backend(), ())


def loses_bias_sums(dtype) -> bool:
    """Whether the derivative of `keras.ops.add(x, bias)` by the bias is summed in this dtype, see `loses_sums`."""
    return keras.backend.standardize_dtype(dtype) in _LOSSY_BIAS.get(keras.backend.backend(), ())


def rank_of(labels, scores):
    """Return how many classes score higher than the labels; a label is in the top k if its rank is below k.

    Of equal scores the first class counts as the likelier, as an arg-max has
    it. A label is not among any number of classes where a score is NaN or its
    own is infinite: a softmax of such scores is NaN, too.
    """
    scores, labels = ops.convert_to_tensor(scores), ops.cast(labels, "int32")[..., None]
    own = ops.take_along_axis(scores, labels, axis=-1)
    before = ops.arange(scores.shape[-1], dtype="int32") < labels
    rank = ops.sum(ops.cast((scores > own) | ((scores == own) & before), "int32"), axis=-1)
    wrong = ops.any(ops.isnan(scores), axis=-1) | ~ops.isfinite(own[..., 0])
    return ops.where(wrong, _NEVER, rank)


def with_rows(x: Any, rows: int):
    """Return a tensor with a checked number of rows; TensorFlow checks it when the graph runs."""
    if x.shape[0] is not None or keras.backend.backend() != "tensorflow":
        return x  # elsewhere shapes are known before a step runs
    import tensorflow as tf

    return tf.ensure_shape(x, (rows, *x.shape[1:]))


def input_gradient(function: Callable, x):
    """Return the derivative of the sum of a function's values with respect to its input."""
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
    """Return a function with its own derivative, called in the same way on every backend."""
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


def operands(x, h, t, c, dtype) -> tuple[Any, Any, Any, Any]:
    """Return `mix`'s arguments ready for arithmetic: checked, in one dtype."""
    _check_shapes(x, h, t, c)
    if dtype is None:
        known = [getattr(v, "dtype", "float32") for v in (x, h, t, c) if not _is_number(v) and v is not None]
        dtype = keras.backend.result_type(*map(keras.backend.standardize_dtype, known), "float32")
    x, h = ops.cast(x, dtype), ops.cast(h, dtype)
    # NumPy's scalars are numbers to Python, but would promote the product to their own dtype.
    t, c = (float(gate) if _is_number(gate) else gate for gate in (t, c))
    if c is None and _is_number(t):
        c = 1.0 - t
    t, c = (gate if gate is None or _is_number(gate) else _spread(gate, x, dtype) for gate in (t, c))
    return x, h, t, c


def times(value, gate):
    """Return `value * gate`; for a constant gate 1 the value itself, for 0 the number 0 (so that `0 * inf` is 0)."""
    if _is_number(gate) and gate in (0, 1):
        return value if gate else 0
    return value * gate


def plus(a, b, like):
    """Return `a + b`, either of which may be the number 0, in the shape of `like`."""
    if _is_number(a):
        return ops.zeros_like(like) if _is_number(b) else b
    return a if _is_number(b) else a + b


def _is_number(value) -> bool:
    return isinstance(value, (int, float))


def _spread(gate, value, dtype):
    """Cast the gate to a dtype; broadcast it in float32 first if that dtype loses terms of long sums."""
    if loses_sums(dtype):
        gate = ops.cast(gate, "float32")
        if gate.shape != value.shape:  # a sum, since the shapes of symbolic tensors are not known
            gate = gate + ops.zeros_like(value, dtype="float32")
    return ops.cast(gate, dtype)


def _check_shapes(x, h, t, c) -> None:
    x_shape, h_shape = tuple(ops.shape(x)), tuple(ops.shape(h))
    if not _compatible(x_shape, h_shape, broadcast=False):
        raise ValueError(
            "mix(x, h, t, c) needs x and h of the same shape: a gated skip adds them element by element. "
            f"Received: x.shape={x_shape}, h.shape={h_shape}. To change the shape, use a plain layer "
            "(Dense, Conv2D) or a block with a projection."
        )
    for name, gate in (("t", t), ("c", c)):
        if gate is None or _is_number(gate):
            continue
        shape = tuple(ops.shape(gate))
        if not _compatible(shape, x_shape, broadcast=True):
            raise ValueError(
                f"mix(x, h, t, c) needs a gate {name} that broadcasts to x. "
                f"Received: {name}.shape={shape}, x.shape={x_shape}"
            )


def _compatible(shape, target, broadcast) -> bool:
    if len(shape) > len(target) or (not broadcast and len(shape) != len(target)):
        return False
    for a, b in zip(reversed(shape), reversed(target), strict=False):
        if not (isinstance(a, int) and isinstance(b, int)):  # unknown or symbolic until run time
            continue
        if a != b and not (broadcast and a == 1):
            return False
    return True


def cross_entropy(logits, targets):
    """Return the negative log-probability of each target under the softmax of its logits.

    For finite float32 logits, values and derivative equal Keras's
    `sparse_categorical_crossentropy(targets, logits, from_logits=True)` up to
    rounding. Keras's takes longer for many classes on TensorFlow's CPU (docs/speed.md).
    """
    targets = ops.cast(targets, "int32")
    pairs = zip(logits.shape[:-1], targets.shape, strict=False)
    if len(logits.shape) != len(targets.shape) + 1 or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(
            "`logits` must have the shape of `targets` and an axis of classes after it. "
            f"Received: logits of shape {tuple(logits.shape)}, targets of shape {tuple(targets.shape)}"
        )
    return _cross_entropy(logits, targets)


@with_gradient
def _cross_entropy(logits, targets):
    dtype, shape = logits.dtype, ops.shape(logits)
    flat, chosen = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1])), ops.reshape(targets, (-1, 1))
    # Differences to the largest logit before anything is added: sums with large logits would lose the loss's digits.
    shifted = flat - ops.max(flat, axis=-1, keepdims=True)
    exponentials = ops.exp(shifted)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    losses = ops.log(total) - ops.take_along_axis(shifted, chosen, axis=-1)

    def gradient(upstream):
        upstream = ops.reshape(upstream, (-1, 1))
        d_flat = exponentials * (upstream / total)
        of_targets = ops.take_along_axis(d_flat, chosen, axis=-1) - upstream
        rows = ops.arange(ops.shape(d_flat)[0], dtype="int32")[:, None]
        d_flat = ops.scatter_update(d_flat, ops.concatenate([rows, chosen], axis=1), of_targets[:, 0])
        return ops.reshape(ops.cast(d_flat, dtype), shape), None

    return ops.reshape(losses, ops.shape(targets)), gradient
