"""Suggestions of an error message: known names that resemble an unknown one."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns `" Did you mean 'a' or 'b'?"` for the known names that resemble one, or `""`."""
    near = difflib.get_close_matches(str(name), list(known), n=3)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
