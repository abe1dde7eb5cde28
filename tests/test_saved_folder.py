"""`kh.save` to a folder that is there, killed at any time, beside other savers, anywhere: a whole model is in it."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.weights import save as own
from keras_highway.weights.info import WeightFileError
from tests.small_disks import files_of_at_most

ROOT = Path(__file__).parents[1]


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program catches it."""


def model(seed) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return kh.create_model("highway_fc10", depth=2, units=8)


def loaded(folder):
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    return keras.ops.convert_to_numpy(kh.load(folder)(x))


def contents(folder) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> tuple[Path, Path]:
    """Two models, saved; their classes have other names."""
    top = tmp_path_factory.mktemp("bundles")
    names = [[f"{letter}{i}" for i in range(10)] for letter in "ab"]
    first, second = (kh.save(model(i), top / str(i), names[i], transform="mnist") for i in range(2))
    assert contents(first).keys() == contents(second).keys() and len(contents(first)) == 7
    return first, second


@pytest.fixture
def saved(tmp_path, bundles) -> Path:
    """The first of the two models, among files of the user's."""
    target = shutil.copytree(bundles[0], tmp_path / "net")
    (target / "notes.txt").write_text("mine")
    (target / "pictures").mkdir()
    (target / "pictures" / "a").write_text("mine")
    return target


def only(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("renamed", [0, 1, 6])
def test_a_mix_of_old_and_new_files_is_refused_until_the_next_save(saved, bundles, monkeypatch, renamed):
    """The process is killed after some of seven renames."""
    left, replace = [renamed], os.replace

    def killed(*args):
        if not left[0]:
            raise Killed
        left[0] -= 1
        replace(*args)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(own.os, "replace", killed)
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # SIGKILL runs no cleaning up
        own._replace_files(bundles[1], saved)
    if contents(saved)["model.weights.h5"] != contents(bundles[0])["model.weights.h5"]:
        with pytest.raises(WeightFileError, match="is damaged or altered"):
            kh.load(saved)
    else:
        np.testing.assert_array_equal(loaded(saved), loaded(bundles[0]))
    kh.save(model(0), saved, transform="mnist")
    np.testing.assert_array_equal(loaded(saved), loaded(bundles[0]))


def test_save_replaces_its_own_files_and_keeps_others(saved):
    old = loaded(saved)
    (saved / "notes.txt").chmod(0o444)
    parent, inode, changed = saved.parent.stat(), saved.stat().st_ino, (saved / "notes.txt").stat().st_ctime_ns
    kh.save(model(2), saved, transform="mnist")
    assert not np.array_equal(loaded(saved), old)
    row = json.loads((saved / "weights.json").read_text())
    assert row["sha256"] == contents(saved)["model.weights.h5"]
    assert (saved / "pictures" / "a").read_text() == "mine"
    assert (saved / "notes.txt").read_text() == "mine" and (saved / "notes.txt").stat().st_ctime_ns == changed
    # The folder is the same one and nothing was done beside it: it may be a mount point, its parent read-only.
    assert saved.stat().st_ino == inode and saved.parent.stat().st_mtime_ns == parent.st_mtime_ns


def test_save_to_the_working_directory(saved, monkeypatch):
    for place in (saved, saved / "pictures"):
        monkeypatch.chdir(place)
        kh.save(model(2), os.path.relpath(saved), transform="mnist")
        assert Path.cwd() == place and os.path.samefile(".", place)
    assert loaded(saved).shape == (2, 10)


def test_save_takes_a_relative_and_an_empty_folder_a_link_and_a_new_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk" / "lost+found").mkdir(parents=True)  # of ext4
    os.mkdir("empty")
    (tmp_path / "link").symlink_to("empty")
    for name in ("empty", "link", "deep/er", "disk"):
        kh.save(model(1), name, transform="mnist")
        assert (tmp_path / name / "weights.json").is_file()
    assert (tmp_path / "link").is_symlink()
    assert only(tmp_path) == ["deep", "disk", "empty", "link"]


def test_save_on_a_full_disk_leaves_the_good_folder(saved, tmp_path):
    before = contents(saved), only(saved)
    for target in (saved, tmp_path / "new"):
        with files_of_at_most(1000), pytest.raises(OSError, match="could not be written: File too large"):
            kh.save(model(2), target, transform="mnist")
    assert (contents(saved), only(saved)) == before and only(tmp_path) == ["net"]


def test_a_folder_in_the_place_of_a_file_is_the_users(saved, bundles):
    (saved / "check.npz").unlink()
    (saved / "check.npz").mkdir()
    before = contents(saved)
    with pytest.raises(ValueError, match=r"check\.npz is a folder"):
        own._replace_files(bundles[1], saved)
    assert contents(saved) == before


def test_savers_at_once_leave_one_of_their_models_whole(bundles, tmp_path):
    target, errors, begin = tmp_path / "net", [], threading.Barrier(2)

    def save(bundle):
        try:
            begin.wait()
            for i in range(8):
                own._replace_files(bundle, target)
                (target / f"{bundle.name}-{i}").touch()  # no saver loses what others put there
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=save, args=(b,)) for b in bundles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    marks = {f"{b.name}-{i}" for b in bundles for i in range(8)}
    there = {name: value for name, value in contents(target).items() if name not in marks}
    assert there in [contents(bundle) for bundle in bundles] and marks <= contents(target).keys()


_RANK = """
import sys, keras, keras_highway as kh
keras.utils.set_random_seed(int(sys.argv[1]))
model = kh.create_model("highway_fc10", depth=2, units=8)
for _ in range(5):
    kh.save(model, "net", transform="mnist")
"""


@pytest.mark.slow
def test_two_processes_save_to_one_folder(tmp_path, bundles):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", _RANK, str(i)], cwd=tmp_path, env=env, stderr=subprocess.PIPE)
        for i in range(2)
    ]
    for rank in ranks:
        errors = rank.communicate()[1]
        assert rank.returncode == 0, errors.decode()[-2000:]
    outputs = loaded(tmp_path / "net")
    assert any(np.array_equal(outputs, loaded(bundle)) for bundle in bundles)
    assert only(tmp_path / "net") == only(bundles[0]) and only(tmp_path) == ["net"]
