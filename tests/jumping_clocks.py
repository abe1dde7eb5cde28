"""Trains with clocks that jump, as on a machine that is suspended, moved or set: `tests.endurance` runs this.

    python -m tests.jumping_clocks SEED FILE_DESCRIPTOR ARGUMENTS_OF_TRAIN...

Every jump writes a byte to the file descriptor.
"""

import os
import random
import sys
import time

_SECONDS = 2 * 86400.0  # a jump is up to so long, in either direction
_CHANCE = 0.002  # of a jump at each reading


class JumpingClock:
    """A clock that now and then jumps, back as well: no program should stand on the difference of two readings.

    Args:
        clock: The clock that it stands for.
        seed: Seed of its jumps.
        descriptor: File descriptor that gets a byte for each.
    """

    def __init__(self, clock, seed: str, descriptor: int):
        self._clock, self._draw, self._descriptor, self._offset = clock, random.Random(seed), descriptor, 0.0

    def __call__(self) -> float:
        if self._draw.random() < _CHANCE:
            self._offset += self._draw.uniform(-_SECONDS, _SECONDS)
            os.write(self._descriptor, b".")
        return self._clock() + self._offset


def main(seed, descriptor, *arguments) -> None:
    """Lets the clocks of this process jump and trains."""
    for name in ("time", "perf_counter", "monotonic"):
        setattr(time, name, JumpingClock(getattr(time, name), f"{seed} {name}", int(descriptor)))
    from keras_highway.training.train import main as train

    train(list(arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
