"""JSON from outside: of bounded size, of finite numbers, matching a schema; else one sentence with its name."""

import json
import os
from typing import Any

from keras_highway._support.files import without_waiting
from keras_highway._support.schema import Schema

_MOST = 16 * 2**20  # bytes


def parse_json(text: str | bytes, where: str, schema: Schema | None = None) -> Any:
    """Returns the values of a JSON text.

    Args:
        text: The text, or its UTF-8.
        where: What it is, for the messages: a file's name.
        schema: What it must be.

    Raises:
        ValueError: If it is not JSON, is nested too deeply, has numbers that
            are not finite, or does not match the schema.
    """
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


def read_json(path: str | os.PathLike, schema: Schema | None = None, most: int = _MOST) -> Any:
    """Returns the values of a JSON file.

    Args:
        path: The file.
        schema: What it must be.
        most: Most bytes. Defaults to 16 MiB.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is larger, or not as in `parse_json`.
    """
    return parse_json(read_bounded(path, most), str(path), schema)


def read_bounded(path: str | os.PathLike, most: int = _MOST) -> bytes:
    """Returns the content of a file.

    Args:
        path: The file.
        most: Most bytes. Defaults to 16 MiB.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is larger.
    """
    with open(path, "rb", opener=without_waiting) as file:  # a pipe is empty then
        content = file.read(most + 1) or b""
    if len(content) > most:
        raise ValueError(f"{path} is larger than {most} bytes, more than such a file has.")
    return content


def _refuse_constant(name):
    raise ValueError(f"{name} is not a finite number")
