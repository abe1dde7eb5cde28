"""A weight file on disk: Keras's `.weights.h5` with a stamp and a seal, read and checked in one pass.

The stamp is an attribute of the file's root and holds the variant, the classes and more as JSON. The seal is the
SHA-256 of the HDF5 file, written behind its end. It is compared before HDF5 opens the file: of altered bytes, HDF5's
library can crash or never return. Keras and HDF5 ignore both.
"""

import contextlib
import hashlib
import io
import json
import math
import os
import reprlib
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypedDict

import h5py
import keras
import ml_dtypes
import numpy as np
from keras.src.saving import saving_lib
from msgspec import Meta

from keras_highway._support.files import atomic_write, may_pass, read_bounded
from keras_highway._support.schema import refuse
from keras_highway._support.terminal import brief
from keras_highway.weights.info import Activation, Overrides, Removed, Sha256, Text, WeightFileError, decode

SUFFIX = ".weights.h5"
_STAMP = "keras_highway"
_MOST_TIMES = 4  # larger than the file its arrays may be in all; Keras and `save` compress nothing
LARGEST = 4 * 2**30  # bytes: a file is read into memory
MOST_CLASSES = 1_000_000
REMEDY = " Remove it, or get it again."
_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_MARK = b"\nkeras_highway sha256 "
# By version of the superblock: offsets of the size of addresses, and of the address of the end.
_ADDRESSES = {0: (13, 40), 1: (13, 44), 2: (9, 28), 3: (9, 28)}


class AlteredError(WeightFileError):
    """A file has another hash than it should have."""


class _Stamp(TypedDict, total=False):
    variant: Text
    classes: Annotated[int, Meta(ge=1, le=MOST_CLASSES)]
    transform: Text | None
    vocabulary: Sha256
    overrides: Overrides
    removed: Removed
    activation: Activation
    sealed: bool
    digest: str  # of files that were sealed before `sealed` was stated


class Contents(NamedTuple):
    """A weight file's contents."""

    stamp: dict[str, Any]  # metadata in the file: variant, classes, transform, vocabulary, overrides
    arrays: dict[str, np.ndarray]  # its arrays by their path in the file
    checked: bool  # whether it was compared with its seal or with the expected hash
    sha256: str  # hash of its bytes


def save(
    model: keras.Model, path: str | os.PathLike, variant: str, classes: int, float16: bool = False, **more: Any
) -> str:
    """Save a model's weights with a stamp and a seal, whole or not at all; return the file's SHA-256."""
    for weight in model.weights:
        _check_values(weight.path, keras.ops.convert_to_numpy(weight))
    content = _InMemory()
    model.save_weights(content)
    with h5py.File(content, "a") as file:
        if "optimizer" in file:
            del file["optimizer"]  # two or three times the weights' size
        if float16:
            content = _halved(file)
    with h5py.File(content, "a") as file:
        file.attrs[_STAMP] = np.bytes_(json.dumps({"variant": variant, "classes": classes, **more, "sealed": True}))
    digest = hashlib.sha256(content.getbuffer())
    content.seek(0, io.SEEK_END)
    seal = _MARK + digest.hexdigest().encode() + b"\n"
    content.write(seal)
    digest.update(seal)
    atomic_write(Path(path), lambda temporary: temporary.write_bytes(content.getbuffer()))
    return digest.hexdigest()


class _InMemory(io.BytesIO):
    """A file that Keras and h5py write in memory: on a full disk, HDF5's library cannot close a file and crashes."""

    def __str__(self):
        return f"memory{SUFFIX}"  # Keras checks the name


def _halved(full: h5py.File) -> _InMemory:
    """Return a file with float16 in place of float32."""
    content = _InMemory()
    with h5py.File(content, "w") as half:
        half.attrs.update(full.attrs)

        def copy(name, item):
            if isinstance(item, h5py.Group):
                half.require_group(name).attrs.update(item.attrs)
                return
            values = item[()]
            if item.dtype == np.float32:
                if not np.abs(values).max(initial=0) <= np.finfo(np.float16).max:
                    raise WeightFileError(f"{name} has values beyond float16's largest, 65504: use float32.")
                values = values.astype(np.float16)
            half.create_dataset(name, data=values).attrs.update(item.attrs)

        full.visititems(copy)
    return content


