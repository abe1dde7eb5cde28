"""What a model was built from: variant, overrides, and the transform and class names of its weights.

Keras has no place for it, and a name alone says too little. Models that Keras
itself makes (loaded from a file, cloned) have none.
"""

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras

from keras_highway.data.transforms import Transform


class Origin(NamedTuple):
    """Where a model comes from.

    Attributes:
        variant: The architecture.
        overrides: Fields of its spec that differ from the variant's.
        transform: What images of its weights go through, `None` where nothing
            says.
        class_names: Names of the classes of its classifier; none where
            nothing says.
        removed: Names of blocks that were left out.
    """

    variant: str
    overrides: Mapping[str, Any]
    transform: Transform | None = None
    class_names: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


_ORIGINS: weakref.WeakKeyDictionary[keras.Model, Origin] = weakref.WeakKeyDictionary()


def note_origin(model: keras.Model, origin: Origin | None) -> None:
    """Notes what a model was built from; `None` changes nothing."""
    if origin is not None:
        _ORIGINS[model] = origin


def origin_of(model: keras.Model) -> Origin | None:
    """Returns what a model was built from, `None` where that is not known."""
    return _ORIGINS.get(model)
