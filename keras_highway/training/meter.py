"""Sums, time and waiting of an epoch, read from the device now and then; the progress bar."""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from tqdm import tqdm

from keras_highway.training.checkpoint import Progress
from keras_highway.training.program import Program, means

_READ_EVERY = 50  # steps: reading makes the host wait for the device
_SHOW_EVERY = 2.0  # seconds, with a bar
_FORMAT = "{desc}: {percentage:3.0f} %|{bar}| {n_fmt}/{total_fmt}{unit} [{remaining} left, {rate_fmt}{postfix}]"
_LEAST = 1e-6  # seconds between two readings, even if a clock stands still or was set back


class Meter:
    """The numbers of an epoch for the log. A thread notes when a step ends; it ends with `close`."""

    def __init__(self, progress: Progress, program: Program):
        recipe, steps, units = program.recipe, program.steps_per_epoch, program.batch_units
        self.sums = np.array(progress.sums, np.float64)
        self.step, self.seconds, self.waited = progress.step, progress.seconds, progress.waited
        self.losses: list[tuple[int, float]] = []
        self._program, self._units, self._first_step = program, units, progress.epoch * steps
        self._pending: list = []
        self._steps: queue.SimpleQueue = queue.SimpleQueue()
        self._last: Any = None
        self._ended: tuple[Any, float] = (None, 0.0)  # a step and its end: replaced as a whole
        self._thread: threading.Thread | None = None
        self._resumed = time.perf_counter()
        self._bar = tqdm(
            total=steps * units,
            initial=progress.step * units,
            desc=f"epoch {progress.epoch + 1}/{recipe.epochs}",
            unit=f" {recipe.task.unit}",
            bar_format=_FORMAT,
            leave=False,
            disable=not sys.stderr.isatty(),
        )

    def timed(self, batches: Iterator) -> Iterator:
        """Yield batches; waiting is the time in which the device has nothing to compute."""
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            end = time.perf_counter()
            step, ended = self._ended
            self.waited += max(0.0, end - max(start, ended if step is self._last else end))
            if batch is None:
                return
            yield batch

    def add(self, sums) -> None:
        """Count a step; its `sums` may not be finished."""
        self._pending.append(sums)
        self._watch(sums)
        self.step += 1
        shown = not self._bar.disable and time.perf_counter() - self._resumed > _SHOW_EVERY
        if shown or len(self._pending) >= _READ_EVERY:
            self.read()
        self._bar.update(self._units)

    def _watch(self, sums) -> None:
        self._last = sums
        if _is_ready(sums):  # the thread would know it later, when the interpreter is free for it
            self._ended = (sums, time.perf_counter())
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, daemon=True)
            self._thread.start()
        self._steps.put(sums)

    def _follow(self) -> None:
        while (sums := self._steps.get()) is not None:
            with contextlib.suppress(Exception):  # `read` meets it, too
                np.asarray(sums)
            if sums is self._last:
                self._ended = (sums, time.perf_counter())

    def read(self) -> None:
        """Read the sums of the steps taken. Time spent until `resume` does not count."""
        pending, self._pending = self._pending, []
        first = self._first_step + self.step - len(pending) + 1
        for step, value in enumerate(pending, first):
            value = np.asarray(value, np.float64)
            if not np.isfinite(value[0]):
                raise FloatingPointError(f"The loss became {value[0]} in step {step} of the run.")
            self.sums += value
            self.losses.append((step, value[0] / value[-1]))
        now = time.perf_counter()
        self.seconds, self._resumed = self.seconds + max(_LEAST, now - self._resumed), now
        self.waited = min(self.waited, self.seconds)
        if self.sums[-1]:
            self._bar.set_postfix(self._program.bar(means(self.sums, self._program.sums)), refresh=False)

    def resume(self) -> None:
        """Count time again after `read`."""
        self._resumed = time.perf_counter()

    def close(self) -> None:
        """Remove the progress bar before anything else is printed; end the thread, or leave it to a stuck step."""
        self._bar.close()
        if self._thread is not None:
            self._steps.put(None)
            self._thread.join(1.0)
            self._thread = None


def _is_ready(sums: Any) -> bool:
    if isinstance(sums, np.ndarray):  # PyTorch's engine waits for its steps
        return True
    if hasattr(sums, "is_ready"):
        return sums.is_ready()
    return "CPU" in str(getattr(sums, "device", ""))  # TensorFlow returns there when a step is done
