"""The language model as its users see it: text in; perplexities, text and neighbours out."""

import numbers
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from keras_highway._support.files import atomic_write, partial_folder
from keras_highway._support.keras_models import input_in, output_in
from keras_highway._support.schema import check_choice, checked_size, refuse
from keras_highway.applications import build_with, get_spec
from keras_highway.data.ptb import batchify
from keras_highway.data.vocabulary import (
    END_OF_SENTENCE,
    VOCABULARY,
    Strange,
    Vocabulary,
    checked_words,
    shortened,
    words_of,
)
from keras_highway.layers import CarriedLSTM, CharCNN, HierarchicalSoftmax, TakeRows
from keras_highway.tasks import LANGUAGE
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import FILE, ROW
from keras_highway.weights.load import SIZES, form_of_words, stated_overrides, vocabulary_of
from keras_highway.weights.sources import WeightsFile, resolve

__all__ = ["CharLM", "Line", "Neighbour", "Score"]


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
        strange: Words and characters that the vocabulary does not know.
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


_ROWS = 500  # words per call, always the same number: each new shape is compiled again
_MOST_OTHERS = 10_000  # words outside the vocabulary that are kept: 190 MB of a large model's
BEFORE, AFTER = "before", "after"
_STAGES = (BEFORE, AFTER)
_PROJECTION = len(_STAGES)


class Neighbour(NamedTuple):
    """A word near to another.

    Attributes:
        word: The word.
        cosine: Cosine of the angle between the two vectors.
    """

    word: str
    cosine: float


class WordTable:
    """The vectors of a vocabulary's words, and of any other word on request, of which the last 10,000 are kept."""

    def __init__(self, network: keras.Model, vocabulary: Vocabulary):
        cnn = next(layer for layer in network.layers if isinstance(layer, CharCNN))
        take = next(layer for layer in network.layers if isinstance(layer, TakeRows))
        self._encoder = keras.Model(network.inputs[0], [output_in(network, cnn), input_in(network, take)[0]])
        self._project = network.get_layer("lstm1")
        self._vocabulary = vocabulary
        self._row = {word: i for i, word in enumerate(vocabulary.words)}
        self._known = self._computed(vocabulary.table)
        self._others: dict[str, tuple[np.ndarray, ...]] = {}

    def vectors(self, words: Sequence[str], stage: str = AFTER) -> np.ndarray:
        """Return vectors of words."""
        return self._look_up(words, _STAGES.index(stage))

    def projections(self, words: Sequence[str]) -> np.ndarray:
        """Return what words add to the gates of the first LSTM: float32 `(n, 4 * units)`."""
        return self._look_up(words, _PROJECTION)

    def projections_of(self, numbers: np.ndarray) -> np.ndarray:
        """Return the same of words of the vocabulary by their numbers: float32 `(*numbers.shape, 4 * units)`."""
        return self._known[_PROJECTION][numbers]

    def neighbours(self, word: str, count: int, stage: str = AFTER) -> list[Neighbour]:
        """Return the words of the vocabulary whose vectors are nearest to a word's, the word itself left out."""
        vector = self.vectors([word], stage)[0]
        table = self._known[_STAGES.index(stage)]
        norms = np.linalg.norm(table, axis=1) * np.linalg.norm(vector)
        cosines = table @ vector / np.maximum(norms, np.finfo(np.float32).tiny)
        order = [i for i in np.argsort(-cosines, kind="stable") if self._vocabulary.words[i] != word]
        return [Neighbour(self._vocabulary.words[i], float(cosines[i])) for i in order[:count]]

    def _look_up(self, words: Sequence[str], which: int) -> np.ndarray:
        rows = np.fromiter((self._row.get(word, -1) for word in words), np.int64, len(words))
        found = self._known[which][rows]  # a copy
        others = np.flatnonzero(rows < 0)
        if not len(others):
            return found
        vectors = self._vectors_of([words[i] for i in others])
        for i in others:
            found[i] = vectors[words[i]][which]
        return found

    def _vectors_of(self, words: Sequence[str]) -> dict[str, tuple[np.ndarray, ...]]:
        """Cache vectors of words outside the vocabulary; stored at the end, so a call that fails changes nothing."""
        known = self._others  # read once: another thread may put another in its place
        new = [word for word in dict.fromkeys(words) if word not in known]
        if not new:
            return known
        computed = self._computed(self._vocabulary.spell(new))
        vectors = known | dict(zip(new, zip(*computed, strict=True), strict=True))
        kept = dict(islice(vectors.items(), max(len(vectors) - _MOST_OTHERS, 0), None))
        for word in new:
            if word in kept:  # a row of its own: a view would keep the whole call's
                kept[word] = tuple(row.copy() for row in kept[word])
        self._others = kept
        return vectors

    def _computed(self, spelled: np.ndarray) -> list[np.ndarray]:
        """Vectors before and after the highway layers, and what they add to the gates of the first LSTM."""
        before, after = self._encode(spelled)
        kernel, bias = (keras.ops.convert_to_numpy(w) for w in (self._project.kernel, self._project.bias))
        return [before, after, after @ kernel + bias]

    def _encode(self, spelled: np.ndarray) -> list[np.ndarray]:
        parts = []
        for first in range(0, len(spelled), _ROWS):
            chunk = spelled[first : first + _ROWS]
            rows = np.zeros((_ROWS, spelled.shape[1]), np.int32)
            rows[: len(chunk)] = chunk
            parts.append([np.asarray(v, np.float32)[: len(chunk)] for v in self._encoder.predict_on_batch(rows)])
        return [np.concatenate(column) for column in zip(*parts, strict=True)]


