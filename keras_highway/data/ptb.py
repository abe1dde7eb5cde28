"""The Penn Treebank as a corpus, or any corpus of the same three files, and its batches."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keras_highway._support.files import read_bounded
from keras_highway._support.schema import check_choice, checked_size
from keras_highway.data.datasets import DATA_VARIABLE
from keras_highway.data.vocabulary import Vocabulary, words_of


class UniqueWords(NamedTuple):
    """The words of a batch, each once."""

    words: np.ndarray  # int32 `(size,)`, the distinct words; what fills up is word 0
    positions: np.ndarray  # int32, the batch's shape: which of them stands where


def batchify(tokens: np.ndarray, batch: int = 20, steps: int = 35) -> tuple[np.ndarray, np.ndarray]:
    """Lays a text out as parallel streams for truncated back-propagation.

    The text is cut to a multiple of `batch * steps` tokens and into `batch`
    equal pieces; batch `k` has steps `k * steps` to `(k + 1) * steps - 1` of
    each piece, so that row `i` continues in row `i` of the next batch. The
    target of a token is the next one, of the last token the first [Kim et
    al.'s code].
    """
    tokens, batch, steps = np.asarray(tokens), checked_size(batch, "batch"), checked_size(steps, "steps")
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

    XLA compiles once per shape. The Treebank's 1,327 batches of 700 tokens
    have 312 to 401 distinct words: multiples of 64 need three shapes (320,
    384, 448) and 5 % more rows.
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


__all__ = ["Corpus", "load_corpus", "load_split"]

SPLITS = ("train", "valid", "test")
_LARGEST = 2**30  # bytes of a text: its words take a hundred times as many
_TREEBANK = (10_000, 51)  # words, characters with the marks [Kim et al. 2015]


class Corpus(NamedTuple):
    """A corpus in memory, each split one stream of word numbers.

    Attributes:
        vocabulary: The words and characters of the training split.
        train: int32 `(n,)`.
        valid: int32 `(n,)`.
        test: int32 `(n,)`.
    """

    vocabulary: Vocabulary
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


def load_corpus(folder: str | os.PathLike[str] | None = None) -> Corpus:
    """Read a corpus: `train.txt`, `valid.txt` and `test.txt`, one sentence per line.

    The Penn Treebank as prepared by Mikolov has 10,000 words with `<unk>` and
    `<eos>`, 51 characters with the marks, and 929,589, 73,760 and 82,430
    tokens with one `<eos>` per line [Kim et al. 2015]. Words are numbered as
    they first appear in the training split; words of the other splits that it
    lacks (the Treebank has none) count as `<unk>`.

    Args:
        folder: Folder of the files, which may also be called `ptb.train.txt`
            and so on, or one with a folder `ptb` that holds them; where both
            do, its own. Defaults to the environment variable
            `KERAS_HIGHWAY_DATA`.

    Returns:
        A `Corpus`.

    Raises:
        FileNotFoundError: If a file is missing, or no folder is known.
        ValueError: If a file is empty or not UTF-8.
    """
    root = corpus_folder(folder)
    paths = [_path(root, split) for split in SPLITS]  # all, before minutes go into the first
    train, valid, test = (_words(path) for path in paths)
    vocabulary = Vocabulary.of(train)
    return Corpus(vocabulary, *(vocabulary.ids(words) for words in (train, valid, test)))


def load_split(split: str, folder: str | os.PathLike[str] | None = None) -> list[str]:
    """Read one split of a corpus, for a model that has its vocabulary already.

    Args:
        split: `"train"`, `"valid"` or `"test"`.
        folder: As in `load_corpus`, but the other splits need not be there.
            A folder `ptb` with the split comes before the folder's own file,
            unless the folder has all three.

    Returns:
        The words, one `<eos>` for each end of a line among them;
        `Vocabulary.ids` numbers them.

    Raises:
        FileNotFoundError: If the file is missing, or no folder is known.
        ValueError: If there is no such split, or the file is empty or not
            UTF-8.
    """
    check_choice("split", split, SPLITS)
    return _words(_path(corpus_folder(folder, (split,)), split))


def is_treebank(corpus: Corpus) -> bool:
    """Whether a corpus is the Penn Treebank as prepared by Mikolov, by the words and characters that it has."""
    known = corpus.vocabulary
    return (len(known.words), len(known.characters)) == _TREEBANK


def corpus_folder(folder: str | os.PathLike[str] | None, splits: Sequence[str] = SPLITS) -> Path:
    """Return the folder of a corpus's files: the folder itself, or `ptb` in it."""
    folder = folder or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            f"No folder of a corpus: pass the one that holds {', '.join(f'{s}.txt' for s in SPLITS)}, or set "
            f"{DATA_VARIABLE}."
        )
    itself, inner = Path(folder), Path(folder) / "ptb"
    own, its = ({split for split in SPLITS if _found(place, split) is not None} for place in (itself, inner))
    if own == set(SPLITS) or (own >= set(splits) and not its >= set(splits)):
        return itself
    return inner if its or (inner.is_dir() and not own) else itself  # also where files are missing, for the message


def _words(path: Path) -> list[str]:
    return [word for line in words_of(read_text(path)) for word in line]


def read_text(path: Path) -> str:
    """Return a UTF-8 text file with at least one word."""
    return decoded(read_bounded(path, _LARGEST), str(path))


def decoded(content: bytes, path: str) -> str:
    """Decode UTF-8; `path` names the source in the error."""
    try:
        text = content.decode("utf-8").removeprefix("\ufeff")  # editors' mark of UTF-8: no part of the first word
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path} is not UTF-8: byte {error.start}, in line {line}, is 0x{content[error.start]:02x}. "
            "Convert the file, e.g. with iconv."
        ) from error
    if not text.split():
        raise ValueError(f"{path} holds no words. Expected one sentence per line.")
    return text


def _found(root: Path, split: str) -> Path | None:
    names = (f"{split}.txt", f"ptb.{split}.txt")
    return next((root / name for name in names if (root / name).is_file()), None)


def _path(root: Path, split: str) -> Path:
    if (path := _found(root, split)) is not None:
        return path
    raise FileNotFoundError(
        f"No file {root / f'{split}.txt'}. A corpus is three files, {', '.join(f'{s}.txt' for s in SPLITS)}, of one "
        "sentence per line."
    )
