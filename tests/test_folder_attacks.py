"""Hostile files of a run's folder, of shards and of labels: one sentence with the file's name, no traceback."""

import hashlib
import io
import json
import shutil
import struct
import types
import zlib

import numpy as np
import pytest
from hostile import NAME, refused

from keras_highway._support.files import read_log, read_npz
from keras_highway.analysis.scores import measure_photographs
from keras_highway.data.photographs import folder_test_set, read_real_labels
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.report import numbers_path
from keras_highway.training import checkpoint, shards, train
from keras_highway.training.data.shards import FORMAT, ShardSource, read_manifest
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import RunFolder
from keras_highway.weights import registry
from keras_highway.weights.info import read_result, read_row
from keras_highway.weights.publish import find_publishable, write_bundle

DEEP = "[" * 500 + "]" * 500
TEXTS = ["", "[" * 200_000, DEEP, '{"a": ' + DEEP + "}", "3", '"a"', "[]", "null", '{"a": NaN}', "1" * 5000, "\x00"]
RECIPE = RECIPES["mnist10_w16"]
STRATEGY = types.SimpleNamespace(is_chief=True, name="none", replicas=1)
any_text = pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:12])


# --- A run's folder ----------------------------------------------------------------


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
    b"epoch,train_loss\n1,0.5,7\n": "line 2 has more values than the first line has names",
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


def test_a_log_of_any_size(tmp_path):
    with (tmp_path / "log.csv").open("wb") as file:
        file.truncate(2**40)  # a sparse terabyte
    assert "is larger than" in refused(lambda: read_log(tmp_path / "log.csv"), "log.csv")


@pytest.mark.parametrize("text", ["[" * 200_000, DEEP, "3", '"a"', "[]", "null", ""], ids=lambda text: text[:12])
def test_files_where_a_reports_numbers_go(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileExistsError, match="is not a report's"):
        numbers_path(tmp_path / "a.html")


# --- Shards ------------------------------------------------------------------------

INDEX = {"files": ["a/0.png", "a/1.png"], "broken": []}
INDEX |= {"places": [0, 1], "labels": [0, 1], "offsets": [0, 5], "lengths": [5, 5]}


def sharded(folder, index=None, **changes):
    """Writes a manifest of two shards, and them with their indexes."""
    text = json.dumps(INDEX) if index is None else index
    splits = {}
    for split in ("train", "val"):
        (folder / f"{split}.tfrecord").write_bytes(bytes(10))
        (folder / f"{split}.json").write_text(text)
        hashes = {"sha256": "0" * 64, "index_sha256": hashlib.sha256(text.encode()).hexdigest()}
        row = {"file": f"{split}.tfrecord", "images": 2, "bytes": 10, **hashes}
        splits[split] = {"images": 2, "broken": [], "shards": [{**row, **changes.get("shard", {})}]}
    manifest = {"format": FORMAT, "classes": ["a", "b"], "splits": splits, **changes.get("manifest", {})}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def opened(folder):
    return ShardSource(RECIPES["highway50_a2"], folder)


@any_text
def test_manifests(tmp_path, text, capsys):
    path = tmp_path / "manifest.json"
    path.write_text(text)
    refused(lambda: read_manifest(tmp_path), path)
    assert shards.main([str(tmp_path), "--check"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"manifest": {"format": "other"}},
        {"manifest": {"splits": {}}},
        {"manifest": {"splits": {"train": [], "val": []}}},
        {"manifest": {"classes": 3}},
        {"manifest": {"classes": ["a"]}},
        *({"shard": {"file": name}} for name in ("../../x.tfrecord", "/etc/x.tfrecord", ".tfrecord", "..", 3, "a\\b")),
        {"shard": {"bytes": "10"}},
        {"shard": {"sha256": None}},
        {"shard": {"index_sha256": 3}},
    ],
    ids=str,
)
def test_values_of_manifests(tmp_path, changes):
    sharded(tmp_path)
    assert opened(tmp_path).images == 2
    sharded(tmp_path, **changes)
    refused(lambda: opened(tmp_path), tmp_path)


@pytest.mark.parametrize(
    "index",
    [
        *TEXTS,
        *(
            json.dumps({**INDEX, **change})
            for change in (
                {"labels": [0]},
                {"labels": [0, 2]},
                {"labels": [0, True]},
                {"labels": {"0": 1}},
                {"places": [0, 0]},
                {"places": [0, 10**30]},
                {"offsets": [0, -1]},
                {"offsets": [0, 1.5]},
                {"lengths": [5, 6]},
                {"lengths": None},
            )
        ),
        json.dumps({"labels": [0, 1]}),
    ],
    ids=lambda index: index[-60:],
)
def test_indexes(tmp_path, index):
    sharded(tmp_path, index)
    refused(lambda: opened(tmp_path), tmp_path)


# --- Labels ------------------------------------------------------------------------


@any_text
def test_real_labels(tmp_path, text):
    path = tmp_path / "real.json"
    path.write_text(text)
    refused(lambda: read_real_labels(path), path)


# --- Results -----------------------------------------------------------------------


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


# --- Names on a terminal -----------------------------------------------------------

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
