"""Which parts of a layer are frozen, where a layer's configuration knows only whether all of it is."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras


def checked_parts(names: Any) -> tuple[str, ...]:
    """Returns names of parts to freeze as a tuple.

    Raises:
        ValueError: If they are not several strings: one would be read letter
            by letter.
    """
    listed: tuple[Any, ...] = tuple(names) if isinstance(names, Iterable) and not isinstance(names, str) else (None,)
    if not all(isinstance(name, str) for name in listed):
        raise ValueError(f"`frozen` must be a list of names of sublayers. Received: frozen={names!r}")
    return listed


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
        for part in parts_of(layer).values():
            part.trainable = False
        return
    for name in names:
        part = part_at(layer, name)
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
    for name, part in parts_of(layer).items():
        if part.trainable:
            names += [f"{name}/{inner}" for inner in frozen_parts(part)]
        elif part.weights:
            names.append(name)
    return names


def part_at(layer: Any, path: str) -> Any:
    """The sublayer at a path, e.g. `"projection/bn1"`, or `None`."""
    for step in path.split("/"):
        layer = None if layer is None else parts_of(layer).get(step)
    return layer


def parts_of(layer: Any) -> dict[str, Any]:
    """Sublayers by the attribute that holds them, else by their place: names that Keras makes up differ in copies."""
    held = {**vars(layer), **getattr(layer, "_modules", {})}  # PyTorch's modules keep theirs apart
    names = {id(value): name for name, value in held.items() if not name.startswith("_")}
    parts = layer._flatten_layers(include_self=False, recursive=False)
    return {names.get(id(part), str(place)): part for place, part in enumerate(parts)}
