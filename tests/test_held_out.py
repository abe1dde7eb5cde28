"""What was measured on held-out training images, or on some of the test images, says so and is not compared."""

import dataclasses
import json
import shutil

import fake_hub as fake
import numpy as np
import pytest
import yaml

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.cli.images import _compared
from keras_highway.publishing import find_publishable, publish, write_bundle
from keras_highway.publishing.card import model_card
from keras_highway.tasks import metric_name
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import Run
from keras_highway.training.program import ImageProgram
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder
from keras_highway.training.train import summary
from keras_highway.weights import registry
from keras_highway.weights.description import describe_weights
from keras_highway.weights.info import RESULT

NAME = "mnist10_w16.tvdn"
HELD_OUT = {"holdout_images": 5000}
ROW = {"epoch": 2, "train_loss": 0.5, "test_accuracy": 0.9, "images_per_second": 1.0, "waiting": 0.0}


@pytest.mark.parametrize(
    ("settings", "recorded", "words"),
    [
        ({}, {}, "test accuracy"),
        ({"test_images": 30}, {"test_images": 30}, "test accuracy on 30 of the test images"),
        ({"test_images": 9999}, {}, "test accuracy"),
        ({"holdout_images": 40}, {"holdout_images": 40}, "accuracy on 40 held-out training images"),
        (
            {"holdout_images": 40, "test_images": 30},
            {"holdout_images": 40, "test_images": 30},
            "accuracy on 30 held-out training images",
        ),
    ],
)
def test_a_result_says_what_it_was_measured_on(settings, recorded, words, tmp_path):
    recipe = dataclasses.replace(tiny(RECIPES["highway_fc10"]), **{"test_images": None, **settings})
    source, strategy = open_source(recipe, None), Strategy()
    folder = RunFolder(tmp_path, recipe, strategy)
    folder.begin_session(0, 0)
    run = Run(ImageProgram(recipe, source, source.on_device()), source, strategy, folder)
    run.rows, run.progress = [ROW, ROW], run.progress._replace(epoch=2)
    run.finish()
    result = json.loads((tmp_path / "result.json").read_text())
    RESULT.check(result, "result.json")
    assert {key: result[key] for key in ("holdout_images", "test_images") if key in result} == recorded
    assert metric_name(result) == words
    assert summary(recipe, result, tmp_path, None).startswith(f"{recipe.name}: {words} 90.00 % (n = 1) after 2 epochs")


@pytest.mark.parametrize("key", ["holdout_images", "test_images"])
def test_a_number_of_images_is_a_number(key):
    old = {"metric": "test_accuracy", "mean": 0.9, "std": None, "n": 1}
    RESULT.check({**old, key: None}, "result.json")
    with pytest.raises(ValueError, match=f"{key} must be a whole number"):
        RESULT.check({**old, key: "5000"}, "result.json")


def _run(folder, result=(), recipe=()):
    """A run of one's own, made from the shipped one, with some settings."""
    shutil.copytree(registry.folders(NAME)[-1], folder)
    own = {"weights": "mnist10_w16.mine", **dict(result)}
    for name, changes in (("result.json", own), ("recipe.json", dict(recipe))):
        (folder / name).write_text(json.dumps(json.loads((folder / name).read_text()) | changes))
    return folder


def test_the_card_says_it(tmp_path):
    run = _run(tmp_path / "run", HELD_OUT, HELD_OUT)
    row = find_publishable(str(run)).row
    metrics = {**row.metrics, "top5": 0.99}
    recipe = json.loads((run / "recipe.json").read_text())
    text = model_card(dataclasses.replace(row, metrics=metrics), "org/name", recipe, torch_names=False)
    assert "| metric | accuracy on 5000 held-out training images of the last epoch: **" in text
    assert ", holdout_images 5000: all settings" in text and "test accuracy" not in text
    (result,) = yaml.safe_load(text.split("---")[1])["model-index"][0]["results"]
    assert result["dataset"]["split"] == "train" and result["metrics"][0]["args"]["holdout_images"] == 5000
    assert [one["name"] for one in result["metrics"]] == [
        "accuracy on 5000 held-out training images",
        "top-5 accuracy on 5000 held-out training images",
    ]


