"""The one equation: `y = H(x)·T(x) + x·C(x)`, its six gatings and the gate-bias rule.

This is the only place where the equation is written. A layer, a block or a
network differs from another only in how it makes `h`, `t` and `c`.

Sources: [TVDN] Srivastava, Greff, Schmidhuber, "Training Very Deep Networks",
NIPS 2015, Eqs. 1-3; [UIE] Greff, Srivastava, Schmidhuber, "Highway and Residual
Networks learn Unrolled Iterative Estimation", ICLR 2017, Table 1a.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_highway._support.numerics import loses_sums
from keras_highway._support.suggest import did_you_mean


class Gating(NamedTuple):
    """One row of the table of gatings.

    Attributes:
        name: The gating's name.
        t: What the transform gate is: `"one"` or `"learned"`.
        c: What the carry gate is: `"zero"`, `"one"`, `"learned"` or
            `"coupled"` (`1 - t`).
        formula: The equation of `y`, for people.
    """

    name: str
    t: str
    c: str
    formula: str

    @property
    def learned_gates(self) -> tuple[str, ...]:
        """Which of `"t"` and `"c"` are learned."""
        return tuple(g for g in ("t", "c") if getattr(self, g) == "learned")

    @property
    def constant_carry(self) -> float | None:
        """The carry gate where it is a constant, 0 or 1; `None` where it is learned or follows from `t`."""
        return {"zero": 0.0, "one": 1.0}.get(self.c)

    @property
    def has_skip(self) -> bool:
        """Whether `x` reaches `y` at all."""
        return self.c != "zero"


GATINGS: Mapping[str, Gating] = MappingProxyType(
    {
        row.name: row
        for row in (
            Gating("plain", "one", "zero", "h"),
            Gating("residual", "one", "one", "h + x"),
            Gating("t_only", "learned", "one", "h·t + x"),
            Gating("c_only", "one", "learned", "h + x·c"),
            Gating("coupled", "learned", "coupled", "h·t + x·(1 − t)"),
            Gating("full", "learned", "learned", "h·t + x·c"),
        )
    }
)


class Signals(NamedTuple):
    """What a block mixes: `y = mix(*signals)`.

    Attributes:
        x: The (projected) input, in the skip dtype.
        h: The transform of the input, same shape as `x`.
        t: The transform gate: a tensor that broadcasts to `x`, or the
            constant `1.0`.
        c: The carry gate: a tensor, a constant `0.0` or `1.0`, or `None` for
            the coupled gate `1 - t`.
    """

    x: Any
    h: Any
    t: Any = 1.0
    c: Any = None


def get_gating(name: str) -> Gating:
    """Returns the row of a gating.

    Args:
        name: One of `GATINGS`.

    Raises:
        ValueError: If there is no gating of that name.
    """
    if isinstance(name, str) and name in GATINGS:
        return GATINGS[name]
    hint = did_you_mean(name, GATINGS)
    raise ValueError(
        f"Unknown gating.{hint} Expected one of {', '.join(map(repr, GATINGS))}. Received: gating={name!r}"
    )


def check_gate_bias(gate_bias: float) -> float:
    """Returns `gate_bias` as a float.

    Raises:
        ValueError: If it is not a finite number.
    """
    try:
        value = float(gate_bias)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(
            "`gate_bias` (the initial bias of the transform gate before the sigmoid) must be a "
            f"finite number, usually between -1 and -6. Received: gate_bias={gate_bias!r}"
        )
    return value


def gate_bias_for_depth(depth: int) -> float:
    """The gate bias [TVDN, 2.2] suggests for a depth: -1, -2, -3 for "approximately" 10, 20, 30 layers.

    That of the nearest of these depths, of the deeper one midway: 11 layers
    get -1, 19 get -2, 32 get -3. The paper names no value outside, so all
    below get -1 and all above -3.

    Args:
        depth: Number of layers.

    Returns:
        -1.0, -2.0 or -3.0.
    """
    return -float(min(max((depth + 5) // 10, 1), 3))


def carry_gate_bias(gate_bias: float) -> float:
    """The initial bias of a *learned* carry gate: `-gate_bias`.

    With it, `sigmoid(-gate_bias) = 1 - sigmoid(gate_bias)`: at the start, the
    gatings `full` and `c_only` carry exactly as much as `coupled` does.
    """
    return -gate_bias


def mix(x, h, t=1.0, c=None, dtype=None):
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
    _check_shapes(x, h, t, c)
    if dtype is None:
        tensors = [v for v in (x, h, t, c) if not _is_number(v) and v is not None]
        dtype = keras.backend.result_type(*(_dtype(v) for v in tensors), "float32")
    x, h = ops.cast(x, dtype), ops.cast(h, dtype)
    if c is None:
        if _is_number(t):
            c = 1.0 - t
        else:
            return x + _spread(t, x, dtype) * (h - x)
    transformed, carried = _times(h, t, dtype), _times(x, c, dtype)
    if transformed is None:
        return ops.zeros_like(x) if carried is None else carried
    return transformed if carried is None else transformed + carried


def _is_number(value) -> bool:
    return isinstance(value, (int, float))


def _dtype(value) -> str:
    return keras.backend.standardize_dtype(getattr(value, "dtype", "float32"))


def _times(value, gate, dtype):
    """`value * gate`; constants 1 and 0 cost nothing (0 gives None)."""
    if _is_number(gate):
        if gate == 0:
            return None
        return value if gate == 1 else value * gate
    return value * _spread(gate, value, dtype)


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
