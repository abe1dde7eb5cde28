"""Hostile or broken files from outside: each is refused with one sentence, before memory or minutes are taken."""

import ast
import dataclasses
import io
import json
import os
import re
import shlex
import shutil
import struct
import types
import zipfile
import zlib
from html import unescape

import h5py
import numpy as np
import pytest
from hostile import NAME, quick, refused, zoo_folder  # noqa: F401
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

import keras_highway as kh
from keras_highway._support.files import read_log, read_npz
from keras_highway._support.terminal import (
    in_figure,
    in_markdown,
    table,
    visible,
    visible_json,
    visible_lines,
)
from keras_highway.analysis.scores import measure_photographs
from keras_highway.data import load_dataset, load_image, sample_digits
from keras_highway.data.photographs import folder_test_set, read_real_labels
from keras_highway.data.ptb import read_text
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.training import checkpoint, shards, train
from keras_highway.training.data.shards import Shards
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import RunFolder
from keras_highway.weights import registry
from keras_highway.weights.card import model_card
from keras_highway.weights.info import WeightFileError, read_result, read_row
from keras_highway.weights.publish import find_publishable, write_bundle
from keras_highway.weights.sources import resolve
from keras_highway.weights.trained import compare_check

NESTED = "[" * 200_000


TRANSFORM_ATTACKS = [
    *({"size": size} for size in ([100_000, 100_000], [0, 28], [28.5, 28], [28], "28", [True, 28])),
    *({"crop": crop} for crop in (0, 0.001, 1.5)),
    *({"channels": channels} for channels in (2, True)),
    *({"mean": mean} for mean in ([0.1, 0.2, 0.3], 0.5)),
    *({"std": std} for std in ([0], [-1.0])),
    *({"scale": scale} for scale in (10**400, 0, "1")),
    *({"interpolation": word} for word in ("magic", ["bicubic"])),
    *({"mean_image": image} for image in ("../../etc", "cifar10")),
    {"size": [2000, 2000], "crop": 0.02},
    {"mean_image": "cifar10", "contrast": True},
    {"contrast": 1},
]
METRICS = {"metric": "a", "mean": 1, "std": None, "n": 1}
ROW_ATTACKS = [
    *({"classes": classes} for classes in (["0", "1"], 1e9, ["a" * 100_000] * 10, ["\x1b[2J"] * 10, ["a\nb"] * 10)),
    *({"classes": classes} for classes in ([["a"]] * 10, {str(i): i for i in range(10)})),
    *({"variant": variant} for variant in (["mnist10_w16"], "mnist10_w32")),
    *({"sha256": text} for text in ("abc", 3, "0" * 64)),
    *({"metrics": metrics} for metrics in ({"mean": 1}, {**METRICS, "mean": "1"}, {**METRICS, "n": 0})),
    {"gate_report": {"samples": 1}},
    {"gate_report": {"samples": 1, "blocks": {"a": {"t": {"mean": "x", "variance": 0}}}}},
    {"name": None},
    {"origin": "\x1b]0;x\x07"},
    {"licence": "a" * 100_000},
]


@pytest.mark.parametrize("change", [{"transform": change} for change in TRANSFORM_ATTACKS] + ROW_ATTACKS, ids=str)
def test_descriptions(folder, change):
    path = folder / "weights.json"
    row = json.loads(path.read_text())
    changed = {**row, **change}
    if "transform" in change:
        changed["transform"] = {**row["transform"], **change["transform"]}
    path.write_text(json.dumps(changed))
    refused(lambda: resolve(folder), folder)


TEXTS = ["", "[", NESTED, '{"a":' * 100_000, "null", "[]", '"x"', "3", '{"name": NaN}', "1" * 5000, "\x00", "{'a': 1}"]


@pytest.mark.parametrize("text", [*TEXTS, '{"a": 1e400}', '{"a": -Infinity}'], ids=lambda text: text[:12])
@pytest.mark.parametrize("kind", ["weights.json", "result.json", "vocabulary.json"])
def test_texts(tmp_path, kind, text):
    path = tmp_path / kind
    path.write_text(text)
    if kind == "vocabulary.json":
        with pytest.raises(ValueError, match="This is not a vocabulary: "):
            Vocabulary.from_json(text)
    else:
        refused({"weights.json": lambda: read_row(path), "result.json": lambda: read_result(tmp_path)}[kind], path)


