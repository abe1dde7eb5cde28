"""Training steps in bfloat16 with convolutions as products of matrices, against TensorFlow's convolutions alone."""

import keras
import numpy as np
import pytest
from comparison import compare, processor

import keras_highway as kh
from keras_highway.layers import ungated as convolve

pytestmark = pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="only there they are products")
BATCH = 32


def step_of(name, size, monkeypatch, products):
    """A function that takes a step of a net traced with products, or without."""
    if not products:
        monkeypatch.setattr(convolve, "is_product", lambda *arguments: False)
    model = kh.create_model(name, input_shape=(size, size, 3), classes=10, dtype="mixed_bfloat16")
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy", jit_compile=False)
    rng = np.random.default_rng(0)
    x, y = rng.random((BATCH, size, size, 3), "float32"), rng.integers(0, 10, BATCH)
    model.train_on_batch(x, y)
    monkeypatch.undo()
    return lambda: model.train_on_batch(x, y)


@pytest.mark.parametrize(("name", "size", "limit"), [("resnet50", 64, 0.8), ("highway50", 128, 0.97)])
def test_a_step(benchmark, monkeypatch, name, size, limit):
    if "with AMX" not in processor():
        pytest.skip(f"bfloat16 is a matrix unit's: {processor()}")
    subject, reference = (step_of(name, size, monkeypatch, products) for products in (True, False))
    title = f"{name}, bfloat16, convolutions as products / TensorFlow's, train, {BATCH} of {size} px"
    compare(benchmark, title, subject, reference, rounds=9).check_at_most(limit)
