"""`python -m zoo.release.metrics [--check]`: every metric of every weight in one table, `zoo/results.csv`.

A row a weight of the registry, also of those that are others'. Accuracy,
perplexity, spread and n are those of `zoo/weights/*/result.json`, or as
published; images per second those of `zoo/speed.json` (`python -m
zoo.release.speed`). What was not measured is blank.
"""

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from keras_highway.analysis import StageCost
from keras_highway.cli.listing import parameters
from keras_highway.specs import override
from keras_highway.tasks import IMAGES
from keras_highway.variants import VARIANTS, task_of_variant
from keras_highway.weights import registry
from keras_highway.weights.info import WeightsInfo
from keras_highway.weights.load import from_json_values
from keras_highway.weights.registry import COLUMNS, RESULTS, of_row
from zoo.release.commands import command_of
from zoo.release.generated import bring_up_to_date
from zoo.release.results import cost_of

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "zoo" / RESULTS
SPEED = ROOT / "zoo" / "speed.json"
WEIGHTS = ROOT / "zoo" / "weights"


def rows() -> list[dict[str, Any]]:
    """Return a row for each weight of the registry, by name, under `COLUMNS`; a folder of a user's zoo has none."""
    speed = json.loads(SPEED.read_text("utf-8"))["images_per_second"] if SPEED.exists() else {}
    users = registry.users_names()
    return [_row(row, speed) for name, row in sorted(registry.WEIGHTS.items()) if name not in users]


def _row(row: WeightsInfo, speed) -> dict[str, Any]:
    file = WEIGHTS / row.name / row.file
    ours = (WEIGHTS / row.name).is_dir()
    cost = _cost(row) if task_of_variant(row.variant) is IMAGES else None
    # Speed is of the variants as they are; other classes change it by next to nothing.
    timed = not row.overrides and not row.removed and not _size(row)
    return {
        **of_row(row),
        "parameters": cost.parameters if cost else parameters()[row.variant],
        "multiply_adds": cost.multiply_adds if cost else None,
        "bytes": file.stat().st_size if file.is_file() else None,
        "cpu_images_per_second": speed.get(row.variant, {}).get("median") if timed else None,
        "command": command_of(WEIGHTS / row.name) if ours else None,
    }


def _cost(row: WeightsInfo) -> StageCost:
    """Return the cost of weights: size, classes, overrides of the variant and removed blocks."""
    spec = override(VARIANTS[row.variant], **from_json_values(row.overrides))
    return cost_of(spec, _size(row), len(row.classes) or None, row.removed)


def _size(row: WeightsInfo) -> int | None:
    """Height and width of the images of weights; None where they are their variant's."""
    own = task_of_variant(row.variant) is IMAGES and row.images.size != VARIANTS[row.variant].input_shape[:2]
    return row.images.size[0] if own else None


def as_csv(table: list[dict[str, Any]]) -> str:
    """Return the rows as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def main(argv=None) -> int:
    """Parse the command line; returns 1 where the table and the results differ."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.metrics", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    args = parser.parse_args(argv)
    message = "differs from the results; run python -m zoo.release.metrics"
    return bring_up_to_date(TABLE, as_csv(rows()), args.check, message)


if __name__ == "__main__":
    sys.exit(main())
