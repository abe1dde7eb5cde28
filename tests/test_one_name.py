"""What shares a name: two writers of one file, a user's weights and the zoo's, a folder that is saved to again."""

import os
import shutil
import threading
import time

import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support.files import atomic_write
from keras_highway.weights import registry

NAME = "highway_fc50_tanh.tvdn"


def test_two_writers_of_one_file_leave_one_of_both_whole(tmp_path):
    both, errors = threading.Barrier(2), []

    def write(text):
        def halves(path):
            path.write_text(text)
            both.wait(10)
            path.write_text(path.read_text() + text)
            both.wait(10)

        try:
            atomic_write(tmp_path / "a", halves)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not errors and (tmp_path / "a").read_text() in ("oneone", "twotwo")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_a_killed_writer_left_goes_after_a_day(tmp_path):
    """Of any file of the folder: that of a shard is written once."""
    names = ("0123abcd-a", "0123abcd-b", "4567abcd-a", "a-user's-own", "notahash-b")
    old, other, new, *theirs = (tmp_path / f".partial-{name}" for name in names)
    for path in (old, other, new, *theirs):
        path.touch()
    export = tmp_path / ".partial-89abcdef-net"
    (export / "variables").mkdir(parents=True)
    for path in (old, other, export, *theirs):
        os.utime(path, (time.time() - 90_000,) * 2)
    atomic_write(tmp_path / "a", lambda path: path.write_text("whole"))
    assert sorted(path.name for path in tmp_path.iterdir()) == [new.name, *(path.name for path in theirs), "a"]


@pytest.mark.parametrize("name", [f"{'n' * 242}.txt", f"{'é' * 121}.txt"])
def test_names_may_be_as_long_as_the_file_system_has_them(tmp_path, name):
    suffixes = []
    atomic_write(tmp_path / name, lambda path: (suffixes.append(path.suffix), path.write_text("whole")))
    assert [path.name for path in tmp_path.iterdir()] == [name] and suffixes == [".txt"]


@pytest.mark.slow
def test_weights_by_the_name_of_the_zoos_do_not_have_its_measurements(tmp_path):
    net = kh.load(NAME)
    assert kh.describe_weights(net).metrics["mean"] > 0.9
    net.get_layer("head").kernel.assign(0 * net.get_layer("head").kernel)
    kh.save(net, tmp_path / NAME)
    for mine in (tmp_path / NAME, kh.load(tmp_path / NAME)):
        row = kh.describe_weights(mine)
        assert row.name == NAME and not row.metrics and not row.gate_report


def test_a_folder_of_ones_own_zoo_that_is_saved_to_again_is_read_anew(tmp_path, monkeypatch):
    monkeypatch.setenv(registry.ZOO_VARIABLE, str(tmp_path))
    net = kh.create_model("highway_fc10", depth=2, units=8)
    kh.save(net, tmp_path / "mine", transform="mnist")
    _ = kh.load("mine")
    time.sleep(0.01)  # clocks of file systems may be as coarse
    net.get_layer("head").bias.assign(1.0 + net.get_layer("head").bias)
    kh.save(net, tmp_path / "mine", transform="mnist")
    np.testing.assert_array_equal(kh.load("mine").get_layer("head").bias, net.get_layer("head").bias)
    shutil.rmtree(tmp_path / "mine")
    with pytest.raises(ValueError, match="mine"):
        kh.load("mine")


def test_an_installed_package_finds_the_files_of_a_clone_around_it(tmp_path, monkeypatch):
    row = registry.find(NAME)
    clone = registry.file_of(row).parents[3]
    monkeypatch.setattr(registry, "_PACKAGE", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert registry.local_file(row) is None
    monkeypatch.chdir(clone)
    assert registry.local_file(row) == clone / "zoo" / "weights" / NAME / "model.weights.h5"
