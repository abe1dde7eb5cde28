"""Seeded corruptions of a weight file: each is refused, or its weights load bit-identically.

`python tests/fuzz/weight_files.py N [SEED]` (`make fuzz N=2000`) tries N of them and prints how they ended.
"""

import os
import random
import shutil
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import h5py
import keras
import numpy as np

from keras_highway.data.transforms import TRANSFORMS
from keras_highway.models.builder import build
from keras_highway.specs import DenseStackSpec
from keras_highway.weights import files as weights_file
from keras_highway.weights import load as loading
from keras_highway.weights.info import UncheckedWeights, WeightFileError
from keras_highway.weights.load import load_into
from keras_highway.weights.sources import WeightsFile, resolve

SPEC = DenseStackSpec(name="plain_fc10", gating="coupled", input_shape=(4, 4, 1), min_size=1, units=5, depth=4)


def make(folder: Path) -> Path:
    """Writes a small network's weights, of values of their own, with a stamp."""
    model = build(SPEC)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        weight.assign(rng.normal(size=weight.shape))
    path = folder / "model.weights.h5"
    weights_file.save(model, path, SPEC.name, SPEC.classes, transform="mnist")
    return path


def _bits(rng, path, content):
    for _ in range(rng.choice((1, 1, 2, 8))):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _zeros(rng, path, content):
    size = rng.choice((1, 4, 16, 64, 512, 4096))
    start = rng.randrange(len(content))
    end = min(start + size, len(content))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def _noise(rng, path, content):
    size = rng.choice((4, 64, 512))
    start = rng.randrange(len(content) - size)
    content[start : start + size] = rng.randbytes(size)
    path.write_bytes(content)


def _moved(rng, path, content):
    size = rng.choice((4, 16, 64, 512))
    a, b = (rng.randrange(len(content) - size) for _ in range(2))
    content[a : a + size], content[b : b + size] = content[b : b + size], content[a : a + size]
    path.write_bytes(content)


def _cut(rng, path, content):
    path.write_bytes(content[: rng.randrange(len(content))])


def _longer(rng, path, content):
    path.write_bytes(content + rng.randbytes(rng.randrange(1, 1000)))


def _datasets(file) -> list[str]:
    names = []
    file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def _swapped(rng, path, content):
    path.write_bytes(content)
    with h5py.File(path, "a") as file:
        by_shape = {}
        for name in _datasets(file):
            by_shape.setdefault(file[name].shape, []).append(name)
        a, b = rng.sample(rng.choice([names for names in by_shape.values() if len(names) > 1]), 2)
        x, y = file[a][()], file[b][()]
        file[a][...], file[b][...] = y, x


def _value(values):
    def alter(rng, path, content):
        path.write_bytes(content)
        with h5py.File(path, "a") as file:
            dataset = file[rng.choice(_datasets(file))]
            array = dataset[()]
            array.reshape(-1)[rng.randrange(array.size)] = rng.choice(values)
            dataset[...] = array

    return alter


def _retyped(rng, path, content):
    path.write_bytes(content)
    with h5py.File(path, "a") as file:
        name = rng.choice(_datasets(file))
        values = file[name][()]
        del file[name]
        dtype = rng.choice(("int32", "int64", "uint8", "bool", "S4", "float16", "float64", ">f4", "complex64"))
        file[name] = values.astype(dtype)


def _reshaped(rng, path, content):
    path.write_bytes(content)
    with h5py.File(path, "a") as file:
        name = rng.choice(_datasets(file))
        values = file[name][()]
        del file[name]
        kind = rng.choice(("flat", "transposed", "missing", "empty", "sparse", "link", "group"))
        if kind == "flat":
            file[name] = values.reshape(-1)
        elif kind == "transposed":
            file[name] = values.T
        elif kind == "empty":
            file[name] = h5py.Empty("f4")
        elif kind == "sparse":
            file.create_dataset(name, shape=values.shape, dtype="f4", chunks=values.shape)
        elif kind == "link":
            file[name] = h5py.ExternalLink("other.h5", "/x") if rng.random() < 0.5 else h5py.SoftLink("/layers")
        elif kind == "group":
            file.create_group(name)


