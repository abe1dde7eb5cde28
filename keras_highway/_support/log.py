"""A run's log.csv: one line per epoch."""

import csv
import io
import reprlib
from pathlib import Path

from keras_highway._support.bounded_json import read_bounded

_MOST = 64 * 2**20  # bytes; a steps.csv of a million steps has 30


def read_log(path: Path) -> list[dict[str, float]]:
    """Returns the lines of a log as numbers by column, without those that a line lacks.

    Args:
        path: A `log.csv`, or a `steps.csv`.

    Raises:
        FileNotFoundError: If it is not there.
        ValueError: If it is not a table, or a value is not a number.
    """
    return [{key: float(value) for key, value in row.items() if key and value} for row in read_lines(path)]


def read_lines(path: Path) -> list[dict[str, str]]:
    """Returns the lines of a log as they are written; each value is a number or empty.

    Args:
        path: As in `read_log`.

    Raises:
        FileNotFoundError: If it is not there.
        ValueError: If it is not a table, or a value is not a number.
    """
    try:
        text = read_bounded(path, _MOST).decode("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a table that keras_highway wrote: {error}.") from error
    for number, row in enumerate(rows, 2):
        if None in row:
            raise ValueError(f"{path}, line {number} has more values than the first line has names.")
        for key, value in row.items():
            if value and not _is_number(value):
                name, received = reprlib.repr(key), reprlib.repr(value)
                raise ValueError(f"{path}, line {number}: {name} must be a number. Received: {received}")
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
