"""Layers, optimizers, callbacks and loss scaling in Keras's own `fit`."""

import keras
import numpy as np
import pytest
from contracts import to_numpy
from keras import ops

import keras_highway as kh
from keras_highway.analysis import GateStats
from keras_highway.layers import CarriedLSTM, CharCNN, CharEmbedding
from keras_highway.training.optimizers import CaffeSGD

on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="tf.distribute")
X, Y = np.random.default_rng(0).random((16, 28, 28, 1), "float32"), np.arange(16) % 10


def net():
    keras.utils.set_random_seed(0)
    return kh.create_model("highway_fc10", units=6, depth=3, classifier_activation=None)


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


CHARACTERS = np.array([[1, 1, 1, 2], [2, 3, 3, 1]])
SLOPES = np.random.default_rng(1).standard_normal((2, 4, 3)).astype("float32")
EMBEDDINGS = [lambda: CharEmbedding(5, 3), lambda: keras.layers.Embedding(5, 3)]


def step(embedding, optimizer):
    """One step down the sum of `SLOPES` times the vectors: what the table moves by, and its gradient."""
    inputs = keras.Input((4,), dtype="int32")
    model = keras.Model(inputs, embedding(inputs))
    model.compile(optimizer, lambda slopes, vectors: ops.sum(slopes * vectors, axis=(1, 2)))
    before = to_numpy(model.weights[0])
    model.fit(CHARACTERS, SLOPES, batch_size=2, epochs=1, verbose=0)
    gradient = np.zeros_like(before)
    np.add.at(gradient, CHARACTERS, SLOPES / 2)  # Keras takes the mean over the batch
    return to_numpy(model.weights[0]) - before, gradient


@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_caffe_sgd_follows_the_sum_of_a_rows_gradients(embedding):
    moved, gradient = step(embedding(), CaffeSGD(0.1, momentum=0.0, nesterov=False, bias_multiplier=2.0))
    np.testing.assert_allclose(moved, -0.1 * 2.0 * gradient, rtol=1e-5, atol=1e-6)


CLIPPED = {"clipnorm": lambda gradient: gradient * min(1.0, 0.5 / np.linalg.norm(gradient))}


@pytest.mark.parametrize("clip", CLIPPED)
@pytest.mark.parametrize("embedding", EMBEDDINGS)
def test_it_is_the_sum_of_a_rows_gradients_that_is_clipped(embedding, clip):
    optimizer = CaffeSGD(0.1, momentum=0.0, nesterov=False, **{clip: 0.5})
    moved, gradient = step(embedding(), optimizer)
    np.testing.assert_allclose(moved, -0.1 * CLIPPED[clip](gradient), rtol=1e-4, atol=1e-6)


def test_the_first_step_of_adam_is_its_rate_on_characters():
    """Of Keras's embedding it is another on TensorFlow, which squares a row's gradients one by one: upstream.md, 14."""
    moved, gradient = step(CharEmbedding(5, 3), keras.optimizers.Adam(0.1))
    np.testing.assert_allclose(moved, -0.1 * np.sign(gradient), atol=1e-4)


@on_tensorflow
@pytest.mark.parametrize("change", [kh.freeze, kh.enable_lora])
def test_what_is_trained_changes_outside_the_scope_that_a_model_was_made_in(change):
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    with strategy.scope():
        model = net()
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss(), jit_compile=False)
    change(model)
    inside = strategy.extended.variable_created_in_scope
    assert all(inside(v.value) for v in [*model.variables, *model.optimizer.variables])
    first, *_, last = model.fit(X, Y, batch_size=8, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert last < first


class Stop(keras.callbacks.Callback):
    """A program that is killed in its third epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_gates_of_a_run_that_backup_and_restore_resumes(tmp_path):
    for more in ([Stop()], []):
        model = net()
        model.compile("adam", loss())
        stats = GateStats(X[:4], tmp_path / "gates", append=True, tensorboard=False)
        both = [keras.callbacks.BackupAndRestore(tmp_path / "backup"), stats]
        callbacks = [*both[::-1], *more]
        try:
            model.fit(X, Y, batch_size=4, epochs=4, verbose=0, callbacks=callbacks)
        except KeyboardInterrupt:
            assert more
    rows = [line.split(",")[:2] for line in (tmp_path / "gates" / "gates.csv").read_text().splitlines()[1:]]
    known = [(str(epoch), str(4 * epoch)) for epoch in range(5)]
    assert list(dict.fromkeys(map(tuple, rows))) == known and len(rows) == 5 * len(kh.analysis.blocks(model))
    assert [path.name for path in (tmp_path / "gates").iterdir()] == ["gates.csv"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CharCNN(3, (4,)), r"one number per convolution.*kernels=3"),
        (lambda: CharCNN((3,), (4,)).build((None, 6)), r"shape \(words, length, units\).*\(None, 6\)"),
        (lambda: CarriedLSTM(4, 2)(keras.Input(batch_shape=(2, 3, None))), r"streams=2 .*\(2, 3, None\)"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


SMALL = {"blocks": (2, 1, 1), "widths": (4, 4, 8), "stem_width": 4, "classes": 3, "input_shape": (32, 32, 3)}


def scales(model):
    model.compile("sgd", "sparse_categorical_crossentropy")
    return isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)


def scaled_net(dtype):
    return kh.create_model("resnet20", dtype=dtype, **SMALL)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16", None])
def test_nets_of_float16_alone(dtype):
    assert scales(scaled_net(dtype)) == (dtype == "mixed_float16")
