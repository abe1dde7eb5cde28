"""TensorBoard's event files, the only writer of the project: scalars of a run, on any backend.

TensorFlow's own writer needs TensorFlow, tensorboardX needs protobuf; what is
written here, scalars of a step, takes these 90 lines and neither. TensorFlow's
reader, which checks the checksums, reads it in the tests.

A file is a sequence of records: length (uint64), its checksum, the data, their
checksum. The data are a protocol buffer, tensorflow/core/util/event.proto; the
checksums are CRC-32C, rotated and moved as in TensorFlow's `TFRecord` format.
"""

import math
import os
import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path

from keras_highway._support.files import append

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, bits reversed
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # protocol buffers' wire types


class EventFile:
    """A new event file in a folder; each `write` adds the scalars of a step and closes it again.

    Args:
        folder: Where it goes; made where there is none.
        suffix: Text at the end of its name, which distinguishes the files of
            one process. Defaults to `""`.
    """

    def __init__(self, folder, suffix=""):
        now = time.time()
        name = f"events.out.tfevents.{now:.6f}.{platform.node()}.{os.getpid()}{suffix}"
        self.path = Path(folder) / name
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append(self.path, _record(_event(now, _field(3, _BYTES, b"brain.Event:2"))))

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add the scalars of a step."""
        values = b"".join(
            _field(1, _BYTES, _field(1, _BYTES, tag.encode()) + _field(2, _FIXED32, _float32(value)))
            for tag, value in scalars.items()
        )
        event = _event(time.time(), _field(2, _VARINT, _varint(step)) + _field(5, _BYTES, values))
        append(self.path, _record(event))


def _float32(value: float) -> bytes:
    """Four bytes; what is beyond a float32 is infinite, as of a network that diverges."""
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", math.copysign(math.inf, value))


def _event(seconds, rest) -> bytes:
    return _field(1, _FIXED64, struct.pack("<d", seconds)) + rest


def _field(number, wire_type, content) -> bytes:
    size = _varint(len(content)) if wire_type == _BYTES else b""
    return _varint(number << 3 | wire_type) + size + content


def _varint(value) -> bytes:
    """Seven bits per byte, the lowest first; the eighth is set where more follow."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def _record(data) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + _checksum(length) + data + _checksum(data)


def _checksum(data) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _table_entry(value) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE = [_table_entry(byte) for byte in range(256)]
