"""Temporary folders that do not stay for good: what a process that was killed has left, the next one removes."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # not on Windows: folders of killed processes stay there, as on file systems without locks
    fcntl = None

_NAME = "keras_highway-"
_LOCK = ".lock"  # locked by the folder's process; the system releases it however the process ends


@contextlib.contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """Makes a temporary folder and removes it, and those of processes that were killed.

    A fork that ends inside leaves the folder to its parent.

    Args:
        what: What it is for, a word of its name.
    """
    _sweep()
    owner = os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{what}-"))
    handle = None
    try:
        handle = _locked(folder)
        yield folder
    finally:
        if os.getpid() == owner:  # not at the end of a fork
            shutil.rmtree(folder, ignore_errors=True)
        if handle is not None:
            os.close(handle)


def _locked(folder) -> int | None:
    """Locks a folder; without locks it has no lock file, and so no process takes it for a killed one's."""
    if fcntl is None:
        return None
    new = folder / f"{_LOCK}-new"
    handle = os.open(new, os.O_CREAT | os.O_RDWR | os.O_EXCL, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        os.close(handle)
        new.unlink()
        return None
    except BaseException:
        os.close(handle)
        raise
    new.rename(folder / _LOCK)  # visible to others only once it is locked
    return handle


def _sweep() -> None:
    """Removes our folders whose lock no process holds."""
    if fcntl is None:
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where its process lives
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(handle)
