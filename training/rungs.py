"""What a random search is made of, and how far its runs are: for the search and for its report."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from keras_highway._support.log import read_log


class Rung(NamedTuple):
    """A number of runs, trained to a number of epochs."""

    runs: int
    epochs: int


@dataclass(frozen=True)
class Search:
    """What to search.

    Attributes:
        name: Its name.
        cells: Names of the base recipes; each is searched on its own.
        draw: Function (generator, recipe) -> settings of a run, as for
            `changed`.
        rungs: Its extent where none is given.
        source: Where it is published.
        classes: Of the data set. Defaults to `10`.
    """

    name: str
    cells: tuple[str, ...]
    draw: Callable
    rungs: tuple[Rung, ...]
    source: str
    classes: int = 10


def losses(folder: Path) -> list[float]:
    """Returns a run's training loss by epoch."""
    path = folder / "log.csv"
    if not path.exists():
        return []
    return [row["train_loss"] for row in read_log(path)]


def loss_at(folder: Path, epochs: int) -> float:
    """Returns a run's training loss after some epochs: infinite if it did not reach them, 0 at its start."""
    by_epoch = losses(folder)
    if epochs == 0:
        return 0.0
    return by_epoch[epochs - 1] if len(by_epoch) >= epochs else float("inf")


def parse_rungs(text: str) -> tuple[Rung, ...]:
    """Returns the rungs of `"10x4,3x12,1x40"`.

    Raises:
        ValueError: If it is not of that form, with fewer runs and more epochs
            from rung to rung.
    """
    try:
        rungs = tuple(Rung(*map(int, part.split("x"))) for part in text.split(","))
    except (ValueError, TypeError):
        rungs = ()
    pairs = list(itertools.pairwise(rungs))
    if not rungs or min(min(r) for r in rungs) < 1 or any(a.runs < b.runs or a.epochs >= b.epochs for a, b in pairs):
        raise ValueError(f"Rungs are RUNSxEPOCHS, e.g. 10x4,3x12,1x40: fewer runs, more epochs. Received: {text!r}")
    return rungs
