"""`kh.CharLM`: the character-aware language model with its words, for plain text."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from tqdm import tqdm

from keras_highway._support.bounded_json import read_bounded
from keras_highway._support.files import atomic_write
from keras_highway.applications import build_with, get_spec
from keras_highway.data.batchify import batchify
from keras_highway.data.vocabulary import END_OF_SENTENCE, VOCABULARY, Strange, Vocabulary, words_of
from keras_highway.language.reader import Reader, State
from keras_highway.language.word_table import AFTER, Neighbour, WordTable
from keras_highway.tasks import LANGUAGE
from keras_highway.weights import file as weights_file
from keras_highway.weights.info import FILE
from keras_highway.weights.resolve import WeightsFile, resolve

DEFAULT = "charlm_large_coupled"
_LARGEST_VOCABULARY = 2**28  # bytes
_STEPS = 128  # words a call in scoring


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


class CharLM:
    """A character-aware language model and its words [UIE, 5.2; Kim et al. 2015].

    It reads any word by its characters and predicts the words of its
    vocabulary. Words are what whitespace separates; the Penn Treebank's are in
    lower case, with `N` for numbers.

    Args:
        weights: A data set or tag (`"ptb"`) of `variant`, a weights name, a
            folder that `save` wrote, or `None` for random weights. Defaults
            to `"ptb"`. Or a file that `resolve` has read.
        variant: One of `list_models("charlm_*")`. Defaults to that of the
            weights, else to `"charlm_large_coupled"`.
        vocabulary: A `Vocabulary`, e.g. that of `load_corpus`. Defaults to
            the one beside the weights.
        dtype: Dtype policy of all layers. Defaults to Keras's global policy.
        **spec_overrides: Fields of the variant's spec, e.g. `units=100`; the
            sizes of the vocabulary follow from `vocabulary`, and a folder that
            `save` wrote records the other overrides.

    Raises:
        ValueError: If there are no such weights, no vocabulary, or the two do
            not belong together.

    Example:

    >>> from keras_highway.data.ptb import load_corpus
    >>> corpus = load_corpus("data")
    >>> lm = kh.CharLM(weights=None, vocabulary=corpus.vocabulary, variant="charlm_small_coupled")
    >>> lm.score("the cat sat on the mat").perplexity
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] | WeightsFile | None = "ptb",
        variant: str | None = None,
        vocabulary: Vocabulary | None = None,
        dtype: str | keras.DTypePolicy | None = None,
        **spec_overrides: Any,
    ):
        read = weights is None or isinstance(weights, WeightsFile)
        file = weights if read else resolve(weights, variant or _variant_of_words(weights))
        self.variant = variant or (file and file.variant) or DEFAULT
        if get_spec(self.variant).task is not LANGUAGE:
            raise ValueError(
                "CharLM is for language models, see keras_highway.list_models('charlm_*'). "
                f"Received: variant={self.variant!r}"
            )
        if file is not None:
            vocabulary = _belonging(file, vocabulary)
            spec_overrides = {**file.stamp.get("overrides", {}), **spec_overrides}
        if vocabulary is None:
            raise ValueError(
                "CharLM has words: pass vocabulary=load_corpus(FOLDER).vocabulary (see keras_highway.data.ptb) "
                "or trained weights. Received: weights=None, vocabulary=None"
            )
        self.vocabulary = vocabulary
        self._overrides = spec_overrides
        self.network: keras.Model = build_with(
            self.variant,
            file,
            **vocabulary.sizes,
            classifier_activation=None,
            dtype=dtype,
            **spec_overrides,
        )

    @cached_property
    def table(self) -> WordTable:
        """The vectors of all words, computed once; call `forget` after the weights have changed."""
        return WordTable(self.network, self.vocabulary)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.network)

    def forget(self) -> None:
        """Drops the table of word vectors: to be called when the network's weights have changed."""
        self.__dict__.pop("table", None)

    def encode(self, words: str | Sequence[str], stage: str = AFTER) -> np.ndarray:
        """Returns the vectors of words, which depend on their spelling alone.

        Args:
            words: Words, or a text of them; unseen words are allowed.
            stage: `"after"` the highway layers or `"before"` them. Defaults to
                `"after"`.

        Returns:
            float32 `(n, sum(filters))`.

        Raises:
            ValueError: If there is no such stage.
        """
        if stage not in ("before", AFTER):
            raise ValueError(f"`stage` must be 'before' or 'after' (the highway layers). Received: stage={stage!r}")
        return self.table.vectors(words.split() if isinstance(words, str) else words, stage)

    def neighbours(self, word: str, count: int = 5, stage: str = AFTER) -> list[Neighbour]:
        """Returns the words of the vocabulary nearest to a word, by the cosine of their vectors [Kim et al. 2015, 5].

        Args:
            word: Any word, seen or unseen.
            count: Number of words.
            stage: As in `encode`.
        """
        if len(word.split()) != 1:
            raise ValueError(f"Expected one word, without spaces. Received: word={word!r}")
        self.encode([word], stage)
        return self.table.neighbours(word, count, stage)

    def score(self, text: str, progress: bool = False) -> Score:
        """Measures how well the model predicts a text, line by line.

        The text is read as one stream from a zero state after an end of
        sentence: every word and the end of every line are predicted from all
        that came before. A word never seen is read by its spelling and counts,
        where it is to be predicted, as `<unk>`. An empty line is an end of
        sentence and nothing else.

        Args:
            text: A text, one sentence per line.
            progress: Whether to show a progress bar. Defaults to `False`.

        Returns:
            A `Score`.

        Raises:
            ValueError: If there is no text.
        """
        lines = words_of(text)
        if not text.strip():
            raise ValueError("There is nothing to score: a text needs a word. Received: an empty text")
        tokens = [word for line in lines for word in line]
        log_p = self.log_probabilities([END_OF_SENTENCE, *tokens[:-1]], tokens, progress)
        ends = np.cumsum([len(line) for line in lines])
        sums = np.add.reduceat(log_p, np.concatenate([[0], ends[:-1]]))
        scored = (Line(" ".join(line[:-1]), len(line), float(s)) for line, s in zip(lines, sums, strict=True))
        return Score(tuple(scored), self.vocabulary.strange(tokens))

    def log_probabilities(self, words: Sequence[str], targets: Sequence[str], progress: bool = False) -> np.ndarray:
        """Reads words as one stream from a zero state.

        Args:
            words: The words.
            targets: The words that follow each, to be predicted.
            progress: Whether to show a progress bar.

        Returns:
            float64 `(n,)`, the natural logarithm of each target's probability.
        """
        state, log_probabilities = self._reader.start(), []
        target_ids = self.vocabulary.ids(targets)
        with tqdm(total=len(words), unit=" words", disable=not progress, leave=False) as bar:
            for projected, following, count in self._chunks(words, target_ids):
                own, _, state = self._reader.read(projected, following, state)
                log_probabilities.append(np.asarray(own, np.float64)[0, :count])
                bar.update(count)
        return np.concatenate(log_probabilities)

    def perplexity(self, tokens: np.ndarray, texts: int = 1, steps: int = _STEPS, progress: bool = False) -> float:
        """The published measure of a corpus split [Kim et al.'s code].

        The target of each token is the next one, that of the last the first.

        Args:
            tokens: Integers `(n,)`, a split of a `Corpus` of this model's
                vocabulary.
            texts: Number of parallel texts that the split is read as, each
                from a zero state. Defaults to 1, one sequence, as the
                published test perplexity; the validation perplexity in
                training is over 20.
            steps: With several texts the split is cut to a multiple of `texts
                * steps`; 35 for the published validation perplexity.
            progress: Whether to show a progress bar.

        Raises:
            ValueError: If the split is too short, a number is not in this
                vocabulary, or the number of texts or steps is not positive.
        """
        tokens = np.asarray(tokens)
        if texts < 1 or steps < 1:
            raise ValueError(f"`texts` and `steps` must be at least 1. Received: texts={texts}, steps={steps}")
        known = len(self.vocabulary.words)
        if tokens.ndim != 1 or not tokens.size or tokens.min() < 0 or tokens.max() >= known:
            span = f", from {tokens.min()} to {tokens.max()}" if tokens.size else ""
            raise ValueError(
                f"`tokens` must be numbers of this model's {known} words, (n,): those of a `Corpus` of the same "
                f"vocabulary. Received: shape {tokens.shape}{span}"
            )
        if texts > 1:
            return float(np.exp(-self._stream_log_probability(tokens, texts, steps, progress)))
        words = [self.vocabulary.words[i] for i in tokens]
        return float(np.exp(-np.mean(self.log_probabilities(words, [*words[1:], words[0]], progress))))

    def _stream_log_probability(self, tokens: np.ndarray, texts: int, steps: int, progress: bool) -> float:
        inputs, targets = batchify(tokens, texts, steps)
        state, total = self._reader.start(texts), 0.0
        pairs = tqdm(zip(inputs, targets, strict=True), "testing", len(inputs), leave=False, disable=not progress)
        for words, following in pairs:
            own, _, state = self._reader.read(self.table.projections_of(words), following.astype(np.int32), state)
            total += float(np.sum(own, dtype=np.float64))
        return total / inputs.size

    def generate(
        self,
        prompt: str = "",
        words: int = 50,
        temperature: float = 1.0,
        seed: int | None = None,
        unknown: bool = False,
    ) -> str:
        """Continues a text.

        Args:
            prompt: Its start, which may contain unseen words.
            words: Number of words to add, ends of sentences among them.
            temperature: Logits are divided by it: near 0 the likeliest word
                is always taken, above 1 unlikely ones come more often.
            seed: Seed of the draws. Defaults to `None`: another text each
                time.
            unknown: Whether `<unk>` may be drawn. Defaults to `False`.

        Returns:
            Prompt and continuation, one sentence per line.

        Raises:
            ValueError: If the temperature or the number of words is not
                positive.
        """
        if not 0 < temperature < float("inf") or words < 1:
            raise ValueError(
                "`temperature` must be a positive number and `words` at least 1. "
                f"Received: temperature={temperature!r}, words={words!r}"
            )
        rng = np.random.default_rng(seed)
        text = [word for line in words_of(prompt) for word in line]
        if text and not prompt.endswith("\n"):
            text.pop()  # the last line is continued
        state, log_p = self._reader.start(), None
        for word in (END_OF_SENTENCE, *text):
            log_p, state = self._next(word, state)
        for _ in range(words):
            text.append(self.vocabulary.words[_draw(log_p, temperature, unknown, rng)])
            log_p, state = self._next(text[-1], state)
        return _written(text)

    def save(self, folder: str | os.PathLike[str], float16: bool = False) -> None:
        """Writes weights and vocabulary into a folder, from which `CharLM(weights=folder)` makes the model again.

        Args:
            folder: The folder, made if needed.
            float16: Store weights in half precision, in half the size.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"vocabulary": self.vocabulary.fingerprint, "overrides": self._overrides}
        words = len(self.vocabulary.words)
        with tempfile.TemporaryDirectory(prefix=".saving-", dir=folder) as partial:  # weights may not fit, or be NaN
            weights_file.save(self.network, Path(partial) / FILE, self.variant, words, float16, **facts)
            atomic_write(folder / VOCABULARY, lambda path: path.write_text(self.vocabulary.to_json(), "utf-8"))
            (Path(partial) / FILE).replace(folder / FILE)

    def _next(self, word: str, state: State) -> tuple[np.ndarray, State]:
        projected = self.table.projections([word])[None]
        _, last, state = self._reader.read(projected, np.zeros((1, 1), np.int32), state)
        return np.asarray(last[0], np.float64), state

    def _chunks(self, words: Sequence[str], target_ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
        """Pieces of equal size: a new shape would be compiled anew. What fills up the last one is not used."""
        for first in range(0, len(words), _STEPS):
            piece = words[first : first + _STEPS]
            projected = self.table.projections(piece)
            filled = np.zeros((1, _STEPS, projected.shape[1]), np.float32)
            following = np.zeros((1, _STEPS), np.int32)
            filled[0, : len(piece)], following[0, : len(piece)] = projected, target_ids[first : first + _STEPS]
            yield filled, following, len(piece)


def _written(words: Sequence[str]) -> str:
    """The text of words: a line feed for each end of sentence."""
    ends = [i for i, word in enumerate(words) if word == END_OF_SENTENCE]
    starts = [0, *(i + 1 for i in ends)]
    return "\n".join(" ".join(words[a:b]) for a, b in zip(starts, [*ends, len(words)], strict=True))


def _draw(log_p: np.ndarray, temperature: float, unknown: bool, rng: np.random.Generator) -> int:
    logits = log_p / temperature
    if not unknown:
        logits[0] = -np.inf
    p = np.exp(logits - logits.max())
    return int(rng.choice(len(p), p=p / p.sum()))


def _variant_of_words(weights: str | os.PathLike[str]) -> str:
    """The variant that a data set or tag means where none is passed; a weight file records its own."""
    is_word = not str(weights).endswith(weights_file.SUFFIX) and not Path(weights).exists() and "." not in str(weights)
    return DEFAULT if is_word and "/" not in str(weights) else ""


def _belonging(file: WeightsFile, vocabulary: Vocabulary | None) -> Vocabulary:
    """The vocabulary of a weight file, checked against what the file records of it."""
    passed = vocabulary is not None
    if not passed:
        beside = file.path.with_name(VOCABULARY)
        if not beside.is_file():
            raise ValueError(
                f"There is no {VOCABULARY} beside {file.path}: pass vocabulary=, that of the corpus it was trained on."
            )
        try:
            vocabulary = Vocabulary.from_json(read_bounded(beside, _LARGEST_VOCABULARY))
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
