"""A run's log.csv: one line an epoch."""

import csv
from pathlib import Path


def read_log(path: Path) -> list[dict[str, float]]:
    """Returns the lines of a log as numbers by column, without those that a line has not.

    Args:
        path: A `log.csv`, or a `steps.csv`.

    Raises:
        FileNotFoundError: If it is not there.
        ValueError: If a value is no number.
    """
    with path.open(newline="", encoding="utf-8") as file:
        return [{key: float(value) for key, value in row.items() if key and value} for row in csv.DictReader(file)]
