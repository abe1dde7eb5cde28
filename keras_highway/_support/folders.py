"""Replaces a folder by another: whenever the process is killed, either the old one or the new one is there."""

import ctypes
import errno
import os
import shutil
import sys
from pathlib import Path

from keras_highway._support.files import to_disk

_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
_ASIDE = ".aside-"
_CANNOT = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP}  # what file systems answer that have no such exchange


def put_in_place(new: Path, target: Path) -> None:
    """Renames a folder to `target`; what was there is at `new` afterwards.

    On Linux by one rename. Where the system or the file system has no
    exchange of two folders, by three: a process that is killed between them
    leaves the old folder aside, and `bring_back` brings it back.

    Args:
        new: A folder, on the same file system.
        target: Where it belongs.

    Raises:
        OSError: If it cannot be; nothing has changed then.
    """
    for path in new.rglob("*"):
        if path.is_file():
            to_disk(path)
    if not target.exists():
        new.rename(target)
    elif not _exchanged(new, target):
        aside = _aside(target)
        target.rename(aside)
        try:
            new.rename(target)
        except OSError:
            aside.rename(target)
            raise
        aside.rename(new)


def bring_back(target: Path) -> None:
    """Brings a folder back that a process has left aside when it was killed in `put_in_place`.

    Where the new one is there already, the old one is removed.
    """
    aside = _aside(target)
    if aside.exists() and target.exists():
        shutil.rmtree(aside)
    elif aside.exists():
        aside.rename(target)


def _aside(target: Path) -> Path:
    return target.with_name(_ASIDE + target.name)


def _exchanged(a: Path, b: Path) -> bool:
    """Exchanges two folders by one rename; False where that cannot be done here."""
    rename = _renameat2()
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(b))


def _renameat2():
    """The C library's function, for which Python has no name; None on other systems than Linux."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
