"""Vectors of words by their spelling alone, computed once: the table that evaluation and serving look words up in."""

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import input_in, output_in
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.layers import CharCNN, TakeRows

_ROWS = 500  # words a call, always as many: a new shape would be compiled anew
_MOST_OTHERS = 10_000  # words outside the vocabulary that are kept: 190 MB of a large model's
BEFORE, AFTER = "before", "after"
_STAGES = (BEFORE, AFTER)
_PROJECTION = len(_STAGES)


class Neighbour(NamedTuple):
    """A word near to another.

    Attributes:
        word: The word.
        cosine: Cosine of the angle between the two vectors.
    """

    word: str
    cosine: float


class WordTable:
    """The vectors of a vocabulary's words, and of any other word on request, of which the last 10,000 are kept.

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
        self._known = self._computed(vocabulary.table)
        self._others: dict[str, tuple[np.ndarray, ...]] = {}

    def vectors(self, words: Sequence[str], stage: str = AFTER) -> np.ndarray:
        """Return vectors of words."""
        return self._look_up(words, _STAGES.index(stage))

    def projections(self, words: Sequence[str]) -> np.ndarray:
        """Return what words add to the gates of the first LSTM: float32 `(n, 4 * units)`."""
        return self._look_up(words, _PROJECTION)

    def projections_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the same of words of the vocabulary by their numbers: float32 `(*numbers.shape, 4 * units)`."""
        return self._known[_PROJECTION][numbers]

    def neighbours(self, word: str, count: int, stage: str = AFTER) -> list[Neighbour]:
        """Return the words of the vocabulary whose vectors are nearest to a word's, the word itself left out."""
        vector = self.vectors([word], stage)[0]
        table = self._known[_STAGES.index(stage)]
        norms = np.linalg.norm(table, axis=1) * np.linalg.norm(vector)
        cosines = table @ vector / np.maximum(norms, np.finfo(np.float32).tiny)
        order = [i for i in np.argsort(-cosines, kind="stable") if self._vocabulary.words[i] != word]
        return [Neighbour(self._vocabulary.words[i], float(cosines[i])) for i in order[:count]]

    def _look_up(self, words: Sequence[str], which: int) -> np.ndarray:
        rows = np.fromiter((self._row.get(word, -1) for word in words), np.int64, len(words))
        found = self._known[which][rows]  # a copy
        others = np.flatnonzero(rows < 0)
        if not len(others):
            return found
        vectors = self._vectors_of([words[i] for i in others])
        for i in others:
            found[i] = vectors[words[i]][which]
        return found

    def _vectors_of(self, words: Sequence[str]) -> dict[str, tuple[np.ndarray, ...]]:
        """Cache vectors of words outside the vocabulary; stored at the end, so a call that fails changes nothing."""
        known = self._others  # read once: another thread may put another in its place
        new = [word for word in dict.fromkeys(words) if word not in known]
        if not new:
            return known
        computed = self._computed(self._vocabulary.spell(new))
        vectors = known | dict(zip(new, zip(*computed, strict=True), strict=True))
        kept = dict(islice(vectors.items(), max(len(vectors) - _MOST_OTHERS, 0), None))
        for word in new:
            if word in kept:  # a row of its own: a view would keep the whole call's
                kept[word] = tuple(row.copy() for row in kept[word])
        self._others = kept
        return vectors

    def _computed(self, spelled: np.ndarray) -> list[np.ndarray]:
        """Vectors before and after the highway layers, and what they add to the gates of the first LSTM."""
        before, after = self._encode(spelled)
        return [before, after, self._projected(after)]

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
