"""A weight file on disk: stamped with its variant and a digest, read and checked in one go.

The format is Keras's `.weights.h5`; `model.load_weights` reads it too. The
stamp is an attribute of the file's root that Keras ignores, and behind the
end of the HDF5 file is a seal, see `sealing.py`.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import keras
import ml_dtypes
import numpy as np

from keras_highway._support.files import atomic_write, may_pass, read_regular
from keras_highway._support.schema import Anything, Fields, Items, Maybe, Number, Table, Text, parse_json
from keras_highway.weights import sealing
from keras_highway.weights.info import Promised
from keras_highway.weights.info import UncheckedWeights as UncheckedWeights
from keras_highway.weights.info import WeightFileError as WeightFileError

SUFFIX = ".weights.h5"
DIGEST = "digest"
_STAMP = "keras_highway"
_MOST_OBJECTS = 100_000
_DEEPEST = 50
_DENSEST = 1100  # bytes that HDF5's deflate can make of one
_MOST_TIMES = 4  # larger than the file its arrays may be in all; Keras and `save` compress nothing
LARGEST = 4 * 2**30  # bytes: a file is read into memory
MOST_CLASSES = 1_000_000
_SHA256 = Text(pattern="[0-9a-f]{64}", like="64 hexadecimal digits")
_STAMP_SCHEMA = Fields(
    {},
    {
        "variant": Text(),
        "classes": Number(1, MOST_CLASSES, whole=True),
        "transform": Maybe(Text()),
        "vocabulary": _SHA256,
        "overrides": Table(Anything(4), 50),
        "removed": Items(Text(120), most=2000),
        DIGEST: _SHA256,
    },
)


class Contents(NamedTuple):
    """What a weight file holds, read in one go.

    Attributes:
        stamp: Its own description: `variant`, `classes`, `transform`, or
            less; of a language model also `vocabulary` and `overrides`.
        shapes: How often each shape is among its weights.
        checked: Whether it has a digest or a seal, which are right then.
        content: The file's bytes, for `set_weights`.
        sha256: Of these bytes.
    """

    stamp: dict[str, Any]
    shapes: Counter
    checked: bool
    content: bytes
    sha256: str


def save(
    model: keras.Model, path: str | os.PathLike, variant: str, classes: int, float16: bool = False, **more: Any
) -> None:
    """Save a model's weights, stamped with what they are weights of and a digest; whole or not at all.

    Args:
        model: The model.
        path: File to write, ending in `.weights.h5`.
        variant: Name of its architecture.
        classes: Its number of classes.
        float16: Store in half precision, in half the size; loaded, weights
            have the precision of the model. Below 6e-5 digits are lost,
            below 3e-8 the value. Defaults to `False`.
        **more: Other entries of the stamp, as JSON values: `transform`, the row
            of `TRANSFORMS` that images went through; the fingerprint of a
            vocabulary.

    Raises:
        WeightFileError: If a weight is not finite; nothing is written then.
    """
    stamp = {"variant": variant, "classes": classes, **more}

    content = _InMemory()
    model.save_weights(content)
    with h5py.File(content, "a") as file:
        if "optimizer" in file:
            del file["optimizer"]  # two or three times the weights' size, and no use to their users
    if float16:
        content = _halved(content)
    with h5py.File(content, "a") as file:
        digest, _ = _read_datasets(file, stamp)
        file.attrs[_STAMP] = np.bytes_(json.dumps({**stamp, DIGEST: digest}))
    atomic_write(Path(path), lambda temporary: temporary.write_bytes(sealing.sealed(content.getvalue())))


class _InMemory(io.BytesIO):
    """A file that Keras and h5py write in memory: what a full disk stops, HDF5's library cannot close, and crashes."""

    def __str__(self):
        return f"memory{SUFFIX}"  # Keras checks the name


def _halved(whole: io.BytesIO) -> io.BytesIO:
    """Return a file with its float32 arrays in float16, written anew: what is deleted inside a file keeps its room."""
    content = _InMemory()
    with h5py.File(whole, "r") as full, h5py.File(content, "w") as half:
        half.attrs.update(full.attrs)

        def copy(name, item):
            if isinstance(item, h5py.Group):
                half.require_group(name).attrs.update(item.attrs)
                return
            halved = item.dtype == np.float32
            values = item[()]
            if halved and not np.abs(values).max(initial=0) <= np.finfo(np.float16).max:
                raise WeightFileError(
                    f"{name} has values that are not finite, or beyond float16's largest, 65504: use float32."
                )
            half.create_dataset(name, data=values.astype(np.float16) if halved else values).attrs.update(item.attrs)

        full.visititems(copy)
    return content