_STAMPS = ("[]", '"x"', "null", "3", "", "{", "[" * 200_000, '{"variant": 3}', '{"classes": 1e9}', '{"classes": true}')


def _restamped(rng, path, content):
    path.write_bytes(content)
    with h5py.File(path, "a") as file:
        text = file.attrs["keras_highway"].decode()
        chosen = rng.choice((*_STAMPS, text.replace("10", "11", 1), text.replace("mnist", "cifar10"), 7, np.arange(3)))
        if isinstance(chosen, str) and len(chosen) > 60_000:  # more than HDF5 keeps in a header
            chosen = chosen[:60_000]
        file.attrs["keras_highway"] = chosen


CORRUPTIONS = {
    "bits": _bits,
    "zeros": _zeros,
    "noise": _noise,
    "moved": _moved,
    "cut": _cut,
    "longer": _longer,
    "swapped": _swapped,
    "nan": _value((np.nan, -np.nan)),
    "inf": _value((np.inf, -np.inf)),
    "value": _value((0.0, 1.0, -1e30)),
    "retyped": _retyped,
    "reshaped": _reshaped,
    "restamped": _restamped,
}


def try_one(seed: int, path: Path, content: bytes, expected: list[np.ndarray], model: keras.Model) -> tuple[str, str]:
    """Corrupts the file by a seed and loads it; returns the kind of corruption, and how it ended.

    Anything but `"refused"`, `"identical"` and `"identical, unchecked"` is a defect.
    """
    rng = random.Random(seed)
    kind = rng.choice(list(CORRUPTIONS))
    try:
        CORRUPTIONS[kind](rng, path, bytearray(content))
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        return kind, f"could not be made: {error}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            file = resolve(path, SPEC.name)
            load_into(model, file, SPEC)
        except WeightFileError as error:
            text = str(error)
            return kind, "refused" if str(path) in text and "\n" not in text else f"an unclear error: {text}"
        except Exception as error:
            return kind, f"{type(error).__name__}: {error}"
    return kind, _compared(file, expected, model, caught)


def _compared(file: WeightsFile, expected, model, caught) -> str:
    actual = model.get_weights()
    same = all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(actual, expected, strict=True))
    unchecked = any(issubclass(warning.category, UncheckedWeights) for warning in caught)
    if unchecked:
        return "identical, unchecked" if same else "OTHER WEIGHTS, unchecked"
    if not same:
        return "OTHER WEIGHTS"
    described = (file.classes, file.info.transform) == (SPEC.classes, TRANSFORMS["mnist"])
    return "identical" if described else f"OTHER DESCRIPTION: {file.info}"


GOOD = ("refused", "identical", "identical, unchecked")


def run(seeds) -> Counter:
    """Tries the corruptions of some seeds; returns how often each kind ended in each way."""
    counts: Counter = Counter()
    row = {**loading.ALL_VARIANTS, SPEC.name: SPEC}
    before, loading.ALL_VARIANTS = loading.ALL_VARIANTS, row
    folder = Path(tempfile.mkdtemp())
    try:
        path = make(folder)
        content, model = path.read_bytes(), build(SPEC)
        load_into(model, resolve(path, SPEC.name), SPEC)
        expected = model.get_weights()
        for seed in seeds:
            model.set_weights([np.zeros_like(w) for w in expected])
            counts[try_one(seed, path, content, expected, model)] += 1
    finally:
        loading.ALL_VARIANTS = before
        shutil.rmtree(folder)
    return counts


def defects(counts: Counter) -> dict:
    """Those of the endings that must not be."""
    return {ending: n for ending, n in counts.items() if ending[1] not in GOOD}


def main(argv: list[str]) -> int:
    """Prints the counts; 1 if there is a defect."""
    n, first = int(argv[0]), int(argv[1]) if len(argv) > 1 else 0
    start = time.perf_counter()
    counts = run(range(first, first + n))
    for (kind, ending), count in sorted(counts.items()):
        print(f"{kind:10} {ending:22} {count}")
    print(
        f"weight files: {n} corruptions, {sum(defects(counts).values())} defects, {time.perf_counter() - start:.0f} s"
    )
    return bool(defects(counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
