"""What of a layer's own sublayers learns, and by which low-rank updates: in its configuration, so that copies do, too.

Keras's layers note their own rank. Those that a block makes when it is built
have the block's configuration alone.
"""

from collections.abc import Mapping
from typing import Any

import keras

from keras_highway._support.whole_numbers import is_count
from keras_highway.layers.frozen import checked_parts, freeze_parts, frozen_parts, parts_of

_FIELDS = {"rank", "alpha", "bias"}


def note_learning(layer: Any, frozen: Any, lora_updates: Any) -> None:
    """Keeps, checked, what a layer's constructor was passed of its parts; to be called after that of Keras."""
    layer._frozen, layer._lora_updates = checked_parts(frozen), checked_updates(lora_updates or {})


def restore_learning(layer: Any) -> None:
    """Gives parts their updates and freezes others; to be called at the end of a layer's `build`."""
    give_updates(layer, layer._lora_updates)
    freeze_parts(layer, layer._frozen)


def learning_config(layer: Any) -> dict[str, Any]:
    """Returns what `note_learning` takes, where there is any, for `get_config`."""
    frozen = frozen_parts(layer) if layer.built else list(layer._frozen)
    updates = updates_of(layer) if layer.built else layer._lora_updates
    return {**({"frozen": frozen} if frozen else {}), **({"lora_updates": updates} if updates else {})}


def checked_updates(updates: Any) -> dict[str, dict[str, Any]]:
    """Returns what `updates_of` has made, checked.

    Raises:
        ValueError: If it is anything else.
    """
    for update in updates.values() if isinstance(updates, Mapping) else (None,):
        numbers = isinstance(update, Mapping) and update.keys() == _FIELDS and is_count(update["rank"])
        if not numbers or type(update["alpha"]) not in (int, float) or type(update["bias"]) is not bool:
            raise ValueError(
                "`lora_updates` must be a dict of sublayers, each with its rank, alpha and whether its bias learns, "
                f"as get_config() has it. Received: lora_updates={updates!r}"
            )
    return {str(path): dict(update) for path, update in updates.items()}


def updates_of(layer: keras.layers.Layer) -> dict[str, dict[str, Any]]:
    """Returns rank, alpha and whether the bias learns, of each sublayer with an update, by its path.

    Args:
        layer: The layer, built.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, part in parts_of(layer).items():
        if getattr(part, "lora_enabled", False):
            bias = getattr(part, "bias", None)
            learns = bool(bias is not None and bias.trainable)
            found[name] = {"rank": int(part.lora_rank), "alpha": float(part.lora_alpha), "bias": learns}
        found.update({f"{name}/{inner}": update for inner, update in updates_of(part).items()})
    return found


def give_updates(layer: keras.layers.Layer, updates: Mapping[str, Mapping[str, Any]]) -> None:
    """Gives sublayers updates; to be called at the end of a layer's `build`.

    Args:
        layer: The layer.
        updates: As `updates_of` has them.

    Raises:
        ValueError: If it has no such sublayer, or that takes none.
    """
    for path, update in updates.items():
        part: Any = layer
        for step in path.split("/"):
            part = parts_of(part).get(step)
        if not hasattr(part, "enable_lora"):
            raise ValueError(f"{type(layer).__name__} {layer.name!r} has no part for updates. Received: {path!r}")
        part.enable_lora(update["rank"], lora_alpha=update["alpha"])
        if getattr(part, "bias", None) is not None:
            part.bias.trainable = update["bias"]
