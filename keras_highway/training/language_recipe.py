"""What the recipe of a language model states."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

from keras_highway._support.schema import check_finite
from keras_highway._support.terminal import did_you_mean
from keras_highway.specs import override
from keras_highway.tasks import LANGUAGE, Task
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights.info import check_name

PRECISIONS = ("float32", "mixed_bfloat16")
_OF_VOCABULARY = ("classes", "characters", "input_shape")  # fields of the spec that no recipe sets
_POSITIVE = ("epochs", "steps", "learning_rate", "clip_norm", "train_tokens", "test_tokens")


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe:
    """How one language model is trained.

    Attributes:
        name: The recipe's name.
        variant: The architecture; its spec has the number of parallel streams.
        overrides: Spec fields that differ from the variant's, as pairs.
        weights: The zoo's name of what it trains.
        data: The corpus: `"ptb"`, any folder that `load_corpus` reads, or
            `"synthetic_ptb"`, made up for tests.
        train_tokens: Number of tokens to train on, the first ones; `None` for
            all.
        test_tokens: The same for the validation and the test split.
        epochs: Passes over the training split.
        steps: Tokens of a stream in a batch, over which gradients go back.
        learning_rate: Initial rate of SGD on the loss summed over `steps`.
        decay: The rate is multiplied by it after an epoch, from the third on,
            in which the validation perplexity fell by less than
            `plateau_delta`.
        plateau_delta: See there; in units of perplexity.
        clip_norm: Largest norm of the gradient over all parameters, or `None`.
        precision: Dtype policy; gates, state and loss stay float32, and all
            that is reported is measured in float32.
        seed: Of initialization and dropout.
        source: Where the recipe is published and what differs from it.
    """

    name: str
    variant: str
    overrides: tuple[tuple[str, object], ...] = ()
    weights: str
    data: str = "ptb"
    train_tokens: int | None = None
    test_tokens: int | None = None
    epochs: int = 25
    steps: int = 35
    learning_rate: float = 1.0
    decay: float = 0.5
    plateau_delta: float = 1.0
    clip_norm: float | None = 5.0
    precision: str = "float32"
    seed: int = 0
    source: str = ""

    task: ClassVar[Task] = LANGUAGE

    # What the engines require of every recipe, and language models do not have.
    micro_batches: ClassVar[int] = 1
    ema: ClassVar[float | None] = None

    def to_dict(self) -> dict:
        """Return the recipe as plain JSON values."""
        return dataclasses.asdict(self)

    def check(self) -> None:
        """Raise a ValueError where a field of the recipe has an impossible value."""
        for name, known in {"variant": tuple(LM_VARIANTS), "precision": PRECISIONS}.items():
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(value, known)
                raise ValueError(f"`{name}` must be one of {', '.join(known)}.{hint} Received: {name}={value!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        for name in _OF_VOCABULARY:
            if name in dict(self.overrides):
                raise ValueError(
                    f"`{name}` follows from the vocabulary: leave net.{name} out. "
                    f"Received: net.{name}={dict(self.overrides)[name]!r}"
                )
        override(LM_VARIANTS[self.variant], **dict(self.overrides))
        check_finite(self)
        check_name(self.name, "`name`")
        check_name(self.weights, "`weights`")
        if not 0 < self.decay <= 1:
            raise ValueError(f"`decay` must be in (0, 1]. Received: decay={self.decay!r}")
        if self.seed < 0:
            raise ValueError(f"`seed` must not be negative. Received: seed={self.seed!r}")


def rate_after(recipe: LanguageRecipe, perplexities: list[float]) -> float:
    """Return the learning rate after epochs with these validation perplexities [Kim et al.'s code].

    Each is compared with the one before; the first two never count.
    """
    rate = recipe.learning_rate
    for epoch in range(2, len(perplexities)):
        if not perplexities[epoch - 1] - perplexities[epoch] >= recipe.plateau_delta:  # nor where it is no number
            rate *= recipe.decay
    return rate