def read(path: str | os.PathLike, promised: Promised | None = None) -> Contents:
    """Read a weight file, once: its stamp, the shapes of its weights, and whether they are as they were saved.

    Args:
        path: A `.weights.h5` file.
        promised: What its bytes must hash to, which is compared before HDF5
            sees them. Defaults to nothing.

    Raises:
        WeightFileError: If it is missing, truncated, altered or not a weight
            file, or holds impossible values.
    """
    path = Path(path)
    if not path.is_file():
        raise WeightFileError(
            f"No weight file {path}. Give a weights name (see keras_highway.list_weights()) or a file."
        )
    if not path.name.endswith(SUFFIX):
        raise WeightFileError(f"A weight file's name ends in {SUFFIX}. Received: {path}")
    with _one_error(path):
        content = read_regular(path, LARGEST)
    if promised and promised.sha256:
        actual = hashlib.sha256(content).hexdigest()
        if actual != promised.sha256:
            raise WeightFileError(
                f"{path} is damaged or altered: its sha256 is {actual}, that {promised.of} is {promised.sha256}. "
                f"{promised.remedy}".rstrip()
            )
    return read_content(content, path)


def read_content(content: bytes, path: str | os.PathLike) -> Contents:
    """As `read`, of a file's bytes.

    Args:
        content: The bytes.
        path: What errors call them.

    Raises:
        WeightFileError: See `read`.
    """
    with _one_error(path):
        sealed, sha256 = sealing.check(content)
        with h5py.File(io.BytesIO(content), "r") as opened:
            text = opened.attrs.get(_STAMP, "{}")
            if not isinstance(text, str | bytes):
                raise WeightFileError(f"its stamp is of type {type(text).__name__}, not text")
            stamp = parse_json(text, "its stamp", _STAMP_SCHEMA)
            expected = stamp.pop(DIGEST, None)
            actual, shapes = _read_datasets(opened, stamp, _MOST_TIMES * len(content))
        check_overrides(stamp.get("overrides", {}), shapes)
    if expected not in (None, actual):
        raise WeightFileError(
            f"{path} is damaged or altered: the digest of its weights and its stamp is {actual[:12]}..., and its stamp "
            f"records {expected[:12]}.... Get the file anew."
        )
    return Contents(stamp, shapes, sealed or expected is not None, content, sha256)


def set_weights(model: keras.Model, content: bytes) -> None:
    """Set a model's weights from the bytes that `read` has checked: the file may have been replaced since.

    Args:
        model: The model.
        content: `Contents.content`.

    Raises:
        ValueError: If a weight is not finite in the precision of the model,
            or Keras finds that the file does not fit; some weights have been
            set then.
    """
    _unset(model)
    with np.errstate(over="ignore"):
        model.load_weights(_InMemory(content))
    for weight in model.weights:
        check_finite(weight, weight)


def _unset(model: keras.Model) -> None:
    """Set all weights to no number, which no file that was read has: Keras only warns of those it passes over.

    Warnings are the whole process's, and other threads may be at work.
    """
    for weight in model.weights:
        if "float" in weight.dtype and not weight.name.startswith("lora_kernel"):  # whose product is in the kernel
            weight.assign(keras.ops.full(weight.shape, float("nan"), weight.dtype))


def check_finite(value: Any, variable: keras.Variable) -> None:
    """Raise a `WeightFileError` for values that are not finite once they are cast to a variable's dtype."""
    with np.errstate(over="ignore"):
        cast = keras.ops.convert_to_numpy(keras.ops.cast(value, variable.dtype))
    if np.isnan(cast).any():  # no file has any, see `_unset`
        raise WeightFileError(f"it has no values for {variable.path}")
    if not np.isfinite(cast).all():
        raise WeightFileError(f"{variable.path} gets values that are not finite in {variable.dtype}")


@contextlib.contextmanager
def _one_error(path) -> Iterator[None]:
    """Whatever is wrong with a file is one class of error, with the file's name."""
    try:
        yield
    except PermissionError as error:
        raise WeightFileError(
            f"{path} may not be read (permission denied): make it readable for you, or copy it."
        ) from error
    except Exception as error:  # of a damaged file h5py raises nearly anything
        reason = " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
        what = "could not be read" if may_pass(error) else "is not a weight file, or is truncated or damaged"
        raise WeightFileError(f"{path} {what}: {reason}.") from error


