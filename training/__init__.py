"""Programs that make a table or a figure of the documentation."""

import json
from pathlib import Path
from typing import Any


def head(row: str) -> list[str]:
    """Return the first two lines of a Markdown table."""
    return [row, "|---" * (row.count("|") - 1) + "|"]


def read_json(path: Path) -> Any:
    """Return the values of a JSON file."""
    return json.loads(path.read_text("utf-8"))
