"""Tokens a second of the language model: each distinct word once, table against network, ours against PyTorch's.

Real text has about half as many distinct words as positions: the batches come
from the Penn Treebank where it is at hand, else from words as frequent.
"""

import dataclasses
import functools
import os
import subprocess
from pathlib import Path

import keras
import numpy as np
import pytest
from comparison import compare, record
from keras import ops

import keras_highway as kh
from keras_highway._support.numerics import cross_entropy, input_gradient
from keras_highway.data.ptb import Corpus, batchify, deduplicate, every, load_corpus
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.training.data.samples import Shard
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.language import LanguageProgram, TextSource
from keras_highway.training.recipes import RECIPES

ROOT = Path(__file__).resolve().parents[2]
TORCH_VARIABLE = "KERAS_HIGHWAY_TORCH"  # an interpreter with PyTorch
STREAMS, STEPS = 20, 35
TOKENS = STREAMS * STEPS


@pytest.fixture(scope="module")
def text() -> tuple[Vocabulary, np.ndarray]:
    folder = os.environ.get("KERAS_HIGHWAY_DATA")
    if folder and (Path(folder) / "ptb").is_dir():
        corpus = load_corpus(folder)
        return corpus.vocabulary, corpus.train
    rng = np.random.default_rng(0)
    words = {"".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), rng.integers(2, 12))) for _ in range(10_500)}
    vocabulary = Vocabulary.of([*sorted(words)[:9_998], "a" * 19])
    share = 1 / np.arange(8, len(vocabulary.words) + 8)  # Zipf's law: 390 distinct words of 700, the Treebank has 361
    return vocabulary, rng.choice(len(vocabulary.words), 20 * TOKENS, p=share / share.sum()).astype(np.int32)


def trainer(vocabulary, size, dtype=None):
    model = kh.create_model(
        f"charlm_{size}_coupled",
        **vocabulary.sizes,
        classifier_activation=None,
        dtype=dtype,
    )
    model.compile(keras.optimizers.SGD(1.0, global_clipnorm=5.0), keras.losses.SparseCategoricalCrossentropy(True))
    return model


@pytest.mark.parametrize("size", ["small", "large"])
def test_training_each_word_once(benchmark, text, size):
    vocabulary, tokens = text
    inputs, targets = batchify(tokens, STREAMS, STEPS)
    model = trainer(vocabulary, size)

    def step(form):
        batch = form(inputs[0])
        model.train_on_batch([vocabulary.table[batch.words], batch.positions], targets[0])

    result = compare(
        benchmark,
        f"charlm_{size}: each word once / a word for each place, train",
        lambda: step(deduplicate),
        lambda: step(every),
        rounds=15,
    )
    speed = {"each_word_once": result.wall.subject_seconds, "plain": result.wall.reference_seconds}
    record(f"charlm_{size} tokens/s, train", **{k: TOKENS / v for k, v in speed.items()})
    result.check_at_most(1 / 1.2)


def test_softmax_in_two_steps(benchmark, text):
    """Ten thousand words, the small model in float32: the whole training step."""
    vocabulary, tokens = text
    row = RECIPES["charlm_small_coupled"]

    def step(**overrides):
        recipe = dataclasses.replace(row, precision="float32", overrides=tuple(overrides.items()))
        source = TextSource(recipe, Corpus(vocabulary, tokens, tokens[: 20 * TOKENS], tokens[: 20 * TOKENS]))
        engine = Strategy().engine(LanguageProgram(recipe, source))
        batch = next(source.batches(0, 0, Shard()))
        return lambda: np.asarray(engine.train(batch))

    name = "charlm_small: softmax in two steps / in one, train"
    compare(benchmark, name, step(hierarchical=True), step(), rounds=15).check_at_most(1.0)


