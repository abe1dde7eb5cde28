"""What a model was built from: variant, overrides, the transform and class names of its weights; and their file.

Keras has no place for it, and a name alone is not enough. Models that Keras
itself makes (loaded from a file, cloned) have none.
"""

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import keras

from keras_highway.data.transforms import Transform


class Origin(NamedTuple):
    """Where a model comes from."""

    variant: str  # the architecture
    overrides: Mapping[str, Any]  # fields of its spec that differ from the variant's
    transform: Transform | None = None  # what images of its weights go through, `None` where unknown
    class_names: tuple[str, ...] = ()  # names of the classes of its classifier; none where unknown
    removed: tuple[str, ...] = ()  # names of blocks that were left out


# By model, for as long as it lives: `"origin"`, and the `"file"` that its weights are of.
_KNOWN: weakref.WeakKeyDictionary[keras.Model, dict[str, Any]] = weakref.WeakKeyDictionary()


def note_origin(model: keras.Model, origin: Origin | None) -> None:
    """Note what a model was built from; `None` changes nothing."""
    if origin is not None:
        _KNOWN.setdefault(model, {})["origin"] = origin


def origin_of(model: keras.Model) -> Origin | None:
    """Return what a model was built from, `None` where that is not known."""
    return _KNOWN.get(model, {}).get("origin")


def note_file(model: keras.Model, file: Any) -> None:
    """Record the `WeightsFile` that a model was loaded from, which describes its preprocessing and classes.

    Models made of it have no file, except for its copy without low-rank
    updates, which is the same classifier.
    """
    _KNOWN.setdefault(model, {})["file"] = file


def file_of(model: keras.Model) -> Any:
    """Return the file that a model's weights were loaded from, `None` where there is none."""
    return _KNOWN.get(model, {}).get("file")
