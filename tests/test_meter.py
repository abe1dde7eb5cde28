"""Time, waiting and memory of a run, its progress bar and its last lines."""

import dataclasses
import io
import itertools
import math
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from keras_highway.analysis import cost
from keras_highway.tasks import IMAGES
from keras_highway.training import program as memory
from keras_highway.training.checkpoint import Progress
from keras_highway.training.loop import train
from keras_highway.training.meter import Meter
from keras_highway.training.program import ImageProgram, check_memory, explained_memory, step_bytes
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.train import summary

DENSE = dataclasses.replace(tiny(RECIPES["highway_fc10"]), epochs=2)


def made(epoch=0) -> Meter:
    program = SimpleNamespace(
        recipe=SimpleNamespace(epochs=5, task=IMAGES),
        steps_per_epoch=10,
        batch_units=8,
        sums=("loss", "accuracy", "weight"),
        bar=lambda means: {name: f"{value:.2f}" for name, value in means.items()},
    )
    return Meter(Progress(epoch, 0, np.zeros(3), 0.0, 0.0), program)


@pytest.fixture
def meter():
    meter = made()
    yield meter
    meter.close()


class Step:
    """The sums of a step: their value waits until the device is done."""

    def __init__(self, seconds=0.0, error=None):
        self._done, self._error = threading.Event(), error
        threading.Timer(seconds, self._done.set).start()

    def __array__(self, dtype=None, copy=None):
        self._done.wait(10)
        if self._error:
            raise self._error
        return np.array([1.0, 1.0, 1.0], dtype)


def decoded(*seconds):
    for pause in seconds:
        time.sleep(pause)
        yield "batch"


def test_only_time_in_which_the_device_is_idle_is_waiting(meter):
    """The first loader is slow, the device slower; then the loader takes longer than the step."""
    for pauses, seconds, least, most in (((0.0, 0.2), 0.5, 0.0, 0.1), ((0.1, 0.5), 0.2, 0.3, 0.55)):
        before, batches = meter.waited, meter.timed(decoded(*pauses))
        next(batches)
        meter.add(Step(seconds))
        next(batches)
        assert least <= meter.waited - before < most
        meter.read()
        assert meter.seconds > 0.4
        meter.resume()


def test_an_error_of_a_step_reaches_the_reader(meter):
    meter.add(Step(error=RuntimeError("out of memory")))
    with pytest.raises(RuntimeError, match="out of memory"):
        meter.read()


@pytest.mark.parametrize("readings", [(50.0, 40.0, 30.0), (7.0,), (0.0, 1e5, 3.0, -1e5)], ids=str)
def test_times_are_possible_although_a_clock_goes_back_or_stands_still(monkeypatch, readings):
    cycle = itertools.cycle(readings)
    monkeypatch.setattr(time, "perf_counter", lambda: next(cycle))
    meter = made()
    for _ in meter.timed(iter(range(9))):
        meter.add([1.0, 0.0, 1.0])
        if meter.step % 2:
            meter.read()
            assert 0 < meter.seconds < math.inf and 0 <= meter.waited <= meter.seconds
    meter.close()


# --- The terminal --------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def screen(written: str) -> list[str]:
    """The lines that a terminal shows in the end of what was written to it."""
    lines, column = [""], 0
    for char in written:
        if char == "\n":
            lines.append("")
            column = 0
        elif char == "\r":
            column = 0
        else:
            lines[-1] = lines[-1][:column].ljust(column) + char + lines[-1][column + 1 :]
            column += 1
    return [line.rstrip() for line in lines]


