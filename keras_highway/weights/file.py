"""A weight file on disk: stamped with its variant, checked before a single weight is set.

The format is Keras's `.weights.h5`; `model.load_weights` reads it too. The
stamp is an attribute of the file's root that Keras ignores.
"""

import json
import os
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

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


def read_stamp(path: str | os.PathLike) -> dict[str, Any]:
    """Returns what a weight file says of itself: `variant`, `classes` and `transform`, or less.

    Raises:
        ValueError: If it is no readable weight file.
    """
    with _opened(path) as file:
        stamp = file.attrs.get(_STAMP)
    return json.loads(str(stamp)) if stamp is not None else {}


def load(model: keras.Model, path: str | os.PathLike, variant: str) -> None:
    """Loads a weight file that must fit a model exactly.

    Args:
        model: The model, of architecture `variant`.
        path: A `.weights.h5` file.
        variant: The architecture's name, for the check and the messages.

    Raises:
        ValueError: If the file is missing, truncated, no weight file, or of
            another architecture. No weight has been set then.
    """
    stamped = read_stamp(path).get("variant", variant)
    if stamped != variant:
        raise ValueError(
            f"{path} holds weights of variant {stamped!r}, not of {variant!r}. "
            f"Use keras_highway.create_model({stamped!r}, weights={str(path)!r})."
        )
    _check_shapes(model, path, variant)
    before = model.get_weights()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # Keras only warns where layers stay as they were
            model.load_weights(path)
    except (ValueError, KeyError, OSError, UserWarning) as error:
        model.set_weights(before)  # Keras sets what it can before it raises
        raise ValueError(f"{path} does not fit variant {variant!r}: {error}") from error


def _opened(path) -> h5py.File:
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"No weight file {path}. Give a weights name (see keras_highway.list_weights()) or a file.")
    if not path.name.endswith(SUFFIX):
        raise ValueError(f"A weight file's name ends in {SUFFIX}. Received: {path}")
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path} is no weight file, or is truncated: {error}") from error


def fits(model: keras.Model, path: str | os.PathLike) -> bool:
    """Whether a file holds the shapes a model needs, and no others."""
    return _held(path) == _wanted(model)


def _check_shapes(model, path, variant) -> None:
    """Compares the shapes in the file, as a multiset, with the model's.

    Keras itself accepts a file that has more layers than the model.
    """
    held, wanted = _held(path), _wanted(model)
    if held != wanted:
        raise ValueError(
            f"{path} does not hold weights of variant {variant!r} (model {model.name!r}): of the shapes the model "
            f"needs, the file lacks {_shapes(wanted - held)}; it has besides {_shapes(held - wanted)}."
        )


def _wanted(model) -> Counter:
    return Counter(tuple(w.shape) for w in model.weights)


def _held(path) -> Counter:
    held: Counter = Counter()

    def visit(name, item):
        if isinstance(item, h5py.Dataset) and not name.startswith("optimizer") and "seed_generator" not in name:
            held[item.shape] += 1

    with _opened(path) as file:
        try:
            file.visititems(visit)
        except (OSError, RuntimeError) as error:
            raise ValueError(f"{path} is no weight file, or is truncated: {error}") from error
    return held


def _shapes(counter: Counter) -> str:
    if not counter:
        return "none"
    first = ", ".join(f"{n} of {shape}" for shape, n in list(counter.items())[:4])
    return first + (", ..." if len(counter) > 4 else "")
