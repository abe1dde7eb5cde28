"""The six gatings of `y = H(x)·T(x) + x·C(x)`, and the gate-bias rules.

Sources: [TVDN] Srivastava, Greff, Schmidhuber, "Training Very Deep Networks",
NIPS 2015, Eqs. 1-3; [UIE] Greff, Srivastava, Schmidhuber, "Highway and Residual
Networks learn Unrolled Iterative Estimation", ICLR 2017, Table 1a.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from keras_highway._support.schema import check_choice, checked_number, refuse


class Gating(NamedTuple):
    """One row of the table of gatings."""

    name: str  # the gating's name
    t: str  # the transform gate: `"one"` or `"learned"`
    c: str  # the carry gate: `"zero"`, `"one"`, `"learned"` or `"coupled"` (`1 - t`)
    formula: str  # the equation of `y`, as text

    @property
    def learned_gates(self) -> tuple[str, ...]:
        """The learned gates: a subset of `("t", "c")`."""
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
"""The six gatings, `plain`, `residual`, `t_only`, `c_only`, `coupled`, `full`: a `Gating(name, t, c, formula)` each."""


class Signals(NamedTuple):
    """Inputs of the equation in a block: `y = mix(*signals)`.

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
    """Return the row of a gating."""
    check_choice("gating", name, GATINGS)
    return GATINGS[name]


def check_gates(gating: str, gate: str, gate_rank: int | None, stochastic_depth: float = 0.0) -> None:
    """Raise a `ValueError` for a gate without its rank, and for stochastic depth without a skip connection."""
    skips = get_gating(gating).has_skip or not stochastic_depth
    refuse(
        (
            (gate == "low_rank") != (gate_rank is not None),
            "`gate_rank` is needed with gate='low_rank' and only there. "
            f"Received: gate={gate!r}, gate_rank={gate_rank!r}",
        ),
        (
            not skips,
            f"Stochastic depth replaces a block by its skip connection, which gating={gating!r} does not have. "
            f"Received: gating={gating!r}, stochastic_depth={stochastic_depth!r}",
        ),
    )


def check_gate_bias(gate_bias: float) -> float:
    """Return `gate_bias` as a float."""
    expected = "a finite number, the transform gate's initial bias before the sigmoid, usually between -1 and -6"
    return checked_number(gate_bias, "gate_bias", expected)


def gate_bias_for_depth(depth: int) -> float:
    """Return the gate bias [TVDN, 2.2] suggests for a depth: -1, -2, -3 for "approximately" 10, 20, 30 layers.

    The nearest of these depths gives the bias, and midway the deeper one:
    11 layers get -1, 19 get -2, 32 get -3. The paper names no
    values for other depths, so all below get -1 and all above -3.
    """
    return -float(min(max((depth + 5) // 10, 1), 3))


def carry_gate_bias(gate_bias: float) -> float:
    """Return the initial bias of a learned carry gate, with which it starts at `1 - t`, as in `coupled`."""
    return -gate_bias
