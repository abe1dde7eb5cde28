"""Arrays of an `.npz` file: what they declare is checked before memory is allocated for it."""

import math
import os
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

import numpy as np

from keras_highway._support.files import may_pass

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_DENSEST = 1100  # bytes that deflate can make of one
_ENCRYPTED = 1


def read_npz(
    path: str | os.PathLike, names: Collection[str] | None = None, most: int = 4 * 2**30, stored: bool = False
) -> dict[str, np.ndarray]:
    """Reads arrays of an `.npz` file; no pickle is opened.

    Args:
        path: The file.
        names: The arrays to read, where they are there. Defaults to all.
        most: Most bytes of all of them together. Defaults to 4 GiB.
        stored: Bool, whether only arrays that are not compressed are read,
            which are no larger than the file. Defaults to `False`.

    Returns:
        The arrays by name.

    Raises:
        ValueError: If it is not such a file, or an array declares what the
            file cannot hold or more than `most`.
        FileNotFoundError: If there is no file.
        OSError: If the file system is away, see `may_pass`: the file may be
            sound.
    """
    try:
        with Path(path).open("rb") as stream, zipfile.ZipFile(stream) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            chosen = [name for name in members if names is None or name in names]
            # Members may lie over each other: stored ones together hold no more than the file, either.
            arrays, left = {}, min(most, os.fstat(stream.fileno()).st_size) if stored else most
            for name in chosen:
                arrays[name] = _array(archive, members[name], left, stored)
                left -= arrays[name].nbytes
            return arrays
    except FileNotFoundError:
        raise
    except (
        *(zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, KeyError, TypeError, SyntaxError),
        *(NotImplementedError, RuntimeError, MemoryError, OverflowError, UnicodeError),
    ) as error:
        if may_pass(error):
            raise
        reason = " ".join(str(error).split())[:300]
        raise ValueError(f"{path} is not an .npz file that keras_highway wrote, or is damaged: {reason}") from error


def _array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, most: int, stored: bool) -> np.ndarray:
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
        raise ValueError(f"{info.filename} is encrypted, or compressed in a way that NumPy does not write.")
    if stored and info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} is compressed, and such a file is written without compression.")
    with archive.open(info) as member:
        shape, fortran, dtype = _header(member)
        size = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise ValueError(f"{info.filename} holds Python objects.")
        density = 1 if info.compress_type == zipfile.ZIP_STORED else _DENSEST
        if max(size, math.prod(shape)) > most or size > info.compress_size * density:
            raise ValueError(
                f"{info.filename} declares an array of {size} bytes, shape {shape}: more than the file can hold, or "
                f"than the {most} that are read."
            )
        values = np.empty(math.prod(shape), dtype)
        actual = member.readinto(values.view(np.uint8)) if size else 0
        more = member.read(1)  # at its end, its checksum is compared
    if actual != size or more:
        raise ValueError(f"{info.filename} does not have the {size} bytes that it declares.")
    return values.reshape(shape, order="F" if fortran else "C")


def _header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, Any]:
    from numpy.lib import format as npy  # when it is needed: importing keras_highway is to be light

    version = npy.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array of version {version} of NumPy's format")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(member)
    if any(side < 0 for side in shape):
        raise ValueError(f"an array of shape {shape}")
    return shape, fortran, dtype
