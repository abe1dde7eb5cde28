"""A text as parallel streams cut into steps, and the distinct words of a batch."""

from typing import NamedTuple

import numpy as np

from keras_highway._support.schema import is_count


class UniqueWords(NamedTuple):
    """The words of a batch, each once.

    Attributes:
        words: int32 `(size,)`, the distinct words; what fills up is word 0.
        positions: int32, the batch's shape: which of them stands where.
    """

    words: np.ndarray
    positions: np.ndarray


def batchify(tokens: np.ndarray, batch: int = 20, steps: int = 35) -> tuple[np.ndarray, np.ndarray]:
    """Lays a text out as parallel streams for truncated back-propagation.

    The text is cut to a multiple of `batch * steps` tokens and into `batch`
    equal pieces; batch `k` has steps `k * steps` to `(k + 1) * steps - 1` of
    each piece, so that row `i` continues in row `i` of the next batch. The
    target of a token is the next one, of the last token the first [Kim et
    al.'s code].

    Args:
        tokens: Integers `(n,)`.
        batch: Number of streams.
        steps: Tokens of a stream in a batch.

    Returns:
        Inputs and targets, each `(n // (batch * steps), batch, steps)`.

    Raises:
        ValueError: If there are not enough tokens for one batch, or a number
            is not positive.
    """
    for name, count in (("batch", batch), ("steps", steps)):
        if not is_count(count):
            raise ValueError(f"`{name}` must be a positive number, a whole one. Received: {name}={count!r}")
    tokens, batch, steps = np.asarray(tokens), int(batch), int(steps)
    used = len(tokens) // (batch * steps) * batch * steps
    if used == 0:
        raise ValueError(
            f"A text of {len(tokens)} tokens is too short for one batch of {batch} streams x {steps} steps = "
            f"{batch * steps} tokens. Use fewer streams or steps, or a longer text."
        )
    inputs = tokens[:used]
    pair = (inputs, np.roll(inputs, -1))
    inputs, targets = (x.reshape(batch, -1, steps).swapaxes(0, 1) for x in pair)
    return inputs, targets


def deduplicate(words: np.ndarray, multiple: int = 64) -> UniqueWords:
    """Find the distinct words of a batch, as many as a few sizes allow.

    XLA compiles anew for every shape. Of the Treebank's 1,327 batches of 700
    tokens, which have 312 to 401 distinct words, multiples of 64 make three
    shapes (320, 384, 448) and 5 % more rows than needed.
    """
    words = np.asarray(words)
    distinct, positions = np.unique(words, return_inverse=True)
    size = min(-(-len(distinct) // multiple) * multiple, words.size)
    rows = np.zeros(size, np.int32)
    rows[: len(distinct)] = distinct
    return UniqueWords(rows, positions.reshape(words.shape).astype(np.int32))


def every(words: np.ndarray) -> UniqueWords:
    """Return the plain form of `deduplicate`: every position has a row of its own."""
    words = np.asarray(words)
    return UniqueWords(words.reshape(-1).astype(np.int32), np.arange(words.size, dtype=np.int32).reshape(words.shape))
