"""What of a layer's own sublayers learns, and by which low-rank updates: in its configuration, so that copies do, too.

Keras's layers note their own rank. Those that a block makes when it is built
have the block's configuration alone.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_highway._support.whole_numbers import is_count
from keras_highway.layers.frozen import checked_parts, freeze_parts, frozen_parts, part_at, parts_of

_BESIDE = {"kernel", "bias"}  # what may learn beside an update
_FIELDS = {"rank", "alpha", *_BESIDE}


def note_learning(layer: Any, frozen: Any, lora_updates: Any) -> None:
    """Keeps, checked, what a layer's constructor was passed of its parts; to be called after that of Keras."""
    layer._frozen = checked_parts(frozen)
    layer._lora_updates = checked_updates({} if lora_updates is None else lora_updates)


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
        if not _is_update(update):
            raise ValueError(
                "`lora_updates` must be a dict of sublayers, each with its rank, alpha and whether kernel and bias "
                f"learn, as get_config() has it. Received: lora_updates={updates!r}"
            )
    return {
        str(path): {**update, "rank": int(update["rank"]), "alpha": float(update["alpha"])}
        for path, update in updates.items()
    }


def _is_update(update: Any) -> bool:
    if not isinstance(update, Mapping) or update.keys() != _FIELDS or not is_count(update["rank"]):
        return False
    alpha = update["alpha"]
    is_number = isinstance(alpha, int | float | np.integer | np.floating) and not isinstance(alpha, bool)
    return is_number and _are_flags(update)


def updates_of(layer: keras.layers.Layer) -> dict[str, dict[str, Any]]:
    """Returns rank, alpha and whether kernel and bias learn, of each sublayer with an update, by its path.

    Args:
        layer: The layer, built.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, part in parts_of(layer).items():
        if getattr(part, "lora_enabled", False):
            rank, alpha = int(part.lora_rank), float(part.lora_alpha)
            found[name] = {"rank": rank, "alpha": alpha, **learning_beside(part)}
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
        part = part_at(layer, path)
        if not hasattr(part, "enable_lora"):
            raise ValueError(f"{type(layer).__name__} {layer.name!r} has no part for updates. Received: {path!r}")
        part.enable_lora(update["rank"], lora_alpha=update["alpha"])
        learn_beside(part, update)


def learning_beside(part: Any) -> dict[str, bool]:
    """Returns whether kernel and bias of a layer with an update learn: `unfreeze` may have made them."""
    bias = getattr(part, "bias", None)
    return {"kernel": bool(_kernel_of(part).trainable), "bias": bool(bias is not None and bias.trainable)}


def checked_beside(learning: Any) -> dict[str, bool] | None:
    """Returns what `learning_beside` has made, or `None`.

    Raises:
        ValueError: If it is anything else.
    """
    if learning is None:
        return None
    if not isinstance(learning, Mapping) or learning.keys() != _BESIDE or not _are_flags(learning):
        raise ValueError(
            "`lora_learning_beside` says whether kernel and bias of a layer with an update learn, as get_config() has "
            f"it. Received: lora_learning_beside={learning!r}"
        )
    return dict(learning)


def _are_flags(learning: Mapping[str, Any]) -> bool:
    return all(isinstance(learning[name], bool) for name in _BESIDE)


def learn_beside(part: Any, learning: Mapping[str, Any]) -> None:
    """Makes kernel and bias of a layer with an update learn, or not, as `learning_beside` has it."""
    _kernel_of(part).trainable = learning["kernel"]
    if getattr(part, "bias", None) is not None:
        part.bias.trainable = learning["bias"]


def _kernel_of(part: Any) -> keras.Variable:
    """The variable: `kernel` of a layer with an update is a sum."""
    return part._kernel
