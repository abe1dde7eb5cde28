"""The program around the commands: exit codes, interruptions, and what reaches the terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from contracts import NOTICE

from keras_highway.cli import main
from keras_highway.training import train

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("argv", [["clasify"], ["classify"], ["classify", "x.png", "--top", "0"]])
def test_malformed_arguments_are_code_2(capsys, argv):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2 and "usage:" in capsys.readouterr().err


def test_ctrl_c_ends_without_a_traceback(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("keras_highway.cli.listing.table", interrupted)
    assert main(["list"]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("argv", [["list"], ["train", "mnist10_w16"]])
def test_a_reader_that_goes_away_ends_without_a_traceback(monkeypatch, capsys, argv):
    monkeypatch.setattr(train, "_train", lambda: lambda *args, **options: print("epoch 1", flush=True))
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        try:
            code = main(argv)
        except SystemExit as ended:
            code = ended.code
        assert code == 141
        pipe.write("what Python flushes on its way out")
        pipe.flush()
    assert capsys.readouterr().err.startswith("stopped: " if "train" in argv else "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, a disk without space")
@pytest.mark.parametrize("arguments", [["list"]])
def test_a_full_disk_ends_without_a_traceback(capsys, monkeypatch, arguments):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(arguments) == 2
        full.write("what Python flushes on its way out")
        full.flush()
    error = capsys.readouterr().err
    assert error == "keras_highway: error: No space left on device: the output could not be written\n"


@pytest.mark.skipif(os.name != "posix", reason="a shell's `>&-`")
def test_a_program_without_any_stream_does_its_work(tmp_path):
    """As some services start it: the files that it opens do not get the streams' numbers."""
    command = f'"{sys.executable}" -m keras_highway list "mnist*" <&- >&- 2>&-; echo $? > "{tmp_path}/code"'
    subprocess.run(["sh", "-c", command], cwd=ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}, check=True)
    assert (tmp_path / "code").read_text() == "0\n"


@pytest.mark.parametrize(
    "arguments, shown",
    [(["--help"], "classify"), (["train", "--help"], "--freeze"), (["list", "resnet50*"], "25,557,032")],
)
def test_help_and_lists_do_not_wait_for_keras(tmp_path, arguments, shown):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "importtime", "-m", "keras_highway", *arguments]
    done = subprocess.run(command, env=env, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "keras_highway.cli" in imported and not imported & {"keras", "h5py", "tensorflow", "jax"}
    assert shown in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_only_tensorflows_first_notices_reach_the_terminal(tmp_path, backend):
    """Real processes, at the log level that a user has."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": backend, "HF_ENDPOINT": "http://127.0.0.1:9"}
    env.pop("TF_CPP_MIN_LOG_LEVEL", None)
    no_folder = f"error: No folder {tmp_path}/nothing/train. "
    litert = ["keras_highway", "export", "mnist10_w16.tvdn", "--format", "litert", "--out", "net.tflite"]
    publish = ["keras_highway", "publish", str(tmp_path / "fc"), "--repo", "me/net", "--dry-run"]
    for words, code, message in (
        (["keras_highway", "classify", str(ROOT / "samples" / "digit_7.png")], 0, ""),
        (["keras_highway", "train", "resnet50_a2", "--tiny", "--out", str(tmp_path / "run")], 0, ""),
        (["keras_highway.training.train", "highway_fc10", "--tiny", "--out", str(tmp_path / "fc")], 0, ""),
        (publish, 0, ""),
        *([(litert, 0, "")] if backend == "tensorflow" else []),
        (["keras_highway.training.shards", str(tmp_path / "nothing"), "--out", str(tmp_path / "x")], 2, no_folder),
    ):
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        lines = [line for line in done.stderr.splitlines() if not NOTICE.match(line)]
        assert len(lines) == bool(message) and "".join(lines).startswith(message), (words, done.stderr)
