"""A folder takes the place of another, and `kh.save` with it: killed at any time, the old one is there or the new."""

import hashlib
import json
import os
import shutil
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support import folders
from keras_highway._support.folders import bring_back, put_in_place
from keras_highway.publishing import own
from tests.small_disks import files_of_at_most


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program catches it."""


@pytest.fixture(params=["exchange", "renames"])
def system(request, monkeypatch):
    """Linux; and a system, or a file system, that cannot exchange two folders."""
    if request.param == "renames":
        monkeypatch.setattr(folders, "_exchanged", lambda a, b: False)
    elif folders._renameat2() is None:
        pytest.skip("this system has no renameat2")
    return request.param


def folder(path: Path, text) -> Path:
    path.mkdir()
    (path / "a").write_text(text)
    return path


def test_the_new_one_is_there_and_the_old_one_beside_it(system, tmp_path):
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    put_in_place(new, target)
    assert ((target / "a").read_text(), (new / "a").read_text()) == ("new", "old")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "target"]
    put_in_place(new, tmp_path / "third")
    assert (tmp_path / "third" / "a").read_text() == "old" and not new.exists()


@pytest.mark.parametrize("renames", range(4))
def test_killed_between_renames_the_old_one_or_the_new_one_comes_back(tmp_path, monkeypatch, renames):
    monkeypatch.setattr(folders, "_exchanged", lambda a, b: False)
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    real, left = Path.rename, [renames]

    def rename(path, to):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return real(path, to)

    with monkeypatch.context() as patch, pytest.raises(Killed) if renames < 3 else patch.context():
        patch.setattr(Path, "rename", rename)
        put_in_place(new, target)
    bring_back(target)
    assert (target / "a").read_text() == ("old" if renames < 2 else "new")


def test_an_error_changes_nothing(tmp_path, monkeypatch):
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    monkeypatch.setattr(folders, "_exchanged", lambda a, b: False)
    real = Path.rename

    def refused(path, to):
        if path == new:
            raise PermissionError("no")
        return real(path, to)

    monkeypatch.setattr(Path, "rename", refused)
    with pytest.raises(PermissionError):
        put_in_place(new, target)
    assert ((target / "a").read_text(), (new / "a").read_text()) == ("old", "new")


def test_a_file_system_without_the_exchange_is_renamed(tmp_path, monkeypatch):
    def einval(*args):
        folders.ctypes.set_errno(22)
        return -1

    monkeypatch.setattr(folders, "_renameat2", lambda: einval)
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    put_in_place(new, target)
    assert ((target / "a").read_text(), (new / "a").read_text()) == ("new", "old")


# --- kh.save -----------------------------------------------------------------------


def model(seed) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return kh.create_model("highway_fc10", depth=2, units=8)


def loaded(folder):
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    return keras.ops.convert_to_numpy(kh.load(folder)(x))


def contents(folder) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def saved(tmp_path) -> Path:
    target = kh.save(model(1), tmp_path / "net", transform="mnist")
    (target / "notes.txt").write_text("mine")
    (target / "pictures").mkdir()
    (target / "pictures" / "a").write_text("mine")
    return target


@pytest.mark.parametrize("when", ["while it copies", "before the rename"])
def test_save_killed_leaves_the_good_folder_and_the_next_one_cleans_up(saved, monkeypatch, when):
    before = contents(saved)

    def half(source, target):
        target.mkdir()
        shutil.copy(source / "model.weights.h5", target)
        raise Killed

    def killed(new, target):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        if when == "while it copies":
            patch.setattr(own.shutil, "copytree", half)
        else:
            patch.setattr(own, "put_in_place", killed)
        patch.setattr(own.shutil, "rmtree", lambda *args, **kwargs: None)  # SIGKILL runs no cleaning up
        kh.save(model(2), saved, transform="mnist")
    assert contents(saved) == before and (saved.parent / ".partial-net").is_dir()
    kh.save(model(2), saved, transform="mnist")
    assert contents(saved) != before and [path.name for path in saved.parent.iterdir()] == ["net"]


def test_save_replaces_its_own_files_at_once_and_keeps_others(saved, system):
    old = loaded(saved)
    kh.save(model(2), saved, transform="mnist")
    assert not np.array_equal(loaded(saved), old)
    row = json.loads((saved / "weights.json").read_text())
    assert row["sha256"] == contents(saved)["model.weights.h5"]
    assert ((saved / "notes.txt").read_text(), (saved / "pictures" / "a").read_text()) == ("mine", "mine")
    assert [path.name for path in saved.parent.iterdir()] == ["net"]


def test_save_takes_a_relative_and_an_empty_folder_and_a_link(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("empty")
    (tmp_path / "link").symlink_to("empty")
    for name in ("empty", "link", "deep/er"):
        kh.save(model(1), name, transform="mnist")
        assert (tmp_path / name / "weights.json").is_file()
    assert (tmp_path / "link").is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "empty", "link"]


def test_save_on_a_full_disk_leaves_the_good_folder(saved):
    before = contents(saved)
    with files_of_at_most(1000), pytest.raises(OSError, match="could not be written: File too large"):
        kh.save(model(2), saved, transform="mnist")
    assert contents(saved) == before and [path.name for path in saved.parent.iterdir()] == ["net"]
