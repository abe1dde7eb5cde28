"""A corpus as batches: streams of words, each distinct word of a batch spelled once."""

from collections.abc import Iterator

import numpy as np

from keras_highway.data.ptb import Corpus, batchify, corpus_folder, deduplicate, is_treebank, load_corpus
from keras_highway.specs import override
from keras_highway.training.data.samples import Shard, fingerprint_of
from keras_highway.training.data.synthetic import SYNTHETIC_CORPUS, synthetic_corpus
from keras_highway.training.language_recipe import LanguageRecipe
from keras_highway.variants import LM_VARIANTS


class TextSource:
    """The splits of a corpus.

    Args:
        recipe: What to train; its streams, steps and numbers of tokens count.
        corpus: Its data.
        name: What a result calls the corpus. Defaults to the recipe's `data`.

    Attributes:
        corpus: That name.

    Raises:
        ValueError: If a split is too short for one batch.
    """

    def __init__(self, recipe: LanguageRecipe, corpus: Corpus, name: str | None = None):
        self.corpus = recipe.data if name is None else name
        spec = override(LM_VARIANTS[recipe.variant], **dict(recipe.overrides))
        self.streams = spec.streams
        self.vocabulary = corpus.vocabulary.padded(max(spec.kernels))
        self.steps = recipe.steps
        self.valid, self.test = (split[: recipe.test_tokens] for split in (corpus.valid, corpus.test))
        self._inputs, self._targets = batchify(corpus.train[: recipe.train_tokens], self.streams, recipe.steps)
        texts = (self._inputs, self._targets, self.valid, self.test)
        self.fingerprint = fingerprint_of(self.vocabulary.fingerprint, *texts)
        batchify(self.valid, self.streams, recipe.steps)  # a split that is too short raises now, not after an epoch

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches."""
        return len(self._inputs)

    def on_device(self) -> None:
        """Batches carry their words."""

    def batches(self, _epoch: int, start: int, _shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield an epoch's batches from the `start`-th on: the text in order.

        A batch is the spelled distinct words `(words, characters a word)`,
        their positions `(streams, steps)` and the next words, of the same
        shape; all int32.
        """
        for inputs, targets in zip(self._inputs[start:], self._targets[start:], strict=True):
            words, positions = deduplicate(inputs)
            yield self.vocabulary.table[words].astype(np.int32), positions, targets.astype(np.int32)


def open_source(recipe: LanguageRecipe, data_dir) -> TextSource:
    """Return the source of a recipe's corpus.

    Args:
        recipe: What to train.
        data_dir: Folder that holds the folder `ptb`, or a text of one's own;
            other corpora are read from their own path.

    Raises:
        FileNotFoundError: If a file of the corpus is missing.
        ValueError: If a file is empty, no UTF-8, or too short.
    """
    if recipe.data == SYNTHETIC_CORPUS:
        return TextSource(recipe, synthetic_corpus())
    if recipe.data != "ptb":
        return TextSource(recipe, load_corpus(recipe.data))
    corpus = load_corpus(data_dir)
    return TextSource(recipe, corpus, None if is_treebank(corpus) else str(corpus_folder(data_dir).resolve()))