def test_a_terminal_shows_whole_lines_and_no_rest_of_a_bar(tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("sys.stdout", terminal)
    train(DENSE, None, tmp_path)
    written = terminal.getvalue()
    assert "epoch 1/2:" in written and "images/s" in written and "testing" in written
    lines = screen(written)
    assert [line[:9] for line in lines] == ["epoch   1", "epoch   2", ""]
    assert all(re.fullmatch(r"epoch .* waiting for data [\d.]+ %  \d+ min left", line) for line in lines[:-1])


def test_the_bar_shows_metrics_speed_and_time_left(monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("keras_highway.training.meter._SHOW_EVERY", 0.0)
    meter = made(epoch=2)
    meter._bar.mininterval = meter._bar.miniters = 0
    for _ in range(4):
        meter.add(np.array([12.0, 6.0, 8.0]))
    meter.close()
    assert screen(terminal.getvalue()) == [""]
    line = terminal.getvalue().split("\r")[-3].strip()
    assert re.fullmatch(
        r"epoch 3/5:  40 %\|.*\| 32/80 images \[\d\d:\d\d left, .*images/s, loss=1.50, accuracy=0.75\]", line
    ), line


RESULT = {"weights": "resnet50.mine", "metric": "test_accuracy", "mean": 0.9, "std": None, "n": 1, "epochs": 3}


@pytest.mark.parametrize(
    "recipe, changes, commands",
    [
        (
            "resnet50",
            {},
            ["classify IMAGE --weights 'my runs/a'", "evaluate 'my runs/a' --data pets", "publish 'my runs/a' --repo"],
        ),
        ("resnet50", {"data": "tfds:pets"}, ["classify", "evaluate 'my runs/a' --tfds pets --data pets", "publish"]),
        ("charlm_small_coupled", {}, ["lm generate --weights 'my runs/a'", "lm score FILE --weights", "publish"]),
        ("highway_fc10", {"data": "synthetic_mnist", "name": "highway_fc10_tiny"}, ["train highway_fc10 --data DIR"]),
    ],
)
def test_the_end_of_a_run_prints_the_next_commands(recipe, changes, commands):
    trained = dataclasses.replace(RECIPES[recipe], **changes)
    lines = summary(trained, RESULT, "my runs/a", "pets").splitlines()
    assert lines[:3] == [
        f"{trained.name}: test accuracy 90.00 % (n = 1) after 3 epochs",
        "weights: my runs/a/model.weights.h5",
        "next:",
    ]
    assert len(lines) == 3 + len(commands)
    for line, command in zip(lines[3:], commands, strict=True):
        assert line.startswith(f"  python -m keras_highway {command}")


# --- Memory --------------------------------------------------------------------------------


class Photographs:
    """A source of photographs, of which nothing is read."""

    images = test_images = 1000
    classes = 2


def program_of(*overrides, **changes):
    small = (("blocks", (1, 1, 1, 1)), ("widths", (16, 16, 16, 16)), *overrides)
    recipe = changed(RECIPES["resnet50"], overrides=small, **changes)
    return ImageProgram(recipe, Photographs, None)


def test_a_step_that_cannot_fit_is_refused_before_it_is_taken(monkeypatch, capsys):
    program = program_of(batch_size=256)
    needed = step_bytes(program, 256, (224, 224, 3))
    assert needed >= 256 * cost(program.net).total.activation_bytes  # those that the backward pass needs
    monkeypatch.setattr(memory, "available_bytes", lambda: int(needed / 1.6))
    with pytest.raises(ValueError, match=r"256 images of 224x224 pixels.*GiB are free.*micro_batches"):
        check_memory(program, 1, [])
    for ignored in ((1, ["1 x GPU"]), (2, [])):
        check_memory(program, *ignored)
    monkeypatch.setenv("KERAS_HIGHWAY_MEMORY_CHECK", "off")
    check_memory(program, 1, [])
    assert capsys.readouterr().err == ""


def test_a_step_that_may_not_fit_is_a_note(monkeypatch, capsys):
    """The estimate, measured on one backend, is too high on another; and a resumed run has fitted before."""
    program = program_of(batch_size=256)
    needed = step_bytes(program, 256, (224, 224, 3))
    for free, resumed in ((int(1.1 * needed), False), (int(needed / 1.45), False), (needed // 4, True)):
        monkeypatch.setattr(memory, "available_bytes", lambda free=free: free)
        check_memory(program, 1, [], resumed=resumed)
        assert capsys.readouterr().err.startswith("note: A step on 256 images of 224x224 pixels needs about")


@pytest.mark.more
def test_parts_of_a_batch_and_small_training_images_need_less(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**29)
    with pytest.raises(ValueError, match="256 images"):
        check_memory(program_of(batch_size=256), 1, [])
    check_memory(program_of(batch_size=256, micro_batches=64), 1, [])
    with pytest.raises(ValueError, match="images of 128x128 pixels"):
        check_memory(program_of(batch_size=512, train_size=128), 1, [])  # a net that is built for any size
    check_memory(program_of(batch_size=16, train_size=128), 1, [])
    check_memory(program_of(("remat", True), batch_size=256), 1, [])  # whose insides are computed again


@pytest.mark.parametrize(
    "message",
    [
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 2.1GiB",  # XLA
        "ResourceExhaustedError: OOM when allocating tensor with shape[256,56,56,256]",  # TensorFlow
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",  # PyTorch
    ],
)
def test_a_gpu_that_is_full_names_the_remedies(message):
    with pytest.raises(MemoryError, match="micro_batches=N"), explained_memory(RECIPES["resnet50"]):
        raise RuntimeError(message)


def test_memory_is_that_of_the_machine_or_of_its_container(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    assert memory.available_bytes() == float("inf")
    (tmp_path / "meminfo").write_text("MemTotal: 4000 kB\nMemAvailable: 3000 kB\n")
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert memory.available_bytes() == 3000 * 1024
    (tmp_path / "memory.max").write_text("1000000\n")
    assert memory.available_bytes() == 600_000
