"""Settings that do something only beside another one: given with a wrong one, they are refused, not ignored."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from keras_highway.training.recipe import Recipe

_WITH_A_LAST_RATE = ("cosine", "epoch_cosine", "one_cycle")
# The field, and which values of which other field have a use for it.
_USES = {
    "momentum": ("optimizer", ("sgd",)),
    "nesterov": ("optimizer", ("sgd",)),
    "milestones": ("schedule", ("step",)),
    "decay": ("schedule", ("exponential", "plateau")),
    "plateau_delta": ("schedule", ("plateau",)),
    "final_rate": ("schedule", _WITH_A_LAST_RATE),
    "warmup_epochs": ("schedule", ("step", *_WITH_A_LAST_RATE)),
    "warmup_rate": ("schedule", ("step", *_WITH_A_LAST_RATE)),
    "target_threshold": ("loss", ("bce",)),
}


def check_used(recipe: "Recipe", names) -> None:
    """Raises a ValueError where a setting that was given has no effect.

    Args:
        recipe: The recipe with its settings.
        names: Fields that were given. What a recipe's row states, and another
            setting leaves without a use, is not looked at; nor are defaults.
    """
    default = {field.name: field.default for field in dataclasses.fields(recipe)}
    names = [name for name in names if getattr(recipe, name) != default[name]]
    for name in names:
        field, values = _USES.get(name, ("", ()))
        if field and getattr(recipe, field) not in values:
            received = f"{name}={getattr(recipe, name)!r}, {field}={getattr(recipe, field)!r}"
            raise ValueError(
                f"`{name}` has an effect with {field}={' or '.join(values)} alone: leave it out, or set that, too. "
                f"Received: {received}"
            )
    if "warmup_rate" in names and not recipe.warmup_epochs:
        raise ValueError(
            "`warmup_rate` has no effect without a warm-up: set `warmup_epochs`, too. "
            f"Received: warmup_rate={recipe.warmup_rate!r}, warmup_epochs=0"
        )
