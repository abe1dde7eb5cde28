"""Clocks that jump and disks that fill up in the middle of a run: the log stays whole, the next start resumes."""

import csv
import itertools
import math
import time

import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support.event_file import EventFile
from keras_highway._support.files import append
from keras_highway.training import checkpoint
from keras_highway.training.checkpoint import Progress
from keras_highway.training.loop import train
from keras_highway.training.meter import Meter
from keras_highway.training.program import SUMS
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.weights import file as weights_file
from tests.small_disks import files_of_at_most


def clock(monkeypatch, *readings):
    cycle = itertools.cycle(readings)
    monkeypatch.setattr(time, "perf_counter", lambda: next(cycle))


def ended_after(save, step):
    """As `save`, and the user ends the program after that step."""

    def then_end(path, values, progress):
        save(path, values, progress)
        if progress.step == step:
            raise KeyboardInterrupt

    return then_end


@pytest.mark.parametrize("readings", [(50.0, 40.0, 30.0), (7.0,), (0.0, 1e5, 3.0, -1e5)], ids=str)
def test_a_clock_that_goes_back_or_stands_still_gives_times_that_can_be(monkeypatch, readings):
    clock(monkeypatch, *readings)
    meter = Meter(Progress(0, 0, np.zeros(4), 0.0, 0.0), program(sums=SUMS, steps_per_epoch=9))
    for _ in meter.timed(iter(range(9))):
        meter.add([1.0, 0.0, 0.0, 1.0])
        if meter.step % 2:
            meter.read()
            assert 0 < meter.seconds < math.inf and 0 <= meter.waited <= meter.seconds
    meter.close()


@pytest.mark.slow
def test_a_run_whose_clock_goes_back_can_be_resumed(monkeypatch, tmp_path):
    recipe = with_settings(tiny(RECIPES["highway_fc10"]), ["net.depth=2", "epochs=3"])
    train(recipe, None, tmp_path / "even")
    clock(monkeypatch, *range(10**6, 0, -1000))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint, "save", ended_after(checkpoint.save, step=4))
        train(recipe, None, tmp_path / "run", save_steps=1)
    train(recipe, None, tmp_path / "run")
    rows = {}
    for name in ("even", "run"):
        with (tmp_path / name / "log.csv").open(newline="") as file:
            rows[name] = [(row["epoch"], row["train_loss"]) for row in csv.DictReader(file)]
    assert rows["run"] == rows["even"] and len(rows["run"]) == 3


def test_states_are_saved_in_time_although_the_clock_was_set_back(monkeypatch, tmp_path):
    recipe = with_settings(tiny(RECIPES["highway_fc10"]), ["net.depth=2", "epochs=1"])
    saved = []
    monkeypatch.setattr(checkpoint, "save", lambda path, values, progress: saved.append(progress.step))
    clock(monkeypatch, *range(10**6, 0, -1000))
    train(recipe, None, tmp_path, save_seconds=500.0)
    assert saved == [1, 2, 3, 4, 5, 6, 0]


@pytest.mark.parametrize("known", [None, b"x" * 40])
def test_what_cannot_be_added_whole_is_not_added(tmp_path, known):
    path = tmp_path / "a.csv"
    if known is not None:
        path.write_bytes(known)
    message = r"a\.csv could not be written: File too large\. Nothing half-written was left"
    with files_of_at_most(50), pytest.raises(OSError, match=message):
        append(path, b"y" * 60)
    assert (path.read_bytes() if path.exists() else None) == known
    append(path, b"zz")
    assert path.read_bytes() == (known or b"") + b"zz"


def test_event_files_on_a_full_disk(tmp_path):
    events = EventFile(tmp_path)
    before = events.path.read_bytes()
    message = r"events\.out\.tfevents.* could not be written: File too large"
    with files_of_at_most(len(before) + 20), pytest.raises(OSError, match=message):
        events.write(1, {"loss": 1.0})
    assert events.path.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 20, 300, 3000])
def test_a_run_on_a_full_disk_names_the_file_and_resumes(tmp_path, size, capsys):
    recipe = with_settings(tiny(RECIPES["highway_fc10"]), ["net.depth=2", "epochs=3"])
    train(recipe, None, tmp_path / "whole", log_steps=True)
    assert train(recipe, None, tmp_path / "cut", log_steps=True, until=1) is None
    message = r"/cut/.* could not be written: File too large\. Nothing half-written was left"
    with files_of_at_most(size), pytest.raises(OSError, match=message):
        train(recipe, None, tmp_path / "cut", log_steps=True, save_steps=2)
    train(recipe, None, tmp_path / "cut", log_steps=True)
    assert (tmp_path / "cut" / "steps.csv").read_bytes() == (tmp_path / "whole" / "steps.csv").read_bytes()
    assert not [path.name for path in (tmp_path / "cut").rglob("*") if "partial" in path.name]


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
