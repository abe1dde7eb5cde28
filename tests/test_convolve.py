"""1x1 convolutions with a stride and few channels: Keras's numbers, and a process that lives."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_highway._support import fused_ops as conv_product
from keras_highway._support.fused_ops import is_product, product
from keras_highway.layers.ungated import Conv2D

# The fault needs batches that two threads cannot share alike (docs/upstream.md, 8); with AVX2 alone one is enough.
TRAIN = """
import numpy as np, tensorflow as tf
import keras_highway as kh
tf.config.threading.set_intra_op_parallelism_threads(2)
model = kh.create_model("highway111", blocks=(1, 1, 1))
model.compile("sgd", "sparse_categorical_crossentropy")
for batch in (3, 9, 33):
    images = np.random.default_rng(0).random((6 * batch, 32, 32, 3), "float32")
    model.fit(images, np.arange(6 * batch) % 10, batch_size=batch, epochs=3, verbose=0)
print("alive")
"""

# Of 33 images with 4 channels: oneDNN's way with AVX2 dies with one thread and hangs with two.
GRADIENTS = """
import numpy as np, torch
from keras import ops
from keras_highway.layers.ungated import Conv2D
for threads in (1, 2):
    torch.set_num_threads(threads)
    layer = Conv2D(8, 1, strides=2)
    images = np.random.default_rng(0).normal(size=(33, 32, 32, 4)).astype("float32")
    for _ in range(5):
        layer(images).sum().backward()
    expected = 5 * images[:, ::2, ::2].sum((0, 1, 2))
    found = ops.convert_to_numpy(layer.kernel.value.grad)[0, 0]
    np.testing.assert_allclose(found, np.repeat(expected[:, None], 8, 1), rtol=1e-3)
print("right")
"""


@pytest.mark.parametrize("size", [7, 8])
@pytest.mark.parametrize("strides", [2, (3, 2)])
@pytest.mark.parametrize("padding", ["same", "valid"])
@pytest.mark.parametrize("groups", [1, 2])
def test_few_channels_are_convolved_as_by_keras(size, strides, padding, groups):
    arguments = {"filters": 4, "kernel_size": 1, "strides": strides, "padding": padding, "groups": groups}
    ours, theirs = Conv2D(**arguments), keras.layers.Conv2D(**arguments)
    x = np.random.default_rng(0).normal(size=(3, size, size, 6)).astype("float32")
    ours.build(x.shape), theirs.build(x.shape)
    theirs.set_weights(ours.get_weights())
    np.testing.assert_allclose(ops.convert_to_numpy(ours(x)), ops.convert_to_numpy(theirs(x)), rtol=1e-5, atol=1e-6)
    assert ours.compute_output_shape(x.shape) == tuple(ours(x).shape)


def lives_to_print(code, word, instructions):
    """Asserts that a process of its own, whose oneDNN may use these instructions, comes to the end of its code."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": instructions},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0 and word in done.stdout, done.stderr[-500:]


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="a fault of oneDNN's in TensorFlow")
@pytest.mark.parametrize("instructions", ["AVX2", "DEFAULT"])
def test_odd_batches_of_a_narrow_net_do_not_end_the_process(instructions):
    lives_to_print(TRAIN, "alive", instructions)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="its gradients never ended")
@pytest.mark.parametrize("instructions", ["AVX2", "DEFAULT"])
def test_gradients_of_few_channels_are_right_on_torch(instructions):
    lives_to_print(GRADIENTS, "right", instructions)


tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's gradient is slow")


@pytest.fixture
def on_a_cpu_with_bfloat16(monkeypatch):
    """On any machine: the sums are exact, so the numbers are equal everywhere."""
    monkeypatch.setattr(conv_product, "has_bfloat16", lambda: True)
    monkeypatch.setattr(conv_product, "on_gpu", lambda x: False)


CASES = {
    "pixel": ((1, 1), (1, 1), "same", (9, 7)),
    "pixel, strides, even": ((1, 1), (2, 2), "same", (8, 6)),
    "3 x 3": ((3, 3), (1, 1), "same", (4, 4)),
    "3 x 3, strides": ((3, 3), (2, 2), "valid", (9, 8)),
    "even kernel": ((2, 4), (1, 1), "same", (3, 5)),
    "valid, one place": ((3, 3), (1, 1), "valid", (3, 3)),
}


def of(case, batch=3, channels=128, filters=144):
    """Images, a kernel and a derivative of small whole numbers: exact in bfloat16, and so are their sums."""
    kernel, strides, padding, size = CASES[case]
    rng = np.random.default_rng(0)
    x, w = rng.integers(-1, 2, (batch, *size, channels)), rng.integers(-1, 2, (*kernel, channels, filters))
    return ops.cast(x, "bfloat16"), ops.cast(w, "bfloat16"), strides, padding


def with_gradients(function, x, w):
    import tensorflow as tf

    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = function(x, w)
        weights = tf.cast(tf.reshape(tf.range(tf.size(y)) % 3 - 1, y.shape), y.dtype)
        total = tf.reduce_sum(tf.cast(y * weights, tf.float32))
    return [np.asarray(v, "float32") for v in (y, *tape.gradient(total, [x, w]))]


@tensorflow
@pytest.mark.usefixtures("on_a_cpu_with_bfloat16")
@pytest.mark.parametrize("case", CASES)
def test_it_is_kerass_convolution(case):
    x, w, strides, padding = of(case)
    assert is_product(x, w.shape, strides, padding, "channels_last")
    ours = with_gradients(lambda x, w: product(x, w, strides, padding), x, w)
    exact = [ops.cast(v, "float32") for v in (x, w)]
    theirs = with_gradients(lambda x, w: ops.conv(x, w, list(strides), padding, "channels_last"), *exact)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape and np.abs(other).max() > 2
        np.testing.assert_allclose(mine, other, rtol=2**-8, atol=0)  # sums are whole numbers, rounded once