State = list[np.ndarray]


class Reader(keras.Model):
    """LSTMs and softmax of a network, sharing its weights and not its carried state.

    Inputs: what the words add to the gates of the first LSTM, `(texts, steps,
    4 * units)`; the number of each next word, `(texts, steps)`; h and c of
    every LSTM, each `(texts, units)`. Outputs: the log-probability of each
    next word, `(texts, steps)`; the log-probabilities of all words after the
    last step, `(texts, classes)`; h and c after the last step.
    """

    def __init__(self, network: keras.Model, **kwargs: Any):
        # Whatever the global policy: what is passed on from call to call is not rounded, and layers know their own.
        super().__init__(dtype="float32", autocast=False, **kwargs)
        self.lstms = [layer for layer in network.layers if isinstance(layer, CarriedLSTM)]
        self.head = network.get_layer("head")
        # `build` of a subclassed model would make weights; ours are there already.
        self.built = True

    def call(self, inputs: Sequence[Any]) -> list[Any]:
        projected, targets, *before = inputs
        after, x = [], None
        for i, lstm in enumerate(self.lstms):
            z = projected if x is None else lstm.project(x)
            x, *state = lstm.recur(z, *before[2 * i : 2 * i + 2])
            after += state
        if isinstance(self.head, HierarchicalSoftmax):
            return [self.head.target_log_probabilities(x, targets), self.head(x[:, -1]), *after]
        log_p = ops.log_softmax(ops.cast(self.head(x), "float32"))  # not rounded to a small dtype first
        own = ops.take_along_axis(log_p, ops.cast(targets, "int32")[..., None], axis=-1)
        return [own[..., 0], log_p[:, -1], *after]

    def start(self, texts: int = 1) -> State:
        """Return the state at the start of texts: zeros."""
        return [np.zeros((texts, lstm.units), np.float32) for lstm in self.lstms for _ in range(2)]

    def read(self, projected: np.ndarray, targets: np.ndarray, state: State) -> tuple[np.ndarray, np.ndarray, State]:
        """Return log-probabilities of `targets`, of every word as the next one, and the last state."""
        own, last, *after = self.predict_on_batch([projected, targets, *state])
        return own, last, after


DEFAULT = "charlm_large_coupled"
_STEPS = 128  # words a call in scoring


