"""The operands of `mix`: checked, in one dtype, of one shape; and products with constant gates, which cost nothing."""

from typing import Any

import keras
from keras import ops

from keras_highway._support.numerics import loses_sums


def operands(x, h, t, c, dtype) -> tuple[Any, Any, Any, Any]:
    """Returns `mix`'s arguments ready for arithmetic.

    Args:
        x: As in `mix`.
        h: As in `mix`.
        t: As in `mix`.
        c: As in `mix`.
        dtype: As in `mix`. The default is at least float32, since `1 - t` and
            small updates vanish in bfloat16.

    Returns:
        `(x, h, t, c)` in the dtype; constant gates stay numbers, and `c` is
        `None` only where it is `1 - t` of a tensor `t`.

    Raises:
        ValueError: If the shapes of `x` and `h` differ, or `t` or `c` do not
            broadcast to them.
    """
    _check_shapes(x, h, t, c)
    if dtype is None:
        tensors = [v for v in (x, h, t, c) if not _is_number(v) and v is not None]
        dtype = keras.backend.result_type(*(_dtype(v) for v in tensors), "float32")
    x, h = ops.cast(x, dtype), ops.cast(h, dtype)
    # NumPy's scalars are numbers to Python, but would promote the product to their own dtype.
    t, c = (float(gate) if _is_number(gate) else gate for gate in (t, c))
    if c is None and _is_number(t):
        c = 1.0 - t
    t, c = (gate if gate is None or _is_number(gate) else _spread(gate, x, dtype) for gate in (t, c))
    return x, h, t, c


def times(value, gate):
    """Returns `value * gate`; of a constant gate 1 the value itself, of 0 the number 0 (so that `0 * inf` is 0)."""
    if _is_number(gate) and gate in (0, 1):
        return value if gate else 0
    return value * gate


def plus(a, b, like):
    """Returns `a + b`, of which each may be the number 0, in the shape of `like`."""
    if _is_number(a):
        return ops.zeros_like(like) if _is_number(b) else b
    return a if _is_number(b) else a + b


def _is_number(value) -> bool:
    return isinstance(value, (int, float))


def _dtype(value) -> str:
    return keras.backend.standardize_dtype(getattr(value, "dtype", "float32"))


def _spread(gate, value, dtype):
    """The gate in a dtype. Where the derivative of a broadcast loses sums, it is broadcast in float32 first."""
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
            f"Received: x.shape={x_shape}, h.shape={h_shape}. Where the shape has to change, use a plain "
            "layer (Dense, Conv2D) or project x first (a block with a projection does this)."
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
