"""Fields of dataclasses, set by name: unknown names and wrong types are refused."""

import dataclasses
import math
import types
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import numpy as np

from keras_highway._support.suggest import did_you_mean

RowT = TypeVar("RowT")


def coerced(row: RowT, what: str, **changes: Any) -> RowT:
    """Returns a dataclass with some fields changed, their names and types checked.

    Args:
        row: An instance of a dataclass.
        what: What to call it in messages.
        **changes: Fields and their new values; a list counts as a tuple and an
            int as a float.

    Raises:
        ValueError: For an unknown field (with suggestions), or a value of the
            wrong type.
    """
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
    """Raises a ValueError where a number of a dataclass, or of its tuples, is not finite: JSON has none such."""
    for field in dataclasses.fields(row):
        value = getattr(row, field.name)
        if not _is_finite(value):
            raise ValueError(f"`{field.name}` must be a finite number. Received: {field.name}={value!r}")


def _is_finite(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _plain(value: Any) -> Any:
    """A number of NumPy's as Python's, which have the types that fields are annotated with; in lists, too."""
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
    """Accepts a value for a field; the message names what was expected."""
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
