"""docs/imagenet.md and imagenet_plan.md: their figures follow from the program."""

import re

import pytest
from pages import ROOT, commands

from keras_highway._support.files import read_log
from keras_highway._support.keras_models import without_values
from keras_highway.analysis.cost import cost
from keras_highway.applications import create_model
from keras_highway.training.data.samples import epoch_samples
from keras_highway.training.recipes import RECIPES

PATHS = [ROOT / "docs" / name for name in ("imagenet.md", "imagenet_plan.md")]
PAGE = "".join(path.read_text("utf-8") for path in PATHS)
COMMANDS = [command for path in PATHS for command in commands(path)]


def test_there_are_commands():
    modules = {argv[argv.index("-m") + 1] for argv in COMMANDS}
    training = {f"keras_highway.training.{name}" for name in ("shards", "distributed.supervise")}
    assert len(COMMANDS) >= 17 and training | {"keras_highway"} <= modules


def test_the_figures_are_those_of_the_program():
    recipe, images = RECIPES["highway50_a2"], epoch_samples(1_281_167, 3)
    assert f"{images:,} images, {images // recipe.batch_size} steps" in PAGE
    assert f"{images // recipe.batch_size * recipe.epochs:,} steps" in PAGE
    total = without_values(lambda: cost(create_model("highway50", dtype="mixed_bfloat16")).total)
    assert f"{total.multiply_adds:,} multiply-adds" in PAGE and f"{total.parameters:,} x 4 bytes" in PAGE
    assert f"{total.activation_bytes / 2**20:.1f} MiB per image" in PAGE
    rows = re.findall(r"^\| ([\d,]+)[^|]* \| ([\d.e]+) \| ([\d.]+) h \| ([\d.]+) h \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    for speed, operations, eight, many in rows:
        speed = int(speed.replace(",", ""))
        assert float(operations) == pytest.approx(6 * total.multiply_adds * speed, rel=0.02)
        for gpus, hours in ((8, eight), (32, many)):
            assert float(hours) == pytest.approx(recipe.epochs * images / (gpus * speed) / 3600, abs=0.06)


@pytest.mark.parametrize("net", ["highway50_imagenette_a3", "resnet50_imagenette_a3"])
def test_the_losses_of_a3_in_small_are_those_of_its_logs(net):
    rows = re.findall(rf"^\| `{net}` \| (\d+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)
    log = read_log(ROOT / "zoo" / "runs" / "imagenette" / net / "1" / "log.csv")
    assert [int(epoch) for epoch, *_ in rows] == [1, 5, 10, 20]
    for epoch, *shown in rows:
        measured = log[int(epoch) - 1]
        losses = [f"{measured[column]:.4f}" for column in ("train_loss", "test_loss")]
        assert shown == [*losses, f"{100 * measured['test_accuracy']:.2f}"]