STAMPS = [
    *(text for text in TEXTS if len(text) < 60_000 and text != "\x00"),
    '{"variant": 3}',
    '{"variant": ["mnist10_w16"], "classes": 10}',
    '{"variant": "mnist10_w16", "classes": 1e9}',
    '{"variant": "mnist10_w16", "classes": 1000000000}',
    '{"variant": "mnist10_w16", "classes": 999}',
    '{"variant": "mnist10_w16", "classes": true}',
    '{"variant": "mnist10_w16", "classes": 0}',
    '{"variant": "mnist10_w16", "classes": 10, "transform": "unknown"}',
    '{"variant": "mnist10_w16", "classes": 10, "transform": {"size": 3}}',
    '{"variant": "mnist10_w16", "classes": 10, "overrides": [1]}',
    '{"variant": "charlm_small_coupled", "classes": 10, "overrides": {"units": 1000000000}}',
    '{"variant": "charlm_small_coupled", "classes": 10, "overrides": {"filters": [100000, 2]}}',
    '{"variant": "charlm_small_coupled", "classes": 10, "overrides": {"filters": ' + str([9] * 500) + "}}",
    '{"variant": "charlm_small_coupled", "classes": 10, "vocabulary": ["a"]}',
    '{"variant": "zzz"}',
]


@pytest.mark.parametrize("stamp", [*STAMPS, 7, 1.5, np.arange(4), h5py.Empty("f4")], ids=lambda stamp: str(stamp)[:70])
def test_stamps(tmp_path, stamp):
    path = tmp_path / "a.weights.h5"
    kh.create_model("highway_fc10", depth=2, classes=3).save_weights(path)
    with h5py.File(path, "a") as file:
        file.attrs["keras_highway"] = stamp
    with pytest.raises(WeightFileError):
        resolve(path)
    refused(lambda: resolve(path), path)


def test_a_stamp_without_classes_names_those_of_its_variant(tmp_path):
    path = tmp_path / "a.weights.h5"
    kh.create_model("mnist10_w16").save_weights(path)
    with h5py.File(path, "a") as file:
        file.attrs["keras_highway"] = '{"variant": "mnist10_w16"}'
    with pytest.warns(kh.UncheckedWeights):
        assert kh.classify(sample_digits()[3], path)[0].name in map(str, range(10))


