"""A run's state in one file: every variable, the position in the data, the log's running sums."""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway._support.files import atomic_write, read_npz
from keras_highway._support.schema import Fields, Items, Number, Text, parse_json

_LARGEST = 2**40  # bytes; the real bound is the length of the file, whose arrays are not compressed
_HEADER = Fields(
    {
        "variables": Items(Text(1000), most=1_000_000),
        "epoch": Number(0, 1e9, whole=True),
        "step": Number(0, 1e12, whole=True),
        "sums": Items(Number(-1e300, 1e300), most=100),
        "seconds": Number(0, 1e12),
        "waited": Number(0, 1e12),
    }
)


class Progress(NamedTuple):
    """How far a run is.

    Attributes:
        epoch: Epochs finished.
        step: Steps taken of the epoch after these.
        sums: float64, the log's sums over these steps.
        seconds: Time they took.
        waited: Time of it spent waiting for data.
    """

    epoch: int
    step: int
    sums: np.ndarray
    seconds: float
    waited: float


def finite_values(variables, to_numpy) -> dict[str, np.ndarray]:
    """Return the values of variables by name.

    Args:
        variables: Keras variables by name.
        to_numpy: Function from a variable to its value.

    Raises:
        FloatingPointError: If one is not finite.
    """
    values = {name: to_numpy(variable) for name, variable in variables.items()}
    for name, value in values.items():
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise FloatingPointError(f"{name} has values that are not finite.")
    return values


def save(path: Path, values: dict[str, np.ndarray], progress: Progress) -> None:
    """Write a checkpoint, whole or not at all.

    Args:
        path: The file.
        values: Arrays by name.
        progress: How far the run is.

    Raises:
        OSError: If it cannot be written; the last checkpoint stays.
    """
    header = {"variables": list(values), **progress._asdict(), "sums": progress.sums.tolist()}
    arrays = {f"v{i}": value for i, value in enumerate(values.values())}
    atomic_write(path, lambda p: _write(p, header, arrays))


def epochs_of(path: Path) -> int:
    """Return how many epochs a checkpoint is after, 0 where there is none."""
    return position_of(path)[0]


def position_of(path: Path) -> tuple[int, int]:
    """Return how many epochs a checkpoint is after, and steps of the next; zeros where there is none.

    Raises:
        ValueError: If the file is not a checkpoint.
    """
    if not path.exists():
        return 0, 0
    header = _read(path, ("header",))[0]
    return header["epoch"], header["step"]


def _read(path, names=None) -> tuple[dict, dict[str, np.ndarray]]:
    """Return the header and the arrays of a checkpoint."""
    try:
        arrays = read_npz(path, names, _LARGEST, stored=True)
    except ValueError as error:
        raise ValueError(f"{path} is not a checkpoint of a run: {error}") from error
    if "header" not in arrays:
        raise ValueError(f"{path} is not a checkpoint of a run: it has no header.")
    return parse_json(str(arrays["header"]), f"{path}, a checkpoint's header,", _HEADER), arrays


def _write(path, header, arrays):
    with path.open("wb") as file:  # an open file: given a path, NumPy appends .npz
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def restore(path: Path, variables) -> Progress:
    """Set variables from a checkpoint; all of them or none.

    Raises:
        ValueError: If the file is not a checkpoint of these variables.
    """
    header, arrays = _read(path)
    try:
        values = [arrays[f"v{i}"] for i in range(len(header["variables"]))]
    except KeyError as error:
        raise ValueError(f"{path} is not a checkpoint of a run: it has no {error}.") from error
    if any(value.dtype.kind not in "fiubV" for value in values):
        raise ValueError(f"{path} is not a checkpoint of a run: some of its variables are not numbers.")
    here = [(name, tuple(variable.shape)) for name, variable in variables.items()]
    there = [(name, value.shape) for name, value in zip(header["variables"], values, strict=True)]
    if here != there:
        ours, theirs = sorted(set(here) - set(there))[:3], sorted(set(there) - set(here))[:3]
        raise ValueError(f"{path} is of another network or version of this program: {ours} here, {theirs} there.")
    for variable, value in zip(variables.values(), values, strict=True):
        variable.assign(value)
    return Progress(header["epoch"], header["step"], np.array(header["sums"]), header["seconds"], header["waited"])
