"""Check values from outside: JSON, settings and fields of dataclasses.

A schema has `check(value, where)`, which raises `ValueError` with one sentence: where, what was expected, what was
received.
"""

import argparse
import ast
import dataclasses
import json
import math
import os
import re
import reprlib
import types
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from keras_highway._support.files import MOST_BYTES, read_bounded
from keras_highway._support.terminal import did_you_mean

_SHORT = reprlib.Repr()
_SHORT.maxstring = 60


class Schema(Protocol):
    """Anything that checks a value."""

    def check(self, value: Any, where: str) -> None: ...


def refuse(where: str, expected: str, value: Any) -> None:
    """Raise a `ValueError` of one sentence, with the received value escaped."""
    received = _SHORT.repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a number of many digits"
    raise ValueError(f"{where} must be {expected}. Received: {received}")


class Text:
    """A string."""

    def __init__(self, longest: int = 200, pattern: str = "", like: str = "", printable: bool = True):
        self.longest, self.pattern, self.like, self.printable = longest, pattern, like, printable

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        expected = "printable text" if self.printable else "text"
        if not isinstance(value, str) or len(value) > self.longest or (self.printable and not value.isprintable()):
            refuse(where, f"{expected} of at most {self.longest} characters", value)
        if self.pattern and not re.fullmatch(self.pattern, value):
            refuse(where, self.like or f"text that matches {self.pattern}", value)


CLASS_NAME = Text(255)  # folders have such names, too


class Number:
    """A finite number within a range; a bool is not one."""

    def __init__(self, low: float = -1e12, high: float = 1e12, whole: bool = False):
        self.low, self.high, self.whole = low, high, whole

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        types = int if self.whole else int | float
        if not isinstance(value, types) or isinstance(value, bool) or not self.low <= value <= self.high:
            refuse(where, f"a{' whole' if self.whole else ''} number from {self.low:g} to {self.high:g}", value)


class OneOf:
    """One of a few values, of the same type."""

    def __init__(self, values: tuple):
        self.values = values

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        if not any(type(value) is type(known) and value == known for known in self.values):
            refuse(where, f"one of {', '.join(map(repr, self.values))}", value)


class Items:
    """A list."""

    def __init__(self, of: Schema, least: int = 0, most: int = 100_000):
        self.of, self.least, self.most = of, least, most

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        if not isinstance(value, list | tuple) or not self.least <= len(value) <= self.most:
            refuse(where, f"a list of {self.least} to {self.most} items", value)
        for i, item in enumerate(value):
            self.of.check(item, f"{where}[{i}]")


class Table:
    """A dict with any names."""

    def __init__(self, of: Schema, most: int = 100_000):
        self.of, self.most = of, most

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        if not isinstance(value, Mapping) or len(value) > self.most:
            refuse(where, f"a table of at most {self.most} entries", value)
        for name, item in value.items():
            Text().check(name, f"a name in {where}")
            self.of.check(item, f"{where}.{name}")


class Anything:
    """Any JSON value that is not deeply nested."""

    def __init__(self, depth: int = 8):
        self.depth = depth

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        if isinstance(value, str):
            Text(10_000).check(value, where)
        elif isinstance(value, list | tuple | Mapping):
            if self.depth == 0:
                refuse(where, "nested less deeply", value)
            inner = Anything(self.depth - 1)
            (Table(inner) if isinstance(value, Mapping) else Items(inner)).check(value, where)
        elif value is not None and not isinstance(value, bool):
            Number(-1e300, 1e300).check(value, where)


class Fields:
    """A dict with known names; other names may have any JSON values."""

    def __init__(
        self, required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, others: bool = True
    ):
        self.required, self.optional, self.others = required, optional or {}, others

    def check(self, value: Any, where: str) -> None:
        """Raise `ValueError` if the value does not match."""
        if not isinstance(value, Mapping):
            refuse(where, f"a table{' with ' * bool(self.required)}{', '.join(self.required)}", value)
        missing = [name for name in self.required if name not in value]
        if missing:
            raise ValueError(f"{where} is incomplete: it has no {', '.join(missing)}.")
        for name, item in value.items():
            schema = self.required.get(name) or self.optional.get(name)
            if schema is None and not self.others:
                continue
            Text().check(name, f"a name in {where}")
            (schema or Anything()).check(item, f"{where}: {name}")


def parse_json(text: str | bytes, where: str, schema: Schema | None = None) -> Any:
    """Return the values of a JSON text."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        values = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply to be read.") from None
    except ValueError as error:  # not UTF-8, no JSON, an integer of thousands of digits
        raise ValueError(f"{where} is not JSON: {error}.") from error
    if schema is not None:
        schema.check(values, where)
    return values


def read_json(path: str | os.PathLike, schema: Schema | None = None, most: int = MOST_BYTES) -> Any:
    """Return the values of a JSON file."""
    return parse_json(read_bounded(path, most), str(path), schema)


def _refuse_constant(name):
    raise ValueError(f"{name} is not a finite number")


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
