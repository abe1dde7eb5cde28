"""`check.npz`: inputs, their logits and means of gates, so that anyone can check what weights compute."""

from pathlib import Path

import numpy as np

from keras_highway._support.files import read_npz
from keras_highway.publishing.task_weights import TaskWeights

CHECK = "check.npz"
TOLERANCE = 1e-4
_LARGEST = 2**26  # bytes of all arrays
_MOST_SAMPLES = 256


def write_check(weights: TaskWeights, path: Path) -> None:
    """Write inputs, the network's logits for them, and by channel the mean of each gate that a block learns.

    Args:
        weights: The weights.
        path: The file.
    """
    inputs = weights.example()
    np.savez(path, **inputs, **weights.computed(inputs))


def compare_check(weights: TaskWeights, path: Path) -> float:
    """Compute everything in a `check.npz` again; returns the largest difference.

    Args:
        weights: The weights.
        path: The file.

    Raises:
        ValueError: If it is not such a file, or something differs by more than
            `TOLERANCE`, relative to the largest logit where that is above 1.
    """
    try:
        recorded = read_npz(path, most=_LARGEST)
        inputs = {name: recorded.pop(name) for name in weights.inputs}
        if any(values.ndim == 0 or len(values) > _MOST_SAMPLES for values in inputs.values()):
            raise ValueError(f"more than {_MOST_SAMPLES} samples, or none")
        computed = weights.computed(inputs)
    except (ValueError, KeyError, TypeError, IndexError, ArithmeticError) as error:
        raise ValueError(f"{path} is not a {CHECK}: {error!r}.") from error
    if recorded.keys() != computed.keys() or any(recorded[k].shape != v.shape for k, v in computed.items()):
        raise ValueError(f"{path} holds {sorted(recorded)}; the network has {sorted(computed)}, or other shapes.")
    if not all(values.dtype.kind in "fiu" and np.isfinite(values).all() for values in recorded.values()):
        raise ValueError(f"{path} holds values that are not finite numbers.")
    scale = max(1.0, float(np.abs(recorded["logits"]).max()))
    worst, where = max((float(np.abs(recorded[name] - value).max()) / scale, name) for name, value in computed.items())
    if not worst <= TOLERANCE:  # NaN is not an agreement
        raise ValueError(f"The network does not compute what {path.name} recorded: {where} differs by {worst:.2g}.")
    return worst
