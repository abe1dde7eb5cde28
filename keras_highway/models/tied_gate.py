"""Gates that the blocks of a stage share."""

from collections.abc import Callable

import keras

from keras_highway.gating import carry_gate_bias, get_gating
from keras_highway.models.gate_bias import initial_gate_bias
from keras_highway.specs import NetSpec


def tied_gate(spec: NetSpec, stage: int, make: Callable[[str, float], keras.layers.Layer]) -> Callable:
    """Make the gates of a stage, to be called for each block that shares them.

    A single gate is `stage<n>_gate`, whichever of the two the gating learns;
    with the gating `"full"` that is the transform gate, and
    `stage<n>_carry_gate` stands beside it.
    """
    learned, bias = get_gating(spec.gating).learned_gates, initial_gate_bias(spec)
    biases = {"t": bias, "c": carry_gate_bias(bias)}
    if len(learned) == 1:
        return make(f"stage{stage}_gate", biases[learned[0]])
    transform, carry = make(f"stage{stage}_gate", biases["t"]), make(f"stage{stage}_carry_gate", biases["c"])
    return lambda x: (transform(x), carry(x))
