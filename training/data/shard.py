"""The part of a batch that a process computes."""

from typing import NamedTuple

import numpy as np


class Shard(NamedTuple):
    """The part of every global batch that a process computes: equal parts, in order.

    Attributes:
        index: Which part.
        count: How many there are.
    """

    index: int = 0
    count: int = 1

    def of(self, batch: np.ndarray) -> np.ndarray:
        """Returns the part of a global batch."""
        size = len(batch) // self.count
        return batch[self.index * size : (self.index + 1) * size]
