"""Records of weights, their JSON, `kh.list_weights(details=True)` and gate reports."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway.analysis import StageCost
from keras_highway.weights import registry
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.info import from_json, to_json
from keras_highway.weights.trained import gate_report
from zoo.release import results, tables

NAME = "mnist10_w16.tvdn"


def assert_table_is_current():
    text = results.as_csv(tables.metric_rows(), tables.COLUMNS)
    assert text == (tables.ROOT / "zoo" / "results.csv").read_text("utf-8")


def test_the_table_is_that_of_the_results(monkeypatch):
    """Parameters and multiply-adds, which take seconds to count, are compared in a slow test."""
    with (tables.ROOT / "zoo" / "results.csv").open(newline="") as file:
        written = {row["name"]: row for row in csv.DictReader(file)}
    counted = {name: (row["parameters"], row["multiply_adds"]) for name, row in written.items()}
    monkeypatch.setattr(tables, "_cost", lambda row: StageCost("total", *map(int, counted[row.name]), 0, 0))
    assert_table_is_current()


@pytest.mark.slow
def test_multiply_adds_are_counted():
    assert_table_is_current()


def test_every_weight_is_a_row_and_numbers_are_those_of_its_result():
    table = kh.list_weights(details=True)
    assert [row["name"] for row in table] == kh.list_weights() == sorted(registry.WEIGHTS)
    for row in table:
        assert list(row) == list(registry.COLUMNS)
        path = tables.ZOO / row["name"] / "result.json"
        if not path.exists():
            assert row["measured"] in (None, "as published") and row["bytes"] is None and row["command"] is None
            continue
        result = json.loads(path.read_text())
        language = result["metric"] == "test_perplexity"
        mean = result["mean"] * (1 if language else 100)
        assert row["perplexity" if language else "top1"] == pytest.approx(mean, abs=6e-3)
        assert row["top1" if language else "perplexity"] is None
        assert (row["n"], row["commit"], row["measured"]) == (result["n"], result["commit"], "here")
        assert row["bytes"] == path.with_name("model.weights.h5").stat().st_size
        assert row["gpu_images_per_second"] is None  # not measured
    spread = next(row["spread"] for row in table if row["name"] == "highway_fc50_tanh.tvdn")
    assert spread == 0.26


def test_a_row_comes_back_from_json():
    for name in registry.WEIGHTS:
        row = describe_weights(name)
        assert from_json({**json.loads(json.dumps(to_json(row))), "new": 1}) == row  # unknown keys are ignored


@pytest.mark.parametrize(
    "change",
    [
        {"variant": 3},
        {"classes": None},
        {"transform": {"size": [28, -1], "channels": 1, "scale": 1.0}},
        {"metrics": [1]},
    ],
)
def test_malformed_rows_are_refused(change):
    with pytest.raises(ValueError, match=r"incomplete|malformed"):
        from_json({**to_json(registry.find(NAME)), **change})


def test_gate_report_is_the_moments_of_the_traces():
    model = miniature("conv_stack")
    pixels = (255 * batch(model, 5)).astype("uint8")
    transform = dataclasses.replace(kh.get_transform("mnist"), scale=1 / 255)
    report = gate_report(model, transform, pixels, batch_size=2)
    traces = kh.analysis.trace(model, transform.apply(pixels))
    assert report["samples"] == 5 and set(report["blocks"]) == set(traces)
    for name, entry in traces.items():
        expected = (entry.t.mean(), entry.t.var())
        np.testing.assert_allclose([report["blocks"][name]["t"][k] for k in ("mean", "variance")], expected, atol=2e-6)


def test_shipped_gate_reports_are_of_the_shipped_weights():
    reports = {name: describe_weights(name).gate_report for name in registry.WEIGHTS}
    known = {name: report for name, report in reports.items() if report}
    assert known
    for name, report in known.items():
        tested = 3_925 if registry.find(name).data == "imagenette" else 10_000  # each test set, whole
        assert report["sha256"] == registry.find(name).sha256 and report["samples"] == tested
        gates = [gate for block in report["blocks"].values() for gate in block.values()]
        assert all(0 < gate["mean"] < 1 and 0 <= gate["variance"] < 0.25 for gate in gates)


def test_a_report_of_replaced_weights_is_not_shown(tmp_path):
    folder = kh.save(kh.load(NAME), tmp_path / "net")
    for sha256, shown in (("old", False), (json.loads((folder / "weights.json").read_text())["sha256"], True)):
        (folder / "gates.json").write_text(json.dumps({"sha256": sha256, "samples": 1, "blocks": {}}))
        assert bool(describe_weights(folder).gate_report) == shown
