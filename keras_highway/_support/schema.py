"""Check settings and fields of dataclasses."""

import argparse
import ast
import dataclasses
import math
import types
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from keras_highway._support.terminal import did_you_mean

RowT = TypeVar("RowT")


def coerced(row: RowT, what: str, **changes: Any) -> RowT:
    """Return a dataclass with changed fields, after a check of their names and types."""
    annotations = get_type_hints(type(row))
    hints = {f.name: annotations[f.name] for f in dataclasses.fields(cast(Any, row))}
    clean = {}
    for name, value in changes.items():
        if name not in hints:
            hint = did_you_mean(name, hints)
            raise ValueError(
                f"Unknown field of {what}.{hint} Its fields are {', '.join(hints)}. Received: {name}={value!r}"
            )
        clean[name] = _coerce(name, _plain(value), hints[name])
    return dataclasses.replace(row, **clean)


def check_finite(row: Any) -> None:
    """Raise a ValueError if a number in a dataclass or its tuples is not finite."""
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if not _is_finite(value):
            raise ValueError(f"`{field.name}` must be a finite number. Received: {field.name}={value!r}")


def _is_finite(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _plain(value: Any) -> Any:
    """Convert NumPy's numbers to Python's, in lists and tuples too."""
    if isinstance(value, list | tuple):
        return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value
    is_number = isinstance(value, np.bool_ | np.integer | np.floating) and not isinstance(value, np.timedelta64)
    return value.item() if is_number else value


def _fits_items(values, hints) -> bool:
    """Whether the items of a tuple are numbers, texts or tuples of these as annotated; others are not looked at."""
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(values)
    if hints and len(values) != len(hints):
        return False
    return all(_fits(value, hint) for value, hint in zip(values, hints, strict=False))


def _fits(value, hint) -> bool:
    if get_origin(hint) is tuple:
        return isinstance(value, (list, tuple)) and _fits_items(value, get_args(hint))
    if hint not in (int, float, str):
        return True
    kinds = (int, float) if hint is float else (hint,)
    return isinstance(value, kinds) and not isinstance(value, bool)


def _coerce(name, value, hint):
    """Accept a value for a field; the message names what was expected."""
    options = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
    for option in options:
        origin = get_origin(option) or option
        if origin is tuple and isinstance(value, (list, tuple)):
            if _fits_items(value, get_args(option)):
                return tuple(value)
            continue
        if origin is float and isinstance(value, int) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                break
        if isinstance(value, origin) and not (isinstance(value, bool) and origin is not bool):
            return value
    expected = " or ".join(str(o) if get_args(o) else getattr(o, "__name__", str(o)) for o in options)
    raise ValueError(f"`{name}` must be of type {expected}. Received: {name}={value!r} ({type(value).__name__})")


def is_whole(number: Any) -> bool:
    """Whether an argument is a whole number; `True` and `3.0` are not.

    Calculate with `int(number)`: NumPy's small integers overflow.
    """
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
