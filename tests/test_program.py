"""The program around the commands: exit codes, interruptions, and what reaches the terminal."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from contracts import NOTICE

from keras_highway._support.backend import program_of
from keras_highway.cli import main
from keras_highway.training import train

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "argv", [[], ["clasify"], ["classify"], ["classify", "x.png", "--top", "0"], ["gates", "x.png"], ["evaluate"]]
)
def test_malformed_arguments_are_code_2(capsys, argv):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2 and "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--help"], ["classify", "--help"], ["evaluate", "--help"], ["gates", "--help"]])
def test_help_is_code_0(capsys, argv):
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 0 and "usage:" in capsys.readouterr().out


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
@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]])
def test_a_full_disk_ends_without_a_traceback(capsys, monkeypatch, arguments):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(arguments) == 2
        full.write("what Python flushes on its way out")
        full.flush()
    error = capsys.readouterr().err
    assert error == "keras_highway: error: No space left on device: the output could not be written\n"


@pytest.mark.skipif(os.name != "posix", reason="a shell's `>&-`")
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&- 2>&-"])
def test_a_program_without_any_stream_does_its_work(tmp_path, closed):
    """As some services start it: the files that it opens do not get the streams' numbers."""
    command = f'"{sys.executable}" -m keras_highway list "mnist*" {closed}; echo $? > "{tmp_path}/code"'
    subprocess.run(["sh", "-c", command], cwd=ROOT, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"}, check=True)
    assert (tmp_path / "code").read_text() == "0\n"


@pytest.mark.parametrize(("arguments", "code"), [(["list", "mnist*"], 0), (["list", "nothing"], 2)])
def test_a_program_without_stdout_and_stderr_does_its_work(monkeypatch, arguments, code):
    """As a shell's `>&- 2>&-` and some services start it."""
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(arguments) == code
    for stream in (sys.stdout, sys.stderr):
        assert stream.name == os.devnull
        stream.close()


def test_another_full_disk_than_that_of_the_output_is_not_hidden(capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("keras_highway.cli.listing.table", full)
    with pytest.raises(OSError, match="No space left"):
        main(["list"])


def test_a_run_whose_reader_goes_away_ends_as_other_commands_do(monkeypatch, tmp_path):
    def prints(*_, **__):
        print("epoch 1", flush=True)

    monkeypatch.setattr("keras_highway.training.train._train", lambda: prints)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as ended:
            main(["train", "mnist10_w16", "--tiny", "--out", str(tmp_path)])
    assert ended.value.code == 141


def test_a_bug_shows_its_traceback(monkeypatch):
    """Only what concerns the user's request becomes a one-line message."""

    def bug(*_, **__):
        raise ValueError("a bug")

    monkeypatch.setattr("keras_highway.cli.listing.table", bug)
    with pytest.raises(ValueError, match="a bug"):
        main(["list"])


def test_python_dash_m(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "keras_highway", "list", "mnist10_w16*", "--json"],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [v["name"] for v in json.loads(done.stdout)["variants"]] == ["mnist10_w16"]
    assert done.stderr == ""


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


@pytest.mark.parametrize(
    "argv, words, program",
    [
        (["-m"], ["-m", "keras_highway", "list"], "command"),
        (["/usr/bin/keras-highway", "list"], ["/usr/bin/keras-highway", "list"], "command"),
        ([r"keras-highway.exe"], ["keras-highway.exe"], "command"),
        (["-m"], ["-m", "keras_highway.training.shards", "DIR"], "module"),
        (["-m"], ["-m", "other"], ""),
        (["notebook.py"], ["notebook.py", "keras_highway"], ""),
        ([""], [], ""),
    ],
)
def test_which_program_imports_the_package(monkeypatch, argv, words, program):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    assert program_of("keras_highway") == program


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


@pytest.mark.slow
def test_a_program_that_imports_the_package_on_its_way_gets_all_of_it(tmp_path):
    """While Python looks for `python -m other`, `sys.argv` looks as it does for ours."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_text("import keras_highway as kh\n")
    (tmp_path / "other" / "__main__.py").write_text("from other import kh\nprint(kh.Highway50.__name__)\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "other"]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "Highway50\n"
