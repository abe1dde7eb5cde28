"""Sums, time and waiting of an epoch, read from the device now and then."""

import sys
import time

import numpy as np
from tqdm import tqdm

from keras_highway.training.runs.checkpoint import Progress

_READ_EVERY = 50  # steps: reading makes the host wait for the device


class Meter:
    """What the log reports of an epoch.

    Args:
        progress: Where the epoch begins, or resumes.
        epochs: How many there are.
        steps: Steps of an epoch.

    Attributes:
        sums: Of the steps read so far.
        losses: Step of the run, from 1, and mean loss of each of them, since
            it was last emptied.
    """

    def __init__(self, progress: Progress, epochs: int, steps: int):
        self.sums = np.array(progress.sums, np.float64)
        self.step, self.seconds, self.waited = progress.step, progress.seconds, progress.waited
        self.losses: list[tuple[int, float]] = []
        self._first_step = progress.epoch * steps
        self._pending: list = []
        self._resumed = time.perf_counter()
        self._bar = tqdm(
            total=steps,
            initial=progress.step,
            desc=f"epoch {progress.epoch + 1}/{epochs}",
            leave=False,
            disable=not sys.stderr.isatty(),
        )

    def wait_for(self, batches):
        """Returns the next batch, or None at the end; the time it takes counts as waiting."""
        start = time.perf_counter()
        batch = next(batches, None)
        self.waited += time.perf_counter() - start
        return batch

    def add(self, sums) -> None:
        """Counts a step; `sums` may still be on its way."""
        self._pending.append(sums)
        self.step += 1
        self._bar.update()
        if len(self._pending) >= _READ_EVERY:
            self.read()

    def read(self) -> None:
        """Reads the sums of the steps taken.

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
        self.seconds, self._resumed = self.seconds + now - self._resumed, now
        if self.sums[-1]:
            self._bar.set_postfix(loss=f"{self.sums[0] / self.sums[-1]:.4f}", refresh=False)

    def pause(self) -> None:
        """Time spent until `resume` does not count."""
        self.read()

    def resume(self) -> None:
        """Time counts again."""
        self._resumed = time.perf_counter()

    def close(self) -> None:
        """Takes the progress bar away."""
        self._bar.close()


def means(sums, names: tuple[str, ...]) -> dict[str, float]:
    """Returns the means of sums over samples, by name; the last sum is the number of samples."""
    return {name: float(value / sums[-1]) for name, value in zip(names[:-1], sums[:-1], strict=True)}
