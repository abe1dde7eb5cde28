"""Networks whose values are not finite, as after a run that diverged: JSON stays JSON, no file is exported."""

import json
import math

import keras
import numpy as np
import pytest
from miniatures import batch, miniature

from keras_highway._support.files import atomic_write_json
from keras_highway._support.schema import parse_json
from keras_highway._support.terminal import json_text
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.export import export
from keras_highway.report import make_report, write_report
from keras_highway.weights import files as weights_file

on_tensorflow = pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="LiteRT files come from TensorFlow")


def spoilt(model):
    """Its weights are finite, as those of every file are, and its first class overflows."""
    for weight in model.layers[-1].weights:
        first = np.arange(weight.shape[-1]) == 0
        weight.assign(np.where(first, 3e38, keras.ops.convert_to_numpy(weight)))
    return model


def test_json_has_null_for_what_is_not_finite(tmp_path):
    value = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "c": np.float64("nan"), "d": "NaN", "é": 3}
    known = {"a": [1.5, None, [None, {"b": None}]], "c": None, "d": "NaN", "é": 3}
    assert parse_json(json_text(value), "it") == known
    assert json_text(value).isascii() and "é" in json_text(value, ensure_ascii=False)
    atomic_write_json(tmp_path / "it.json", value)
    assert parse_json((tmp_path / "it.json").read_bytes(), "it") == known
    assert json_text({"a": [1.5, "é"]}) == json.dumps({"a": [1.5, "é"]}, indent=2)


def test_evaluate(tmp_path, capsys):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (20, 28, 28), np.uint8), rng.integers(1, 10, 20)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    weights_file.save(spoilt(create_model("highway_fc10")), tmp_path / "net.weights.h5", "highway_fc10", 10)
    assert main(["evaluate", str(tmp_path / "net.weights.h5"), "--data", str(tmp_path), "--json"]) == 0
    report = parse_json(capsys.readouterr().out, "the report")
    assert report["loss"] is None and report["images"] == 20 and report["accuracy"] == 0


@pytest.mark.slow
def test_report(tmp_path):
    model = spoilt(miniature("dense_stack"))
    images = batch(model, 12)
    report = make_report(model, (images, np.arange(12) % 4), "a run that diverged", samples=12)
    numbers = parse_json(write_report(report, tmp_path / "report.html").read_bytes(), "the numbers")
    assert numbers["network"] == model.name and "null" in (tmp_path / "report.json").read_text("utf-8")


@on_tensorflow
@pytest.mark.parametrize("int8", [False, True])
def test_export(tmp_path, int8):
    model = spoilt(miniature("dense_stack"))
    images = batch(model, 8).astype("float32")
    with pytest.raises(ValueError, match="own outputs are not all finite"):
        export(model, tmp_path / "net.tflite", "litert", **({"int8": images} if int8 else {"samples": images}))
    assert not list(tmp_path.iterdir())
