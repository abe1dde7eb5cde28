"""The initial gate bias of a spec, as a number."""

from keras_highway.gating import gate_bias_for_depth
from keras_highway.specs import BY_DEPTH, NetSpec


def initial_gate_bias(spec: NetSpec) -> float:
    """Return the initial bias of the transform gates as a float; `"by_depth"` follows [TVDN, 2.2]."""
    if spec.gate_bias == BY_DEPTH and spec.layers_deep is not None:
        return gate_bias_for_depth(spec.layers_deep)
    return float(spec.gate_bias)
