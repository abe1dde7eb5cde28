"""A LiteRT file of 8-bit whole numbers against one of float32: speed, size, and accuracy on MNIST's test images."""

import keras
import numpy as np
import pytest
from comparison import compare, record
from litert import interpreted

import keras_highway as kh
from keras_highway.data.datasets import load_dataset
from keras_highway.export import export

pytestmark = [
    pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="LiteRT files come from TensorFlow"),
    # TensorFlow's: its interpreter will move to a package of its own, and quantizing without a signature is a habit.
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
NAME = "mnist10_w32.tvdn"
BATCH = 100


def test_int8_is_faster_and_loses_at_most_a_fifth_of_a_point(benchmark, data_dir, tmp_path):
    data, transform = load_dataset("mnist", data_dir), kh.get_transform(NAME)
    model = kh.load(NAME)
    chosen = np.linspace(0, len(data.x_train) - 1, 300).astype(int)  # as `export --int8` chooses them
    files = {name: tmp_path / f"{name}.tflite" for name in ("float32", "int8")}
    export(model, files["float32"], "litert")
    export(model, files["int8"], "litert", int8=transform.apply(data.x_train[chosen]))
    run = {name: interpreted(path, (BATCH, 28, 28, 1), threads=1) for name, path in files.items()}
    images = transform.apply(data.x_test)
    right = {
        name: float(
            np.mean(np.concatenate([f(x) for x in images.reshape(-1, BATCH, 28, 28, 1)]).argmax(1) == data.y_test)
        )
        for name, f in run.items()
    }
    assert right["float32"] - right["int8"] <= 0.002
    sizes = {name: path.stat().st_size for name, path in files.items()}
    assert sizes["int8"] < sizes["float32"] / 3
    record(f"{NAME}, LiteRT", accuracy=right, bytes=sizes)
    name = f"{NAME}, LiteRT, int8 / float32, batch {BATCH}"
    compare(benchmark, name, lambda: run["int8"](images[:BATCH]), lambda: run["float32"](images[:BATCH])).check_at_most(
        1
    )
