"""The SHA-256 of a whole HDF5 file, written behind its end, where HDF5 does not look.

It is compared before HDF5 opens the file: of bytes that were altered, HDF5's
library can crash or never return. Programs that change a file cut it off; the
digest in the stamp, which is over the arrays, is then what is left.
"""

import hashlib
import os
import struct
from pathlib import Path

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MARK = b"\nkeras_highway sha256 "
_LENGTH = len(_MARK) + 64 + 1
# Where the superblock of each version states the size of addresses, and where it holds the address of the end.
_PLACES = {0: (13, 40), 1: (13, 44), 2: (9, 28), 3: (9, 28)}


def sealed(content: bytes) -> bytes:
    """Returns the bytes of an HDF5 file with their SHA-256 behind them."""
    return content + _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def check(path: Path) -> bool:
    """Compares a file with its seal; returns whether it has one.

    Args:
        path: The file.

    Raises:
        ValueError: If it is no HDF5 file, ends too early, or is not as it was
            sealed.
    """
    with path.open("rb") as file:
        end, size = _end(file.read(64)), os.fstat(file.fileno()).st_size
        if size < end:
            raise ValueError(f"it is truncated: it has {size} bytes of {end}")
        if size == end:
            return False
        file.seek(end)
        mark = file.read(_LENGTH + 1)
        file.seek(0)
        if len(mark) != _LENGTH or mark != _MARK + _digest(file, end).encode() + b"\n":
            raise ValueError("its bytes are not those that were sealed with their sha256")
    return True


def _digest(file, size) -> str:
    digest = hashlib.sha256()
    while size > 0 and (chunk := file.read(min(size, 1 << 20))):
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def _end(head: bytes) -> int:
    """The address of the end of an HDF5 file, as its superblock states."""
    if len(head) < 64 or not head.startswith(_SIGNATURE) or head[8] not in _PLACES:
        raise ValueError("it does not begin as an HDF5 file")
    width, address = _PLACES[head[8]]
    if head[width] != 8:
        raise ValueError("its addresses are not of 8 bytes")
    return struct.unpack_from("<Q", head, address)[0]
