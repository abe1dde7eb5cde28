"""Seeded attacks on the JSON and the arrays that come from outside: each is refused in one sentence, or is usable.

`python -m tests.fuzz.outside_files N [SEED]` (`make fuzz N=2000`) tries N of them and prints how they ended.
"""

import copy
import io
import json
import os
import random
import sys
import tempfile
import time
import types
import zipfile
from collections import Counter
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from PIL import Image

import keras_highway as kh
from keras_highway.data import load_dataset, load_image
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.training import checkpoint
from keras_highway.weights import registry
from keras_highway.weights.card import model_card
from keras_highway.weights.info import from_json, read_result, read_row, to_json
from keras_highway.weights.trained import compare_check

SECONDS = 3  # that no attack may take
_ROOT = Path(kh.__file__).parents[1]
# Replacements of values; those that are not JSON are put in as text.
_VALUES = [None, True, False, 0, -1, 1, 2, 10**9, 10**400, -0.5, 1e-9, 1e308, "", "a", "\x1b[2J", "a\nb", "x" * 10_000]
_VALUES += [[], {}, [1, 2, 3], ["a"] * 12, [[[[[[[[[[1]]]]]]]]]], {"a": {"b": None}}, [0.0] * 200_000, "../../x", "NaN"]
_TEXTS = ["NaN", "-Infinity", "1e400", "[" * 100_000, '{"a":' * 50_000, "9" * 5000, "'a'", ""]


def _nodes(value, at=()):
    """The paths of all values inside a value."""
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from _nodes(child, (*at, key))


def _changed_values(rng, values):
    values = copy.deepcopy(values)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        paths = [path for path in _nodes(values) if path]
        if not paths:
            return values
        *outer, last = rng.choice([path for path in paths if len(path) == 1] if rng.random() < 0.5 else paths)
        parent = values
        for key in outer:
            parent = parent[key]
        if rng.random() < 0.15:
            del parent[last]
        else:
            parent[last] = copy.deepcopy(rng.choice(_VALUES))
    return values


def attack_text(rng: random.Random, text: str) -> bytes:
    """Returns a JSON text with values replaced, with other text in a value's place, or with other bytes."""
    kind = rng.random()
    if kind < 0.7:
        return json.dumps(_changed_values(rng, json.loads(text))).encode("utf-8", "surrogatepass")
    if kind < 0.8:
        mark = "MARK" + str(rng.random())
        values = json.loads(text)
        values[rng.choice(list(values))] = mark
        return json.dumps(values).replace(f'"{mark}"', rng.choice(_TEXTS)).encode()
    return _noise(rng, text.encode())


def _noise(rng, content: bytes) -> bytes:
    altered = bytearray(content)
    for _ in range(rng.choice((1, 2, 10))):
        altered[rng.randrange(len(altered))] = rng.randrange(256)
    return bytes(altered[: rng.randrange(len(altered))] if rng.random() < 0.2 else altered)


_DTYPES = ("|u1", "<f4", "<f8", "<i8", "|O", "|V8", "<U3", "|S0", "|b1", "<c8", "x")


def attack_npz(rng: random.Random, content: bytes) -> bytes:
    """Returns an `.npz` with other bytes, or with one array that is missing, or of another header, or compressed."""
    if rng.random() < 0.5:
        return _noise(rng, content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {info.filename: archive.read(info) for info in archive.infolist()}
    name = rng.choice(list(members))
    if rng.random() < 0.2:
        del members[name]
    else:
        shape = tuple(rng.choice((0, 1, 2, 3, 28, 10**6, 10**13, -1)) for _ in range(rng.randrange(5)))
        header = {"descr": rng.choice(_DTYPES), "fortran_order": rng.random() < 0.2, "shape": shape}
        text = f"{header!r}\n".encode()
        data = bytes(rng.choice((0, 8, 1000, 10**6)))
        members[name] = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data
    made = io.BytesIO()
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)
    with zipfile.ZipFile(made, "w", rng.choices(methods, (6, 3, 1))[0]) as archive:
        for member, data in members.items():
            archive.writestr(member, data)
    return made.getvalue()


class Reader:
    """A file from outside: its right content, and how the package reads and uses it."""

    file = ""
    attack = staticmethod(attack_text)

    def good(self):
        """The right content: text, or of an `.npz` bytes."""
        raise NotImplementedError

    def use(self, path: Path) -> None:
        """Reads the file, and does with it what the package does; raises `ValueError` where it refuses it."""
        raise NotImplementedError


class Row(Reader):
    """`weights.json`."""

    file = "weights.json"

    def __init__(self):
        self.picture = io.BytesIO()
        Image.fromarray(np.arange(28 * 20, dtype=np.uint8).reshape(28, 20)).save(self.picture, "PNG")

    def good(self):
        return json.dumps(to_json(kh.describe_weights("mnist10_w16.tvdn")))

    def use(self, path):
        row = read_row(path)
        assert from_json(json.loads(json.dumps(to_json(row)))) == row
        if row.transform is not None:
            self.picture.seek(0)
            pixels = load_image(self.picture, row.transform)
            assert np.isfinite(row.transform.apply(pixels)).all()
        if row.variant == "mnist10_w16" and row.transform is not None:
            model_card(row, "org/name", {}, torch_names=False)


