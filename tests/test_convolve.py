"""1x1 convolutions with a stride and few channels: Keras's numbers, and a process that lives."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from keras_highway.layers.ungated import Conv2D, subsampled

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


def test_whole_numbers_are_not_convolved_with_whole_kernels():
    layer = Conv2D(2, 2, kernel_initializer=keras.initializers.Constant(0.5))
    images = np.ones((1, 3, 3, 4))
    expected = ops.convert_to_numpy(layer(images.astype("float32")))
    assert (expected == 8.0).all()
    try:
        found = layer(ops.convert_to_tensor(images, dtype="uint8"))
    except (ValueError, RuntimeError, TypeError):
        assert keras.backend.backend() != "jax"
    else:
        np.testing.assert_array_equal(ops.convert_to_numpy(found), expected)


def test_only_what_is_unsafe_is_taken_apart():
    few, many = np.zeros((1, 8, 8, 15), "float32"), np.zeros((1, 8, 8, 16), "float32")
    ours = keras.backend.backend() in ("tensorflow", "torch")
    assert subsampled(few, (1, 1, 15, 4), (2, 2), "channels_last")[1] == ((1, 1) if ours else (2, 2))
    for x, kernel, strides in (
        (many, (1, 1, 16, 4), (2, 2)),
        (few, (3, 3, 15, 4), (2, 2)),
        (few, (1, 1, 15, 4), (1, 1)),
    ):
        same, kept = subsampled(x, kernel, strides, "channels_last")
        assert same is x and kept == strides
    x = np.random.default_rng(0).normal(size=(1, 4, 8, 6))
    first = subsampled(x, (1, 1, 4, 4), (2, 3), "channels_first")[0]
    np.testing.assert_array_equal(first, x[:, :, ::2, ::3] if ours else x)


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
