"""Sums, time and waiting of an epoch, read from the device now and then."""

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from keras_highway.training.runs.checkpoint import Progress

_READ_EVERY = 50  # steps: reading makes the host wait for the device
_SHOW_EVERY = 2.0  # seconds, where a bar is shown
_FORMAT = "{desc}: {percentage:3.0f} %|{bar}| {n_fmt}/{total_fmt}{unit} [{remaining} left, {rate_fmt}{postfix}]"
_LEAST = 1e-6  # seconds that pass between two readings, even where a clock stands still or was set back


class Meter:
    """What the log reports of an epoch.

    Args:
        progress: Where the epoch begins, or resumes.
        epochs: How many there are.
        steps: Steps of an epoch.
        units: Images or tokens of a step.
        unit: Which of the two.
        names: Names of the sums.
        format_metrics: Function from the means of the sums read so far to
            their texts on the progress bar.

    Attributes:
        sums: Of the steps read so far.
        losses: Step of the run, from 1, and mean loss of each of them, since
            it was last emptied.
    """

    def __init__(
        self,
        progress: Progress,
        epochs: int,
        steps: int,
        units: int,
        unit: str,
        names: tuple[str, ...],
        format_metrics: Callable[[dict[str, float]], Mapping[str, str]],
    ):
        self.sums = np.array(progress.sums, np.float64)
        self.step, self.seconds, self.waited = progress.step, progress.seconds, progress.waited
        self.losses: list[tuple[int, float]] = []
        self._first_step = progress.epoch * steps
        self._pending: list = []
        self._device = Device()
        self._resumed = time.perf_counter()
        self._names, self._format_metrics = names, format_metrics
        self._bar = tqdm(
            total=steps * units,
            initial=progress.step * units,
            desc=f"epoch {progress.epoch + 1}/{epochs}",
            unit=f" {unit}",
            bar_format=_FORMAT,
            leave=False,
            disable=not sys.stderr.isatty(),
        )
        self._units = units

    def wait_for(self, batches):
        """Return the next batch, or None at the end; time in which the device has nothing to compute is waiting."""
        start = time.perf_counter()
        batch = next(batches, None)
        end = time.perf_counter()
        self.waited += max(0.0, end - max(start, self._device.idle_since(end)))
        return batch

    def add(self, sums) -> None:
        """Count a step; `sums` may still be on its way."""
        self._pending.append(sums)
        self._device.watch(sums)
        self.step += 1
        looked_at = not self._bar.disable and time.perf_counter() - self._resumed > _SHOW_EVERY
        if looked_at or len(self._pending) >= _READ_EVERY:
            self.read()
        self._bar.update(self._units)

    def read(self) -> None:
        """Read the sums of the steps taken.

        Raises:
            FloatingPointError: If a step's loss is not finite.
        """
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
            self._bar.set_postfix(self._format_metrics(means(self.sums, self._names)), refresh=False)

    def pause(self) -> None:
        """Time spent until `resume` does not count."""
        self.read()

    def resume(self) -> None:
        """Time counts again."""
        self._resumed = time.perf_counter()

    def close(self) -> None:
        """Take the progress bar away, before anything else is written."""
        self._bar.close()
        self._device.close()


def means(sums, names: tuple[str, ...]) -> dict[str, float]:
    """Return the means of sums over samples, by name; the last sum is the number of samples."""
    return {name: float(value / sums[-1]) for name, value in zip(names[:-1], sums[:-1], strict=True)}


class Device:
    """Follows steps in a thread of its own, which ends with `close`, or with the process."""

    def __init__(self):
        self._steps: queue.SimpleQueue = queue.SimpleQueue()
        self._last: Any = None
        self._ended: tuple[Any, float] = (None, 0.0)  # a step, and when it ended: replaced as a whole
        self._thread: threading.Thread | None = None

    def watch(self, sums: Any) -> None:
        """Note a step that was given to the device, which computes them in turn.

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
        """Return when the last step ended, `now` where it has not.

        Args:
            now: The time, of `time.perf_counter`.
        """
        step, end = self._ended
        return end if step is self._last else now

    def close(self) -> None:
        """End the thread, or leaves it to a step that will not end."""
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
