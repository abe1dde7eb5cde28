"""Runs, disks and the Hub under attack: nothing foreign is published, nothing half-written stays, one sentence each."""

import errno
import os
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

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
from keras_highway.weights.publish import find_publishable
from tests.small_disks import files_of_at_most

NAME = "mnist10_w16.tvdn"


@pytest.fixture
def run(tmp_path):
    """A finished run's folder."""
    return shutil.copytree(registry.file_of(registry.find(NAME)).parent, tmp_path / "run")


@pytest.mark.parametrize("name", ["log.csv", "model.weights.h5"])
def test_links_out_of_the_runs_folder_are_not_published(run, tmp_path, name):
    outside = tmp_path / "secret"
    outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"secret")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(ValueError, match=rf"{name} is a link to .*secret"):
        find_publishable(str(run))


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


@pytest.mark.skipif(keras.config.backend() != "tensorflow", reason="files of TensorFlow")
def test_an_export_on_a_full_disk(tmp_path, capfd):
    model = kh.create_model("highway_fc10", depth=2)
    message = r"net(\.tflite)? could not be written: File too large\. Nothing half-written"
    with files_of_at_most(1000), pytest.raises(OSError, match=message):
        export(model, tmp_path / "net.tflite", "litert")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "No space left on device. Nothing half-written was left",
        ),
        (OSError("Can't write data (errno = 28, error message = 'No space left')"), "No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied. .* make it writable for you"),
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


def test_a_weight_file_that_may_not_be_read(run, monkeypatch, capsys):
    def refuse(path, most):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(weights_file, "read_bounded", refuse)
    path = run / "model.weights.h5"
    with pytest.raises(WeightFileError, match=r"model\.weights\.h5 may not be read: make it readable for you"):
        weights_file.read(path)
    with pytest.raises(UsageError, match=r"^x: permission denied"), usage_errors():
        raise PermissionError(errno.EACCES, "Permission denied", "x")


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


def test_two_writers_of_one_file_leave_one_of_both_whole(tmp_path):
    both = threading.Barrier(2)

    def write(text):
        def halves(path):
            path.write_text(text)
            both.wait(10)
            path.write_text(path.read_text() + text)
            both.wait(10)

        atomic_write(tmp_path / "a", halves)

    with ThreadPoolExecutor() as pool:
        list(pool.map(write, ("one", "two")))
    assert (tmp_path / "a").read_text() in ("oneone", "twotwo")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_that_a_killed_writer_left_go_after_a_day(tmp_path):
    old, new, theirs = (tmp_path / f".partial-{name}" for name in ("0123abcd-a", "4567abcd-a", "a-user's-own"))
    for path in (old, new, theirs):
        path.touch()
    for path in (old, theirs):
        os.utime(path, (time.time() - 90_000,) * 2)
    atomic_write(tmp_path / "a", lambda path: path.write_text("whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, theirs.name, "a"]


@pytest.mark.parametrize("name", [f"{'n' * 242}.txt", f"{'é' * 121}.txt"])
def test_names_may_be_as_long_as_the_file_system_allows(tmp_path, name):
    atomic_write(tmp_path / name, lambda path: path.write_text("whole"))
    assert [path.name for path in tmp_path.iterdir()] == [name]
