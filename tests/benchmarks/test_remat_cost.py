"""What `remat` saves and costs: the peak of a process that trains, and the time of a step."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from comparison import compare, record

from keras_highway.applications import create_model

pytestmark = [
    pytest.mark.skipif(keras.config.backend() == "jax", reason="on a CPU, XLA undoes it (docs/memory.md)"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks of memory are read from Linux"),
]
CASES = {"highway110": ((32, 32, 3), 128), "highway50": ((224, 224, 3), 8)}


def trained(name, remat):
    """Returns a function that takes a step of training."""
    shape, batch = CASES[name]
    model = create_model(name, input_shape=shape, remat=remat)
    model.compile(keras.optimizers.SGD(0.001), "sparse_categorical_crossentropy")
    rng = np.random.default_rng(0)
    x, y = rng.random((batch, *shape), "float32"), rng.integers(0, 10, batch)
    return lambda: model.train_on_batch(x, y)


def _peak(name, remat) -> float:
    """MiB that two steps take in a process of their own, beyond its memory before."""
    command = [sys.executable, __file__, name, *(["remat"] if remat else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", CASES)
def test_remat_takes_less_memory_for_another_forward_pass(benchmark, name):
    peaks = {remat: _peak(name, remat) for remat in (False, True)}
    record(f"{name}, remat, peak of two steps, MiB", without=peaks[False], remat=peaks[True])
    assert peaks[True] < 0.6 * peaks[False]
    plain, remat = (trained(name, remat) for remat in (False, True))
    compare(benchmark, f"{name}: remat / without, train", remat, plain, rounds=5).check_at_most(1.5)


def _highest() -> float:
    """MiB, of this program alone: `getrusage` counts what was there before it was started, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    step = trained(sys.argv[1], "remat" in sys.argv[2:])
    before = _highest()
    step(), step()
    print(_highest() - before)
