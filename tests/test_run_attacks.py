"""Runs, disks and the Hub under attack: nothing foreign is published, nothing half-written stays, one sentence each."""

import errno
import os
import shutil
import socket
import time

import h5py
import keras
import numpy as np
import pytest
from huggingface_hub import constants

import keras_highway as kh
from keras_highway._support.files import append, atomic_write
from keras_highway.cli import main
from keras_highway.cli.main import UsageError, usage_errors
from keras_highway.export import export
from keras_highway.report import Report, write_report
from keras_highway.training import train
from keras_highway.weights import files as weights_file
from keras_highway.weights import hub, registry
from keras_highway.weights.info import WeightFileError
from keras_highway.weights.load import load_exactly
from keras_highway.weights.publish import find_publishable
from keras_highway.weights.sources import resolve
from tests.small_disks import files_of_at_most

NAME = "mnist10_w16.tvdn"


@pytest.fixture
def run(tmp_path):
    """A finished run's folder."""
    return shutil.copytree(registry.file_of(registry.find(NAME)).parent, tmp_path / "run")


# --- What is published -------------------------------------------------------------


@pytest.mark.parametrize("name", ["log_seed_x.csv", "log.csv", "result.json", "model.weights.h5", "recipe.json"])
def test_links_out_of_the_runs_folder_are_not_published(run, tmp_path, name):
    outside = tmp_path / "secret"
    outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"secret")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(ValueError, match=rf"{name} is a link to .*secret"):
        find_publishable(str(run))


def test_links_within_the_folder_and_other_files_are_no_matter(run):
    (run / "log_seed2.csv").symlink_to("log.csv")
    (run / "notes.txt").symlink_to("/etc/hostname")
    assert find_publishable(str(run)).folder == run
    os.mkfifo(run / "log_seed3.csv")
    with pytest.raises(ValueError, match=r"log_seed3\.csv .* not a regular file"):
        find_publishable(str(run))


# --- Full disks, permissions, open files -------------------------------------------


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_report_on_a_full_disk(tmp_path):
    report = Report("a title", {"accuracy": 0.5}, ())
    with (
        files_of_at_most(1000),
        pytest.raises(OSError, match=r"a\.html could not be written: File too large\. Nothing half-written was left"),
    ):
        write_report(report, tmp_path / "a.html")
    assert names(tmp_path) == []


@pytest.mark.parametrize("export_format", ["litert", "tf_saved_model"])
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="files of TensorFlow")
def test_an_export_on_a_full_disk(tmp_path, export_format, capfd):
    model = kh.create_model("highway_fc10", depth=2)
    message = r"net(\.tflite)? could not be written: File too large\. Nothing half-written"
    with files_of_at_most(1000), pytest.raises(OSError, match=message):
        export(model, tmp_path / ("net.tflite" if export_format == "litert" else "net"), export_format)
    assert names(tmp_path) == []


@pytest.mark.more
@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="needs tf2onnx")
def test_an_onnx_export_on_a_full_disk(tmp_path, capfd):
    pytest.importorskip("tf2onnx")
    model = kh.create_model("highway_fc10", depth=2)
    with (
        files_of_at_most(1000),
        pytest.raises(OSError, match=r"net\.onnx could not be written: .*Nothing half-written"),
    ):
        export(model, tmp_path / "net.onnx", "onnx")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device. Nothing half-written was left",
        ),
        (OSError("Can't write data (errno = 28, error message = 'No space left')"), "No space left on device"),
        (RuntimeError("UNKNOWN: No space left on device; /a/b"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied. .* make it writable for you"),
        (OSError(errno.EROFS, "Read-only file system"), "Read-only file system. .* choose another place"),
    ],
    ids=str,
)
def test_what_stops_writing_is_one_sentence(tmp_path, error, message):
    def fail(path):
        path.write_text("half")
        raise error

    with pytest.raises(OSError, match=rf"^{tmp_path}/a\.json could not be written: {message}"):
        atomic_write(tmp_path / "a.json", fail)
    assert names(tmp_path) == []


@pytest.mark.parametrize("known", [None, b"x" * 40])
def test_lines_that_cannot_be_added_whole_are_not_added(tmp_path, known):
    path = tmp_path / "a.csv"
    if known is not None:
        path.write_bytes(known)
    message = r"a\.csv could not be written: File too large\. Nothing half-written was left"
    with files_of_at_most(50), pytest.raises(OSError, match=message):
        append(path, b"y" * 60)
    assert (path.read_bytes() if path.exists() else None) == known
    append(path, b"zz")
    assert path.read_bytes() == (known or b"") + b"zz"


