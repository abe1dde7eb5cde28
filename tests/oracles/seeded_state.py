"""Random weights, BN statistics and images from a seed: the same in the PyTorch script and in the tests.

NumPy's legacy `RandomState` on purpose: its stream is frozen for good, while
that of `default_rng` may change from one NumPy to the next. Uniform numbers of
its raw bits too: no logarithm of some libm stands between seed and weights, and
the 60 million of ResNet152 take a moment.
"""

import math
import re

import numpy as np

SEED = 20260


def seeded_state(shapes, seed=SEED):
    """Makes a state dict of random weights and random BN statistics.

    The scales keep the logits of 50 to 152 layers near 1, dependent on the
    input and tame (float32 and float64 agree to 1e-5): kernels by fan-in, BN
    means and variances away from 0 and 1, gates that neither open nor shut.

    Args:
        shapes: Iterable of (PyTorch name, shape), in any order.
        seed: Int.

    Returns:
        Dict of float32 arrays, in sorted order of the names.
    """
    random = np.random.RandomState(seed)
    shapes = {name: tuple(shape) for name, shape in shapes}
    state = {}
    for name in sorted(shapes):
        state[name] = _uniform(random, *_range(name, shapes), shapes[name])
    return state


def seeded_images(batch, size, seed=SEED):
    """Makes images that differ from one another: a tint, coarse blotches, fine noise.

    White noise alone would not do: after the global average pool, all images
    of noise are the same.

    Args:
        batch: Int.
        size: Int, height and width.
        seed: Int.

    Returns:
        Float32 array `(batch, size, size, 3)`.
    """
    random = np.random.RandomState(seed)
    cell = -(-size // 4)
    tint = _uniform(random, -3.0, 3.0, (batch, 1, 1, 3))
    blotches = _uniform(random, -2.0, 2.0, (batch, 4, 4, 3)).repeat(cell, axis=1).repeat(cell, axis=2)
    noise = _uniform(random, -1.0, 1.0, (batch, size, size, 3))
    return tint + blotches[:, :size, :size] + noise


def _uniform(random, low, high, shape):
    """Float32 numbers in (low, high), of 16 random bits each."""
    bits = np.frombuffer(random.bytes(2 * math.prod(shape)), "<u2").reshape(shape)
    unit = (bits.astype("float32") + np.float32(0.5)) * np.float32(2.0**-16)
    return np.float32(low) + np.float32(high - low) * unit


def _range(name, shapes):
    """Returns the limits of a parameter's uniform distribution, found by trying."""
    layer, _, kind = name.rpartition(".")
    if kind == "running_mean":
        return -0.3, 0.3
    if kind == "running_var":
        return 0.3, 1.7
    if kind == "bias":
        return (-4.0, -2.0) if layer.endswith("gatebn2") else (-0.3, 0.3)
    if len(shapes[name]) > 1:
        variance = 0.05 if _is_residual_head(layer, shapes) else 2.0  # times fan_in
        limit = math.sqrt(3.0 * variance / math.prod(shapes[name][1:]))
        return -limit, limit
    if _ends_residual(layer, shapes):
        return 0.05, 0.25
    if layer.endswith("gatebn2"):  # gates that follow x closely multiply rounding errors from block to block
        return 0.1, 0.4
    return 0.7, 1.2


def _is_residual_head(layer, shapes):
    """Whether a layer is the classifier of an ungated net, whose features are larger by an order of magnitude."""
    return layer in ("fc", "linear") and "layer1.0.gate1.weight" not in shapes


def _ends_residual(layer, shapes):
    """Whether a BN is the last before an ungated addition: there, what comes in adds up over the blocks."""
    block, _, norm = layer.rpartition(".")
    if not re.fullmatch(r"bn\d", norm) or not block or f"{block}.gate1.weight" in shapes:
        return False
    return f"{block}.conv{int(norm[2:]) + 1}.weight" not in shapes
