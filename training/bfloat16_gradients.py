"""Gradients of a language model in bfloat16.

    python -m training.bfloat16_gradients --data DIR

One batch of the training text, 20 streams of 35 words, from a zero state and
without dropout, with the weights of `charlm_small_coupled.ptb`: the gradients
of the mean loss in `mixed_bfloat16` against those in float32. TensorFlow.
"""

import argparse
from pathlib import Path

import keras
import numpy as np
from keras import ops

import keras_highway as kh
from keras_highway._support.files import atomic_write_json
from keras_highway.data.batchify import batchify, deduplicate
from keras_highway.data.ptb import load_corpus
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.runs.environment import environment

OUT = Path(__file__).parents[1] / "zoo" / "runs" / "biases_in_bfloat16" / "gradients.json"
BATCH = 28  # of 1,327


def gradients(corpus, dtype) -> dict[str, np.ndarray]:
    """Gradients by the paths of the weights.

    Args:
        corpus: A `Corpus`.
        dtype: Dtype policy of the network.
    """
    import tensorflow as tf

    net = kh.create_model("charlm_small_coupled", weights="ptb", classifier_activation=None, dtype=dtype)
    words, targets = (batches[BATCH] for batches in batchify(corpus.train))
    batch = deduplicate(words)
    with tf.GradientTape() as tape:
        logits = net([corpus.vocabulary.table[batch.words], batch.positions], training=False)
        loss = ops.mean(keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True))
    derivatives = tape.gradient(loss, [v.value for v in net.trainable_variables])
    return {v.path: tf.convert_to_tensor(g).numpy() for v, g in zip(net.trainable_variables, derivatives, strict=True)}


def main() -> None:
    """Writes, for each weight, the norm of the difference over the norm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder that holds ptb/ (default: KERAS_HIGHWAY_DATA)")
    corpus = load_corpus(parser.parse_args().data)
    exact, ours = (gradients(corpus, dtype) for dtype in ("float32", "mixed_bfloat16"))
    off = {path: round(float(np.linalg.norm(ours[path] - g) / np.linalg.norm(g)), 4) for path, g in exact.items()}
    atomic_write_json(OUT, {"weights": "charlm_small_coupled.ptb", "off": off, **environment(Strategy())})
    print(f"wrote {OUT}")


if __name__ == "__main__":
    main()
