"""Small learnable data sets made up on the spot, in the shapes of the real ones: for tests and dry runs."""

import numpy as np

from keras_highway._support.schema import check_choice
from keras_highway.data import Dataset
from keras_highway.data.ptb import Corpus
from keras_highway.data.vocabulary import Vocabulary

PREFIX = "synthetic_"
SYNTHETIC_CORPUS = "synthetic_ptb"
_SHAPES = {"mnist": (28, 28, 1), "cifar10": (32, 32, 3), "cifar100": (32, 32, 3), "imagenet": (64, 64, 3)}
_TRAIN, _TEST, _CLASSES = 200, 50, 10


def synthetic_dataset(name: str) -> Dataset:
    """Make 200 training and 50 test images of 10 classes: noise, with a bright patch at the class's own position."""
    check_choice("data", name, [PREFIX + key for key in _SHAPES])
    shape = _SHAPES[name.removeprefix(PREFIX)]
    draw = np.random.default_rng(0)
    x_train, y_train = _split(draw, _TRAIN, shape)
    x_test, y_test = _split(draw, _TEST, shape)
    return Dataset(x_train, y_train, x_test, y_test, tuple(map(str, range(_CLASSES))))


def _split(draw, n, shape):
    y = np.arange(n, dtype=np.int64) % _CLASSES
    x = draw.integers(0, 60, (n, *shape)).astype(np.uint8)
    height, width = shape[0] // 4, shape[1] // 5
    for image, k in zip(x, y, strict=True):
        top, left = shape[0] // 8 + (k // 4) * height, shape[1] // 10 + (k % 4) * width
        image[top : top + height, left : left + width] = 250
    return x, y


def synthetic_corpus(tokens: int = 2400) -> Corpus:
    """Make up a learnable corpus: 40 words, each followed by one of two others or the end of a sentence."""
    draw = np.random.default_rng(0)
    words = [a + b for a in "bdfgklmn" for b in ("a", "en", "ick", "o", "u")]
    follows = draw.integers(0, len(words), (len(words), 2))
    text, last = [], 0
    while len(text) < 2 * tokens:
        text.append(words[last])
        last = follows[last, draw.integers(0, 2)]
        if draw.random() < 0.1:
            text.append("<eos>")
    vocabulary = Vocabulary.of(words)
    ids = vocabulary.ids(text[: 2 * tokens])
    return Corpus(vocabulary, ids[:tokens], ids[tokens : tokens + tokens // 2], ids[tokens + tokens // 2 :])
