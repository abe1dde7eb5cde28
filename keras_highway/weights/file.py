"""A weight file on disk: stamped with its variant, read in one go.

The format is Keras's `.weights.h5`; `model.load_weights` reads it too. The
stamp is an attribute of the file's root that Keras ignores.
"""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import keras
import numpy as np

from keras_highway._support.files import atomic_write

_STAMP = "keras_highway"
SUFFIX = ".weights.h5"


def save(
    model: keras.Model, path: str | os.PathLike, variant: str, classes: int, float16: bool = False, **more: Any
) -> None:
    """Saves a model's weights, stamped with what they are weights of; whole or not at all.

    Args:
        model: The model.
        path: File to write, ending in `.weights.h5`.
        variant: Name of its architecture.
        classes: Its number of classes.
        float16: Store in half precision, in half the size; loaded, weights
            have the precision of the model. Below 6e-5 digits are lost,
            below 3e-8 the value. Defaults to `False`.
        **more: What else the stamp says, as JSON values: `transform`, the row
            of `TRANSFORMS` that images went through; the fingerprint of a
            vocabulary.
    """

    def write(temporary):
        model.save_weights(temporary)
        with h5py.File(temporary, "a") as file:
            if "optimizer" in file:
                del file["optimizer"]  # two or three times the weights' size, and no use to their users
        if float16:
            _halve(temporary)
        with h5py.File(temporary, "a") as file:
            file.attrs[_STAMP] = json.dumps({"variant": variant, "classes": classes, **more})

    atomic_write(Path(path), write)


def _halve(path) -> None:
    """Rewrites a file with its float32 arrays in float16: what is deleted inside a file would keep its room."""
    whole = Path(path).with_suffix(".whole")
    os.replace(path, whole)
    try:
        with h5py.File(whole, "r") as source, h5py.File(path, "w") as target:
            target.attrs.update(source.attrs)

            def copy(name, item):
                if isinstance(item, h5py.Group):
                    target.require_group(name).attrs.update(item.attrs)
                    return
                half = item.dtype == np.float32
                values = item[()]
                if half and not np.abs(values).max(initial=0) <= np.finfo(np.float16).max:
                    raise ValueError(
                        f"{name} has values that are not finite, or beyond float16's largest, 65504: use float32."
                    )
                target.create_dataset(name, data=values.astype(np.float16) if half else values).attrs.update(item.attrs)

            source.visititems(copy)
    finally:
        whole.unlink()


class Contents(NamedTuple):
    """What a weight file holds, read in one go.

    Attributes:
        stamp: What it says of itself: `variant`, `classes`, `transform`, or
            less; of a language model also `vocabulary` and `overrides`.
        shapes: How often each shape is among its weights.
    """

    stamp: dict[str, Any]
    shapes: Counter


def read(path: str | os.PathLike) -> Contents:
    """Reads what a weight file says of itself and the shapes of its weights.

    Args:
        path: A `.weights.h5` file.

    Raises:
        ValueError: If it is missing, truncated, or no weight file.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"No weight file {path}. Give a weights name (see keras_highway.list_weights()) or a file.")
    if not path.name.endswith(SUFFIX):
        raise ValueError(f"A weight file's name ends in {SUFFIX}. Received: {path}")
    try:
        with h5py.File(path, "r") as opened:
            stamp = opened.attrs.get(_STAMP)
            return Contents(json.loads(str(stamp)) if stamp is not None else {}, _shapes_in(opened))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{path} is no weight file, or is truncated: {error}") from error


def _shapes_in(opened: h5py.File) -> Counter:
    shapes: Counter = Counter()

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer") and "seed_generator" not in name:
            shapes[item.shape] += 1

    opened.visititems(visit)
    return shapes
