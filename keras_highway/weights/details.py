"""`list_weights(details=True)`: what is known of every weight file, one row each, from one table.

`zoo/results.csv` is that table, written by `python -m zoo.release.metrics`; a
wheel holds it, too. Weights that it does not name, a user's own, are described
by what lies beside them.
"""

import csv
import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, overload

from keras_highway._support.terminal import table
from keras_highway.tasks import task_of
from keras_highway.weights import registry
from keras_highway.weights.info import WeightsInfo

RESULTS = "results.csv"
_WHOLE, _REAL = int, float
# Name and type of each column.
COLUMNS: Mapping[str, Callable[[str], Any]] = {
    "name": str,
    "variant": str,
    "data": str,
    "top1": _REAL,
    "top5": _REAL,
    "perplexity": _REAL,
    "spread": _REAL,
    "n": _WHOLE,
    "measured": str,
    "parameters": _WHOLE,
    "multiply_adds": _WHOLE,
    "bytes": _WHOLE,
    "cpu_images_per_second": _REAL,
    "gpu_images_per_second": _REAL,
    "commit": str,
    "command": str,
}
_TABLE_COLUMNS = tuple(
    name for name in COLUMNS if name not in ("measured", "gpu_images_per_second", "commit", "command")
)


class WeightsTable(list[dict[str, Any]]):
    """A list of dicts, one per weight file, that prints as a table; `pandas.DataFrame` takes it.

    Keys: `name`, `variant`, `data`; `top1` and `top5` in percent, or
        `perplexity`, of the test set; `spread`, their standard deviation over
        `n` seeds; `measured`, `"here"` or `"as published"`; `parameters` and
        `multiply_adds` of one image; `bytes` of the file; images per second of
        one CPU core's time and of a GPU's; `commit` and `command` of the
        training.
    What is not known is `None`.
    """

    def __repr__(self) -> str:
        rows = [tuple(_cell(row[name]) for name in _TABLE_COLUMNS) for row in self]
        return table(_TABLE_COLUMNS, rows, right=_TABLE_COLUMNS[3:])


@overload
def list_weights(pattern: str = "*", details: Literal[False] = False) -> list[str]: ...


@overload
def list_weights(pattern: str = "*", *, details: Literal[True]) -> WeightsTable: ...


@overload
def list_weights(pattern: str, details: Literal[True]) -> WeightsTable: ...


def list_weights(pattern: str = "*", details: bool = False) -> list[str] | WeightsTable:
    """Return the names of all weights, or a table of what is known of each.

    Args:
        pattern: Shell pattern, e.g. `"mnist*"`. Defaults to all.
        details: Bool, whether to return a table: a list of dicts that prints
            as one, see `keras_highway.weights.details.WeightsTable`. Defaults to
            `False`.

    Returns:
        A sorted list of names, or a `WeightsTable` in that order.

    Example:

    >>> kh.list_weights("mnist*")
    ['mnist10_w16.tvdn', 'mnist10_w32.tvdn']
    >>> kh.list_weights("mnist*", details=True)[0]["top1"]
    99.45
    """
    names = registry.list_weights(pattern)
    if not details:
        return names
    known = _known(_file())
    return WeightsTable(dict(known.get(name) or of_row(registry.WEIGHTS[name])) for name in names)


def of_row(row: WeightsInfo) -> dict[str, Any]:
    """Return what lies beside weights, under `COLUMNS`; sizes and speed are left `None`.

    Args:
        row: Of the registry.
    """
    metrics = registry.described(row).metrics
    values = {**dict.fromkeys(COLUMNS), "name": row.name, "variant": row.variant, "data": row.data}
    if not metrics:
        return values
    metric = task_of(metrics).metric
    top5, std = metrics.get("top5"), metrics.get("std")
    return {
        **values,
        metric.column: round(metric.scale * metrics["mean"], 2),
        "top5": None if top5 is None else round(100.0 * top5, 2),
        "spread": None if std is None else round(metric.scale * std, 2),
        "n": metrics["n"],
        "measured": "as published" if metrics["metric"].endswith("as_published") else "here",
        "commit": metrics.get("commit"),
    }


@functools.cache
def _known(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None:
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            line["name"]: {k: COLUMNS[k](v) if v else None for k, v in line.items()} for line in csv.DictReader(file)
        }


def _file() -> Path | None:
    """Return the table in the wheel, or in the checkout."""
    return next((path for path in registry.zoo_files(RESULTS) if path.is_file()), None)


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
