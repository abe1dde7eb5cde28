"""What of a network is exported, and on which input it is compared."""

from typing import NamedTuple

import keras
import numpy as np

from keras_highway.applications import get_spec, load
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.language import CharLM
from keras_highway.models.char_lm import word_part
from keras_highway.tasks import LANGUAGE
from keras_highway.weights.resolve import locate

_WORDS = 200


class Part(NamedTuple):
    """A network to export.

    Attributes:
        model: The network.
        samples: What the exported file is run on; None for random images.
        where: The same in words.
    """

    model: keras.Model
    samples: np.ndarray | None
    where: str


def part_of(weights: str, logits: bool = False) -> Part:
    """Returns what of trained weights other programs can run.

    Of a net that looks at images that is all of it; of a language model the
    part before the LSTMs, which makes a word's vector of its characters: int32
    `(words, length)`, as `Vocabulary.spell` gives, to float32 `(words,
    sum(filters))`, what `CharLM.encode` returns.

    Args:
        weights: As in `keras_highway.load`.
        logits: Whether it gives logits. Defaults to `False`, probabilities.

    Raises:
        ValueError: If there are no such weights, or `logits` is asked of a
            language model.
    """
    variant = locate(weights).variant
    if variant and get_spec(variant).task is LANGUAGE:
        if logits:
            raise ValueError(
                "Of a language model the vectors of words are exported, which are neither logits nor probabilities: "
                f"leave logits out. Received: {weights!r}"
            )
        return _word_vectors(CharLM(weights))
    return Part(load(weights, classifier_activation=None if logits else "softmax"), None, "random images")


def _word_vectors(lm: CharLM) -> Part:
    return Part(word_part(lm.network), _samples(lm.vocabulary), "words of its vocabulary and words never seen")


def _samples(vocabulary: Vocabulary) -> np.ndarray:
    """Words from all over the vocabulary, and the same written backwards."""
    words = [vocabulary.words[i] for i in np.linspace(0, len(vocabulary.words) - 1, _WORDS).astype(int)]
    return vocabulary.spell([*words, *(word[::-1] for word in words)])
