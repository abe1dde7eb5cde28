"""Runs, disks and the Hub under attack: nothing foreign is published, nothing half-written stays, one sentence each."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from keras_highway._support.scratch import scratch_folder
from keras_highway.publishing import find_publishable
from keras_highway.weights import registry

NAME = "mnist10_w16.tvdn"


@pytest.fixture
def run(tmp_path):
    """A finished run's folder."""
    return shutil.copytree(registry.file_of(registry.get(NAME)).parent, tmp_path / "run")


# --- What is published -------------------------------------------------------------


@pytest.mark.parametrize("name", ["log_seed_x.csv", "log.csv", "result.json", "model.weights.h5", "recipe.json"])
def test_links_out_of_the_runs_folder_are_not_published(run, tmp_path, name):
    outside = tmp_path / "secret"
    outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"secret")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(outside)
    with pytest.raises(ValueError, match=rf"{name} is a link to .*secret, outside of the run's folder"):
        find_publishable(str(run))


def test_links_within_the_folder_and_other_files_are_no_matter(run):
    (run / "log_seed2.csv").symlink_to("log.csv")
    (run / "notes.txt").symlink_to("/etc/hostname")
    assert find_publishable(str(run)).folder == run
    os.mkfifo(run / "log_seed3.csv")
    with pytest.raises(ValueError, match=r"log_seed3\.csv is no regular file"):
        find_publishable(str(run))


# --- Temporary folders -------------------------------------------------------------

_KILLED = """
import os, signal
from keras_highway._support.scratch import scratch_folder
with scratch_folder("publish") as folder:
    (folder / "bundle").mkdir()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_folders_of_killed_processes_are_swept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "keras_highway-other").mkdir()  # not made here: it has no lock
    killed = subprocess.run([sys.executable, "-c", _KILLED], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert killed.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 2
    with scratch_folder("publish") as first:
        assert len(list(tmp_path.iterdir())) == 2
        with scratch_folder("publish") as second:
            assert first.is_dir() and second.is_dir()  # that of a process that lives stays
    assert [path.name for path in tmp_path.iterdir()] == ["keras_highway-other"]