def _read_datasets(opened: h5py.File, stamp, most: float = math.inf) -> tuple[str, Counter]:
    """Read and checks every dataset, of `most` bytes in all.

    Returns their digest, which is over the stamp, too, and the weights' shapes.
    """
    digest, shapes, declared = hashlib.sha256(), Counter(), 0
    _add(digest, json.dumps(stamp, sort_keys=True))
    for name, item in _items(opened, set()):
        is_weight = "seed_generator" not in name
        if item.external or item.is_virtual or item.shape is None:
            raise WeightFileError(f"{name} holds its values elsewhere, or none")
        declared += _memory(item)
        if declared > most:
            raise WeightFileError(
                f"its arrays are more than {_MOST_TIMES} times as large as the file: save them uncompressed"
            )
        values = _values(name, item, is_weight)
        _add(digest, name, values.dtype.str, str(item.shape), values.tobytes())
        if is_weight:
            shapes[item.shape] += 1
    return digest.hexdigest(), shapes


def check_overrides(overrides: Mapping[str, Any], shapes: Counter) -> None:
    """Refuse overrides of a network larger than the file, before the network is built.

    Raises:
        WeightFileError: If one has numbers beyond what the file can be of.
    """
    most = max([1000, *(side for shape in shapes for side in shape)])
    arrays = sum(shapes.values())
    for name, value in overrides.items():
        numbers = list(_numbers(value))
        longest = 1000 if name == "stages" else 100
        within = len(numbers) <= longest and all(-most <= n <= most for n in numbers)
        # A block that was not left out has an array at least.
        if not within or (name == "blocks" and sum(numbers) > max(200, 4 * arrays)):
            received = reprlib.repr(value)
            raise WeightFileError(f"its stamp has an override that is not of its arrays: {name}={received}")


def _numbers(value) -> Iterator[float]:
    """All numbers in a JSON value, however deep."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield float(value) if abs(value) < 1e300 else math.inf


def _add(digest, *parts) -> None:
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little"))
        digest.update(content)


def _memory(item: h5py.Dataset) -> int:
    """Return the bytes that HDF5 allocates to read a dataset: whole chunks, which may exceed the array."""
    shape = item.shape
    chunks = item.chunks or (1,) * len(shape)
    return item.dtype.itemsize * math.prod(-(-side // chunk) * chunk for side, chunk in zip(shape, chunks, strict=True))


def _items(group: h5py.Group, visited: set[int], inside: str = "", deep: int = 0) -> Iterator[tuple[str, h5py.Dataset]]:
    """All datasets, in the order of their names; an optimizer's are not weights of the network.

    None is there under two names: of groups that are, each level would double
    the walk.
    """
    if deep > _DEEPEST or len(group) + len(visited) > _MOST_OBJECTS:
        raise WeightFileError("its groups are nested too deeply, or too many")
    for name in sorted(group):
        path = f"{inside}{name}"
        if path == "optimizer":
            continue
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise WeightFileError(f"{path} is a link to another place")
        item = group[name]
        address = h5py.h5o.get_info(item.id).addr
        if address in visited:
            raise WeightFileError(f"{path} is a second name of another object in the file")
        visited.add(address)
        if isinstance(item, h5py.Dataset):
            yield path, item
        else:
            yield from _items(item, visited, f"{path}/", deep + 1)


def _values(name, item: h5py.Dataset, is_weight) -> np.ndarray:
    """Return the values of a dataset, after all that it declares has been checked."""
    bfloat16 = item.dtype == np.dtype("V2") and item.attrs.get("dtype") == "bfloat16"  # as Keras writes it
    if is_weight and item.dtype.kind != "f" and not bfloat16:
        raise WeightFileError(f"{name} is of dtype {item.dtype}, and weights are floating-point numbers")
    if item.dtype.kind not in "fuV":
        raise WeightFileError(f"{name} is of dtype {item.dtype}")
    size, stored = math.prod(item.shape) * item.dtype.itemsize, item.id.get_storage_size()
    if size > stored * (1 if item.chunks is None else _DENSEST):
        raise WeightFileError(f"{name} declares {size} bytes, shape {item.shape}, and has {stored}")
    values = np.asarray(item[()])
    values = values.view(ml_dtypes.bfloat16) if bfloat16 else values
    if is_weight and not np.isfinite(values).all():
        raise WeightFileError(f"{name} has values that are not finite")
    return values
