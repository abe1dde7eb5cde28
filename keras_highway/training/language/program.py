"""What one step of a language model computes."""

import keras
from keras import ops

from keras_highway.applications import create_model
from keras_highway.language import CharLM
from keras_highway.layers import CarriedLSTM
from keras_highway.layers.base import fresh
from keras_highway.models.char_lm import make_token_losses
from keras_highway.training.language.source import TextSource
from keras_highway.training.language_recipe import LanguageRecipe
from keras_highway.training.program import Trainable, set_seed


class LanguageProgram(Trainable):
    """The variables of a run and the functions of a batch over them.

    Args:
        recipe: What to train.
        source: Its data.
        data: `None`: batches carry their words.
    """

    sums = ("loss", "tokens")

    def __init__(self, recipe: LanguageRecipe, source: TextSource, data: None = None):
        set_seed(recipe.seed)
        words = source.vocabulary
        net = create_model(
            recipe.variant,
            **words.sizes,
            classifier_activation=None,
            dtype=recipe.precision,
            **dict(recipe.overrides),
        )
        lstms = [layer for layer in net.layers if isinstance(layer, CarriedLSTM)]
        for lstm in lstms:  # the sum of two biases starts as that of two draws
            lstm.bias.assign_add(fresh(lstm.bias_initializer)(lstm.bias.shape, lstm.bias.dtype))
        self._biases = {id(lstm.bias) for lstm in lstms}
        super().__init__(recipe, net, keras.optimizers.SGD(recipe.learning_rate), recipe.learning_rate)
        self.steps_per_epoch = source.batches_per_epoch
        self.batch_units = source.streams * source.steps
        self.corpus = source.corpus
        self._source, self._token_losses = source, make_token_losses(net)
        # In float32 whatever Keras's global policy is: this is what is measured and saved.
        self._lm = CharLM(None, recipe.variant, words, dtype="float32", **dict(recipe.overrides))

    def clipped(self, gradients):
        """As of every program, with the two biases that an LSTM of Kim et al.'s program has.

        Ours is their sum: its gradient counts twice in the norm, and it moves
        at twice the rate.
        """
        return self._scaled(super().clipped(self._scaled(gradients)))

    def _scaled(self, gradients):
        pairs = zip(self.net.trainable_variables, gradients, strict=True)
        return [gradient * 2**0.5 if id(variable) in self._biases else gradient for variable, gradient in pairs]

    def train_loss(self, batch):
        """Return what is differentiated, and `sums` over tokens for the log.

        What is differentiated is the sum over the steps of a stream, its mean
        over the streams, as in Kim et al.'s code: the rate of 1 and the norm
        of 5 belong to that. With the mean over steps, a 35th of it, nets
        stay at the perplexity of single words' frequencies.

        Args:
            batch: Spelled words, positions and targets, see `TextSource`.
        """
        targets = batch[-1]
        total = ops.sum(self._token_losses(*batch))
        tokens = ops.cast(ops.size(targets), "float32")
        return total / len(targets), ops.stack([total, tokens])

    def trained_lm(self) -> CharLM:
        """Return the model as its users have it, in float32, with the weights of now."""
        self._lm.network.set_weights([ops.convert_to_numpy(w) for w in self.net.weights])
        self._lm.forget()
        return self._lm

    def validation_perplexity(self, progress: bool = False) -> float:
        """Return that of the validation split, laid out as the training text is."""
        source = self._source
        return self.trained_lm().perplexity(source.valid, source.streams, source.steps, progress)

    @property
    def test_tokens(self) -> int:
        """Number of tokens that the test perplexity is over."""
        return len(self._source.test)

    def test_perplexity(self, progress: bool = False) -> float:
        """Returns that of the test split as one sequence."""
        return self.trained_lm().perplexity(self._source.test, progress=progress)
