"""`python -m zoo.release.speed`: images per second of every variant that has weights, `zoo/speed.json`.

Of one CPU core's own time, so that other programs on the machine count as
little as possible: TensorFlow with one thread, the compiled network in
inference, batches of random images, the median of several. Trained or random
weights make no difference.
"""

import os

if __name__ == "__main__":  # before TensorFlow reads them
    os.environ.setdefault("KERAS_BACKEND", "tensorflow")
    os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import datetime
import importlib
import statistics
import sys
import time
from pathlib import Path

import keras
import numpy as np

from keras_highway._support.files import atomic_write_json
from keras_highway.applications import create_model, get_spec
from keras_highway.tasks import IMAGES
from keras_highway.training.run_folder import hardware
from keras_highway.weights import registry

SPEED = Path(__file__).resolve().parents[1] / "speed.json"
_PIXELS = 500_000  # of a batch, about: 8 images of 224x224, 128 of 28x28 at most
_MOST = 128


def images_per_second(variant: str, repeats: int) -> dict[str, float]:
    """Return median and quartiles of images per second of processor time."""
    import tensorflow as tf

    height, width, channels = get_spec(variant).input_shape
    batch = max(1, min(_MOST, _PIXELS // (height * width)))
    images = tf.constant(np.random.default_rng(0).random((batch, height, width, channels), "float32"))
    net = create_model(variant)
    run = tf.function(lambda x: net(x, training=False))
    for _ in range(3):
        run(images)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run(images).numpy()
        times.append(batch / (time.process_time() - start))
    low, median, high = statistics.quantiles(times, n=4)
    rates = {"median": median, "low": low, "high": high}
    return {**{name: float(f"{rate:.4g}") for name, rate in rates.items()}, "batch": batch}


def main(argv=None) -> int:
    """Parse the command line, measures, writes."""
    parser = argparse.ArgumentParser(prog="python -m zoo.release.speed", description=__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=SPEED)
    args = parser.parse_args(argv)
    if keras.backend.backend() != "tensorflow":
        raise SystemExit("Speed is measured on TensorFlow: set KERAS_BACKEND=tensorflow.")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    variants = sorted({row.variant for row in registry.WEIGHTS.values() if get_spec(row.variant).task is IMAGES})
    speeds = {}
    for variant in variants:
        speeds[variant] = images_per_second(variant, args.repeats)
        print(variant, speeds[variant], flush=True)
        keras.utils.clear_session()
    modules = ("keras", "tensorflow", "numpy")
    atomic_write_json(
        args.out,
        {
            "hardware": hardware(),
            "threads": 1,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "versions": {name: importlib.import_module(name).__version__ for name in modules},
            "repeats": args.repeats,
            "images_per_second": speeds,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
