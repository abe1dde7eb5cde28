"""JSON for other programs: numbers that JSON has no words for, NaN and the infinities, are `null`."""

import json
import math
from typing import Any


def json_text(value: Any, ensure_ascii: bool = True) -> str:
    """Returns indented JSON that any program reads (RFC 8259).

    Python's own `NaN` and `Infinity` are refused by most others, and by
    `parse_json`.

    Args:
        value: What JSON knows: dicts, lists, text, numbers.
        ensure_ascii: Whether other letters are escaped. Defaults to `True`.
    """
    try:
        return json.dumps(value, indent=2, ensure_ascii=ensure_ascii, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), indent=2, ensure_ascii=ensure_ascii, allow_nan=False)


def _finite(value):
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
