"""Time, waiting and memory of a run, its progress bar and its last lines."""

import dataclasses
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest

from keras_highway.analysis import cost
from keras_highway.tasks import IMAGES
from keras_highway.training import program as memory
from keras_highway.training.checkpoint import Progress
from keras_highway.training.meter import Meter
from keras_highway.training.program import ImageProgram, check_memory, explained_memory, step_bytes
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.train import summary


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
        ("charlm_small_coupled", {}, ["lm generate --weights 'my runs/a'", "lm score FILE --weights", "publish"]),
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
