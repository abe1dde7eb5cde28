"""Scalars for TensorBoard, written by tensorboardX on any backend."""

import functools
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from keras_highway._support.files import written


class EventFile:
    """Event files in a folder, one for each step: a process that is killed leaves whole files.

    Without tensorboardX nothing is written.

    Args:
        folder: The folder; made if needed.
        suffix: End of the files' names, before the step. Defaults to `""`.
    """

    def __init__(self, folder, suffix=""):
        self._folder, self._suffix = Path(folder), suffix

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write the scalars of a step.

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
            self._folder.mkdir(parents=True, exist_ok=True)
            writer = EventsWriter(str(self._folder / "events"), f"{self._suffix}.{step}")
            try:
                writer.write_event(Event(wall_time=time.time(), step=step, summary=Summary(value=values)))
            finally:
                writer.close()


@functools.cache
def _is_installed() -> bool:
    try:
        import tensorboardX  # noqa: F401
    except ImportError:
        print("note: TensorBoard files need tensorboardX: pip install keras-highway[tensorboard]", file=sys.stderr)
        return False
    return True