@pytest.mark.parametrize("float16", [False, True])
def test_weights_on_a_full_disk(tmp_path, float16):
    """HDF5's library, where it could not write, ended the process when it closed the file, or the next one."""
    model = kh.create_model("highway_fc10", depth=2, units=8)
    for size in (0, 1000, 20_000, 30_000):
        message = r"a\.weights\.h5 could not be written: File too large\. Nothing half-written was left"
        with files_of_at_most(size), pytest.raises(OSError, match=message):
            weights_file.save(model, tmp_path / "a.weights.h5", "highway_fc10", 10, float16)
        assert list(tmp_path.iterdir()) == []
    weights_file.save(model, tmp_path / "a.weights.h5", "highway_fc10", 10, float16)
    assert weights_file.read(tmp_path / "a.weights.h5").checked


def test_other_errors_of_writing_stay_what_they_are(tmp_path):
    def fail(path):
        raise ValueError("No space left on device")  # an error of ours that quotes it

    with pytest.raises(ValueError, match=r"^No space"):
        atomic_write(tmp_path / "a.json", fail)


def test_a_weight_file_that_may_not_be_read(run, monkeypatch, capsys):
    def refuse(path, most):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(weights_file, "read_bounded", refuse)
    path = run / "model.weights.h5"
    with pytest.raises(WeightFileError, match=r"model\.weights\.h5 may not be read: make it readable for you"):
        weights_file.read(path)
    with pytest.raises(UsageError, match=r"^x: permission denied"), usage_errors():
        raise PermissionError(errno.EACCES, "Permission denied", "x")


def test_after_a_failed_load_the_file_is_closed(tmp_path):
    path = tmp_path / "other.weights.h5"
    kh.create_model("highway_fc10", depth=2).save_weights(path)
    model = kh.create_model("highway_fc10", depth=2)
    with h5py.File(path, "a") as file:
        kernel = file["layers/stem/vars"] if "layers/stem" in file else next(_groups_with_two(file))
        first, second = kernel["0"][()], kernel["1"][()]
        del kernel["0"], kernel["1"]
        kernel["0"], kernel["1"] = second, first  # the shapes are all there, in the wrong places
    with pytest.raises(WeightFileError) as error:
        load_exactly(model, resolve(path, "highway_fc10"))
    assert error.value.__traceback__ is not None  # its frames live, and what they hold
    assert not [name for name in os.listdir("/proc/self/fd") if _target(name) == str(path)]


def _groups_with_two(file):
    groups = []
    file.visititems(lambda name, item: groups.append(item) if isinstance(item, h5py.Group) and len(item) == 2 else None)
    return (group for group in groups if all(isinstance(item, h5py.Dataset) for item in group.values()))


def _target(name) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:
        return ""


# --- A Hub that cannot be reached --------------------------------------------------


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """A Hub's address that takes connections and never answers."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        yield server


@pytest.mark.parametrize("silent", [False, True])
def test_an_unreachable_hub_is_one_sentence_within_5_seconds(nowhere, silent, monkeypatch, capfd):
    if silent:
        monkeypatch.setattr(hub, "_PATIENCE", 0.5)
    else:
        nowhere.close()
    start = time.monotonic()
    assert main(["fetch", "hf://org/name"]) == 2
    assert time.monotonic() - start < 5
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and "check the connection and try again" in err
    expected = ("timed out",) if silent else ("Connection refused",)
    assert any(reason in err for reason in expected)


# --- What cannot be meant ----------------------------------------------------------


def test_what_cannot_be_meant_is_one_sentence(capsys):
    for top in (-1, 0, 1.5, True):
        with pytest.raises(ValueError, match=rf"`top` must be a positive integer. Received: top={top}"):
            kh.decode_predictions(np.zeros((1, 10)), top=top, weights="mnist")
    for weights in ("", " "):
        with pytest.raises(ValueError, match="`weights` must be a name or a path"):
            kh.create_model("mnist10_w16", weights=weights)
    for weights in ("", {}, {"mnist"}, 3, None):
        with pytest.raises(ValueError, match="`weights` must be a name or a path"):
            kh.get_transform(weights)
    with pytest.raises(ValueError, match=r"Names on the Hub begin with hf://, in lower case. Received: 'HF://a/b'"):
        kh.load("HF://a/b")
    for arguments in (["--save-steps", "0"], ["--save-steps", "-1"], ["--until", "-1"], ["--until", "0"]):
        with pytest.raises(SystemExit) as ended:
            train.main(["mnist10_w16", *arguments])
        assert ended.value.code == 2
        assert f"argument {arguments[0]}: expected a positive whole number" in capsys.readouterr().err
