"""A run's state in one file: every variable, the position in the data, the log's running sums."""

import json
import math
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import numpy as np

from keras_highway._support.files import atomic_write, read_npz
from keras_highway._support.schema import refuse, reworded

_LARGEST = 2**40  # bytes; the file's length is the real limit: its arrays are not compressed
_Count = Annotated[int, msgspec.Meta(ge=0, le=10**12)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class _Header(msgspec.Struct):
    """The header of a checkpoint, JSON."""

    variables: list[Annotated[str, msgspec.Meta(max_length=200)]]
    epoch: _Count
    step: _Count
    sums: list[float]
    seconds: _Seconds
    waited: _Seconds


class Progress(NamedTuple):
    """Position of a run."""

    epoch: int  # epochs finished
    step: int  # steps taken of the next epoch
    sums: np.ndarray  # float64, the log's sums over these steps
    seconds: float  # time they took
    waited: float  # part of the time spent waiting for data


def finite_values(variables, to_numpy) -> dict[str, np.ndarray]:
    """Return the values of variables by name."""
    values = {name: to_numpy(variable) for name, variable in variables.items()}
    for name, value in values.items():
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise FloatingPointError(f"{name} has values that are not finite.")
    return values


def save(path: Path, values: dict[str, np.ndarray], progress: Progress) -> None:
    """Write a checkpoint, whole or not at all."""
    header = json.dumps({"variables": list(values), **progress._asdict(), "sums": progress.sums.tolist()})

    def write(temporary):
        with temporary.open("wb") as file:  # an open file: NumPy appends .npz to a path
            np.savez(file, header=np.array(header), **{f"v{i}": value for i, value in enumerate(values.values())})

    atomic_write(path, write)


def epochs_of(path: Path) -> int:
    """Return the number of epochs before a checkpoint, 0 without one."""
    return position_of(path)[0]


def position_of(path: Path) -> tuple[int, int]:
    """Return the epochs before a checkpoint, and steps of the next; zeros without one."""
    if not path.exists():
        return 0, 0
    header = _read(path, ("header",))[0]
    return header.epoch, header.step


def _read(path, names=None) -> tuple[_Header, dict[str, np.ndarray]]:
    """Return the header and the arrays of a checkpoint."""
    with reworded(f"{path} is not a checkpoint of a run", (ValueError, KeyError, RecursionError)):
        arrays = read_npz(path, names, _LARGEST, stored=True)
        header = msgspec.json.decode(str(arrays["header"]), type=_Header)
    return header, arrays


def restore(path: Path, variables, steps: float = math.inf) -> Progress:
    """Set variables from a checkpoint of a run of so many steps per epoch; all of them or none."""
    header, arrays = _read(path)
    values = [arrays.get(f"v{i}") for i in range(len(header.variables))]
    here = [(name, tuple(variable.shape)) for name, variable in variables.items()]
    there = [(name, np.shape(value)) for name, value in zip(header.variables, values, strict=True)]
    ours, theirs = sorted(set(here) - set(there))[:3], sorted(set(there) - set(here))[:3]
    refuse(
        (
            any(value is None or value.dtype.kind not in "fiubV" for value in values),
            f"{path} is not a checkpoint of a run: an array is missing or not of numbers.",
        ),
        (header.step > steps, f"{path} is not a checkpoint of a run: its epoch has {steps} steps, not {header.step}."),
        (here != there, f"{path} is of another network or version of this program: {ours} here, {theirs} there."),
    )
    for variable, value in zip(variables.values(), values, strict=True):
        variable.assign(value)
    return Progress(header.epoch, header.step, np.array(header.sums), header.seconds, header.waited)
