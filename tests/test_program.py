"""The program around the commands: exit codes, interruptions, and what reaches the terminal."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from keras_highway.cli import main
from keras_highway.cli.quiet import quiet_start

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


def test_a_reader_that_goes_away_ends_without_a_traceback(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        assert main(["list"]) == 141
        pipe.write("what Python flushes on its way out")
        pipe.flush()


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


def test_help_does_not_wait_for_keras(tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "importtime", "-m", "keras_highway", "--help"]
    done = subprocess.run(command, env=env, cwd=tmp_path, check=True, timeout=60, capture_output=True, text=True)
    imported = {line.split("|")[-1].strip() for line in done.stderr.splitlines()}
    assert "keras_highway.cli" in imported and "keras" not in imported
    assert "classify" in done.stdout


NOTICES = [
    "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR\n",
    "I0000 00:00:1795229140.230463    6246 port.cc:153] oneDNN custom operations are on.\n",
    "To enable the following instructions: AVX2 AVX512F, in other operations, rebuild TensorFlow.\n",
]
NEWS = [
    "E0000 00:00:1795229151.659441    6311 cuda_platform.cc:52] failed call to cuInit: INTERNAL\n",
    "W0000 00:00:1795229151.659441    6311 gpu_device.cc:2344] Cannot dlopen some GPU libraries.\n",
    "something of the user's own\n",
]


@pytest.mark.parametrize("level", [None, "3"])
def test_notices_are_dropped_and_news_is_kept(capfd, monkeypatch, level):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", level or "")
    if level is None:
        monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL")
    with quiet_start():
        for line in [*NOTICES, *NEWS]:
            os.write(2, line.encode())
        assert os.environ["TF_CPP_MIN_LOG_LEVEL"] == "3"
    assert capfd.readouterr().err == "".join(NEWS)


def test_a_failing_start_says_why(capfd, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    with pytest.raises(ImportError), quiet_start():
        os.write(2, NEWS[0].encode())
        raise ImportError
    assert capfd.readouterr().err == NEWS[0]


def test_notices_are_shown_on_request(capfd, monkeypatch):
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    with quiet_start():
        os.write(2, NOTICES[1].encode())
        assert capfd.readouterr().err == NOTICES[1]


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
