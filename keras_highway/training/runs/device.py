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
        self._last: Any = None
        self._ended: tuple[Any, float] = (None, 0.0)  # a step, and when it ended: replaced as a whole
        self._thread: threading.Thread | None = None

    def watch(self, sums: Any) -> None:
        """Notes a step that was given to the device, which computes them in turn.

        Args:
            sums: What it will return.
        """
        self._last = sums
        if _is_ready(sums):  # by the thread this would be known later, when the interpreter is free for it
            self._ended = (sums, time.perf_counter())
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, daemon=True)
            self._thread.start()
        self._steps.put(sums)

    def idle_since(self, now: float) -> float:
        """Returns when the last step ended, `now` where it has not.

        Args:
            now: The time, of `time.perf_counter`.
        """
        step, end = self._ended
        return end if step is self._last else now

    def close(self) -> None:
        """Ends the thread, or leaves it to a step that will not end."""
        if self._thread is not None:
            self._steps.put(None)
            self._thread.join(1.0)
            self._thread = None

    def _follow(self) -> None:
        while (sums := self._steps.get()) is not None:
            with contextlib.suppress(Exception):  # whoever reads the sums meets it, too
                np.asarray(sums)
            if sums is self._last:
                self._ended = (sums, time.perf_counter())


def _is_ready(sums: Any) -> bool:
    if isinstance(sums, np.ndarray):  # PyTorch's engine waits for its steps
        return True
    if hasattr(sums, "is_ready"):
        return sums.is_ready()
    return "CPU" in str(getattr(sums, "device", ""))  # there TensorFlow returns when a step is done
