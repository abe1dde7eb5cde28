"""Words and characters of a language model, their numbers and spelling.

A model that reads characters can read any word; it predicts only the words
of its vocabulary. Words and their spelling follow Kim et al., "Character-Aware
Neural Language Models", 2015: a word is a start mark, its characters, an end
mark, then padding.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np

from keras_highway._support.schema import refuse, reworded
from keras_highway._support.terminal import is_text

VOCABULARY = "vocabulary.json"  # next to the weights
UNKNOWN, END_OF_SENTENCE = "<unk>", "<eos>"
PADDING, START, END = "<pad>", "<start>", "<end>"
# Marks are longer than one character, so that no text can be mistaken for them.
_MARKS = (PADDING, START, END, UNKNOWN, END_OF_SENTENCE)
_PAD, _START, _END, _UNKNOWN = range(4)
LONGEST = 65
_LONGEST_WORD = 5_000  # an address or an encoded picture may stand in a text
LONGEST_SPELLING = 1_000


class Strange(NamedTuple):
    """Counts of unknown words and characters in a text."""

    unseen: int  # words outside the vocabulary: read by their spelling, predicted as `<unk>`
    unreadable: int  # characters outside it: read as the character of `<unk>`
    cut: int  # words outside it of more than `word_length - 2` characters: read without their last ones


@dataclass(frozen=True)
class Vocabulary:
    """Words and characters, each numbered from 0.

    Attributes:
        words: `<unk>`, `<eos>` and the others.
        characters: The five marks (padding, start, end, and one for each of
            `<unk>` and `<eos>`), then single characters.
        word_length: Characters of a spelled word with its start and end mark.

    Raises:
        ValueError: If the marks are missing, a word or character occurs twice
            or cannot be written to a file, or a length is out of its range.
    """

    words: tuple[str, ...]
    characters: tuple[str, ...]
    word_length: int

    def __post_init__(self):
        singles = self.characters[len(_MARKS) :]
        longest = max(map(len, self.words), default=0)
        unwritable = [text for text in (*self.words, *singles) if not is_text(text)]
        rules = (
            (
                self.words[:2] == (UNKNOWN, END_OF_SENTENCE) and len(set(self.words)) == len(self.words),
                f"`words` must be {UNKNOWN!r}, {END_OF_SENTENCE!r} and then others, each once",
            ),
            (longest <= _LONGEST_WORD, f"A word has at most {_LONGEST_WORD:,} characters, not {longest:,}"),
            (
                self.characters[: len(_MARKS)] == _MARKS and len(set(singles)) == len(singles),
                f"`characters` must be the marks {_MARKS} and then single characters, each once",
            ),
            (all(len(c) == 1 for c in singles), "Characters after the marks must be single ones"),
            (not unwritable, f"Words and characters must be text that a file can contain, not {unwritable[:1]!r}"),
            (
                3 <= self.word_length <= LONGEST_SPELLING,
                f"`word_length` must be from 3 to {LONGEST_SPELLING:,}: a start mark, an end mark and one character",
            ),
        )
        if broken := [rule for is_met, rule in rules if not is_met]:  # a large vocabulary is not written for nothing
            received = f"words={shortened(self.words)}, characters={shortened(self.characters)}"
            raise ValueError(f"{broken[0]}. Received: {received}, word_length={self.word_length}")

    @property
    def sizes(self) -> dict[str, Any]:
        """Arguments of `create_model` for a network of these words."""
        return {"classes": len(self.words), "characters": len(self.characters), "input_shape": (self.word_length,)}

    @classmethod
    def of(cls, tokens: Iterable[str], longest: int = LONGEST) -> "Vocabulary":
        """Build the vocabulary of a text.

        Args:
            tokens: The words of the text, in order; they are numbered as they
                first appear.
            longest: Longest spelling with its marks; longer words are cut.
                Defaults to 65.

        Raises:
            ValueError: If there are no words, `longest` is too large, a
                word has characters that no file can hold, or `tokens` is a
                text: `Vocabulary.of(a_text.split())`.
        """
        words = [
            word for word in dict.fromkeys(checked_words(tokens, "tokens")) if word not in (UNKNOWN, END_OF_SENTENCE)
        ]
        if not words:
            raise ValueError("A vocabulary needs words. Received: a text without any (or of `<unk>` alone)")
        characters = dict.fromkeys(c for word in words for c in word)
        length = min(max(map(len, words)) + 2, longest)
        return cls((UNKNOWN, END_OF_SENTENCE, *words), (*_MARKS, *characters), length)

    def padded(self, shortest: int) -> "Vocabulary":
        """Return the vocabulary with spellings of at least `shortest` characters, the widest kernel of a net."""
        return self if self.word_length >= shortest else replace(self, word_length=shortest)

    @cached_property
    def table(self) -> np.ndarray:
        """The spelling of every word: int32 `(words, word_length)`."""
        return self.spell(self.words)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the JSON form; weights name the fingerprint of their vocabulary."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def ids(self, words: Sequence[str]) -> np.ndarray:
        """Return the numbers of words, int32 `(n,)`; an unseen word is `<unk>`, 0.

        Raises:
            ValueError: If `words` is not a list of strings, e.g. a text.
        """
        number, words = self._word_numbers, checked_words(words)
        return np.fromiter((number.get(word, 0) for word in words), np.int32, len(words))

    def spell(self, words: Sequence[str]) -> np.ndarray:
        """Return the characters of words: start, characters, end, padding.

        `<unk>` and `<eos>` are one character each. An unseen character is
        read as the character of `<unk>`. A word that is too long loses its
        last characters before the end mark [Kim et al.'s code].

        Args:
            words: Any words.

        Returns:
            int32 `(n, word_length)`.

        Raises:
            ValueError: As `ids`.
        """
        words = checked_words(words)
        spelled = np.full((len(words), self.word_length), _PAD, np.int32)
        number = self._character_numbers
        for row, word in zip(spelled, words, strict=True):
            letters = (word,) if word in (UNKNOWN, END_OF_SENTENCE) else tuple(word[: self.word_length - 2])
            codes = [_START, *(number.get(letter, _UNKNOWN) for letter in letters), _END]
            row[: len(codes)] = codes
        return spelled

    def strange(self, words: Iterable[str]) -> Strange:
        """Count what the vocabulary does not know of the words of a text, every occurrence.

        Raises:
            ValueError: As `ids`.
        """
        unseen = unreadable = cut = 0
        for word in checked_words(words):
            if word not in self._word_numbers:
                unseen += 1
                unreadable += sum(letter not in self._character_numbers for letter in word)
                cut += len(word) > self.word_length - 2
        return Strange(unseen, unreadable, cut)

    def to_json(self) -> str:
        """Return it as JSON."""
        values = {"words": self.words, "characters": self.characters, "word_length": self.word_length}
        return json.dumps(values, ensure_ascii=False, indent=0)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Vocabulary":
        """Return the vocabulary that `to_json` wrote.

        Raises:
            ValueError: If the text is not such JSON, or declares a vocabulary
                of an impossible size.
        """
        with reworded("This is not a vocabulary", (ValueError, RecursionError)):
            return msgspec.json.decode(text, type=cls)

    @cached_property
    def _word_numbers(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def _character_numbers(self) -> dict[str, int]:
        return {character: i for i, character in enumerate(self.characters)}


def words_of(text: str) -> list[list[str]]:
    """Split every line at whitespace, without folding case, and end it by `<eos>`."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [[*line.split(), END_OF_SENTENCE] for line in lines]


def checked_words(words: Any, name: str = "words") -> list[str]:
    """Return words as a list of strings; one string is refused, since its letters would be read as words."""
    if isinstance(words, str) or not isinstance(words, Iterable):
        raise ValueError(f"`{name}` must be a list of words, e.g. a_text.split(). Received: {name}={shortened(words)}")
    words = list(words)
    wrong = next((word for word in words if not isinstance(word, str)), "")
    refuse(
        (not isinstance(wrong, str), f"`{name}` must be words, each a string. Received: {shortened(wrong)} among them")
    )
    return words


def shortened(value: Any) -> str:
    """Describe a received value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
