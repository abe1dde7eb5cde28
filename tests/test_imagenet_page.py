"""docs/imagenet.md: its commands exist and parse, its recipes and settings are known, its figures follow."""

import argparse
import importlib
import re
import shlex
import sys
from pathlib import Path

import keras
import pytest

from keras_highway.analysis.cost import cost
from keras_highway.applications import create_model
from keras_highway.training.data.repeated import epoch_samples
from keras_highway.training.recipes import RECIPES
from keras_highway.training.train import choose

PAGE = (Path(__file__).parents[1] / "docs" / "imagenet.md").read_text("utf-8")
SHELL = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)).replace("\\\n", " ")
COMMANDS = [shlex.split(line, comments=True) for line in SHELL.splitlines() if "python -m " in line]


class Parsed(BaseException):
    """Ends a command after its arguments were understood."""


def parsed(argv, monkeypatch) -> tuple[str, argparse.Namespace]:
    """A command's module and arguments, as its own parser has them; nothing of it is done."""
    module = argv[argv.index("-m") + 1]
    parse = argparse.ArgumentParser.parse_args

    def stop(self, args=None, namespace=None):
        raise Parsed(parse(self, args, namespace))

    with monkeypatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "parse_args", stop)
        patch.setattr(sys, "argv", argv[argv.index("-m") + 1 :])
        main = importlib.import_module("keras_highway.cli" if module == "keras_highway" else module).main
        with pytest.raises(Parsed) as found:
            main()
    return module, found.value.args[0]


@pytest.mark.parametrize("argv", [argv for argv in COMMANDS if "venv" not in argv], ids=" ".join)
def test_every_command_parses_and_names_known_recipes(argv, monkeypatch):
    module, arguments = parsed(argv, monkeypatch)
    if module == "keras_highway.training.distributed.supervise":
        _, arguments = parsed(["-m", "keras_highway", "train", *arguments.train], monkeypatch)
    if "recipe" in arguments:
        choose(arguments.recipe, arguments.set, arguments.tiny).check()


def test_there_are_commands():
    modules = {argv[argv.index("-m") + 1] for argv in COMMANDS}
    training = {f"keras_highway.training.{name}" for name in ("shards", "distributed.supervise")}
    assert len(COMMANDS) >= 17 and training | {"keras_highway"} <= modules


def test_a_wrong_command_is_found(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        parsed(["python", "-m", "keras_highway", "train", "highway50_a2", "--dat", "DIR", "--sett", "a=1"], monkeypatch)
    assert "--sett" in capsys.readouterr().err


def test_the_figures_are_those_of_the_program():
    recipe, images = RECIPES["highway50_a2"], epoch_samples(1_281_167, 3)
    assert f"{images:,} images, {images // recipe.batch_size} steps" in PAGE
    assert f"{images // recipe.batch_size * recipe.epochs:,} steps" in PAGE
    with keras.StatelessScope(initialize_variables=False):  # shapes, no values
        total = cost(create_model("highway50", dtype="mixed_bfloat16")).total
    assert f"{total.multiply_adds:,} multiply-adds" in PAGE and f"{total.parameters:,} x 4 bytes" in PAGE
    assert f"{total.activation_bytes / 2**20:.1f} MiB an image" in PAGE
    rows = re.findall(r"^\| ([\d,]+)[^|]* \| ([\d.e]+) \| ([\d.]+) h \| ([\d.]+) h \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for speed, operations, eight, many in rows:
        speed = int(speed.replace(",", ""))
        assert float(operations) == pytest.approx(6 * total.multiply_adds * speed, rel=0.02)
        for gpus, hours in ((8, eight), (32, many)):
            assert float(hours) == pytest.approx(recipe.epochs * images / (gpus * speed) / 3600, abs=0.06)
