"""`import keras_highway` on top of `import keras`, in a fresh process each time."""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from comparison import record

ROOT = Path(__file__).parents[2]
# Keras's objects are left out of garbage collection: to go through them, 0.1 s on JAX, falls to what allocates next.
CODE = """
import gc, keras, time
gc.freeze()
start = time.process_time()
import keras_highway
print(time.process_time() - start)
"""


def import_seconds(bytecode) -> float:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def test_import_takes_a_seventh_of_a_second(benchmark, tmp_path):
    """In the process's own time: what other processes take is not the package's."""
    seconds = []
    benchmark.pedantic(lambda: seconds.append(import_seconds(tmp_path)), rounds=5, warmup_rounds=1)
    seconds = seconds[1:]  # the first writes the bytecode
    least, median = min(seconds), statistics.median(seconds)
    record("import keras_highway after keras", least_seconds=least, median_seconds=median, n=len(seconds))
    assert median <= 0.15