def npz(path, header=None, content=b"", compression=zipfile.ZIP_STORED, name="x_test", **arrays):
    """Writes an `.npz` with good arrays, and one of a header and a content of its own."""
    np.savez(path, **arrays)
    if header is not None:
        with zipfile.ZipFile(path, "a", compression) as archive:
            text = (str(header) + " " * 20 + "\n").encode()
            archive.writestr(f"{name}.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content)
    return path


X, Y = np.zeros((2, 28, 28), np.uint8), np.zeros(2, np.uint8)
GOOD = {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y}
HUGE = {"descr": "|u1", "fortran_order": False, "shape": (10**13 // 784, 28, 28)}


def test_arrays_declare_what_the_file_holds(tmp_path):
    good = {key: value for key, value in GOOD.items() if key != "x_test"}
    for header in (
        HUGE,  # 10 TB
        {**HUGE, "shape": (3, 28, 28)},
        {**HUGE, "shape": (-2, 28, 28)},
        {**HUGE, "shape": (10**30,)},
        {**HUGE, "descr": "|O"},
        {**HUGE, "descr": "<U0", "shape": (10**17,)},
        {**HUGE, "descr": "x"},
        {"shape": (2,)},
        "no header",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 28, 28",  # tokenize.TokenError
    ):
        path = npz(tmp_path / "mnist.npz", header, bytes(2 * 784), **good)
        refused(lambda: load_dataset("mnist", tmp_path), path)
    dense = npz(tmp_path / "mnist.npz", HUGE, bytes(10**6), zipfile.ZIP_DEFLATED, **good)
    refused(lambda: load_dataset("mnist", tmp_path), dense)


class Stub:
    """What `check.npz` is compared with, without a network."""

    inputs = ("pixels",)

    @staticmethod
    def computed(inputs):
        return {"logits": inputs["pixels"].astype("float32")}


def test_checks(tmp_path):
    path, x = tmp_path / "check.npz", np.ones((2, 3), "uint8")
    np.savez(path, pixels=x, logits=x.astype("float32"))
    assert compare_check(Stub, path) == 0
    for arrays in (
        {"pixels": x},
        {"logits": x},
        {"pixels": x, "logits": np.full((2, 3), np.nan)},
        {"pixels": x, "logits": np.full((2, 3), "a")},
        {"pixels": np.array(["a"]), "logits": x},
        {"pixels": np.ones((300, 3), "uint8"), "logits": np.ones((300, 3))},
        {"pixels": np.uint8(1), "logits": np.float32(1)},
    ):
        np.savez(path, **arrays)
        refused(lambda: compare_check(Stub, path), path)
    npz(path, HUGE, name="pixels", logits=x)
    refused(lambda: compare_check(Stub, path), path)


HEADER = {"variables": ["a"], "epoch": 1, "step": 2, "sums": [0.5], "seconds": 1.0, "waited": 0.0}


@pytest.mark.parametrize(
    "header",
    [
        *(text for text in TEXTS if text != "\x00"),
        *(json.dumps({**HEADER, **change}) for change in ({"epoch": -1}, {"step": 1.5}, {"sums": ["a"]}, {"sums": 3})),
        *(
            json.dumps({**HEADER, **change})
            for change in ({"step": 10**9}, {"variables": ["b"]}, {"variables": 3}, {"seconds": None})
        ),
        json.dumps({**HEADER, "variables": ["a"] * 3}),
        json.dumps({"variables": ["a"]}),
    ],
    ids=lambda header: header[:60],
)
def test_checkpoints(tmp_path, header):
    path = tmp_path / "checkpoint.npz"
    variable = types.SimpleNamespace(shape=(3,), assign=lambda value: pytest.fail("a variable was set"))
    np.savez(path, header=np.array(header), v0=np.zeros(3, "float32"))
    refused(lambda: checkpoint.restore(path, {"a": variable}, steps=5), path)


def test_checkpoints_of_other_arrays(tmp_path):
    path = tmp_path / "checkpoint.npz"
    variable = types.SimpleNamespace(shape=(3,), assign=lambda value: pytest.fail("a variable was set"))
    for arrays in ({}, {"v0": np.array(["a", "b", "c"])}, {"v0": np.zeros(4)}, {"v1": np.zeros(3)}):
        np.savez(path, header=np.array(json.dumps(HEADER)), **arrays)
        refused(lambda: checkpoint.restore(path, {"a": variable}), path)
    npz(path, HUGE, name="v0", header_=X)
    refused(lambda: checkpoint.restore(path, {"a": variable}), path)
    npz(path, HUGE, name="header")
    refused(lambda: checkpoint.epochs_of(path), path)


DEEP = "[" * 500 + "]" * 500
RECIPE = RECIPES["mnist10_w16"]
STRATEGY = types.SimpleNamespace(is_chief=True, name="none", replicas=1)
JSON_TEXTS = ["", NESTED, DEEP, '{"a": ' + DEEP + "}", "3", '"a"', "[]", "null", '{"a": NaN}', "1" * 5000, "\x00"]
any_text = pytest.mark.parametrize("text", JSON_TEXTS, ids=lambda text: text[:12])


@any_text
def test_recipes_of_what_is_published(tmp_path, text):
    folder = shutil.copytree(registry.file_of(registry.find(NAME)).parent, tmp_path / "run")
    publishable = find_publishable(str(folder))
    (folder / "recipe.json").write_text(text)
    (tmp_path / "bundle").mkdir()
    refused(lambda: write_bundle(publishable, "org/name", tmp_path / "bundle"), "recipe.json")


@any_text
@pytest.mark.parametrize("name", ["recipe.json", "sessions.json", "environment.json"])
def test_json_of_a_run(tmp_path, name, text):
    folder = RunFolder(tmp_path / "run", RECIPE, STRATEGY)
    folder.begin_session(0, 0)
    assert folder.environment()["replicas"] == 1
    path = folder.path / name
    path.write_text(text)
    if name == "recipe.json":
        refused(lambda: RunFolder(path.parent, RECIPE, STRATEGY), path)
    elif name == "environment.json":
        if not text.startswith('{"a": ['):  # deep, and a table
            refused(folder.environment, path)
    elif text != "[]":  # no session yet
        refused(lambda: folder.begin_session(0, 1), path)
        refused(folder.environment, path)


LOGS = {
    b"epoch,train_loss\n1,x\n": "line 2: 'train_loss' must be a number. Received: 'x'",
    b"epoch,train_loss\n1,0.5\n2,\x1b[2J\n": "line 3",
    b"epoch,train_loss\n1,0.5,7\n": "line 2: None must be a number. Received: ['7']",
    b"epoch,train_loss\n1,\xff\n": "not a table",
    b"epoch,train_loss\n1,\x00\n": "",
    b"epoch,train_loss\n1," + b"1" * 200_000 + b"\n": "not a table",
    b"train_loss\n0.5\n": "lacks epoch",
}


@pytest.mark.parametrize("content", LOGS, ids=lambda content: str(content[:30]))
def test_logs(tmp_path, content):
    folder = RunFolder(tmp_path / "run", RECIPE, STRATEGY)
    folder.log.write_bytes(content)
    if b"epoch" in content:
        assert LOGS[content] in refused(lambda: read_log(folder.log), folder.log)
    assert LOGS[content] in refused(folder.rows, folder.log)


def sparse(path):
    path.touch()
    os.truncate(path, 2**40)


SPECIAL = {"a pipe": os.mkfifo, "a device": lambda path: path.symlink_to("/dev/zero"), "a sparse terabyte": sparse}
READERS = {
    "a.weights.h5": resolve,
    "a.safetensors": resolve,
    "a.keras": resolve,
    "a.jpg": lambda path: load_image(path, TRANSFORMS["mnist"]),
    "a.txt": read_text,
    "log.csv": read_log,
    "weights.json": read_row,
    "recipe.json": lambda path: RunFolder(path.parent, RECIPE, STRATEGY),
    "real.json": read_real_labels,
    "checkpoint.npz": checkpoint.epochs_of,
    "train.npz": lambda path: Shards(path.parent, "train", 2),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", READERS)
def test_pipes_devices_and_huge_files_are_not_read(tmp_path, name, kind):
    SPECIAL[kind](tmp_path / name)
    refused(lambda: READERS[name](tmp_path / name), name)


@any_text
def test_real_labels(tmp_path, text):
    path = tmp_path / "real.json"
    path.write_text(text)
    refused(lambda: read_real_labels(path), path)


@pytest.mark.parametrize(
    "change",
    [
        *({"mean": mean} for mean in (5, 1.001, -0.1)),
        {"values": [0.9, 5]},
        {"stored": {"dtype": "float16", "test_accuracy": 99.4}},
        *({"metric": "test_perplexity", "mean": mean, "values": []} for mean in (0, 0.5, -3)),
        {"valid_perplexity": 0},
        *({"weights": name} for name in ("../../../x", "/x", "a/b", "..", ".x", "", "a\\b", "C:x")),
    ],
    ids=str,
)
def test_results(tmp_path, change):
    path = tmp_path / "result.json"
    result = registry.result(NAME)
    path.write_text(json.dumps(result))
    assert read_result(path.parent, of_run=True) == result
    path.write_text(json.dumps({**result, **change}))
    refused(lambda: read_result(path.parent, of_run=True), path)


def test_names_of_rows_lead_nowhere(tmp_path):
    path = shutil.copy(registry.file_of(registry.find(NAME)).with_name("weights.json"), tmp_path)
    row = json.loads((tmp_path / "weights.json").read_text())
    for name in ("../x", "..", "a/../../x", "/x", "./x", "..\\x", "C:x", "a/b/c"):
        (tmp_path / "weights.json").write_text(json.dumps({**row, "name": name}))
        refused(lambda: read_row(tmp_path / "weights.json"), path)
    for name in ("timm/resnet50.a1_in1k", ".hidden", "a..b", ""):  # a model's on the Hub, a folder's
        (tmp_path / "weights.json").write_text(json.dumps({**row, "name": name}))
        assert read_row(tmp_path / "weights.json").name == name


def test_arrays_that_lie_over_each_other_are_refused(tmp_path):
    """Each stored array holds all that follow it: together they are many times the file."""
    content, offsets, entries = b"", [], []
    for index in range(40):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (len(content),)})
        content = header.getvalue() + content
        name, crc, size = f"a{index}.npy".encode(), zlib.crc32(content), len(content)
        fields = struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 33, crc, size, size, len(name), 0)
        content = b"PK\x03\x04" + fields + name + content
        entries.append((fields, name))
        offsets.append(len(content))
    directory = b"".join(
        b"PK\x01\x02" + b"\x14\x00" + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(content) - offset) + name
        for (fields, name), offset in zip(entries, offsets, strict=True)
    )
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 40, 40, len(directory), len(content), 0)
    path = tmp_path / "x.npz"
    path.write_bytes(content + directory + end)
    refused(lambda: read_npz(path, stored=True), path)


