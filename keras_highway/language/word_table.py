"""Vectors of words by their spelling alone, computed once: the table that evaluation and serving look words up in."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import keras
import numpy as np

from keras_highway._support.graph_ends import input_in, output_in
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.layers import CharCNN, TakeRows

_ROWS = 500  # words a call, always as many: a new shape would be compiled anew
BEFORE, AFTER = "before", "after"


class Neighbour(NamedTuple):
    """A word near to another.

    Attributes:
        word: The word.
        cosine: Cosine of the angle between the two vectors.
    """

    word: str
    cosine: float


class WordTable:
    """The vectors of a vocabulary's words, and of any other word on request.

    Args:
        network: A network of `build_char_lm`. Its weights must not change
            any more.
        vocabulary: Its words and characters.
    """

    def __init__(self, network: keras.Model, vocabulary: Vocabulary):
        cnn = next(layer for layer in network.layers if isinstance(layer, CharCNN))
        take = next(layer for layer in network.layers if isinstance(layer, TakeRows))
        self._encoder = keras.Model(network.inputs[0], [output_in(network, cnn), input_in(network, take)[0]])
        self._project = network.get_layer("lstm1")
        self._vocabulary = vocabulary
        self._row = {word: i for i, word in enumerate(vocabulary.words)}
        self._vectors = self._encode(vocabulary.table)
        self._projections = self._projected(self._vectors[1])

    def vectors(self, words: Sequence[str], stage: str = AFTER) -> np.ndarray:
        """Returns vectors of words.

        Args:
            words: Any words, in a vocabulary or not.
            stage: `"after"` the highway layers or `"before"` them.

        Returns:
            float32 `(n, sum(filters))`.
        """
        rows = self._rows(words)
        return self._vectors[(BEFORE, AFTER).index(stage)][rows]

    def projections(self, words: Sequence[str]) -> np.ndarray:
        """Returns what words add to the gates of the first LSTM: float32 `(n, 4 * units)`."""
        rows = self._rows(words)
        return self._projections[rows]

    def projections_of(self, numbers: np.ndarray) -> np.ndarray:
        """Returns the same of words of the vocabulary by their numbers: float32 `(*numbers.shape, 4 * units)`."""
        return self._projections[numbers]

    def neighbours(self, word: str, count: int, stage: str = AFTER) -> list[Neighbour]:
        """Returns the words of the vocabulary whose vectors are nearest to a word's, the word itself left out."""
        known = len(self._vocabulary.words)
        vector = self.vectors([word], stage)[0]
        table = self._vectors[(BEFORE, AFTER).index(stage)][:known]
        norms = np.linalg.norm(table, axis=1) * np.linalg.norm(vector)
        cosines = table @ vector / np.maximum(norms, np.finfo(np.float32).tiny)
        order = [i for i in np.argsort(-cosines, kind="stable") if self._vocabulary.words[i] != word]
        return [Neighbour(self._vocabulary.words[i], float(cosines[i])) for i in order[:count]]

    def _rows(self, words: Sequence[str]) -> np.ndarray:
        self._add(word for word in words if word not in self._row)
        return np.fromiter((self._row[word] for word in words), np.int64, len(words))

    def _add(self, words: Iterable[str]) -> None:
        new = list(dict.fromkeys(words))
        if not new:
            return
        self._row |= {word: i for i, word in enumerate(new, start=len(self._row))}
        vectors = self._encode(self._vocabulary.spell(new))
        self._vectors = [np.concatenate(pair) for pair in zip(self._vectors, vectors, strict=True)]
        self._projections = np.concatenate([self._projections, self._projected(vectors[1])])

    def _encode(self, spelled: np.ndarray) -> list[np.ndarray]:
        parts = []
        for first in range(0, len(spelled), _ROWS):
            chunk = spelled[first : first + _ROWS]
            rows = np.zeros((_ROWS, spelled.shape[1]), np.int32)
            rows[: len(chunk)] = chunk
            parts.append([np.asarray(v, np.float32)[: len(chunk)] for v in self._encoder.predict_on_batch(rows)])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]

    def _projected(self, vectors: np.ndarray) -> np.ndarray:
        kernel, bias = (keras.ops.convert_to_numpy(w) for w in (self._project.kernel, self._project.bias))
        return vectors @ kernel + bias
