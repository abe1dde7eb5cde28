"""Hostile or broken files from outside: each is refused with one sentence, before memory or minutes are taken."""

import json
import types
import zipfile

import h5py
import numpy as np
import pytest
from hostile import NAME, quick, refused, zoo_folder  # noqa: F401

import keras_highway as kh
from keras_highway._support.files import read_npz
from keras_highway.cli import main
from keras_highway.data import load_dataset
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.training import checkpoint
from keras_highway.weights import registry
from keras_highway.weights.hub import HubName
from keras_highway.weights.info import WeightFileError, decode, from_json, read_result, read_row, to_json
from keras_highway.weights.sources import resolve
from keras_highway.weights.torch_files import read_config
from keras_highway.weights.trained import compare_check

NESTED = "[" * 200_000


TRANSFORM_ATTACKS = [
    {"size": [100_000, 100_000]},
    {"size": [0, 28]},
    {"size": [28.5, 28]},
    {"size": [28]},
    {"size": "28"},
    {"size": [True, 28]},
    {"crop": 0},
    {"crop": 1e-9},
    {"crop": 1.5},
    {"size": [2000, 2000], "crop": 0.02},
    {"channels": 2},
    {"channels": True},
    {"channels": 1.0},
    {"mean": [0.1, 0.2, 0.3]},
    {"mean": []},
    {"mean": 0.5},
    {"std": [0]},
    {"std": [-1.0]},
    {"scale": 10**400},
    {"scale": 0},
    {"scale": "1"},
    {"interpolation": "magic"},
    {"interpolation": ["bicubic"]},
    {"contrast": 1},
    {"mean_image": "../../etc"},
    {"mean_image": "cifar10"},
    {"mean_image": "cifar10", "contrast": True},
]
ROW_ATTACKS = [
    {"classes": ["0", "1", "2"]},
    {"classes": [str(i) for i in range(12)]},
    {"classes": 1e9},
    {"classes": ["a" * 100_000] * 10},
    {"classes": ["\x1b[2J"] * 10},
    {"classes": ["a\nb"] * 10},
    {"classes": [["a"]] * 10},
    {"classes": {str(i): i for i in range(10)}},
    {"name": None},
    {"variant": ["mnist10_w16"]},
    {"variant": "mnist10_w32"},
    {"sha256": "abc"},
    {"sha256": 3},
    {"sha256": "0" * 64},
    {"metrics": {"mean": 1}},
    {"metrics": {"metric": "a", "mean": "1", "std": None, "n": 1}},
    {"metrics": {"metric": "a", "mean": 1, "std": None, "n": 0}},
    {"gate_report": {"samples": 1}},
    {"gate_report": {"samples": 1, "blocks": {"a": {"t": {"mean": "x", "variance": 0}}}}},
    {"gate_report": {"samples": 1, "blocks": {"a": {"mean": 0.5, "variance": 0}}}},
    {"gate_report": {"samples": 1, "blocks": {"a": {}}}},
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


def test_texts_of_other_bytes_and_of_any_size(tmp_path):
    path = tmp_path / "weights.json"
    path.write_bytes(b"\xff\xfe{")
    refused(lambda: read_row(path), path)
    with path.open("wb") as file:
        file.truncate(2**40)  # a sparse terabyte
    assert "is larger than" in refused(lambda: read_row(path), path)
    with pytest.raises(ValueError, match="nested too deeply"):
        decode(NESTED, list, "it")


def test_every_description_of_ours_is_a_description():
    for name in registry.list_weights():
        row = kh.describe_weights(name)
        assert from_json(json.loads(json.dumps(to_json(row)))) == row


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


def test_a_hostile_file_on_the_command_line_is_one_line(folder, capsys):
    for change in ({"size": [100_000, 100_000]}, {"crop": 1e-9}):
        row = json.loads((folder / "weights.json").read_text())
        (folder / "weights.json").write_text(json.dumps({**row, "transform": {**row["transform"], **change}}))
        assert main(["classify", "samples/digit_7.png", "--weights", str(folder)]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and "weights.json is malformed" in err
    (folder / "weights.json").unlink()
    (folder / "result.json").write_text('{"a":' * 100_000)
    assert main(["classify", "samples/digit_7.png", "--weights", str(folder)]) == 2
    assert "result.json is nested too deeply to be read" in capsys.readouterr().err


TIMM = {
    "num_classes": 1000,
    "input_size": [3, 224, 224],
    "crop_pct": 0.95,
    "mean": [0.485, 0.456, 0.406],
    "std": [0.229, 0.224, 0.225],
    "interpolation": "bicubic",
}


@pytest.mark.parametrize(
    "change",
    [{"num_classes": 10**9}, {"num_classes": True}, {"crop_pct": 1e-9}, {"input_size": [3, 10**6, 224]}, {"mean": "a"}],
    ids=str,
)
def test_configurations_of_timm(tmp_path, change):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"architecture": "resnet50", "pretrained_cfg": TIMM}))
    assert len(read_config(path, HubName("a/b")).classes) == 1000
    path.write_text(json.dumps({"architecture": "resnet50", "pretrained_cfg": {**TIMM, **change}}))
    refused(lambda: read_config(path, HubName("a/b")), path)


