"""The one grammar of `--set`: a field and its value."""

import argparse
import ast
from typing import Any

_CONSTANTS = {"true": "True", "false": "False", "null": "None"}  # as JSON has them


def parse_setting(text: str) -> tuple[str, Any]:
    """Returns the field and the value of `FIELD=VALUE`.

    Args:
        text: The setting. Its value is a Python literal, or `true`, `false` or
            `null`; anything else is a string.

    Raises:
        ValueError: If it has no field or no `=`.
    """
    field, equals, value = text.partition("=")
    if not (field and equals):
        raise ValueError(f"--set takes FIELD=VALUE, e.g. --set gating=full. Received: --set {text}")
    try:
        return field, ast.literal_eval(_CONSTANTS.get(value, value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: nested too deep to be read
        return field, value


def positive(text: str) -> int:
    """Returns a positive whole number of a command line.

    Args:
        text: The argument.

    Raises:
        argparse.ArgumentTypeError: If it is another.
    """
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, received {text!r}")
    return value