def read(path: str | os.PathLike, sha256: str = "", stated: str = "") -> Contents:
    """Read a weight file once and check it."""
    path = Path(path)
    if not path.exists() or not path.name.endswith(SUFFIX):
        raise WeightFileError(
            f"{path} is not a {SUFFIX} file. Pass a weights name (see keras_highway.list_weights()) or a file."
        )
    with one_error(path):
        content = read_bounded(path, LARGEST)
    if sha256:
        compare(content, sha256, path, stated)
    return read_content(content, path, sha256)


def compare(content: bytes, sha256: str, path: Path, stated: str) -> None:
    """Raise an `AlteredError` for bytes with another hash than the stated one."""
    if (actual := hashlib.sha256(content).hexdigest()) != sha256:
        raise AlteredError(f"{path} is damaged or altered: its sha256 is {actual}, {stated} states {sha256}.{REMEDY}")


def read_content(content: bytes, path: str | os.PathLike, sha256: str = "") -> Contents:
    """Read the bytes of a weight file as `read` does, of a name for messages and of a hash that is known or `""`."""
    with one_error(path):
        sealed, sha256 = (True, sha256) if sha256 else _check_seal(content)
        with h5py.File(io.BytesIO(content), "r") as opened:
            stamp = dict(decode(opened.attrs.get(_STAMP, "{}"), _Stamp, "its stamp"))
            was_sealed = stamp.pop("sealed", False) | ("digest" in stamp)
            stamp.pop("digest", None)
            cut = was_sealed and not sealed
            refuse((cut, "another program has changed it since it was saved, and cut its seal off"))
            arrays = _arrays(opened, _MOST_TIMES * len(content))
    return Contents(stamp, arrays, sealed, sha256)


def _check_seal(content: bytes) -> tuple[bool, str]:
    """Return whether a file has a seal, after comparing it, and the SHA-256 of all its bytes."""
    version = content[8] if content.startswith(_SIGNATURE) and len(content) >= 64 else -1
    known = version in _ADDRESSES and content[_ADDRESSES[version][0]] == 8
    end = struct.unpack_from("<Q", content, _ADDRESSES[version][1])[0] if known else 0
    digest, seal = hashlib.sha256(memoryview(content)[:end]), content[end:]
    right = not seal or seal == _MARK + digest.hexdigest().encode() + b"\n"
    refuse(
        (not known, "it does not begin as an HDF5 file"),
        (len(content) < end, f"it is truncated: it has {len(content)} bytes of {end}"),
        (not right, "its bytes are not those that were sealed with their sha256"),
    )
    digest.update(seal)
    return bool(seal), digest.hexdigest()


def _arrays(opened: h5py.File, most: int) -> dict[str, np.ndarray]:
    """Return the arrays of a file by path, without an optimizer's; they may declare `most` bytes in all."""
    datasets: dict[str, h5py.Dataset] = {}

    def visit(path: str, item: Any) -> None:  # once an object, whatever its names; links lead nowhere
        if isinstance(item, h5py.Dataset) and not path.startswith("optimizer/"):
            datasets[path] = item

    opened.visititems(visit)
    elsewhere = any(item.external or item.is_virtual or item.shape is None for item in datasets.values())
    refuse(
        (elsewhere, "it has an array whose values are elsewhere"),
        (
            not elsewhere and sum(map(_memory, datasets.values())) > most,
            f"its arrays are more than {_MOST_TIMES} times as large as the file",
        ),
    )
    arrays = {}
    for path, item in datasets.items():
        values = np.asarray(item[()])
        if item.dtype == np.dtype("V2") and item.attrs.get("dtype") == "bfloat16":  # as Keras writes it
            values = values.view(ml_dtypes.bfloat16)
        _check_values(path, values)
        arrays[path] = values
    return arrays


def shapes_of(arrays: Mapping[str, np.ndarray]) -> Counter[tuple[int, ...]]:
    """Return how often each shape is among the weights of a file."""
    return Counter(array.shape for path, array in arrays.items() if "seed_generator" not in path)


def check_overrides(overrides: Mapping[str, Any], shapes: Counter, path: Path) -> None:
    """Refuse overrides of a network larger than the file, before the network is built."""
    most = max([1000, *(side for shape in shapes for side in shape)])
    for name, value in overrides.items():
        numbers = list(_numbers(value))
        within = len(numbers) <= (1000 if name == "stages" else 100) and all(-most <= n <= most for n in numbers)
        # A block that was not left out has an array at least.
        if not within or (name == "blocks" and sum(numbers) > max(200, 4 * sum(shapes.values()))):
            received = reprlib.repr(value)
            raise WeightFileError(f"{path} has an override that is not of its arrays: {name}={received}.")