def test_compressed_checkpoints_are_refused(tmp_path):
    """A small file of compressed zeros would take a thousand times its size."""
    path, values = tmp_path / "checkpoint.npz", {"a": np.zeros(10**6, "float32")}
    checkpoint.save(path, values, checkpoint.Progress(1, 0, np.zeros(1), 0.0, 0.0))
    assert checkpoint.epochs_of(path) == 1
    with np.load(path) as arrays:
        np.savez_compressed(path, **arrays)
    variable = types.SimpleNamespace(shape=(10**6,), assign=lambda value: pytest.fail("a variable was set"))
    assert path.stat().st_size < 10_000
    for call in (lambda: checkpoint.epochs_of(path), lambda: checkpoint.restore(path, {"a": variable})):
        assert "compressed" in refused(call, path)


FORGED = "bad\x1b[2J\nforged.png"


def test_names_of_broken_photographs_on_a_terminal(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / FORGED).write_bytes(b"")
    scores = measure_photographs(None, TRANSFORMS["cifar10"], folder_test_set(tmp_path, 2), 2)
    err = capsys.readouterr().err
    assert scores.broken == 2 and err.count("\n") == 2 and "\x1b" not in err and "bad\\x1b[2J\\nforged" in err


def test_names_of_shards_and_runs_on_a_terminal(tmp_path, capsys):
    pytest.importorskip("tensorflow", reason="TensorFlow reads photographs")
    folder = tmp_path / FORGED
    for split in ("train", "val"):
        (folder / split / "a").mkdir(parents=True)
        (folder / split / "a" / FORGED).write_bytes(b"")
    out = folder / "out"
    assert shards.main([str(folder), "--out", str(out), "--workers", "1"]) == 0
    assert shards.main([str(out), "--check"]) == 0
    next(out.glob("*.tfrecord")).unlink()
    assert shards.main([str(out), "--check"]) == 1
    assert shards.main([str(tmp_path / "\x1b[2J"), "--check"]) == 2
    for arguments in (["\x1b[2J"], ["mnist10_w16", "--tiny", "--strategy", "\x1b[2J", "--out", str(folder)]):
        with pytest.raises(SystemExit):
            train.main(arguments)
    shown = "".join(capsys.readouterr())
    assert "\x1b" not in shown and "missing or altered" in shown and "left out" in shown


