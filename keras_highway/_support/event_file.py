"""Scalars for TensorBoard, written by tensorboardX on any backend."""

import functools
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_highway._support.files import written


class EventFile:
    """A new event file in a folder, made with the first scalars. Without tensorboardX nothing is written.

    Args:
        folder: The folder; made if needed.
        suffix: End of the file's name; differs between the files of one
            process. Defaults to `""`.
    """

    def __init__(self, folder, suffix=""):
        self._folder, self._suffix = Path(folder), suffix
        self._writer: Any = None

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add the scalars of a step.

        Args:
            step: Int, at least 0.
            scalars: Dict from tag, e.g. `"gates/mean"`, to number.
        """
        if not _is_installed():
            return
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        with np.errstate(over="ignore"):  # infinite in float32, as of a network that diverges
            values = [Summary.Value(tag=tag, simple_value=float(np.float32(v))) for tag, v in scalars.items()]
        # Without a SummaryWriter, whose thread would hide the error of a full disk.
        with written(self._folder / f"events{self._suffix}"):
            if self._writer is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._writer = EventsWriter(str(self._folder / "events"), self._suffix)
            self._writer.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
            self._writer.flush()


@functools.cache
def _is_installed() -> bool:
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        print(
            "note: without tensorboardX no files for TensorBoard are written: pip install tensorboardX", file=sys.stderr
        )
        return False
    return True
