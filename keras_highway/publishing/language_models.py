"""Weights of language models, as publishing treats them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_highway._support.terminal import python_string
from keras_highway.applications import create_model
from keras_highway.data.ptb import load_corpus
from keras_highway.data.vocabulary import END_OF_SENTENCE, VOCABULARY
from keras_highway.language import CharLM
from keras_highway.models.char_lm import reset_state, word_part
from keras_highway.publishing.gate_report import gate_moments
from keras_highway.publishing.task_weights import CardParts, Measured, TaskWeights, details_of, kind_of
from keras_highway.tasks import LANGUAGE, format_validation
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights import registry
from keras_highway.weights.info import WeightsInfo
from keras_highway.weights.language_form import stated_overrides
from keras_highway.weights.resolve import resolve

_WORDS, _CALLS = 8, 2
_BATCH = 500
# The Hub's name of a corpus, its name in words, and its language.
_CORPORA = {"ptb": ("ptb-text-only/ptb_text_only", "Penn Treebank", "en")}
_EXAMPLE = """lm = kh.CharLM({loaded_by})
print(lm.score("the company said it expects growth").perplexity)
print(lm.generate("the company", words=20, temperature=0.7))
print(lm.neighbours("looooook"))         # of any word, seen or unseen"""
_ALONE = f"""Inputs: `characters`, int32 (words, length), how each distinct word is
spelled, and `positions`, int32 (texts, steps), the index of the word at each position; output: probabilities of each
next word.
`kh.Vocabulary.from_json` reads the text of `{VOCABULARY}`, and its `spell` gives `characters`. The state of the LSTMs
is not part of the weights: it starts at zero and is carried from call to call, for as many texts at once as
`model.input_shape` states, until `keras_highway.models.char_lm.reset_state(model)`."""
_INPUT = """words, which are what whitespace separates, no case folded; each is read by its characters (a start mark, \
the characters, an end mark, padding). A word outside the vocabulary is read by its spelling and predicted as `<unk>`, \
an unknown character is read as that of `<unk>`, a word longer than the longest without its last characters"""


class LanguageModel(TaskWeights):
    """Weights of a character-aware language model, with its words.

    Args:
        row: The weights.
        lm: The model.
        overrides: The fields of its spec that are not its variant's.
    """

    task = LANGUAGE
    inputs = ("words", "positions")

    def __init__(self, row: WeightsInfo, lm: CharLM, overrides: dict):
        super().__init__(row, lm.network)
        self.lm, self._overrides = lm, overrides

    @classmethod
    def open(cls, row: WeightsInfo, path: Path) -> "LanguageModel":
        file = resolve(path, row.variant)
        return cls(row, CharLM(file, dtype="float32"), stated_overrides(file, row.variant))

    @classmethod
    def new_row(cls, result, stamp) -> WeightsInfo:
        """As of every task. A corpus may be any folder: the row has the folder's name."""
        name = Path(result["data"]).name
        if name in _CORPORA and name != result["data"]:
            name = f"a folder named {name}"
        return registry.language_row(result["weights"], result["variant"], name)

    @classmethod
    def card(cls, row: WeightsInfo, loaded_by: str, recipe: dict) -> CardParts:
        """As of every task. The published number is that of its own net and text alone."""
        data, data_name, language = _CORPORA.get(row.data, ("", row.data, None))
        same = row.data in _CORPORA and not any(recipe.get(f) for f in ("overrides", "train_tokens", "test_tokens"))
        published = LM_VARIANTS[row.variant].published_perplexity if same else ""
        return CardParts(
            task="text-generation",
            task_name="Language modelling",
            data=data,
            data_name=data_name,
            language=language,
            kind=f"character-aware language model with {kind_of(row)} layers",
            example=_EXAMPLE.format(loaded_by=python_string(loaded_by)),
            by_name=f"kh.CharLM({python_string(row.name)})",
            alone=_ALONE,
            knows=("words and characters", f"those of the training text, in `{VOCABULARY}`"),
            input=_INPUT,
            details=tuple(_details(row.metrics, published)),
            conditions={"published": published} if published else {},
        )

    def with_softmax(self) -> keras.Model:
        """As of every task."""
        return create_model(self.row.variant, dtype="float32", **self.lm.vocabulary.sizes, **self._overrides)

    def example(self) -> dict[str, np.ndarray]:
        """Words from all over the vocabulary and one never seen; every text begins with another of them."""
        words = self.lm.vocabulary.words
        spread = [words[i] for i in np.linspace(2, len(words) - 1, _WORDS - 2).astype(int)]
        chosen = np.array([END_OF_SENTENCE, *spread, spread[-1][::-1] + spread[0]])
        texts = self.network.input_shape[1][0]
        positions = (np.arange(_WORDS) + np.arange(texts)[:, None]) % _WORDS
        return {"words": chosen, "positions": positions.astype(np.int32)}

    def computed(self, inputs) -> dict[str, np.ndarray]:
        """Return the logits after the last word, read in two calls: the state is carried from one to the next."""
        words, positions = inputs["words"], inputs["positions"]
        if words.dtype.kind != "U" or not 0 <= positions.min() <= positions.max() < len(words):
            raise ValueError("positions that are not of its words")
        if len(positions) != self.network.input_shape[1][0]:
            raise ValueError(f"positions of {len(positions)} texts, not of {self.network.input_shape[1][0]}")
        characters = self.lm.vocabulary.spell(words.tolist())
        reset_state(self.network)
        try:
            calls = [self.traced([characters, steps]) for steps in np.array_split(positions, _CALLS, axis=1)]
        finally:
            reset_state(self.network)
        logits, gates = calls[-1]
        return {"characters": characters, "logits": logits[:, -1], **gates}

    def measure(self, data_dir=None, batch_size: int = 500) -> Measured:
        """As of every task; a text is one sequence, which has no batches."""
        corpus = load_corpus(data_dir)
        if corpus.vocabulary.padded(self.lm.vocabulary.word_length) != self.lm.vocabulary:  # as in training
            raise ValueError(
                f"The corpus in {data_dir} is not the one that {self.row.name!r} was trained on: other words."
            )
        test = corpus.test[: self.row.metrics.get("test_tokens")]  # as many as the recorded number is over
        perplexity = self.lm.perplexity(test, progress=sys.stderr.isatty())
        return Measured(perplexity, f"on the {len(test)} test words of {self.row.data}", len(test))

    def gate_report(self, data_dir=None) -> dict[str, Any]:
        """Over the words of the vocabulary, each once."""
        table = self.lm.vocabulary.table
        batches = (table[first : first + _BATCH] for first in range(0, len(table), _BATCH))
        blocks = gate_moments(word_part(self.network), batches)
        return {"samples": len(table), "of": "words of the vocabulary", "blocks": blocks}


def _details(metrics, published) -> Iterator[tuple[str, str]]:
    """Rows of a card's table: the published number beside ours, and how ours came about."""
    if published:
        yield "published", f"test perplexity {published}"
    if "valid_perplexity" in metrics:
        yield "validation", f"perplexity {format_validation(metrics)}"
    yield from details_of(metrics, lambda value: f"test perplexity {value:.2f}")
