"""How a commit is shown."""

from collections.abc import Mapping
from typing import Any


def short(commit: str) -> str:
    """Return the first 12 digits of a commit, and whether files differed from it: `"0123456789ab-dirty"`."""
    digits, dash, state = commit.partition("-")
    return digits[:12] + dash + state


def all_short(result: Mapping[str, Any]) -> str:
    """Return the commits of a result's runs, shortened, in the order of runs and starts, with `"; "` between."""
    return "; ".join(short(commit) for commit in result.get("commit_changes", [result.get("commit")]) if commit)
