"""What of a network is exported, and on which input it is compared."""

from typing import NamedTuple

import keras
import numpy as np

from keras_highway.applications import get_spec, model_of
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.language import CharLM
from keras_highway.models.builder import in_format
from keras_highway.models.char_lm import word_part
from keras_highway.specs import NetSpec, override
from keras_highway.tasks import LANGUAGE
from keras_highway.weights.resolve import WeightsFile, resolve

_WORDS = 200


class Part(NamedTuple):
    """A network to export.

    Attributes:
        model: The network.
        spec: The row of its variant.
        samples: What the exported file is run on; None for random images.
        where: The same in words.
    """

    model: keras.Model
    spec: NetSpec | None
    samples: np.ndarray | None
    where: str


def part_of(weights: str, logits: bool = False, any_size: bool = False) -> Part:
    """Returns what of trained weights other programs can run.

    Of an image network that is all of it; of a language model the
    part before the LSTMs, which makes a word's vector from its characters:
    int32 `(words, length)`, as `Vocabulary.spell` gives, to float32 `(words,
    sum(filters))`, what `CharLM.encode` returns.

    Args:
        weights: As in `keras_highway.load`.
        logits: Whether it gives logits. Defaults to `False`, probabilities.
        any_size: Whether it takes images of any height and width. Defaults to
            `False`: of the weights' own.

    Raises:
        ValueError: If there are no such weights, `logits` or `any_size` is set
            for a language model, or `any_size` for a network that has a weight
            for every position.
    """
    file = resolve(weights)
    if file.archive is not None:
        return Part(_whole(file, logits, any_size), None, None, "random images")
    spec = get_spec(file.variant) if file.variant else None
    if spec is not None and spec.task is LANGUAGE:
        if logits:
            raise ValueError(
                "Of a language model the vectors of words are exported, which are neither logits nor probabilities: "
                f"leave logits out. Received: {weights!r}"
            )
        if any_size:
            raise ValueError(f"A language model takes words, not images: leave any_size out. Received: {weights!r}")
        lm = CharLM(file)
        samples = _samples(lm.vocabulary)
        return Part(word_part(lm.network), spec, samples, "words of its vocabulary and words never seen")
    if spec is not None:
        spec = override(spec, **file.overrides)
    size = {"input_shape": in_format((None, None, spec.input_shape[-1]))} if spec is not None and any_size else {}
    model = model_of(file, classifier_activation=None if logits else "softmax", **size)
    return Part(model, spec, None, "random images")


def _whole(file: WeightsFile, logits: bool, any_size: bool) -> keras.Model:
    """A model as Keras saved it."""
    assert file.archive is not None
    if any_size and None not in file.archive.input_shape:
        raise ValueError(
            f"{file.path} takes images of its own size: leave any_size out, or save the model with keras_highway.save, "
            "of which one for any size is built."
        )
    return model_of(file, classifier_activation=None if logits else "softmax")


def _samples(vocabulary: Vocabulary) -> np.ndarray:
    """Words from all over the vocabulary, and the same written backwards."""
    words = [vocabulary.words[i] for i in np.linspace(0, len(vocabulary.words) - 1, _WORDS).astype(int)]
    return vocabulary.spell([*words, *(word[::-1] for word in words)])
