"""What values from outside must be: types and ranges, written down once and checked before anything reads them.

A schema has `check(value, where)`, which raises `ValueError` with one
sentence: where, what was expected, what was received. These are plain
classes: a dozen dataclasses would be felt at import.
"""

import re
import reprlib
from collections.abc import Mapping
from typing import Any, Protocol

_SHORT = reprlib.Repr()
_SHORT.maxstring = 60


class Schema(Protocol):
    """Anything that checks a value."""

    def check(self, value: Any, where: str) -> None: ...


def refuse(where: str, expected: str, value: Any) -> None:
    """Raises the one sentence; control characters of what was received are written as escapes."""
    received = _SHORT.repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "a number of many digits"
    raise ValueError(f"{where} must be {expected}. Received: {received}")


class Text:
    """A string.

    Args:
        longest: Most characters.
        pattern: Regular expression that all of it must match, `""` for any.
        like: The pattern in words, for the message.
        printable: Whether it may go to a terminal as it is: no control
            characters, no line feeds.
    """

    def __init__(self, longest: int = 200, pattern: str = "", like: str = "", printable: bool = True):
        self.longest, self.pattern, self.like, self.printable = longest, pattern, like, printable

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        expected = "printable text" if self.printable else "text"
        if not isinstance(value, str) or len(value) > self.longest or (self.printable and not value.isprintable()):
            refuse(where, f"{expected} of at most {self.longest} characters", value)
        if self.pattern and not re.fullmatch(self.pattern, value):
            refuse(where, self.like or f"text that matches {self.pattern}", value)


CLASS_NAME = Text(255)  # folders have such names, too


class Number:
    """A finite number within a range; a bool is not one.

    Args:
        low: Smallest.
        high: Largest.
        whole: Whether it is an integer.
    """

    def __init__(self, low: float = -1e12, high: float = 1e12, whole: bool = False):
        self.low, self.high, self.whole = low, high, whole

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        types = int if self.whole else int | float
        if not isinstance(value, types) or isinstance(value, bool) or not self.low <= value <= self.high:
            refuse(where, f"a{' whole' if self.whole else ''} number from {self.low:g} to {self.high:g}", value)


class OneOf:
    """One of a few values, of the same type."""

    def __init__(self, values: tuple):
        self.values = values

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        if not any(type(value) is type(known) and value == known for known in self.values):
            refuse(where, f"one of {', '.join(map(repr, self.values))}", value)


BOOL = OneOf((False, True))


class Maybe:
    """`None`, or a value that matches another schema."""

    def __init__(self, of: Schema):
        self.of = of

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        if value is not None:
            self.of.check(value, where)


class OrEmpty:
    """An empty table, or a value that matches another schema."""

    def __init__(self, of: Schema):
        self.of = of

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        if value != {}:
            self.of.check(value, where)


class Items:
    """A list.

    Args:
        of: What each item must be.
        least: Fewest items.
        most: Most items.
    """

    def __init__(self, of: Schema, least: int = 0, most: int = 100_000):
        self.of, self.least, self.most = of, least, most

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        if not isinstance(value, list | tuple) or not self.least <= len(value) <= self.most:
            refuse(where, f"a list of {self.least} to {self.most} items", value)
        for i, item in enumerate(value):
            self.of.check(item, f"{where}[{i}]")


class Table:
    """A dict with names of its own choice.

    Args:
        of: What each value must be.
        most: Most entries.
    """

    def __init__(self, of: Schema, most: int = 100_000):
        self.of, self.most = of, most

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
        if not isinstance(value, Mapping) or len(value) > self.most:
            refuse(where, f"a table of at most {self.most} entries", value)
        for name, item in value.items():
            Text().check(name, f"a name in {where}")
            self.of.check(item, f"{where}.{name}")


class Anything:
    """Any JSON value that is not nested deeply: what no code relies on."""

    def __init__(self, depth: int = 8):
        self.depth = depth

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
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
    """A dict with known names; others, those of later versions, may be any JSON values.

    Args:
        required: What must be there.
        optional: What may be there.
        others: Whether values of other names are looked at, which nobody
            needs who only reads the known ones.
    """

    def __init__(
        self, required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None, others: bool = True
    ):
        self.required, self.optional, self.others = required, optional or {}, others

    def check(self, value: Any, where: str) -> None:
        """Raises `ValueError` where the value does not match."""
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
