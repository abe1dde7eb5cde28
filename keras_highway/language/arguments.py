"""What a language model is asked, checked: each function raises a `ValueError` with what was expected and received."""

import numbers
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_highway._support.schema import is_count, is_whole
from keras_highway.data.vocabulary import Vocabulary, checked_words, shortened
from keras_highway.weights.load import SIZES

_OF_CHAR_LM = ("classifier_activation",)  # arguments of the builder that `CharLM` itself sets


def check_text(text: Any, name: str = "text") -> None:
    """Return a text is one string."""
    if not isinstance(text, str):
        raise ValueError(f"`{name}` must be a text, one string. Received: {name}={shortened(text)}")


def check_one_word(word: Any) -> None:
    """One word without spaces."""
    if not isinstance(word, str) or word.split() != [word]:
        raise ValueError(f"Expected one word, without spaces. Received: word={shortened(word)}")


def check_whole(number: Any, name: str) -> None:
    """Return a whole number; a bool is not one."""
    if not is_whole(number):
        raise ValueError(f"`{name}` must be a whole number. Received: {name}={number!r}")


def check_count(count: Any, name: str) -> None:
    """Return a whole number, at least 1."""
    if not is_count(count):
        raise ValueError(f"`{name}` must be a positive number, a whole one. Received: {name}={count!r}")


def checked_temperature(temperature: Any) -> float:
    """Return a positive, finite number, Python's, NumPy's or a tensor's, as a float."""
    is_number = isinstance(temperature, numbers.Real) or getattr(temperature, "shape", None) == ()
    is_number = is_number and not isinstance(temperature, bool | np.timedelta64)
    try:
        value = float(temperature) if is_number else 0.0
    except (TypeError, ValueError, OverflowError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"`temperature` must be a positive number. Received: temperature={shortened(temperature)}")
    return value


def checked_pairs(words: Any, targets: Any) -> tuple[list[str], list[str]]:
    """Return words, and the words that follow them, as many, as lists."""
    words, targets = checked_words(words), checked_words(targets, "targets")
    if len(words) != len(targets) or not words:
        raise ValueError(
            "`targets` are the words that follow each of `words`, as many, at least one. "
            f"Received: {len(words)} words, {len(targets)} targets"
        )
    return words, targets


def checked_tokens(tokens: Any, vocabulary: Vocabulary) -> np.ndarray:
    """Return numbers of words of a vocabulary, `(n,)`, as an array."""
    array, known = np.asarray(tokens), len(vocabulary.words)
    numbers = np.issubdtype(array.dtype, np.integer)
    if not numbers or array.ndim != 1 or not array.size or array.min() < 0 or array.max() >= known:
        span = f", from {array.min()} to {array.max()}" if numbers and array.size else ""
        raise ValueError(
            f"`tokens` must be numbers of this model's {known} words, (n,): those of a `Corpus` of the same "
            "vocabulary, or `lm.vocabulary.ids(words)`; `lm.score` takes a text. "
            f"Received: {array.dtype}, shape {array.shape}{span}"
        )
    return array


def check_vocabulary(vocabulary: Any) -> None:
    """`None`, or a `Vocabulary`."""
    if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
        raise ValueError(
            "`vocabulary` must be a keras_highway.Vocabulary, e.g. that of a `Corpus` or Vocabulary.of(words). "
            f"Received: vocabulary={shortened(vocabulary)}"
        )


def check_network(network: Any, known: keras.Model) -> None:
    """Return a model of the same weights: what a `CharLM` saves says of which sizes its network is."""
    if not isinstance(network, keras.Model):
        raise ValueError(f"`network` must be a keras.Model. Received: network={shortened(network)}")
    shapes, expected = (
        [tuple(w.shape) for w in model.weights if not w.name.startswith("lora_")] for model in (network, known)
    )
    if shapes != expected:
        raise ValueError(
            f"`network` must be of this CharLM's sizes, {len(expected)} weights; make another CharLM for others. "
            f"Received: {network.name!r}, of {len(shapes)} weights, {shapes[:2]} ... instead of {expected[:2]} ..."
        )


def check_overrides(overrides: Mapping[str, Any]) -> None:
    """No field of a spec that follows from the vocabulary."""
    for name in (*SIZES, *_OF_CHAR_LM):
        if name in overrides:
            why = "is None, for logits" if name in _OF_CHAR_LM else "follows from the vocabulary"
            raise ValueError(f"`{name}` of a CharLM {why}: leave it out. Received: {name}={overrides[name]!r}")
