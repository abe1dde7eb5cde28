"""Sizes, first weights and text of the language model's golden file: the same in PyTorch and in the tests."""

import numpy as np

try:  # a script next to it, or a module of the tests
    from seeded_state import SEED
except ImportError:
    from oracles.seeded_state import SEED

SIZES = {
    "characters": 9,
    "words": 11,
    "char_units": 3,
    "kernels": (1, 2, 3),
    "filters": (3, 4, 5),
    "units": 6,
}
HIGHWAYS = {"plain": 1, "residual": 4, "t_only": 2, "c_only": 2, "coupled": 2, "full": 2}  # UIE, 5.2
STREAMS, STEPS, BATCHES, LENGTH = 3, 7, 10, 12
NORM = 2.2  # most of the steps are clipped, not all


def start(shapes):
    """Float32 numbers by name and shape: uniform, kernels large so that the padding's gradient counts in the norm."""
    random = np.random.RandomState(SEED)
    values = {}
    for name in sorted(shapes):
        values[name] = random.uniform(-0.4, 0.4, shapes[name]).astype("float32")
        if name.endswith((".t.bias", ".c.bias")):
            values[name] -= 1
        elif "weight" in name:
            values[name] *= 2.5
    values["embedding.weight"][0] = 0  # the padding
    return values


def text():
    """Spelling `(words, length)`, then positions and targets, each `(batches, streams, steps)`."""
    random = np.random.RandomState(SEED + 1)
    spelled = random.randint(1, 9, (SIZES["words"], LENGTH)) * (np.arange(LENGTH) < random.randint(3, 7, (11, 1)))
    inputs, targets = (random.randint(0, SIZES["words"], (BATCHES, STREAMS, STEPS)) for _ in range(2))
    return spelled, inputs, targets
