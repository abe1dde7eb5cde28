"""The form of a language model as its weight file states it: fields of its spec, and the vocabulary beside it."""

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from keras_highway._support.files import read_bounded
from keras_highway._support.keras_models import without_values
from keras_highway.data.vocabulary import LONGEST_SPELLING, VOCABULARY, Vocabulary
from keras_highway.models.char_lm import build_char_lm
from keras_highway.specs import CharLMSpec, override
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights.file import WeightFileError
from keras_highway.weights.resolve import WeightsFile

SIZES = ("classes", "characters", "input_shape")  # fields of the spec that follow from the vocabulary
_LARGEST = 2**28  # bytes of a vocabulary


def form_of_words(variant: str, overrides: Mapping[str, Any]) -> CharLMSpec:
    """Return the spec of a variant with overrides, for spellings of any length where these do not state it.

    Raises:
        ValueError: As `override`.
    """
    return override(LM_VARIANTS[variant], **{"input_shape": (LONGEST_SPELLING,), **overrides})


def stated_form(file: WeightsFile, variant: str, passed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the spec that a file states of its network, with the sizes of the vocabulary beside it.

    Args:
        file: The file.
        variant: The architecture.
        passed: Fields that are requested. The vocabulary of a file that names
            one is read for sizes that are not among these.

    Raises:
        ValueError: If a field is no language model's, or the vocabulary is
            broken or another than the file's.
    """
    own = stated_overrides(file, variant)
    sized = all(passed.get(name) is not None for name in SIZES)
    if not sized and "vocabulary" in file.stamp and file.path.with_name(VOCABULARY).is_file():
        own |= vocabulary_of(file, variant).sizes
    return own


def stated_overrides(file: WeightsFile, variant: str) -> dict[str, Any]:
    """Return the fields of the spec that a file states.

    Raises:
        WeightFileError: If these make no language model.
    """
    own = dict(file.stamp.get("overrides", {}))
    known = {field.name for field in dataclasses.fields(CharLMSpec)} - {"name"}
    try:
        if unknown := sorted(own.keys() - known):
            raise ValueError(f"unknown field {unknown[0]!r}")
        form_of_words(variant, own)
    except ValueError as error:
        raise WeightFileError(f"{file.path} names overrides of {variant!r} that make no network: {error}") from error
    return own


def check_size(file: WeightsFile, spec: CharLMSpec) -> None:
    """Refuses a network that is larger than a file, before it is built: what a file states may be any size.

    Raises:
        WeightFileError: If it is, or cannot be built.
    """
    if spec == LM_VARIANTS[spec.name]:
        return
    layers = spec.highways + spec.lstms + len(spec.kernels)  # each has an array at least
    if layers > sum(file.shapes.values()):
        raise WeightFileError(
            f"{file.path} does not fit the requested model of {layers:,} highway layers, LSTMs and convolutions: the "
            f"file has {sum(file.shapes.values())} arrays."
        )
    try:
        needed = Counter(tuple(w.shape) for w in without_values(lambda: build_char_lm(spec).weights))
    except Exception as error:  # of sizes that make no network Keras raises nearly anything
        raise WeightFileError(f"{file.path} does not fit {spec.name!r}: {error}") from error
    sizes = [sum(math.prod(shape) * n for shape, n in shapes.items()) for shapes in (needed, file.shapes)]
    if sizes[0] > sizes[1]:
        raise WeightFileError(
            f"{file.path} does not hold weights of the requested model, which has {sizes[0]:,}: the file has "
            f"{sizes[1]:,}."
        )


def vocabulary_of(file: WeightsFile, variant: str, passed: Vocabulary | None = None) -> Vocabulary:
    """Return the vocabulary of a weight file, checked against what the file records of it.

    Args:
        file: The file.
        variant: The architecture.
        passed: The vocabulary to be checked, which is padded to the widest
            kernel. Defaults to the one beside the file.

    Raises:
        ValueError: If there is none, it is broken, or the file's is another.
    """
    if passed is None:
        vocabulary = _beside(file)
    else:
        vocabulary = passed.padded(max(form_of_words(variant, stated_overrides(file, variant)).kernels))
    stamped = file.stamp.get("vocabulary", vocabulary.fingerprint)
    if stamped != vocabulary.fingerprint:
        what = str(file.path.with_name(VOCABULARY)) if passed is None else "the vocabulary that was passed"
        raise ValueError(
            f"{what} does not match the weights {file.path}: they were trained with other words or characters. "
            f"Received: {len(vocabulary.words)} words, fingerprint {vocabulary.fingerprint[:12]}; "
            f"expected {stamped[:12]}"
        )
    return vocabulary


def _beside(file: WeightsFile) -> Vocabulary:
    path = file.path.with_name(VOCABULARY)
    if not path.is_file():
        raise ValueError(
            f"There is no {VOCABULARY} beside {file.path}: pass vocabulary=, that of the corpus it was trained on."
        )
    try:
        return Vocabulary.from_json(read_bounded(path, _LARGEST))
    except ValueError as error:
        raise ValueError(f"{path} is broken: {error}") from error
