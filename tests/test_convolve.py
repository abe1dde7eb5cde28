"""1x1 convolutions with a stride and few channels: Keras's numbers, and a process that lives."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops

from keras_highway._support import fused_ops as conv_product
from keras_highway._support.fused_ops import has_bfloat16, is_product, product
from keras_highway.layers.ungated import Conv2D, convolve, subsampled

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


pytestmark = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's gradient is slow")


@pytest.fixture(autouse=True)
def on_a_cpu_with_bfloat16(monkeypatch):
    """Whatever the machine has: the numbers are those of any, where sums are exact."""
    monkeypatch.setattr(conv_product, "has_bfloat16", lambda: True)
    monkeypatch.setattr(conv_product, "on_gpu", lambda x: False)


CASES = {  # kernel's height and width, strides, padding, image's height and width
    "pixel": ((1, 1), (1, 1), "same", (9, 7)),
    "pixel, strides": ((1, 1), (2, 3), "valid", (9, 7)),
    "pixel, strides, even": ((1, 1), (2, 2), "same", (8, 6)),
    "3 x 3": ((3, 3), (1, 1), "same", (4, 4)),
    "3 x 3 on one pixel": ((3, 3), (1, 1), "same", (1, 1)),
    "3 x 3, strides": ((3, 3), (2, 2), "valid", (9, 8)),
    "even kernel": ((2, 4), (1, 1), "same", (3, 5)),
    "even kernel, strides": ((2, 3), (1, 2), "valid", (3, 6)),
    "valid": ((2, 3), (1, 1), "valid", (3, 5)),
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


def test_where_it_pays(monkeypatch):
    def pays(x=(2, 4, 4, 128), kernel=(3, 3, 128, 128), strides=(1, 1), padding="same", form="last", dtype="bfloat16"):
        return is_product(ops.zeros(x, dtype), kernel, strides, padding, f"channels_{form}")

    assert pays()
    assert not pays(dtype="float32") and not pays(form="first")
    assert not pays(kernel=(3, 3, 64, 128))  # two groups
    assert not pays(x=(2, 4, 4, 64), kernel=(3, 3, 64, 64))  # few weights
    assert not pays(kernel=(4, 3, 128, 128))  # many patches
    assert not pays(x=(2, 5, 4, 128)) and pays(x=(2, 5, 3, 128))  # 20 pixels, 15
    assert not pays(x=(2, 5, 5, 128), padding="valid")  # nine places, but 25 pixels that have a gradient
    assert not pays(x=(2, 8, 8, 128), strides=(2, 2))  # "same" and a stride: unequal margins
    assert pays(x=(2, 9, 9, 128), strides=(2, 2), padding="valid")
    assert not pays(x=(2, 2, 2, 128), padding="valid")  # nothing is left
    assert not pays(x=(2, 1, 1, 128), padding="valid")  # less than nothing, both ways
    assert pays(x=(2, 90, 90, 32), kernel=(1, 1, 32, 32)) and not pays(x=(2, 9, 9, 16), kernel=(1, 1, 16, 16))
    assert not pays(x=(2, 0, 9, 32), kernel=(1, 1, 32, 32))
    for name, answer in (("on_gpu", lambda x: True), ("has_bfloat16", lambda: False)):
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(conv_product, name, answer)
            assert not pays()
    assert pays()


@pytest.mark.slow
def test_without_onednn_there_is_no_product():
    """TensorFlow's own product in bfloat16 truncates: all sums would be too small."""
    script = "from keras_highway._support.fused_ops import has_bfloat16; print(has_bfloat16())"
    environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False"]


def test_without_a_table_of_the_processor_there_is_no_product(monkeypatch):
    def absent(*arguments):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)
    assert has_bfloat16.__wrapped__() is False


def test_a_second_derivative():
    import tensorflow as tf

    x, w, strides, padding = of("3 x 3")

    def slope(convolution, x, w):
        with tf.GradientTape() as outer:
            outer.watch(w)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(tf.cast(convolution(x, w), tf.float32) ** 2)
            penalty = tf.reduce_sum(tf.cast(inner.gradient(y, x), tf.float32) ** 2)
        return np.asarray(outer.gradient(penalty, w), "float32")

    ours = slope(lambda x, w: product(x, w, strides, padding), x, w)
    exact = [ops.cast(v, "float32") for v in (x, w)]
    theirs = slope(lambda x, w: ops.conv(x, w, list(strides), padding, "channels_last"), *exact)
    assert np.linalg.norm(ours - theirs) < 0.01 * np.linalg.norm(theirs)


def test_xla_makes_convolutions_its_own_way():
    import tensorflow as tf

    x, w, strides, padding = of("3 x 3")
    seen = []

    @tf.function(jit_compile=True)
    def compiled(x):
        seen.append(is_product(x, w.shape, strides, padding, "channels_last"))
        return x

    compiled(x)
    assert seen == [False]


def test_a_dilated_kernel_is_kerass():
    x, w, *_ = of("3 x 3")
    y = convolve(x, w, (1, 1), "same", "channels_last", (2, 2))
    np.testing.assert_array_equal(
        *(np.asarray(v, "float32") for v in (y, ops.conv(x, w, 1, "same", "channels_last", 2)))
    )


def test_a_layer_of_any_batch_and_its_unknown_size():
    layer = Conv2D(144, 3, padding="same", dtype="mixed_bfloat16")
    model = keras.Sequential([keras.Input((4, 4, 128)), layer])
    assert model.output_shape == (None, 4, 4, 144)
    operations = {node.op for node in traced(model, (None, 4, 4, 128)).as_graph_def().node}
    assert "Conv2D" not in operations and "MatMul" in operations
    x = np.random.default_rng(1).normal(size=(5, 4, 4, 128)).astype("float32")
    expected = ops.conv(x, layer.kernel.value, 1, "same") + layer.bias.value
    np.testing.assert_allclose(np.asarray(model(x), "float32"), expected, rtol=0.02, atol=0.02)
    anywhere = keras.Sequential(
        [keras.Input((None, None, 128)), Conv2D(144, 3, padding="same", dtype="mixed_bfloat16")]
    )
    assert "Conv2D" in {node.op for node in traced(anywhere, (None, None, None, 128)).as_graph_def().node}


def traced(model, shape):
    import tensorflow as tf

    return tf.function(model).get_concrete_function(tf.TensorSpec(shape, tf.float32)).graph