HOSTILE = "\x1b[2J\x9b1m\ncat 100.00 %\r\u202e$x_$ |`<script>*[a](http://b)\\"
texts = st.text(st.characters(), max_size=40) | st.text("\\$|`<>&*[](:!_~/.w@\x1b\n\r\u2028 a", max_size=12)
hundreds = settings(max_examples=200, deadline=None, database=None)


@hundreds
@given(texts)
@example(HOSTILE)
def test_a_terminal_gets_printable_text_that_can_be_read(text):
    shown = visible(text)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()  # what is printable stays as it is
    assert all(line.isprintable() for line in visible_lines(text).split("\n"))
    as_json = visible_json({"text": text})
    assert all(line.isprintable() for line in as_json.split("\n")) and json.loads(as_json) == {"text": text}
    assert table(("a",), [(text,)]).count("\n") == 2


@hundreds
@given(texts)
@example(HOSTILE)
@example("$x_$")
@example("\\$")
def test_matplotlib_draws_it_as_it_is(text):
    drawn, is_formula = Text()._preprocess_math(in_figure(text))
    assert drawn == visible(text) and not is_formula


@hundreds
@given(texts)
@example(HOSTILE)
@example("_a_ __a__ ~~a~~ http://b www.b.c a@b.c")
def test_markdown_shows_it_as_it_is(text):
    escaped = in_markdown(text)
    assert not re.search(r"://|www\.|[\w.+-]@", escaped, re.IGNORECASE)  # a comment keeps addresses from being links
    shown = escaped.replace("<!-- -->", "")
    assert not set(shown) & set("<>`|*~\\\n\r") and not re.search(r"\]([(\[:]|\Z)", shown)
    assert not re.search(r"(\A|[\W_])_|_([\W_]|\Z)", shown)  # emphasis begins and ends at the edges of words
    assert unescape(shown) == visible(text)
    assert in_markdown({text: [text, 3]}) == {escaped: [escaped, 3]}


