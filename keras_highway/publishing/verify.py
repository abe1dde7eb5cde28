"""A published repository, downloaded anew and computed again."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway.convert.timm import read_safetensors
from keras_highway.hub import HubName, fetch, parse
from keras_highway.publishing.bundle import SAFETENSORS, named_arrays
from keras_highway.publishing.by_task import weights_class
from keras_highway.publishing.check import CHECK, compare_check
from keras_highway.publishing.task_weights import TaskWeights
from keras_highway.weights import file as weights_file
from keras_highway.weights.info import FILE, ROW, WeightsInfo, read_row


class Verification(NamedTuple):
    """Weights that passed verification.

    Attributes:
        weights: The weights, loaded.
        difference: The largest difference from `check.npz`, relative to the
            largest logit where that is above 1.
    """

    weights: TaskWeights
    difference: float

    @property
    def row(self) -> WeightsInfo:
        """What is known of the weights."""
        return self.weights.row


def verify(repository: str) -> Verification:
    """Download a repository into an empty cache, compares hashes and weights, and computes its `check.npz` again.

    Args:
        repository: `org/name[@revision]`.

    Raises:
        HubError: If it cannot be downloaded.
        ValueError: If anything in it is not right.
    """
    name = parse(repository)
    with tempfile.TemporaryDirectory(prefix="keras_highway-", ignore_cleanup_errors=True) as cache:
        return _verified(name, Path(cache))


def _verified(name: HubName, cache: Path) -> Verification:
    row = read_row(fetch(name, ROW, cache=cache))
    if not row.sha256:
        raise ValueError(f"{ROW} of {name} does not name the sha256 of its weights.")
    loader = weights_class(row.variant)
    path = fetch(name, FILE, row.sha256, weights_file.read, cache)
    for file in loader.task.files:
        fetch(name, file, cache=cache)
    weights = loader.open(row, path)
    difference = compare_check(weights, fetch(name, CHECK, cache=cache))
    copied = read_safetensors(fetch(name, SAFETENSORS, cache=cache))
    arrays = named_arrays(weights.network)[1]
    if copied.keys() != arrays.keys() or not all(np.array_equal(copied[key], value) for key, value in arrays.items()):
        raise ValueError(f"{SAFETENSORS} of {name} does not hold the weights of {FILE}.")
    return Verification(weights, difference)
