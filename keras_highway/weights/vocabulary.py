"""The vocabulary beside the weights of a language model."""

from typing import Any

from keras_highway._support.bounded_json import read_bounded
from keras_highway.data.vocabulary import VOCABULARY, Vocabulary
from keras_highway.weights.resolve import WeightsFile

_LARGEST = 2**28  # bytes


def form_beside(file: WeightsFile) -> dict[str, Any]:
    """Returns the fields of a language model's spec that its file and its vocabulary know, for a network of its own.

    Raises:
        ValueError: If the vocabulary is broken or another than the file's.
    """
    own = dict(file.stamp.get("overrides", {}))
    if file.path.with_name(VOCABULARY).is_file():
        own |= belonging(file).sizes
    return own


def belonging(file: WeightsFile, vocabulary: Vocabulary | None = None) -> Vocabulary:
    """The vocabulary of a weight file, checked against what the file records of it."""
    passed = vocabulary is not None
    if not passed:
        beside = file.path.with_name(VOCABULARY)
        if not beside.is_file():
            raise ValueError(
                f"There is no {VOCABULARY} beside {file.path}: pass vocabulary=, that of the corpus it was trained on."
            )
        try:
            vocabulary = Vocabulary.from_json(read_bounded(beside, _LARGEST))
        except ValueError as error:
            raise ValueError(f"{beside} is broken: {error}") from error
    stamped = file.stamp.get("vocabulary", vocabulary.fingerprint)
    if stamped != vocabulary.fingerprint:
        what = "the vocabulary that was passed" if passed else str(file.path.with_name(VOCABULARY))
        raise ValueError(
            f"{what} does not match the weights {file.path}: they were trained with other words or characters. "
            f"Received: {len(vocabulary.words)} words, fingerprint {vocabulary.fingerprint[:12]}; "
            f"expected {stamped[:12]}"
        )
    return vocabulary
