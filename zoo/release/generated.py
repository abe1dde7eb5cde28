"""Generated files: brought up to date, or compared with what they are made of."""

import sys
from pathlib import Path

from keras_highway._support.files import atomic_write


def bring_up_to_date(path: Path, text: str, check: bool, message: str) -> int:
    """Write a file where its text differs, or only reports the difference.

    Args:
        path: The file.
        text: What it should hold.
        check: Bool, whether to write nothing.
        message: Printed after the file's name where it differs and `check` is set.

    Returns:
        1 if it differs and was not written, else 0.
    """
    if path.exists() and path.read_text("utf-8") == text:
        return 0
    if check:
        print(f"{path}: {message}", file=sys.stderr)
        return 1
    atomic_write(path, lambda partial: partial.write_text(text, "utf-8"))
    return 0
