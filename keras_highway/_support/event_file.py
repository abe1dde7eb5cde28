"""Scalars for TensorBoard, written by tensorboardX on any backend."""

import functools
import os
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from keras_highway._support.files import atomic_write


class EventFile:
    """Event files in a folder, one for each step; nothing without tensorboardX."""

    def __init__(self, folder, suffix=""):
        self._folder, self._suffix = Path(folder), suffix

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars of a step."""
        if not _is_installed():
            return
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary
        from tensorboardX.record_writer import RecordWriter

        with np.errstate(over="ignore"):  # infinite in float32, as of a network that diverges
            values = [Summary.Value(tag=tag, simple_value=float(np.float32(v))) for tag, v in scalars.items()]
        events = (Event(file_version="brain.Event:2"), Event(step=step, summary=Summary(value=values)))
        name = f"events.out.tfevents.{time.time():.6f}.{platform.node()}.{os.getpid()}{self._suffix}.{step}"

        def write(path):
            writer = RecordWriter(str(path))
            try:
                for event in events:
                    event.wall_time = time.time()
                    writer.write(event.SerializeToString())
            finally:
                writer.close()

        self._folder.mkdir(parents=True, exist_ok=True)
        atomic_write(self._folder / name, write)


@functools.cache
def _is_installed() -> bool:
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        print("note: TensorBoard files need tensorboardX: pip install keras-highway[tensorboard]", file=sys.stderr)
        return False
    return True
