"""Settings that go only with others: one that would have no use, or a warm-up that would train nothing, is refused."""

import dataclasses
from collections.abc import Iterable
from typing import Any

# What --set never sets, and why.
NEVER_SET = {
    "net.classes": "The number of classes follows from the data: from its folders, or its vocabulary.",
    "net.name": "A net goes by its variant's name, by which its weights are loaded again.",
}
_WITH_A_LAST_RATE = ("cosine", "epoch_cosine", "one_cycle")
_DECAYING = ("exponential", "plateau")
_WARMING_UP = ("step", *_WITH_A_LAST_RATE)
# The field, and which values of which other field use it.
_USED_WITH = {
    "momentum": ("optimizer", ("sgd", "muon")),
    "nesterov": ("optimizer", ("sgd", "muon")),
    "milestones": ("schedule", ("step",)),
    "decay": ("schedule", _DECAYING),
    "plateau_delta": ("schedule", ("plateau",)),
    "final_rate": ("schedule", _WITH_A_LAST_RATE),
    "warmup_epochs": ("schedule", _WARMING_UP),
    "warmup_rate": ("schedule", _WARMING_UP),
    "target_threshold": ("loss", ("bce",)),
}


def check_used(recipe: Any, names: Iterable[str]) -> None:
    """Refuses a setting that was given and is not used.

    Args:
        recipe: The `Recipe` with its settings.
        names: The fields that were given. Not looked at are the others, which
            the recipe's row states and another setting leaves without a use,
            and those that were given their default.

    Raises:
        ValueError: If one has no effect beside the others.
    """
    default = {field.name: field.default for field in dataclasses.fields(recipe)}
    given = [name for name in names if getattr(recipe, name) != default[name]]
    for name in given:
        field, values = _USED_WITH.get(name, ("", ()))
        if field and getattr(recipe, field) not in values:
            needed = " or ".join(f"{field}={value!r}" for value in values)
            raise ValueError(
                f"`{name}` is used only with {needed}: leave it out, or set that as well. "
                f"Received: {name}={getattr(recipe, name)!r}, {field}={getattr(recipe, field)!r}"
            )
    if "warmup_rate" in given and not recipe.warmup_epochs:
        raise ValueError(
            "`warmup_rate` is used only with a warm-up: leave it out, or set `warmup_epochs` as well. "
            f"Received: warmup_rate={recipe.warmup_rate!r}, warmup_epochs=0"
        )


def check_together(recipe: Any) -> None:
    """Refuses settings of which one takes another's effect away, and a warm-up that is the whole run or at a rate of 0.

    Args:
        recipe: The `Recipe`.

    Raises:
        ValueError: If it is. The cosines and `"one_cycle"` may begin at 0,
            from which they rise; the rate of `"step"` stays until its end.
    """
    if recipe.schedule in _WARMING_UP and recipe.warmup_epochs >= recipe.epochs:
        raise ValueError(
            f"`warmup_epochs` must be less than `epochs` with schedule={recipe.schedule!r}. "
            f"Received: warmup_epochs={recipe.warmup_epochs}, epochs={recipe.epochs}"
        )
    if recipe.schedule == "step" and recipe.warmup_epochs and not recipe.warmup_rate:
        raise ValueError(
            f"The warm-up would train {recipe.warmup_epochs} epochs at rate 0: set `warmup_rate`, or warmup_epochs=0. "
            f"Received: warmup_epochs={recipe.warmup_epochs}, warmup_rate={recipe.warmup_rate}, schedule='step'"
        )
    if not 0 < recipe.decay <= 1 or (recipe.schedule in _DECAYING and recipe.decay == 1):
        raise ValueError(
            "`decay`, the factor of the rate, must be above 0 and at most 1, and below 1 with a schedule that decays, "
            f"{' or '.join(_DECAYING)}. Received: decay={recipe.decay!r}, schedule={recipe.schedule!r}"
        )
    # With smoothing s of K classes a mixed image's shares are compared with (threshold - s / K) / (1 - s).
    thresholded = recipe.loss == "bce" and recipe.target_threshold is not None and not recipe.mixes
    if thresholded and recipe.label_smoothing:
        raise ValueError(
            "`target_threshold` makes smoothed targets 0 and 1 again: set one of the two, target_threshold=None or "
            f"label_smoothing=0, or mix images. Received: label_smoothing={recipe.label_smoothing}, "
            f"target_threshold={recipe.target_threshold}"
        )
