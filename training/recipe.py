"""What a recipe must say: everything that decides a run's result."""

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one network is trained.

    Attributes:
        name: The recipe's name, that of its module or row.
        variant: The architecture.
        overrides: Spec fields that differ from the variant's, as pairs.
        weights: The zoo's name of what it trains.
        data: The data set.
        transform: Row of `keras_highway.transforms.TRANSFORMS`.
        epochs: Passes over the training set.
        batch_size: Global batch size.
        learning_rate: Initial rate.
        schedule: `"step"` (divided by 10 at each of `milestones`) or
            `"exponential"` (multiplied by `decay` each epoch).
        milestones: Shares of the run, for `"step"`.
        decay: Factor an epoch, for `"exponential"`.
        momentum: Momentum of SGD.
        nesterov: Whether it is Nesterov's.
        weight_decay: L2 penalty `weight_decay / 2 * |w|^2` on kernels alone.
        bias_multiplier: Factor on the learning rate of biases.
        seed: Of initialization, order and dropout.
        source: Where the recipe is published and what differs from it.
    """

    name: str
    variant: str
    overrides: tuple[tuple[str, object], ...] = ()
    weights: str
    data: str
    transform: str
    epochs: int
    batch_size: int = 100
    learning_rate: float
    schedule: str = "step"
    milestones: tuple[float, ...] = (1 / 3, 2 / 3)
    decay: float = 1.0
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 0.0
    bias_multiplier: float = 1.0
    seed: int = 0
    source: str = ""

    def to_dict(self) -> dict:
        """Returns the recipe as plain JSON values."""
        return dataclasses.asdict(self)