def _numbers(value: Any) -> Iterator[float]:
    """Yield all numbers in a JSON value, however deep."""
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _numbers(item)
    elif isinstance(value, int | float):
        yield float(value) if abs(value) < 1e300 else math.inf


def _memory(item: h5py.Dataset) -> int:
    """Return the bytes that HDF5 allocates to read a dataset: whole chunks, which may exceed the array."""
    chunks = item.chunks or (1,) * len(item.shape)
    sides = zip(item.shape, chunks, strict=True)
    return item.dtype.itemsize * math.prod(-(-side // chunk) * chunk for side, chunk in sides)


def _check_values(path: str, values: np.ndarray) -> None:
    """Refuse an array that no trained weight has."""
    if "seed_generator" in path:
        return
    floating = values.dtype.kind == "f" or values.dtype == ml_dtypes.bfloat16
    text = f"{path} is of dtype {values.dtype}, and weights are floating-point numbers"
    refuse((not floating, text), error=WeightFileError)
    with np.errstate(over="ignore"):  # of float64, values that float32 has not
        finite = np.isfinite(values.astype(np.float32, copy=False)).all()
    refuse((not finite, f"{path} has values that are not finite"), error=WeightFileError)


class _Store(saving_lib.NpzIOStore):
    """Arrays of a weight file for Keras's loader, which then need not open the file for every layer."""

    def __init__(self, arrays: Mapping[str, np.ndarray]):
        self.groups: dict[str, dict[str, np.ndarray]] = {}
        self.read: set[str] = set()
        for path, array in arrays.items():
            group, _, name = path.rpartition("/")
            self.groups.setdefault(group.removesuffix("vars").rstrip("/"), {})[name] = array

    def get(self, path: str) -> dict[str, np.ndarray]:
        self.read.add(path)
        return self.groups.get(path, {})

    def has_path(self, path: str) -> bool:
        return any(group.startswith(f"{path}/") for group in self.groups)


def assign(model: keras.Model, arrays: Mapping[str, np.ndarray]) -> None:
    """Set a model's weights from the arrays of a weight file, which must be all of them."""
    store, failed, messages = _Store(arrays), set(), {}
    with np.errstate(over="ignore"):
        saving_lib._load_state(  # pyright: ignore[reportPrivateUsage] (`load_weights` without its file)
            model, store, None, "", visited_saveables=set(), failed_saveables=failed, error_msgs=messages
        )
    layer, cause = next(iter(messages.values()), ("", ""))
    left = sorted(path for path in store.groups if path not in store.read)
    refuse(
        (failed, f"{getattr(layer, 'path', layer)}: {cause}"),
        (left, f"it has arrays that the model lacks: {', '.join(left[:4])}"),
        error=WeightFileError,
    )
    check_finite(model.weights)


def check_finite(weights: list[keras.Variable]) -> None:
    """Raise a `WeightFileError` for a weight that overflows in the model's precision, or a negative variance."""
    for weight in weights:
        if weight.dtype == "float32" and weight.name != "moving_variance":
            continue  # files hold finite numbers, mostly of this precision
        values = keras.ops.convert_to_numpy(weight)
        negative = weight.name == "moving_variance" and (values < 0).any()
        if negative or not np.isfinite(values).all():
            wrong = "a variance and gets negative values" if negative else f"not finite in {weight.dtype}"
            raise WeightFileError(f"{weight.path} is {wrong}")


@contextlib.contextmanager
def one_error(path) -> Iterator[None]:
    """Turn any error of reading a file into a `WeightFileError` with the file's name."""
    try:
        yield
    except PermissionError as error:
        raise WeightFileError(f"{path} may not be read: make it readable for you, or copy it.") from error
    except Exception as error:  # of a damaged file h5py raises nearly anything
        what = "could not be read" if may_pass(error) else "is not a weight file, or is truncated or damaged"
        reason = brief(error)
        reason = reason if reason.startswith(f"{path} ") else f"{path} {what}: {reason}"
        raise WeightFileError(f"{reason}.") from error