class Result(Reader):
    """`result.json` of a run."""

    file = "result.json"

    def good(self):
        return json.dumps(registry.result("charlm_small_coupled.ptb"))

    def use(self, path):
        result = read_result(path.parent, of_run=True)
        float(result["mean"]), str(result["weights"]).split("."), [int(seed) for seed in result.get("seeds", ())]


class Words(Reader):
    """`vocabulary.json`."""

    file = "vocabulary.json"

    def good(self):
        return Vocabulary.of(["the", "cat", "sat", "on", "the", "mat"]).to_json()

    def use(self, path):
        vocabulary = Vocabulary.from_json(path.read_bytes())
        assert vocabulary.table.shape == (len(vocabulary.words), vocabulary.word_length)


class Stub:
    """The weights that a `check.npz` is of."""

    inputs = ("pixels",)

    @staticmethod
    def computed(inputs):
        """Return their network's outputs."""
        return {"logits": inputs["pixels"].astype("float32").reshape(2, -1)[:, :3]}


def _npz(**arrays) -> bytes:
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()


class Check(Reader):
    """`check.npz`."""

    file = "check.npz"
    attack = staticmethod(attack_npz)

    def good(self):
        pixels = np.arange(2 * 9, dtype=np.uint8).reshape(2, 9)
        return _npz(pixels=pixels, **Stub.computed({"pixels": pixels}))

    def use(self, path):
        assert compare_check(Stub, path) <= 1e-4


class Data(Reader):
    """A data set."""

    file = "mnist.npz"
    attack = staticmethod(attack_npz)

    def good(self):
        x, y = np.arange(3 * 784, dtype=np.uint8).reshape(3, 28, 28), np.arange(3)
        return _npz(x_train=x, y_train=y, x_test=x, y_test=y)

    def use(self, path):
        data = load_dataset("mnist", path.parent)
        assert len(data.x_test) == len(data.y_test) > 0 and data.x_test.dtype == np.uint8
        assert max(data.y_test) < len(data.classes)


class Checkpoint(Reader):
    """The state of a run."""

    file = "checkpoint.npz"

    @staticmethod
    def attack(rng, content):
        if rng.random() < 0.5:
            return attack_npz(rng, content)
        with np.load(io.BytesIO(content)) as file:
            arrays = dict(file)
        text = attack_text(rng, str(arrays["header"])).decode("utf-8", "replace")
        return _npz(**{**arrays, "header": np.array(text.rstrip("\0"))})

    def good(self):
        header = {"variables": ["a", "b"], "epoch": 3, "step": 5, "sums": [1.0, 2.0], "seconds": 1.5, "waited": 0.25}
        return _npz(header=np.array(json.dumps(header)), v0=np.arange(6.0).reshape(2, 3), v1=np.arange(3))

    def use(self, path):
        values = {}
        variables = {
            name: types.SimpleNamespace(shape=shape, assign=lambda value, name=name: values.update({name: value}))
            for name, shape in (("a", (2, 3)), ("b", (3,)))
        }
        progress = checkpoint.restore(path, variables)
        assert progress.epoch >= 0 and set(values) == {"a", "b"}
        assert checkpoint.epochs_of(path) == progress.epoch


READERS = (Row, Result, Words, Check, Data, Checkpoint)


def try_one(seed: int, reader: Reader, good, folder: Path) -> str:
    """Attacks a file by a seed; returns how it ended. Anything but `"refused"` and `"usable"` is a defect."""
    path = folder / reader.file
    path.write_bytes(reader.attack(random.Random(seed), good))
    start = time.process_time()
    try:
        reader.use(path)
        ending = "usable"
    except ValueError as error:
        text = str(error)
        named = reader.file in text or reader.file == "vocabulary.json"  # its reader has the text alone
        good_sentence = named and "\n" not in text and "\x1b" not in text and len(text) < 1000
        ending = "refused" if good_sentence else f"an unclear error: {text[:200]!r}"
    except Exception as error:
        ending = f"{type(error).__name__}: {error}"[:300]
    return ending if time.process_time() - start < SECONDS else f"more than {SECONDS} seconds"


def run(seeds) -> Counter:
    """Tries every kind of file with every seed; returns how often each ended in each way."""
    counts: Counter = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for reader in (kind() for kind in READERS):
            good, folder = reader.good(), Path(scratch)
            (folder / reader.file).write_bytes(good if isinstance(good, bytes) else good.encode())
            reader.use(folder / reader.file)
            for seed in seeds:
                counts[reader.file, try_one(seed, reader, good, folder)] += 1
    return counts


def defects(counts: Counter) -> dict:
    """Those of the endings that must not be."""
    return {ending: n for ending, n in counts.items() if ending[1] not in ("refused", "usable")}


def main(argv: list[str]) -> int:
    """Prints the counts; 1 if there is a defect."""
    n, first = int(argv[0]), int(argv[1]) if len(argv) > 1 else 0
    start = time.perf_counter()
    counts = run(range(first, first + n))
    for (file, ending), count in sorted(counts.items()):
        print(f"{file:16} {ending:22} {count}")
    print(f"{n} attacks on each: {sum(defects(counts).values())} defects, {time.perf_counter() - start:.0f} s")
    return bool(defects(counts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
