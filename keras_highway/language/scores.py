"""What scoring a text returns."""

from typing import NamedTuple

import numpy as np

from keras_highway.data.vocabulary import Strange


class Line(NamedTuple):
    """A scored line.

    Attributes:
        text: Its words, one space apart.
        tokens: Their number, with the end of the sentence.
        log_probability: Natural logarithm of the line's probability.
    """

    text: str
    tokens: int
    log_probability: float

    @property
    def perplexity(self) -> float:
        """`exp(-log_probability / tokens)`."""
        return float(np.exp(-self.log_probability / self.tokens))


class Score(NamedTuple):
    """A scored text.

    Attributes:
        lines: Every line of it.
        strange: What of it the vocabulary does not know.
    """

    lines: tuple[Line, ...]
    strange: Strange

    @property
    def tokens(self) -> int:
        """Number of words and ends of sentences."""
        return sum(line.tokens for line in self.lines)

    @property
    def perplexity(self) -> float:
        """Perplexity of the whole text."""
        return float(np.exp(-sum(line.log_probability for line in self.lines) / self.tokens))
