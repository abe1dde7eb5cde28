"""Read and write files: whole or not at all, of bounded size, with their SHA-256; logs and `.npz` archives."""

import contextlib
import csv
import errno
import hashlib
import io
import math
import os
import re
import reprlib
import shutil
import stat
import time
import uuid
import zipfile
from collections.abc import Callable, Collection, Container, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from keras_highway._support.schema import refuse, reworded
from keras_highway._support.terminal import brief, json_text

MOST_BYTES = 16 * 2**20  # of a file that is read into memory, unless a caller allows more
_LONG_AGO = 86400.0  # seconds
_TEMPORARY = re.compile(r"\.partial-[0-9a-f]{8}-")
_LONGEST = 230  # bytes of a name, of 255 that most file systems have: a temporary file's has 18 more
# Mostly errors of shared file systems: a later attempt may work.
_PASSING = {
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EBUSY, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN),
    *(errno.ENOTCONN, errno.ESHUTDOWN),
}


def may_pass(error: BaseException) -> bool:
    """Whether an error comes from a file system that may be back soon, and says nothing about a file's content."""
    return passing_cause(error) is not None


def passing_cause(error: BaseException) -> OSError | None:
    """Return the passing error of the system that an error is, or that caused a `ValueError`; or None."""
    cause: BaseException | None = error
    while isinstance(cause, ValueError):
        cause = cause.__cause__
    return cause if isinstance(cause, OSError) and cause.errno in _PASSING else None


