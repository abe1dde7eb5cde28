"""A folder into the place of another, by one rename: at every moment the old one is there, or the new one."""

import ctypes
import os
from pathlib import Path

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def put_in_place(new: Path, target: Path) -> None:
    """Renames a folder to `target`; what was there is at `new` afterwards.

    Args:
        new: A folder, on the same file system.
        target: Where it belongs.

    Raises:
        OSError: If it cannot be; nothing has changed then.
    """
    for path in new.iterdir():
        with path.open("rb+") as file:
            os.fsync(file.fileno())  # a rename may reach the disk before the content does
    if target.exists():
        _exchange(new, target)
    else:
        new.rename(target)


def _exchange(a: Path, b: Path) -> None:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # Python has no name for it
    if rename is None:
        raise OSError(f"This system cannot exchange two folders: remove {b} first, then add the weights.")
    if rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)}: remove {b} first, then add the weights", str(b))
