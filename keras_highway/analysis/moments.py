"""Mean and variance of arrays that come a batch at a time."""

from typing import Any

import numpy as np


class Moments:
    """Mean and variance over the samples of many batches, in float64 and in the memory of one sample.

    Batches are merged by the pairwise update of Chan, Golub, LeVeque (1979),
    which does not cancel where the mean is much larger than the deviation.

    Attributes:
        count: Samples seen.
        mean: float64 array in the shape of one sample; `0.0` before the first batch.
    """

    def __init__(self):
        self.count = 0
        self.mean = np.float64(0.0)
        self._squares = np.float64(0.0)

    @property
    def variance(self) -> np.ndarray:
        """The population variance (divided by `count`), a float64 array in the shape of one sample."""
        return np.asarray(self._squares / max(self.count, 1))

    def add(self, values: Any) -> None:
        """Adds a batch `(n, ...)`; the shape of a sample stays that of the first batch.

        Raises:
            ValueError: If a sample has another shape than those before.
        """
        values = np.asarray(values, np.float64)
        if self.count and values.shape[1:] != self.mean.shape:
            raise ValueError(
                "Mean and variance per unit need samples of one shape: bring all images to one size. "
                f"Received: a batch of shape {values.shape} after samples of shape {self.mean.shape}"
            )
        if not len(values):
            return
        mean = values.mean(0)
        delta, total = mean - self.mean, self.count + len(values)
        self._squares = self._squares + np.square(values - mean).sum(0)
        self._squares = self._squares + np.square(delta) * (self.count * len(values) / total)
        self.mean = np.asarray(self.mean + delta * (len(values) / total))
        self.count = total
