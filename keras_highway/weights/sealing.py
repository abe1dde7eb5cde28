"""The SHA-256 of a whole HDF5 file, written behind its end, where HDF5 does not look.

It is compared before HDF5 opens the file: of bytes that were altered, HDF5's
library can crash or never return. Programs that change a file cut it off; the
digest in the stamp, which is over the arrays, is then what is left.
"""

import hashlib
import struct

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MARK = b"\nkeras_highway sha256 "
_LENGTH = len(_MARK) + 64 + 1
# Where the superblock of each version states the size of addresses, and where it holds the address of the end.
_ADDRESSES = {0: (13, 40), 1: (13, 44), 2: (9, 28), 3: (9, 28)}


def sealed(content: bytes) -> bytes:
    """Return the bytes of an HDF5 file with their SHA-256 behind them."""
    return content + _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def check(content: bytes) -> tuple[bool, str]:
    """Compare a file with its seal; returns whether it has one, and the SHA-256 of the file with its seal.

    Args:
        content: The file's bytes.

    Raises:
        ValueError: If it is not an HDF5 file, ends too early, or is not as it
            was sealed.
    """
    end, size = _end(content[:64]), len(content)
    if size < end:
        raise ValueError(f"it is truncated: it has {size} bytes of {end}")
    digest, mark = hashlib.sha256(memoryview(content)[:end]), content[end : end + _LENGTH + 1]
    if mark and mark != _MARK + digest.hexdigest().encode() + b"\n":
        raise ValueError("its bytes are not those that were sealed with their sha256")
    digest.update(mark)
    return bool(mark), digest.hexdigest()


def _end(head: bytes) -> int:
    """Return the address of the end of an HDF5 file, as its superblock states."""
    if len(head) < 64 or not head.startswith(_SIGNATURE) or head[8] not in _ADDRESSES:
        raise ValueError("it does not begin as an HDF5 file")
    width, address = _ADDRESSES[head[8]]
    if head[width] != 8:
        raise ValueError("its addresses are not of 8 bytes")
    return struct.unpack_from("<Q", head, address)[0]