def atomic_write(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file whole or not at all: to a temporary path, to the disk, then a rename."""
    temporary = partial_path(path)
    with written(path):
        sweep(path.parent)
        try:
            write(temporary)
            to_disk(temporary)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(PermissionError):  # then it was never made
                temporary.unlink(missing_ok=True)


def partial_path(path: Path) -> Path:
    """Return a unique temporary name next to a file or folder."""
    ending = path.name if len(os.fsencode(path.name)) <= _LONGEST else path.name[-_LONGEST // 4 :]
    return path.with_name(f".partial-{uuid.uuid4().hex[:8]}-{ending}")


@contextlib.contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Make a temporary folder next to a file, and remove it in the end."""
    sweep(path.parent)
    folder = partial_path(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(folder: Path, own: Container[str] = ()) -> None:
    """Remove temporary files and folders that killed processes left at least a day ago."""
    for left in folder.glob(".partial-????????-*"):
        match = _TEMPORARY.match(left.name)
        with contextlib.suppress(OSError):  # another one removes it, too
            if match and (left.name[match.end() :] in own or time.time() - left.stat().st_mtime > _LONG_AGO):
                remove(left)


def remove(path: Path) -> None:
    """Remove a file, a folder or a link, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def open_regular(path: str | os.PathLike, most: float = math.inf) -> BinaryIO:
    """Open a regular file of bounded size, without waiting for pipes and devices."""
    file = open(path, "rb", opener=without_waiting)  # noqa: SIM115 (the caller closes it)
    status = os.fstat(file.fileno())
    special, large = not stat.S_ISREG(status.st_mode), status.st_size > most
    if special or large:
        file.close()
    refuse(
        (special, f"{path} is a pipe or a device."),
        (large, f"{path} is larger than {most} bytes, more than such a file has."),
    )
    return file


def read_bounded(path: str | os.PathLike, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file of bounded size."""
    with open_regular(path, most) as file:
        return file.read(most)


def without_waiting(path: str | os.PathLike, flags: int) -> int:
    """Return an `opener` that does not wait for a pipe's writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def to_disk(path: Path) -> None:
    """Wait until the disk has a file's content; a rename may reach the disk first."""
    with path.open("rb" if os.name == "posix" else "rb+") as file:  # Windows flushes only what may be written
        os.fsync(file.fileno())


# Errors of writing that are not the program's fault, and what to do.
_FULL = "free some space there, or choose another place"
_REFUSED = "choose another place, or make it writable for you"
_ADVICE = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: _FULL,
    errno.EACCES: _REFUSED,
    errno.EPERM: _REFUSED,
    errno.EROFS: _REFUSED,
}


@contextlib.contextmanager
def written(path: str | os.PathLike) -> Iterator[None]:
    """Turn any library's error about a full disk or a permission into one that names the file and the remedy."""
    try:
        yield
    except Exception as error:  # TensorFlow, h5py and matplotlib each have their own
        number = _number(error)
        if number is None:
            raise
        raise OSError(
            f"{path} could not be written: {os.strerror(number)}. Nothing half-written was left: {_ADVICE[number]}."
        ) from error


def _number(error) -> int | None:
    """Return the number of a known error of the system, in the error itself or in its text."""
    if getattr(error, "errno", None) in _ADVICE:
        return error.errno
    if not isinstance(error, OSError | RuntimeError) and not type(error).__module__.startswith("tensorflow"):
        return None
    match = re.search(r"errno = (\d+)", str(error))
    if match and int(match[1]) in _ADVICE:
        return int(match[1])
    return next((n for n in _ADVICE if os.strerror(n).lower() in str(error).lower()), None)


def append(path: Path, content: bytes, flush: bool = False) -> None:
    """Append to a file or make it: all of the content, or nothing if the disk is full."""
    with written(path), path.open("ab", buffering=0) as file:  # what a buffer keeps, closing would write once more
        length = file.tell()
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            if flush:
                os.fsync(file.fileno())
        except OSError:
            file.truncate(length)
            if not length:
                path.unlink()
            raise


def atomic_write_json(path: Path, value) -> None:
    """Write JSON whole or not at all; numbers that are not finite become `null`."""
    text = json_text(value, ensure_ascii=False) + "\n"
    atomic_write(path, lambda p: p.write_text(text, "utf-8", "backslashreplace"))


def sha256_of(path: str | os.PathLike) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_LARGEST_LOG = 64 * 2**20  # bytes; a steps.csv of a million steps has 30


def read_log(path: Path) -> list[dict[str, float]]:
    """Return the lines of a log as numbers by column; empty cells are left out."""
    return [{key: float(value) for key, value in row.items() if key and value} for row in read_lines(path)]


def read_lines(path: Path) -> list[dict[str, str]]:
    """Return the lines of a log as text by column; each value is a number or empty."""
    with reworded(f"{path} is not a table that keras_highway wrote", (csv.Error, UnicodeDecodeError)):
        text = read_bounded(path, _LARGEST_LOG).decode("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    for number, row in enumerate(rows, 2):
        for key, value in row.items():  # values without a name have the name None
            if value and (key is None or not _is_number(value)):
                name, received = reprlib.repr(key), reprlib.repr(value)
                raise ValueError(f"{path}, line {number}: {name} must be a number. Received: {received}")
    return rows


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_npz(
    path: str | os.PathLike, names: Collection[str] | None = None, most: int = 4 * 2**30, stored: bool = False
) -> dict[str, np.ndarray]:
    """Read arrays from an `.npz` file, without pickles and no more than `most` bytes."""
    with open_regular(path) as stream:
        try:
            archive = zipfile.ZipFile(stream)
            # Members may lie over each other: stored ones together hold no more than the file, either.
            arrays, left = {}, min(most, os.fstat(stream.fileno()).st_size) if stored else most
            for info in archive.infolist():
                name = info.filename.removesuffix(".npy")
                if names is None or name in names:
                    arrays[name] = _array(archive, info, left, stored)
                    left -= arrays[name].nbytes
            return arrays
        except Exception as error:  # of a damaged file zipfile and NumPy raise nearly anything
            if may_pass(error):
                raise
            text = f"{path} is not an .npz file that keras_highway wrote, or is damaged: {brief(error)}."
            raise ValueError(text) from error


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int, stored: bool) -> np.ndarray:
    if info.file_size > most or (stored and info.compress_type != zipfile.ZIP_STORED):
        raise ValueError(f"{info.filename} is compressed, or larger than the {most} bytes that are read.")
    with archive.open(info) as member:
        values = np.lib.format.read_array(member, allow_pickle=False)
        if values.size > most or member.read(1):
            raise ValueError(f"{info.filename} does not have the size that it declares.")
    return values
