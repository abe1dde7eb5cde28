"""Training of language models: a corpus as batches, one step, and what a finished run reports."""

import math
import sys
from collections.abc import Iterator

import keras
import numpy as np
from keras import ops

from keras_highway.applications import create_model
from keras_highway.data.ptb import Corpus, batchify, corpus_folder, deduplicate, is_treebank, load_corpus
from keras_highway.language import CharLM
from keras_highway.layers import CarriedLSTM
from keras_highway.layers.base import fresh
from keras_highway.models.char_lm import make_token_losses
from keras_highway.specs import override
from keras_highway.tasks import LANGUAGE
from keras_highway.training.data.samples import Shard, fingerprint_of
from keras_highway.training.data.synthetic import SYNTHETIC_CORPUS, synthetic_corpus
from keras_highway.training.program import Program
from keras_highway.training.recipe import LanguageRecipe
from keras_highway.variants import LM_VARIANTS


class TextSource:
    """The splits of a corpus as batches: streams of words, each distinct word of a batch spelled once."""

    def __init__(self, recipe: LanguageRecipe, corpus: Corpus, name: str | None = None):
        self.corpus = recipe.data if name is None else name
        spec = override(LM_VARIANTS[recipe.variant], **dict(recipe.overrides))
        self.streams, self.steps = spec.streams, recipe.steps
        self.vocabulary = corpus.vocabulary.padded(max(spec.kernels))
        self.valid, self.test = (split[: recipe.test_tokens] for split in (corpus.valid, corpus.test))
        self._inputs, self._targets = batchify(corpus.train[: recipe.train_tokens], self.streams, recipe.steps)
        texts = (self._inputs, self._targets, self.valid, self.test)
        self.fingerprint = fingerprint_of(self.vocabulary.fingerprint, *texts)
        self.batches_per_epoch = len(self._inputs)
        batchify(self.valid, self.streams, recipe.steps)  # refuses a short split now, not after an epoch

    def on_device(self) -> None:
        """Batches carry their words."""

    def batches(self, _epoch: int, start: int, _shard: Shard) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield an epoch's batches from the `start`-th: the text in order.

        A batch holds the spelled distinct words `(words, characters)`, their
        positions `(streams, steps)` and the next words, of the same shape;
        all int32.
        """
        for inputs, targets in zip(self._inputs[start:], self._targets[start:], strict=True):
            words, positions = deduplicate(inputs)
            yield self.vocabulary.table[words].astype(np.int32), positions, targets.astype(np.int32)


def open_source(recipe: LanguageRecipe, data_dir) -> TextSource:
    """Return the source of a recipe's corpus."""
    if recipe.data == SYNTHETIC_CORPUS:
        return TextSource(recipe, synthetic_corpus())
    if recipe.data != "ptb":
        return TextSource(recipe, load_corpus(recipe.data))
    corpus = load_corpus(data_dir)
    return TextSource(recipe, corpus, None if is_treebank(corpus) else str(corpus_folder(data_dir).resolve()))


class LanguageProgram(Program):
    """Variables of a run of a language model, and functions of a batch."""

    sums = ("loss", "tokens")
    metric = "test_perplexity"

    def __init__(self, recipe: LanguageRecipe, source: TextSource, data: None = None):
        keras.utils.set_random_seed(recipe.seed)
        words = source.vocabulary
        net = create_model(
            recipe.variant, **words.sizes, classifier_activation=None, dtype=recipe.precision, **dict(recipe.overrides)
        )
        lstms = [layer for layer in net.layers if isinstance(layer, CarriedLSTM)]
        for lstm in lstms:  # one bias here is the sum of two in Kim et al.'s program: it starts as two draws
            lstm.bias.assign_add(fresh(lstm.bias_initializer)(lstm.bias.shape, lstm.bias.dtype))
        self._biases = {id(lstm.bias) for lstm in lstms}
        super().__init__(recipe, source, net, keras.optimizers.SGD(recipe.learning_rate), recipe.learning_rate)
        self.steps_per_epoch = source.batches_per_epoch
        self.batch_units = source.streams * source.steps
        self._token_losses = make_token_losses(net)
        # In float32 under any global policy: this model is measured and saved.
        self._lm = CharLM(None, recipe.variant, words, dtype="float32", **dict(recipe.overrides))

    def begin_epoch(self, epoch: int, rows=()) -> None:
        self._rate = rate_after(self.recipe, [float(row["valid_perplexity"]) for row in rows])
        self.optimizer.learning_rate = self._rate

    def clipped(self, gradients):
        """Clip as every program does, with the two biases that an LSTM of Kim et al.'s program has.

        Ours is their sum: its gradient counts twice in the norm, and it moves
        at twice the rate.
        """
        return self._scaled(super().clipped(self._scaled(gradients)))

    def _scaled(self, gradients):
        pairs = zip(self.net.trainable_variables, gradients, strict=True)
        return [gradient * 2**0.5 if id(variable) in self._biases else gradient for variable, gradient in pairs]

    def train_loss(self, batch):
        """Return the loss to differentiate, and `sums` over tokens for the log.

        The loss is summed over the steps of a stream and averaged over the
        streams, as in Kim et al.'s code: their rate of 1 and norm of 5 belong
        to this sum. With the mean over steps, networks do not learn more than
        the frequencies of words.
        """
        targets = batch[-1]
        total = ops.sum(self._token_losses(*batch))
        tokens = ops.cast(ops.size(targets), "float32")
        return total / len(targets), ops.stack([total, tokens])

    def trained_lm(self) -> CharLM:
        """Return the language model in float32, with the current weights."""
        self._lm.network.set_weights([ops.convert_to_numpy(w) for w in self.net.weights])
        self._lm.forget()
        return self._lm

    def evaluate(self, engine, strategy) -> dict[str, float]:
        split = self.source.valid, self.source.streams, self.source.steps
        return {"perplexity": checked(self.trained_lm().perplexity(*split, sys.stderr.isatty()), "validation")}

    def columns(self, trained, tested):
        return {
            "train_loss": trained["loss"],
            "train_perplexity": _perplexity(trained["loss"]),
            "valid_perplexity": tested["perplexity"],
        }

    def bar(self, means):
        return {"loss": f"{means['loss']:.4f}", "perplexity": LANGUAGE.metric.format(_perplexity(means["loss"]))}

    def line(self, row) -> str:
        train, valid = (LANGUAGE.metric.format(row[f"{split}_perplexity"]) for split in ("train", "valid"))
        return f"perplexity train {train} valid {valid}"

    def result(self, last):
        test = checked(self.trained_lm().perplexity(self.source.test, progress=sys.stderr.isatty()), "test")
        facts = {"test_tokens": len(self.source.test)}
        facts |= {name: last[name] for name in ("valid_perplexity", "train_perplexity", "tokens_per_second")}
        return self.source.corpus, test, facts

    def save(self, path) -> None:
        self.trained_lm().save(path)


def checked(perplexity: float, split: str) -> float:
    """Return the perplexity of a split; raise a FloatingPointError if a result cannot hold it."""
    least, largest = LANGUAGE.metric.bounds
    if not least <= perplexity <= largest:
        raise FloatingPointError(f"The {split} perplexity became {perplexity:g}.")
    return perplexity


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))


def rate_after(recipe: LanguageRecipe, perplexities: list[float]) -> float:
    """Return the learning rate after epochs with these validation perplexities; the first two never count."""
    rate = recipe.learning_rate
    for epoch in range(2, len(perplexities)):
        if not perplexities[epoch - 1] - perplexities[epoch] >= recipe.plateau_delta:  # true for nan, too
            rate *= recipe.decay
    return rate
