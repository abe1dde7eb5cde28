"""`kh.CharLM`: the character-aware language model with its words, for plain text."""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import keras
import numpy as np
from tqdm import tqdm

from keras_highway._support.files import atomic_write, partial_folder
from keras_highway.applications import build_with, get_spec
from keras_highway.data.batchify import batchify
from keras_highway.data.vocabulary import END_OF_SENTENCE, VOCABULARY, Vocabulary, words_of
from keras_highway.language import arguments
from keras_highway.language.reader import Reader, State
from keras_highway.language.scores import Line, Score
from keras_highway.language.word_table import AFTER, Neighbour, WordTable
from keras_highway.tasks import LANGUAGE
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import FILE, ROW
from keras_highway.weights.load import SIZES, form_of_words, stated_overrides, vocabulary_of
from keras_highway.weights.sources import WeightsFile, resolve

DEFAULT = "charlm_large_coupled"
_STEPS = 128  # words a call in scoring


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
        vocabulary: A `Vocabulary`, e.g. that of `load_corpus`; one of short
            words is padded to the widest kernel. Defaults to the one beside
            the weights.
        dtype: Dtype policy of all layers. Defaults to Keras's global policy.
        name: Name of the network. Defaults to the variant.
        **spec_overrides: Fields of the variant's spec, e.g. `units=100`; the
            sizes of the vocabulary follow from `vocabulary`, and a folder that
            `save` wrote records the other overrides.

    Raises:
        ValueError: If there are no such weights, no vocabulary, the two do
            not belong together, or an override follows from the vocabulary.

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
        name: str | None = None,
        **spec_overrides: Any,
    ):
        arguments.check_vocabulary(vocabulary)
        read = weights is None or isinstance(weights, WeightsFile)
        file = weights if read else resolve(weights, variant or _variant_of_words(weights))
        self.variant = variant or (file and file.info.variant) or DEFAULT
        if get_spec(self.variant).task is not LANGUAGE:
            raise ValueError(
                "CharLM is for language models, see keras_highway.list_models('charlm_*'). "
                f"Received: variant={self.variant!r}"
            )
        arguments.check_overrides(spec_overrides)
        if file is not None:
            vocabulary = vocabulary_of(file, self.variant, vocabulary)
            own = stated_overrides(file, self.variant)
            spec_overrides = {key: value for key, value in own.items() if key not in SIZES} | spec_overrides
        if vocabulary is None:
            raise ValueError(
                "CharLM has words: pass vocabulary=load_corpus(FOLDER).vocabulary (see keras_highway.data.ptb) "
                "or trained weights. Received: weights=None, vocabulary=None"
            )
        spec = form_of_words(self.variant, spec_overrides)
        if file is None:
            vocabulary = vocabulary.padded(max(spec.kernels))
        self.vocabulary = vocabulary
        self._overrides = {name: getattr(spec, name) for name in spec_overrides}  # Python's numbers, which JSON has
        self.__dict__["network"] = build_with(
            self.variant,
            file,
            **vocabulary.sizes,
            classifier_activation=None,
            name=name,
            dtype=dtype,
            **spec_overrides,
        )

    def __getstate__(self) -> dict[str, Any]:
        """For copies and pickles: without what is computed from the network, which they compute anew."""
        return {key: value for key, value in self.__dict__.items() if key not in ("table", "_reader")}

    @property
    def network(self) -> keras.Model:
        """The model of words and their predictions; what is set, e.g. `kh.merge_lora(lm.network)`, is used at once.

        Raises:
            ValueError: If what is set has other weights than the network.
        """
        return self.__dict__["network"]

    @network.setter
    def network(self, network: keras.Model) -> None:
        arguments.check_network(network, self.network)
        self.forget()
        self.__dict__.pop("_reader", None)
        self.__dict__["network"] = network

    @cached_property
    def table(self) -> WordTable:
        """The vectors of all words, computed once; call `forget` after the weights have changed."""
        return WordTable(self.network, self.vocabulary)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self.network)

    def forget(self) -> None:
        """Drop the table of word vectors: to be called when the network's weights have changed."""
        self.__dict__.pop("table", None)

    def encode(self, words: str | Sequence[str], stage: str = AFTER) -> np.ndarray:
        """Return the vectors of words, which depend on their spelling alone.

        Args:
            words: Words, or a text of them; unseen words are allowed.
            stage: `"after"` the highway layers or `"before"` them. Defaults to
                `"after"`.

        Returns:
            float32 `(n, sum(filters))`.

        Raises:
            ValueError: If there is no such stage, or a word is not a string.
        """
        if stage not in ("before", AFTER):
            raise ValueError(f"`stage` must be 'before' or 'after' (the highway layers). Received: stage={stage!r}")
        return self.table.vectors(words.split() if isinstance(words, str) else arguments.checked_words(words), stage)

    def neighbours(self, word: str, count: int = 5, stage: str = AFTER) -> list[Neighbour]:
        """Return the words of the vocabulary nearest to a word, by the cosine of their vectors [Kim et al. 2015, 5].

        Args:
            word: Any word, seen or unseen.
            count: Number of words; of a smaller vocabulary, all but the word.
            stage: As in `encode`.

        Raises:
            ValueError: If it is not one word, `count` is not positive, or
                there is no such stage.
        """
        arguments.check_one_word(word)
        arguments.check_count(count, "count")
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
        arguments.check_text(text)
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
        """Read words as one stream from a zero state.

        Args:
            words: The words.
            targets: The words that follow each, to be predicted, as many.
            progress: Whether to show a progress bar.

        Returns:
            float64 `(n,)`, the natural logarithm of each target's probability.

        Raises:
            ValueError: If these are not as many strings, at least one.
        """
        words, targets = arguments.checked_pairs(words, targets)
        state, log_probabilities = self._reader.start(), []
        target_ids = self.vocabulary.ids(targets)
        with tqdm(total=len(words), unit=" words", disable=not progress, leave=False) as bar:
            for projected, following, count in self._chunks(words, target_ids):
                own, _, state = self._reader.read(projected, following, state)
                log_probabilities.append(np.asarray(own, np.float64)[0, :count])
                bar.update(count)
        return np.concatenate(log_probabilities)

    def perplexity(self, tokens: np.ndarray, texts: int = 1, steps: int = _STEPS, progress: bool = False) -> float:
        """Return the published measure of a corpus split [Kim et al.'s code].

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
        tokens = arguments.checked_tokens(tokens, self.vocabulary)
        for name, count in (("texts", texts), ("steps", steps)):
            arguments.check_whole(count, name)
        if texts < 1 or steps < 1:
            raise ValueError(f"`texts` and `steps` must be at least 1. Received: texts={texts}, steps={steps}")
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
                positive, or the prompt is not a text.
        """
        arguments.check_text(prompt, "prompt")
        arguments.check_count(words, "words")
        temperature = arguments.checked_temperature(temperature)
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
        """Write weights and vocabulary into a folder, from which `CharLM(weights=folder)` makes the model again.

        Args:
            folder: The folder, made if needed. What an earlier `save` left in
                it is replaced, other files stay.
            float16: Store weights in half precision, in half the size.

        Raises:
            ValueError: If the folder holds a description of weights, or a
                result, which would not be true of others; or weights without
                a vocabulary.
        """
        folder = Path(folder)
        for name, what in ((ROW, "weights that are described there"), ("result.json", "a run or weights of the zoo")):
            if (folder / name).exists():
                raise ValueError(
                    f"{folder} holds {what} ({name}), which would not be true of other weights: choose another folder."
                )
        if (folder / FILE).exists() and not (folder / VOCABULARY).exists():
            raise ValueError(f"{folder} holds weights of a model without words ({FILE}): choose another folder.")
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"vocabulary": self.vocabulary.fingerprint, "overrides": self._overrides}
        words = len(self.vocabulary.words)
        with partial_folder(folder / FILE) as partial:  # weights may not fit, or be NaN
            weights_file.save(self.network, partial / FILE, self.variant, words, float16, **facts)
            atomic_write(folder / VOCABULARY, lambda path: path.write_text(self.vocabulary.to_json(), "utf-8"))
            (partial / FILE).replace(folder / FILE)

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
    """Return the text of words: a line feed for each end of sentence."""
    ends = [i for i, word in enumerate(words) if word == END_OF_SENTENCE]
    starts = [0, *(i + 1 for i in ends)]
    return "\n".join(" ".join(words[a:b]) for a, b in zip(starts, [*ends, len(words)], strict=True))


def _draw(log_p: np.ndarray, temperature: float, unknown: bool, rng: np.random.Generator) -> int:
    if np.isnan(log_p).any():
        raise ValueError("The network gives values that are not finite: it predicts no word. Train it again.")
    log_p = log_p if unknown else np.concatenate([[-np.inf], log_p[1:]])
    with np.errstate(over="ignore"):  # at a temperature near 0 all but the likeliest are -inf
        p = np.exp((log_p - log_p.max()) / temperature)
    return int(rng.choice(len(p), p=p / p.sum()))


def _variant_of_words(weights: str | os.PathLike[str]) -> str:
    """Return the variant that a data set or tag means where none is passed; a weight file or a name records its own."""
    word = str(weights)
    if "." in word or "/" in word or word in registry.WEIGHTS or not isinstance(weights, str | os.PathLike):
        return ""
    return DEFAULT if word in registry.words() or not Path(weights).exists() else ""  # words first, as `resolve` does