def test_a_card_of_a_hostile_result():
    row = registry.described(registry.find(NAME))
    recipe = {"name": HOSTILE, "source": HOSTILE, "epochs": 3}
    metrics = {**row.metrics, "weights": HOSTILE, "hardware": HOSTILE, "metric": HOSTILE, "commit": HOSTILE}
    hostile = dataclasses.replace(row, name=HOSTILE, classes=(HOSTILE,) * 10, data_licence=HOSTILE, metrics=metrics)
    text = model_card(hostile, "org/name", recipe, True).split("---\n", 2)[2]
    plain = model_card(row, "org/name", {"name": "a", "source": "b", "epochs": 3}, True, shipped=False).split(
        "---\n", 2
    )[2]
    assert text.count("\n") == plain.count("\n") and text.count("|") == plain.count("|")
    assert "<script" not in text and "](http://b" not in text and "\x1b" not in text and "\x9b" not in text


@pytest.mark.parametrize("variant", ["mnist10_w16.tvdn", "charlm_small_coupled.ptb"])
@pytest.mark.parametrize("name", ['x "y" @z_', "a`b|c", HOSTILE.replace("\n", "")])
def test_code_on_a_card_has_names_as_they_are(variant, name):
    row = dataclasses.replace(registry.described(registry.find(variant)), name=name)
    text = model_card(row, "", {"name": name, "source": name}, True, shipped=True).split("---\n", 2)[2]
    program = re.search(r"```python\n(.*?)\n```", text, re.DOTALL)[1]
    strings = {node.value for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Constant)}
    assert name in strings
    in_backticks = re.findall("`([^`\n]*)`", text)
    spans = [unescape(span) for span in re.findall("<code>(.*?)</code>", text.replace("<!-- -->", ""))] + in_backticks
    calls = [span for span in spans if span.startswith(("kh.", "keras.saving.")) and span.endswith(")")]
    assert len(calls) == 2 and all(name == ast.parse(call).body[0].value.args[0].value for call in calls)
    (command,) = [span for span in spans if " train " in span]
    assert shlex.split(command) == ["python", "-m", "keras_highway", "train", visible(name), "--data", "DIR"]
    assert not any("&#" in span or "<!--" in span for span in [program, *in_backticks])
