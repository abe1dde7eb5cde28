"""Learning-rate schedules that Keras does not have."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_highway_training")
class EpochExponential(keras.optimizers.schedules.LearningRateSchedule):
    """A rate that is multiplied by a factor after every epoch, by a whole number of epochs in any program.

    Keras's `ExponentialDecay(staircase=True)` divides steps by an epoch's in
    float32: compiled by XLA as a product with 1/n, which leads the first steps
    of epochs of 41 steps, and of 270 other lengths up to 2000, into the epoch
    before.

    Args:
        learning_rate: Float, rate of the first epoch.
        steps_per_epoch: Int, steps of an epoch.
        decay: Float, the factor.

    Raises:
        ValueError: If an epoch has no step.
    """

    def __init__(self, learning_rate, steps_per_epoch, decay):
        self.learning_rate, self.decay = float(learning_rate), float(decay)
        self.steps_per_epoch = checked_steps(steps_per_epoch, "steps_per_epoch")

    def __call__(self, step):
        epoch = _epoch(step, self.steps_per_epoch)
        return self.learning_rate * ops.power(ops.cast(self.decay, "float32"), epoch)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "steps_per_epoch": self.steps_per_epoch,
            "decay": self.decay,
        }


@keras.saving.register_keras_serializable(package="keras_highway_training")
class EpochCosine(keras.optimizers.schedules.LearningRateSchedule):
    """A cosine that falls once an epoch, after a warm-up that is part of it: timm's `CosineLRScheduler` [RSB].

    In epoch e of E, counted from 0, the rate is
    `first + e * (peak - first) / warmup` while e < warmup, then
    `last + (peak - last) * (1 + cos(pi * e / E)) / 2`: the cosine is that of a
    run without warm-up. Keras's `CosineDecay` changes at every step and begins
    its cosine after the warm-up.

    Args:
        learning_rate: Float, the peak.
        epochs: Int, E.
        steps_per_epoch: Int, steps of an epoch.
        warmup_epochs: Int. Defaults to `0`.
        first_rate: Float, rate of the first epoch of the warm-up. Defaults to
            `0.0`.
        last_rate: Float, the rate at E. Defaults to `0.0`.

    Raises:
        ValueError: If there is no epoch or no step of one, or fewer than none
            of the warm-up.
    """

    def __init__(self, learning_rate, epochs, steps_per_epoch, warmup_epochs=0, first_rate=0.0, last_rate=0.0):
        self.learning_rate, self.first_rate, self.last_rate = float(learning_rate), float(first_rate), float(last_rate)
        self.epochs, self.steps_per_epoch = (
            checked_steps(value, name) for value, name in ((epochs, "epochs"), (steps_per_epoch, "steps_per_epoch"))
        )
        self.warmup_epochs = checked_steps(warmup_epochs, "warmup_epochs", 0)

    def __call__(self, step):
        epoch = _epoch(step, self.steps_per_epoch)
        rising = self.first_rate + epoch * ((self.learning_rate - self.first_rate) / max(self.warmup_epochs, 1))
        left = ops.maximum(self.epochs - epoch, 0.0) / self.epochs
        # The square of a sine is (1 + cos(pi * e / E)) / 2, exact to the end, where that would round away.
        falling = self.last_rate + (self.learning_rate - self.last_rate) * ops.sin(0.5 * math.pi * left) ** 2
        return ops.where(epoch < self.warmup_epochs, rising, falling)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "epochs": self.epochs,
            "steps_per_epoch": self.steps_per_epoch,
            "warmup_epochs": self.warmup_epochs,
            "first_rate": self.first_rate,
            "last_rate": self.last_rate,
        }


def checked_steps(number, name: str, least: int = 1) -> int:
    """Returns a number of steps or epochs as an int; a whole float or tensor, as a cardinality is, is one, too.

    Raises:
        ValueError: If it is no whole number, or less than `least`: as the
            cardinality of a data set is whose length is not known.
    """
    try:
        whole = not isinstance(number, bool | str | bytes) and float(number).is_integer()
    except (TypeError, ValueError, OverflowError):
        whole = False
    if not whole or int(number) < least:
        counted = whole and name.startswith("steps")
        why = "; of a data set whose length is not known, count its batches" if counted else ""
        raise ValueError(f"`{name}` must be a whole number, at least {least}{why}. Received: {name}={number!r}")
    return int(number)


def _epoch(step, steps_per_epoch: int):
    """The epoch of a step, both counted from 0: a whole number, as float32."""
    return ops.cast(ops.floor_divide(ops.cast(step, "int32"), steps_per_epoch), "float32")
