"""Files: written whole or not at all, and their hash."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Writes a file whole or not at all: `write(temporary path)`, to the disk, then a rename.

    Args:
        path: The file.
        write: Function that writes to the path it is given, which has the
            file's own suffix and folder.
    """
    temporary = path.with_name(f".partial-{path.name}")
    try:
        write(temporary)
        with temporary.open("rb+") as file:  # Windows flushes only what may be written
            os.fsync(file.fileno())  # a rename may reach the disk before the content does
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def atomic_write_json(path: Path, value) -> None:
    """Writes JSON, whole or not at all."""
    atomic_write(
        path,
        lambda p: p.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8", "backslashreplace"),
    )


def sha256_of(path: str | os.PathLike) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