class CharLM:
    """A character-aware language model and its words [UIE, 5.2; Kim et al. 2015].

    It reads any word by its characters and predicts the words of its
    vocabulary. Whitespace separates words; the Penn Treebank's are in
    lower case, with `N` for numbers.

    Args:
        weights: A data set or tag (`"ptb"`) of `variant`, a weights name, a
            folder that `save` wrote, or `None` for random weights. Defaults
            to `"ptb"`. Or a file that `resolve` has read.
        variant: One of `list_models("charlm_*")`. Defaults to the
            weights' variant, else to `"charlm_large_coupled"`.
        vocabulary: A `Vocabulary`, e.g. from `load_corpus`. Short words are
            padded to the widest kernel. Defaults to the vocabulary stored with
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
        if vocabulary is not None and not isinstance(vocabulary, Vocabulary):
            raise ValueError(f"`vocabulary` must be a keras_highway.Vocabulary. Received: {shortened(vocabulary)}")
        read = weights is None or isinstance(weights, WeightsFile)
        file = weights if read else resolve(weights, variant or _variant_of_words(weights))
        self.variant = variant or (file and file.info.variant) or DEFAULT
        derived = ", ".join(name for name in (*SIZES, "classifier_activation") if name in spec_overrides)
        refuse(
            (
                get_spec(self.variant).task is not LANGUAGE,
                "CharLM is for language models, see keras_highway.list_models('charlm_*'). "
                f"Received: variant={self.variant!r}",
            ),
            (derived, f"CharLM sets `{derived}` itself: leave it out. Received: {spec_overrides}"),
        )
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
            self.variant, file, **vocabulary.sizes, classifier_activation=None, name=name, dtype=dtype, **spec_overrides
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out of copies and pickles everything that the network computes again."""
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
        shapes, expected = (
            [tuple(w.shape) for w in getattr(model, "weights", ()) if not w.name.startswith("lora_")]
            for model in (network, self.network)
        )
        if not isinstance(network, keras.Model) or shapes != expected:
            raise ValueError(
                "`network` must be a keras.Model with the weights of this CharLM: make another CharLM for other sizes. "
                f"Received: {shortened(network)}"
            )
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
        check_choice("stage", stage, ("before", AFTER))
        return self.table.vectors(words.split() if isinstance(words, str) else checked_words(words), stage)

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
        if not isinstance(word, str) or word.split() != [word]:
            raise ValueError(f"`word` must be one word, without spaces. Received: word={shortened(word)}")
        count = checked_size(count, "count")
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
        lines = words_of(_checked_text(text, "text"))
        if not text.strip():
            raise ValueError("`text` must have at least one word. Received: an empty text")
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
        words, targets = checked_words(words), checked_words(targets, "targets")
        if len(words) != len(targets) or not words:
            raise ValueError(
                "`targets` must be the words that follow `words`, as many, at least one. "
                f"Received: {len(words)} words, {len(targets)} targets"
            )
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

        The target of each token is the next one; after the last comes the first.

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
        tokens, known = np.asarray(tokens), len(self.vocabulary.words)
        is_split = tokens.ndim == 1 and tokens.size and np.issubdtype(tokens.dtype, np.integer)
        if not is_split or tokens.min() < 0 or tokens.max() >= known:
            raise ValueError(
                f"`tokens` must be numbers `(n,)` of the {known} words: lm.vocabulary.ids(words). "
                f"Received: {tokens.dtype} of shape {tokens.shape}, {shortened(tokens.tolist())}"
            )
        texts, steps = checked_size(texts, "texts"), checked_size(steps, "steps")
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
            temperature: Logits are divided by it: 0 always takes the
                likeliest word, above 1 unlikely ones come more often.
            seed: Seed of the draws. Defaults to `None`: another text each
                time.
            unknown: Whether `<unk>` may be drawn. Defaults to `False`.

        Returns:
            Prompt and continuation, one sentence per line.

        Raises:
            ValueError: If the temperature is negative, the number of words
                not positive, or the prompt not a text.
        """
        words, temperature = checked_size(words, "words"), _checked_temperature(temperature)
        rng = np.random.default_rng(seed)
        text = [word for line in words_of(_checked_text(prompt, "prompt")) for word in line]
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
            folder: The folder, made if needed. Files of an earlier `save` are
                replaced, other files stay.
            float16: Store weights in half precision, in half the size.

        Raises:
            ValueError: If the folder holds a description of weights, or a
                result, which would not be true of others; or weights without
                a vocabulary.
        """
        folder = Path(folder)
        foreign = [name for name in (ROW, "result.json") if (folder / name).exists()]
        if foreign or ((folder / FILE).exists() and not (folder / VOCABULARY).exists()):
            raise ValueError(f"{folder} contains other weights ({(*foreign, FILE)[0]}): choose another folder.")
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
        """Yield pieces of equal size, since each new shape is compiled again, and the number of real words in each."""
        for first in range(0, len(words), _STEPS):
            piece = words[first : first + _STEPS]
            projected = self.table.projections(piece)
            filled = np.zeros((1, _STEPS, projected.shape[1]), np.float32)
            following = np.zeros((1, _STEPS), np.int32)
            filled[0, : len(piece)], following[0, : len(piece)] = projected, target_ids[first : first + _STEPS]
            yield filled, following, len(piece)


def _checked_text(text: Any, name: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"`{name}` must be a text, one string. Received: {name}={shortened(text)}")
    return text


def _checked_temperature(temperature: Any) -> float:
    """Return a finite number from 0 on, of Python, NumPy or a tensor."""
    is_number = isinstance(temperature, numbers.Real) or getattr(temperature, "shape", None) == ()
    try:
        value = float(temperature) if is_number and not isinstance(temperature, bool | np.timedelta64) else -1.0
    except (TypeError, ValueError, OverflowError):
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ValueError(f"`temperature` must be a number from 0 on. Received: temperature={shortened(temperature)}")
    return value


def _written(words: Sequence[str]) -> str:
    """Return the text of words: a line feed for each end of sentence."""
    ends = [i for i, word in enumerate(words) if word == END_OF_SENTENCE]
    starts = [0, *(i + 1 for i in ends)]
    return "\n".join(" ".join(words[a:b]) for a, b in zip(starts, [*ends, len(words)], strict=True))


def _draw(log_p: np.ndarray, temperature: float, unknown: bool, rng: np.random.Generator) -> int:
    if np.isnan(log_p).any():
        raise ValueError("The network gives values that are not finite: it predicts no word. Train it again.")
    log_p = log_p if unknown else np.concatenate([[-np.inf], log_p[1:]])
    if not temperature:
        return int(log_p.argmax())
    with np.errstate(over="ignore"):  # at a temperature near 0 all but the likeliest are -inf
        p = np.exp((log_p - log_p.max()) / temperature)
    return int(rng.choice(len(p), p=p / p.sum()))


def _variant_of_words(weights: str | os.PathLike[str]) -> str:
    """Return the variant that a data set or tag stands for; a weight file or a name records its own."""
    word = str(weights)
    if "." in word or "/" in word or word in registry.WEIGHTS or not isinstance(weights, str | os.PathLike):
        return ""
    return DEFAULT if word in registry.words() or not Path(weights).exists() else ""  # words first, as `resolve` does
