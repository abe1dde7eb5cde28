"""Check settings and fields of dataclasses."""

import argparse
import ast
import dataclasses
import re
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
import numpy as np

from keras_highway._support.terminal import did_you_mean

RowT = TypeVar("RowT")


def coerced(row: RowT, what: str, **changes: Any) -> RowT:
    """Return a dataclass with changed fields, after a check of names, types and ranges."""
    values = {f.name: getattr(row, f.name) for f in dataclasses.fields(cast(Any, row))}
    for name, value in changes.items():
        if name not in values:
            hint = did_you_mean(name, values)
            raise ValueError(
                f"Unknown field of {what}.{hint} Its fields are {', '.join(values)}. Received: {name}={value!r}"
            )
        values[name] = plain(value)
    try:
        return msgspec.convert(values, type(row))
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        name = re.split(r"\W", path)[0]
        known = [str(word) for word in get_args(get_type_hints(type(row))[name]) if isinstance(word, str)]
        text = f" must be one of {', '.join(known)}.{did_you_mean(values[name], known)}" if known else f": {text}."
        raise ValueError(f"`{name}`{text} Received: {name}={values[name]!r}") from None


def plain(value: Any) -> Any:
    """Convert NumPy's numbers and arrays to Python's, in lists and tuples too."""
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    if isinstance(value, np.ndarray):
        return tuple(map(plain, value))
    return value.item() if isinstance(value, np.generic) and not isinstance(value, np.timedelta64) else value


def is_whole(number: Any) -> bool:
    """Whether an argument is a whole number; `True` and `3.0` are not."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool | np.timedelta64)


def checked_size(number: Any, name: str) -> int:
    """Return an argument that must be a positive integer."""
    if not is_whole(number) or number < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={number!r}")
    return int(number)  # 200 + np.uint8(100) is 44


_CONSTANTS = {"true": "True", "false": "False", "null": "None"}  # as JSON has them


def parse_setting(text: str) -> tuple[str, Any]:
    """Return the field and the value of `FIELD=VALUE`."""
    field, equals, value = text.partition("=")
    if not (field and equals):
        raise ValueError(f"--set takes FIELD=VALUE, e.g. --set gating=full. Received: --set {text}")
    try:
        return field, ast.literal_eval(_CONSTANTS.get(value, value))
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: nested too deep to be read
        return field, value


def positive(text: str) -> int:
    """Return a positive integer of a command line."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, received {text!r}")
    return value
