"""Puts a saved model into its folder, file by file: killed at any time, either the old model or the new one is there.

The new files are written into a folder of their own inside the target, and
then renamed into their places: `weights.json` first, `model.weights.h5` last.
Between the two, the hash in the one is not that of the other, so that nothing
takes the folder for a model; whatever loads from it or saves to it next
renames the rest. The target itself is never moved: it may be a working
directory, a mount point, or in a place that cannot be written to.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from keras_highway._support.files import sha256_of, to_disk, written
from keras_highway.weights.info import FILE, ROW, read_row

try:
    import fcntl
except ImportError:  # not on Windows: savers do not wait for each other there
    fcntl = None

_NAME = ".keras_highway-save-"
_LOCK = f"{_NAME}lock"
_TRIES = 20  # where savers do not wait for each other


def put_saved(bundle: Path, folder: Path) -> None:
    """Puts the files of a saved model into a folder; other files in it stay as they are.

    Savers to one folder wait for each other. On Windows, and on file systems
    without locks, they do not; there the last of them looks whether what is in
    the folder belongs together, and else does it again.

    Args:
        bundle: A folder of files, `weights.json` and the `model.weights.h5`
            whose SHA-256 it holds among them. It stays.
        folder: Made if it is not there.

    Raises:
        ValueError: If there is a folder by the name of one of the files.
        OSError: If a file cannot be written. The old model is there then, or
            the new one once it is loaded or saved again.
    """
    for path in bundle.iterdir():
        if (folder / path.name).is_dir():
            raise ValueError(f"{folder / path.name} is a folder, and a file goes there: rename it.")
    made = not folder.exists()
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with _alone(folder) as alone:
                for _ in range(1 if alone else _TRIES):
                    _put(bundle, folder)
                    if alone or _belong(folder / ROW, folder / FILE):
                        break
                else:
                    raise OSError(f"{folder}: other processes save to it all the time. Save to a folder of its own.")
                if alone:
                    _sweep(folder)
        except BaseException:
            if made:
                with contextlib.suppress(OSError):  # another saver's files are in it
                    folder.rmdir()
            raise


def settle(folder: Path) -> None:
    """Ends what a process that was killed in `put_saved` has left half done; waits for one that is at it.

    Nothing happens in a folder that cannot be written to.

    Args:
        folder: Of a saved model, or any other.
    """
    with contextlib.suppress(OSError):
        if not _staged(folder):
            return
        with _alone(folder) as alone:
            if not _belong(folder / ROW, folder / FILE):
                for staged in _staged(folder):
                    if _belong(folder / ROW, staged / FILE):
                        _into_place(staged, folder)
                        break
            if alone:
                _sweep(folder)


def is_unsaved(folder: Path) -> bool:
    """Whether a folder holds nothing but what a saver has begun, and what file systems themselves put there."""
    return all(path.name.startswith(_NAME) or path.name == "lost+found" for path in folder.iterdir())


def _put(bundle, folder) -> None:
    staged = Path(tempfile.mkdtemp(prefix=_NAME, dir=folder))
    try:
        for name in _in_order(bundle):  # where the weights are, the others are
            shutil.copyfile(bundle / name, staged / name)
            to_disk(staged / name)
        _into_place(staged, folder)
    finally:
        if (staged / ROW).exists() or not (staged / FILE).exists():  # not begun, or done; else `settle` needs it
            shutil.rmtree(staged, ignore_errors=True)


def _into_place(staged, folder) -> None:
    for name in _in_order(staged):
        with contextlib.suppress(FileNotFoundError):  # without locks, another process may have done it
            os.replace(staged / name, folder / name)


def _in_order(folder) -> list[str]:
    return sorted((path.name for path in folder.iterdir()), key=lambda name: (name != ROW, name == FILE, name))


def _belong(row: Path, weights: Path) -> bool:
    """Whether a `weights.json` is that of a weight file."""
    try:
        return read_row(row).sha256 == sha256_of(weights)
    except (OSError, ValueError):
        return False


def _staged(folder) -> list[Path]:
    return [path for path in sorted(folder.glob(f"{_NAME}*")) if path.name != _LOCK]


def _sweep(folder) -> None:
    for path in _staged(folder):
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def _alone(folder) -> Iterator[bool]:
    """Keeps other savers out of a folder; yields False where the system cannot."""
    path = folder / _LOCK
    handle = _locked(path)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            path.unlink(missing_ok=True)
            os.close(handle)


def _locked(path: Path) -> int | None:
    """Waits for a lock that the system takes from a process however that ends."""
    while fcntl is not None:
        handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)  # NFS locks only what may be written
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            os.close(handle)
            path.unlink(missing_ok=True)
            return None
        except BaseException:
            os.close(handle)
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(handle)):
                return handle
        os.close(handle)  # the one before has removed that file
    return None
