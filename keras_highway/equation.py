"""The one equation: `y = H(x)·T(x) + x·C(x)`. It is written here and nowhere else.

A layer, a block or a network differs from another only in how it makes `h`,
`t` and `c`; `gating.py` has the table of which gates there are.

Source: [TVDN] Srivastava, Greff, Schmidhuber, "Training Very Deep Networks",
NIPS 2015, Eqs. 1-3.
"""

from typing import Any

from keras_highway._support.numerics import operands, plus, times


def mix(x: Any, h: Any, t: Any = 1.0, c: Any = None, dtype: Any = None) -> Any:
    """Mixes a transform with its input: `y = h·t + x·c` [TVDN, Eq. 2].

    With `c=None` the gates are coupled, `c = 1 - t` [TVDN, Eq. 3], computed as
    `x + t·(h − x)`: one multiplication, and a nearly closed gate (`t` near 0)
    returns `x` itself instead of `x·(1 − t)` rounded. The arithmetic runs in
    at least float32, since `1 - t` and small updates vanish in bfloat16.

    Gradients (coupled) [TVDN, App. A]: `dh = t·dy`, `dt = (h − x)·dy`, and `x`
    receives `(1 − t)·dy`.

    Args:
        x: Tensor, the (projected) input.
        h: Tensor of the same shape, the transform.
        t: The transform gate: a tensor that broadcasts to `x`'s shape or a
            Python number. Defaults to `1.0`.
        c: The carry gate: a tensor that broadcasts to `x`'s shape, a Python
            number, or `None` for `1 - t`. Defaults to `None`.
        dtype: The dtype of the arithmetic and of the result. Defaults to
            `None`: the widest of the arguments' dtypes and float32.

    Returns:
        A tensor of `x`'s shape.

    Raises:
        ValueError: If the shapes of `x` and `h` differ, or `t` or `c` do not
            broadcast to them.
    """
    x, h, t, c = operands(x, h, t, c, dtype)
    if c is None:
        return x + t * (h - x)
    return plus(times(h, t), times(x, c), like=x)