def vocabulary(**changes) -> str:
    """The JSON of a vocabulary."""
    return json.dumps({**json.loads(Vocabulary.of(["a", "b"]).to_json()), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"word_length": 10**9},
        {"word_length": 2.5},
        {"word_length": True},
        {"words": "abc"},
        {"words": [1, 2]},
        {"words": ["<unk>", "<eos>", "a" * 10_000]},
        {"words": None},
        {"characters": {}},
        {"characters": [["a"]]},
    ],
    ids=str,
)
def test_vocabularies(changes):
    Vocabulary.from_json(vocabulary())
    with pytest.raises(ValueError, match="This is not a vocabulary"):
        Vocabulary.from_json(vocabulary(**changes))


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
    ):
        path = npz(tmp_path / "mnist.npz", header, bytes(2 * 784), **good)
        refused(lambda: load_dataset("mnist", tmp_path), path)
    dense = npz(tmp_path / "mnist.npz", HUGE, bytes(10**6), zipfile.ZIP_DEFLATED, **good)
    refused(lambda: load_dataset("mnist", tmp_path), dense)


def test_other_arrays_are_not_read(tmp_path):
    npz(tmp_path / "mnist.npz", HUGE, name="other", **GOOD)
    assert load_dataset("mnist", tmp_path).x_test.shape == (2, 28, 28, 1)
    with pytest.raises(ValueError, match="declares an array"):
        read_npz(tmp_path / "mnist.npz")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"x_test": X[:0], "y_test": Y[:0]}, "0 test images"),
        ({"y_test": np.array([0.5, np.nan])}, "labels of dtype float64"),
        ({"classes": np.array(["\x1b[2J", "b"])}, "printable"),
        ({"x_test": X.astype("float32")}, "dtype float32"),
    ],
)
def test_data_sets_that_are_none(tmp_path, changes, match):
    np.savez(tmp_path / "mnist.npz", **{**GOOD, **changes})
    assert match in refused(lambda: load_dataset("mnist", tmp_path), tmp_path / "mnist.npz")


def test_encrypted_and_unknown_archives(tmp_path):
    path = npz(tmp_path / "mnist.npz", **GOOD)
    content = path.read_bytes()
    for offset, value in ((8, 1), (10, 99)):  # of an entry of the central directory: flags, method
        altered = bytearray(content)
        altered[content.index(b"PK\x01\x02") + offset] = value
        path.write_bytes(altered)
        refused(lambda: load_dataset("mnist", tmp_path), path)
    npz(path, {**HUGE, "shape": (2, 28, 28)}, bytes(2 * 784), zipfile.ZIP_LZMA, y_train=Y, x_train=X, y_test=Y)
    assert "encrypted, or compressed in a way" in refused(lambda: load_dataset("mnist", tmp_path), path)


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
        *(json.dumps({**HEADER, **change}) for change in ({"variables": ["b"]}, {"variables": 3}, {"seconds": None})),
        json.dumps({**HEADER, "variables": ["a"] * 3}),
        json.dumps({"variables": ["a"]}),
    ],
    ids=lambda header: header[:60],
)
def test_checkpoints(tmp_path, header):
    path = tmp_path / "checkpoint.npz"
    variable = types.SimpleNamespace(shape=(3,), assign=lambda value: pytest.fail("a variable was set"))
    np.savez(path, header=np.array(header), v0=np.zeros(3, "float32"))
    refused(lambda: checkpoint.restore(path, {"a": variable}), path)


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
