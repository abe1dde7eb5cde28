"""Check arguments, settings and fields of dataclasses."""

import argparse
import ast
import contextlib
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar, cast, get_args, get_type_hints

import msgspec
import numpy as np

from keras_highway._support.terminal import brief, did_you_mean

RowT = TypeVar("RowT")


def refuse(*rules: tuple[Any, str], error: type[Exception] = ValueError) -> None:
    """Raise an error with the message of the first broken rule; a rule is a pair (is broken, message)."""
    for is_broken, message in rules:
        if is_broken:
            raise error(message)


def check_choice(name: str, value: Any, known: Iterable[Any], hint: str = "") -> None:
    """Raise a `ValueError` with suggestions if an argument is not one of the known words."""
    known = list(known)
    if not isinstance(value, str | None) or value not in known:
        hint = did_you_mean(value, map(str, known)) + hint
        raise ValueError(f"`{name}` must be one of {', '.join(map(repr, known))}.{hint} Received: {name}={value!r}")


@contextlib.contextmanager
def reworded(message: str, kinds: Any = ValueError, error: type[Exception] = ValueError) -> Iterator[None]:
    """Turn errors of a class, or of a tuple of classes, into another with a message before their own."""
    try:
        yield
    except kinds as cause:
        raise error(f"{message}: {brief(cause, 600)}.") from cause


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
    is_numpy = isinstance(value, np.generic | np.ndarray) and not isinstance(value, np.timedelta64)
    return value.tolist() if is_numpy else value


def is_whole(number: Any) -> bool:
    """Whether an argument is a whole number; `True` and `3.0` are not."""
    return isinstance(number, int | np.integer) and not isinstance(number, bool | np.timedelta64)


def checked_size(number: Any, name: str) -> int:
    """Return an argument that must be a positive integer."""
    if not is_whole(number) or number < 1:
        raise ValueError(f"`{name}` must be a positive integer. Received: {name}={number!r}")
    return int(number)  # 200 + np.uint8(100) is 44


def checked_number(number: Any, name: str, expected: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return an argument that must be a number between two bounds."""
    try:
        value = float(number)
    except (TypeError, ValueError):
        value = math.nan
    refuse((not low < value < high, f"`{name}` must be {expected}. Received: {name}={number!r}"))
    return value


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
