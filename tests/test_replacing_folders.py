"""A folder takes the place of another: killed at any time, the old one is there or the new."""

from pathlib import Path

import pytest

from keras_highway._support import folders
from keras_highway._support.folders import bring_back, put_in_place


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
    again = folder(tmp_path / "again", "again")
    put_in_place(again, target)  # by renames, to which a folder left aside would be in the way
    assert (target / "a").read_text() == "again"


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