def test_the_curve_says_it(tmp_path, monkeypatch):
    drawn = []
    module = "keras_highway.publishing.curve.draw_training"
    monkeypatch.setattr(module, lambda axis, curves, **kwargs: drawn.extend(curve.label for curve in curves))
    (tmp_path / "bundle").mkdir()
    write_bundle(find_publishable(str(_run(tmp_path / "run", HELD_OUT))), "org/name", tmp_path / "bundle")
    assert drawn == ["train loss", "held-out loss", "train accuracy", "held-out accuracy"]


@pytest.fixture
def data(tmp_path):
    arrays = {"x_test": np.zeros((4, 28, 28), np.uint8), "y_test": np.zeros(4, np.uint8)}
    np.savez(tmp_path / "mnist.npz", x_train=arrays["x_test"], y_train=arrays["y_test"], **arrays)
    return str(tmp_path)


CASES = [
    (HELD_OUT, "on 5000 held-out training images"),
    ({"test_images": 3}, "on 3 of the test images"),
]


@pytest.mark.parametrize(("limits", "where"), CASES)
def test_evaluate_compares_with_no_other_images(limits, where, data, tmp_path, capsys):
    run = str(_run(tmp_path / "run", {"mean": 0.5, **limits}))
    assert main(["evaluate", run, "--data", data]) == 0
    assert capsys.readouterr().out.splitlines()[1] == f"recorded {where}: 50.00 % (n = 1); not compared"
    assert main(["evaluate", run, "--data", data, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recorded"].items() >= {"mean": 0.5, **limits}.items()


def test_evaluate_compares_with_all_images(data, tmp_path, capsys):
    run = str(_run(tmp_path / "run", {"mean": 0.5, "test_images": 4}))
    assert main(["evaluate", run, "--data", data]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("recorded: 50.00 % (n = 1); here ")


def test_a_difference_that_rounds_to_nothing_has_no_minus():
    recorded = {"metric": "test_accuracy", "mean": 0.5, "std": None, "n": 1}
    assert _compared(recorded, 0.5 - 1e-6, 4) == "recorded: 50.00 % (n = 1); here +0.00 points"
    assert _compared(recorded, 0.25, 4).endswith("; here -25.00 points")


@pytest.mark.parametrize(("limits", "where"), [CASES[0], pytest.param(*CASES[1], marks=pytest.mark.more)])
def test_verify_compares_with_no_other_images(limits, where, data, tmp_path, fake_hub, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", fake.TOKEN)
    publish(str(_run(tmp_path / "run", {"values": [0.5], **limits})), "org/mine")
    assert describe_weights("hf://org/mine").metrics.items() >= limits.items()
    assert main(["verify", "org/mine", "--data", data]) == 0
    *_, line = capsys.readouterr().out.splitlines()
    assert line.startswith("accuracy on the 4 test images of mnist: ")
    assert line.endswith(f" %, recorded {where}: 50.00 %; not compared")


@pytest.mark.more
def test_photographs_are_recorded_on_held_out_ones(tmp_path, capsys):
    from PIL import Image

    net = kh.create_model("resnet50", classes=2, input_shape=(32, 32, 3), blocks=(1, 1), widths=(2, 3), stem_width=4)
    folder = tmp_path / "run"
    folder.mkdir()
    form = {"overrides": {"blocks": [1, 1], "widths": [2, 3], "stem_width": 4, "input_shape": [32, 32, 3]}}
    kh.weights.file.save(net, folder / "model.weights.h5", "resnet50", 2, transform="imagenet", **form)
    result = {"metric": "test_accuracy", "n": 1, "mean": 0.5, "std": None, "class_names": ["cat", "dog"], **HELD_OUT}
    for data, of in (("", ""), ("imagenette", " of imagenette")):
        (folder / "result.json").write_text(json.dumps({**result, "data": data}))
        for name in ("cat", "dog"):
            (tmp_path / "pets" / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 40), (200, 10, 10)).save(tmp_path / "pets" / name / "a.png")
        assert main(["evaluate", str(folder), "--data", str(tmp_path / "pets")]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"recorded on 5000 held-out training images{of}: 50.00 % (n = 1)"