def test_cross_entropy_of_ten_thousand_words(benchmark):
    """Values and derivative, as in a step of the large model."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0.0, 2.0, (STREAMS, STEPS, 10_000)).astype(np.float32)
    targets = rng.integers(0, 10_000, (STREAMS, STEPS)).astype(np.int32)

    def keras_loss(x):
        return keras.losses.sparse_categorical_crossentropy(targets, x, from_logits=True)

    result = compare(
        benchmark,
        "cross-entropy of 10,000 classes / Keras's, with derivative",
        *(compiled_gradient(loss, logits) for loss in (lambda x: cross_entropy(x, targets), keras_loss)),
        rounds=25,
    )
    result.check_at_most(1.0)


def compiled_gradient(loss, logits):
    logits = ops.convert_to_tensor(logits)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        gradient = tf.function(lambda x: input_gradient(loss, x))
    elif keras.backend.backend() == "jax":
        import jax

        gradient = jax.jit(jax.grad(lambda x: ops.sum(loss(x))))
    else:
        gradient = functools.partial(input_gradient, loss)
    return lambda: ops.convert_to_numpy(gradient(logits))


class TorchWorker:
    """PyTorch in a process of its own, from the interpreter that `TORCH_VARIABLE` names or `.torchenv`."""

    def __init__(self, path):
        interpreter = Path(os.environ.get(TORCH_VARIABLE, ROOT / ".torchenv" / "bin" / "python"))
        if not interpreter.exists():
            pytest.skip(f"no PyTorch: see tests/oracles/make_goldens.py, or set {TORCH_VARIABLE}")
        worker = Path(__file__).with_name("torch_lm_worker.py")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([interpreter, worker, path], stdin=pipe, stdout=pipe, text=True)
        self.seconds = 0.0

    def step(self):
        print(file=self.process.stdin, flush=True)
        self.seconds = float(self.process.stdout.readline())

    def close(self):
        with self.process:
            self.process.kill()


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_training_against_pytorch(benchmark, text, tmp_path, size, dtype):
    """The same model, batch and de-duplication; PyTorch in float32, ours in float32 and with products in bfloat16."""
    vocabulary, tokens = text
    inputs, targets = batchify(tokens, STREAMS, STEPS)
    batch, spec = deduplicate(inputs[0]), kh.get_spec(f"charlm_{size}_coupled")
    spelled = vocabulary.table[batch.words]
    np.savez(
        tmp_path / "batch.npz",
        spelled=spelled,
        positions=batch.positions,
        targets=targets[0],
        characters=len(vocabulary.characters),
        words=len(vocabulary.words),
        **{name: getattr(spec, name) for name in ("char_units", "highways", "units", "kernels", "filters")},
    )
    worker = TorchWorker(tmp_path / "batch.npz")
    model = trainer(vocabulary, size, dtype)
    try:
        result = compare(
            benchmark,
            f"charlm_{size}, {dtype.removeprefix('mixed_')} / PyTorch, train",
            lambda: model.train_on_batch([spelled, batch.positions], targets[0]),
            worker.step,
            rounds=11,
            reference_clock=lambda: worker.seconds,
        )
    finally:
        worker.close()
    speed = {"keras_highway": result.wall.subject_seconds, "pytorch": result.wall.reference_seconds}
    record(f"charlm_{size} tokens/s against PyTorch, {dtype}", **{k: TOKENS / v for k, v in speed.items()})
    result.check_at_most(1.0)


@pytest.mark.parametrize("size", ["small", "large"])
def test_evaluation_with_a_table(benchmark, text, size):
    vocabulary, tokens = text
    lm = kh.CharLM(weights=None, variant=f"charlm_{size}_coupled", vocabulary=vocabulary, streams=1)
    words = [vocabulary.words[i] for i in tokens[:1024]]
    lm.encode("a")  # the table is there before the clock starts: it is built once for any amount of text

    def plain():
        for first in range(0, len(words), 128):
            batch = every(tokens[None, first : first + 128])
            logits = lm.network.predict_on_batch([vocabulary.table[batch.words], batch.positions])[0]
            _ = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    result = compare(
        benchmark,
        f"charlm_{size}: table of word vectors / network, evaluate",
        lambda: lm.log_probabilities(words, words),
        plain,
        rounds=7,
    )
    speed = {"table": result.wall.subject_seconds, "plain": result.wall.reference_seconds}
    record(f"charlm_{size} tokens/s, evaluate", **{k: len(words) / v for k, v in speed.items()})
    result.check_at_most(1.0)
