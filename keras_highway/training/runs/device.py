"""Since when the device has nothing to compute: JAX, and TensorFlow on a GPU, run behind the program that gives it."""

import contextlib
import queue
import threading
import time
from typing import Any

import numpy as np


class Device:
    """Follows steps in a thread of its own, which ends with `close`, or with the process."""

    def __init__(self):
        self._steps: queue.SimpleQueue = queue.SimpleQueue()
        self._given, self._done, self._last_end = 0, 0, 0.0
        self._thread: threading.Thread | None = None

    def watch(self, sums: Any) -> None:
        """Counts a step that was given to the device.

        Args:
            sums: What it will return.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, daemon=True)
            self._thread.start()
        self._given += 1
        self._steps.put(sums)

    def idle_since(self, now: float) -> float:
        """Returns when the last step ended, `now` where it has not.

        Args:
            now: The time, of `time.perf_counter`.
        """
        return self._last_end if self._done == self._given else now

    def close(self) -> None:
        """Ends the thread."""
        if self._thread is not None:
            self._steps.put(None)
            self._thread.join()
            self._thread = None

    def _follow(self) -> None:
        while (sums := self._steps.get()) is not None:
            with contextlib.suppress(Exception):  # whoever reads the sums meets it, too
                np.asarray(sums)
            self._last_end = time.perf_counter()
            self._done += 1
