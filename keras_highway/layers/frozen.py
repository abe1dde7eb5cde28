"""Which parts of a layer are frozen, where a layer's configuration knows only whether all of it is."""

from collections.abc import Sequence
from typing import Any

import keras


def freeze_parts(layer: keras.layers.Layer, names: Sequence[str] = ()) -> None:
    """Freezes the sublayers of a layer that is frozen; to be called at the end of its `build`.

    A layer's configuration says `trainable=False`, but the sublayers that a
    copy or a loaded layer makes are trainable, and Keras's models ask each
    weight, batch normalization its own layer.

    Args:
        layer: The layer.
        names: Where it is trainable, which of its parts are not, as
            `frozen_parts` has them. Defaults to none.

    Raises:
        ValueError: If it has no such part.
    """
    if not layer.trainable:
        for part in _parts(layer):
            part.trainable = False
        return
    for name in names:
        part = layer
        for step in name.split("/"):
            part = next((p for p in _parts(part) if p.name == step), None)
            if part is None:
                raise ValueError(f"{type(layer).__name__} {layer.name!r} has no part to freeze. Received: {name!r}")
        part.trainable = False


def frozen_parts(layer: keras.layers.Layer) -> list[str]:
    """Returns the parts of a trainable layer that are frozen: `"transform"`, or of one that is not as a whole, its own.

    Args:
        layer: The layer, built. One that is frozen itself has none: its
            configuration says so.
    """
    if not layer.trainable:
        return []
    names: list[str] = []
    for part in _parts(layer):
        if part.trainable:
            names += [f"{part.name}/{name}" for name in frozen_parts(part)]
        elif part.weights:
            names.append(part.name)
    return names


def _parts(layer: Any) -> list[Any]:
    return list(layer._flatten_layers(include_self=False, recursive=False))
