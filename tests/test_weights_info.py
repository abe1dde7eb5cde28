"""Records of weights, their JSON, `kh.list_weights(details=True)` and gate reports."""

import csv
import dataclasses
import json

import numpy as np
import pytest
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway.analysis import StageCost
from keras_highway.cli import listing
from keras_highway.gating import get_gating
from keras_highway.variants import VARIANTS
from keras_highway.weights import registry
from keras_highway.weights.card import _gates
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.info import from_json, to_json
from keras_highway.weights.trained import gate_report
from zoo.release import cards, results, tables

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


def test_counts_are_those_of_the_literature():
    row = kh.list_weights("resnet50.a1", details=True)[0]
    assert row["parameters"] == 25_557_032
    assert row["multiply_adds"] == pytest.approx(4.09e9, rel=0.01)
    assert (row["top1"], row["measured"]) == (80.4, "as published")


def test_weights_of_another_form_count_as_they_are():
    """Imagenette's ten classes at 64 pixels, on a variant of 1,000 at 224."""
    row = registry.find("resnet50.a1")
    small = dataclasses.replace(
        row, name="resnet50.small", classes=tuple("0123456789"), transform=kh.get_transform("imagenet_64")
    )
    whole, counted = kh.list_weights("resnet50.a1", details=True)[0], tables._row(small, {"resnet50": {"median": 9.0}})
    assert whole["parameters"] - counted["parameters"] == 990 * (2048 + 1)
    assert counted["multiply_adds"] == pytest.approx((whole["multiply_adds"] - 1000 * 2048) * (64 / 224) ** 2, rel=0.01)
    assert counted["cpu_images_per_second"] is None  # that is of 224 pixels


@pytest.mark.slow
def test_weights_of_another_net_count_as_it_is():
    """Overrides of the variant and blocks left out, as of `residual_fc50_tanh` and of `trim`."""
    row, speed = registry.find("highway_fc50_tanh.tvdn"), {"highway_fc50_tanh": {"median": 9.0}}
    whole = tables._row(row, speed)
    assert whole["parameters"] == kh.load(row.name).count_params() and whole["cpu_images_per_second"] == 9.0
    residual = tables._row(dataclasses.replace(row, overrides={"gating": "residual"}), speed)
    (block, *_) = kh.analysis.blocks(kh.load(row.name))
    shorter = tables._row(dataclasses.replace(row, removed=(block,)), speed)
    for counted in (residual, shorter):
        assert counted["parameters"] < whole["parameters"] and counted["cpu_images_per_second"] is None
    net = kh.create_model("highway_fc50_tanh", gating="residual")
    assert residual["parameters"] == net.count_params()
    assert whole["parameters"] - shorter["parameters"] == 2 * (50 * 50 + 50)


def test_the_list_leaves_parameters_of_another_net_open(monkeypatch):
    row = registry.find("highway_fc50_tanh.tvdn")
    for changes in ({"overrides": {"gating": "residual"}}, {"removed": ("2",)}, {"classes": ("a", "b")}, {}):
        changed = dataclasses.replace(row, **changes)
        monkeypatch.setattr(registry, "WEIGHTS", {row.name: changed})
        shown = listing._weights({"name": row.name, "parameters": None})
        assert shown["parameters"] == (None if changes else listing.parameters()[row.variant])
        line = listing._weights_table([shown]).splitlines()[-1]
        assert f"{listing.parameters()[row.variant]:,}" not in line if changes else "Apache" in line


def test_weights_whose_gating_was_replaced_have_no_gates_to_measure(monkeypatch, capsys):
    row = dataclasses.replace(registry.find("highway_fc50_tanh.tvdn"), overrides={"gating": "residual"})
    monkeypatch.setattr(registry, "find", lambda name: row)
    cards.measure_gates(row, None)
    assert capsys.readouterr().out == f"{row.name}: no gates to measure, they are constant\n"


def test_speed_is_what_was_measured_in_one_run():
    measured = json.loads(tables.SPEED.read_text())
    assert {"hardware", "date", "threads", "versions", "repeats"} <= measured.keys()
    for row in kh.list_weights(details=True):
        speed = measured["images_per_second"].get(row["variant"])
        size = registry.find(row["name"]).images.size if row["perplexity"] is None else None
        as_measured = speed and size == VARIANTS[row["variant"]].input_shape[:2]
        assert row["cpu_images_per_second"] == (speed["median"] if as_measured else None)


def test_it_prints_as_a_table():
    text = str(kh.list_weights("mnist10*", details=True)).splitlines()
    assert text[0].split()[:4] == ["name", "variant", "data", "top1"]
    assert text[2].split()[:4] == ["mnist10_w16.tvdn", "mnist10_w16", "mnist", "99.45"]
    assert len(text) == 4


@pytest.mark.more
def test_a_folder_of_ones_own_is_described_without_it(tmp_path, monkeypatch):
    assert registry.zoo_files("results.csv")[0] == tables.ROOT / "keras_highway" / "zoo" / "results.csv"

    kh.save(kh.load("mnist10_w16.tvdn"), tmp_path / "mnist10_w16.own")
    monkeypatch.setenv(registry.ZOO_VARIABLE, str(tmp_path))
    registry.reread()
    try:
        row = kh.list_weights("*.own", details=True)[0]
        assert (row["variant"], row["top1"], row["parameters"]) == ("mnist10_w16", None, None)
        assert "mnist10_w16.own" not in [row["name"] for row in tables.metric_rows()]
    finally:
        monkeypatch.undo()
        registry.reread()


def test_a_row_comes_back_from_json():
    for name in registry.WEIGHTS:
        row = describe_weights(name)
        assert from_json({**json.loads(json.dumps(to_json(row))), "new": 1}) == row  # unknown keys are ignored


def test_a_row_is_complete():
    row = kh.describe_weights(NAME)
    assert row.metrics["n"] == len(row.metrics["seeds"]) and {"mean", "std", "commit", "hardware"} <= set(row.metrics)
    assert row.data_licence and row.recipe and len(row.sha256) == 64 and row.classes == tuple("0123456789")


@pytest.mark.parametrize(
    "change",
    [
        {"variant": 3},
        {"classes": [1, 2]},
        {"classes": None},
        {"transform": None},
        {"transform": {"size": [28], "channels": 1, "scale": 1.0}},
        {"transform": {"size": [28, -1], "channels": 1, "scale": 1.0}},
        {"transform": {"size": [28, 28], "channels": 1, "scale": "big"}},
        {"transform": {"size": [28, 28], "channels": 1, "scale": float("nan")}},
        {"metrics": [1]},
    ],
)
def test_malformed_rows_are_refused(change):
    with pytest.raises(ValueError, match=r"incomplete|malformed"):
        from_json({**to_json(registry.find(NAME)), **change})


@pytest.mark.parametrize("values", [None, [], {}, 3, {"name": "a"}])
def test_no_rows(values):
    with pytest.raises(ValueError, match=r"incomplete|malformed"):
        from_json(values)


def test_a_language_model_takes_no_images():
    row = registry.find("charlm_small_coupled.ptb")
    assert row.classes == () and row.transform is None
    for images in (lambda: row.images, lambda: kh.preprocess_input(np.zeros((1, 28, 28, 1)), weights=row.name)):
        with pytest.raises(ValueError, match=r"reads words, not images. Use keras_highway\.CharLM"):
            images()
    with pytest.raises(ValueError, match=r"incomplete|malformed"):
        from_json({**to_json(row), "classes": ["a"]})


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
    with pytest.raises(ValueError, match="needs images"):
        gate_report(model, transform, pixels[:0])


@pytest.mark.parametrize("gating", ["t_only", "c_only", "full"])
def test_gate_report_is_of_the_learned_gates(gating):
    model = miniature("conv_stack", gating=gating)
    pixels = (255 * batch(model, 5)).astype("uint8")
    transform = dataclasses.replace(kh.get_transform("mnist"), scale=1 / 255)
    report = gate_report(model, transform, pixels)
    for name, entry in kh.analysis.trace(model, transform.apply(pixels)).items():
        assert tuple(report["blocks"][name]) == get_gating(gating).learned_gates
        for gate, moments in report["blocks"][name].items():
            assert moments["mean"] == pytest.approx(getattr(entry, gate).mean(), abs=2e-6) != 1
    card = _gates(report)
    assert [gate for gate in ("t", "c") if f"mean of {gate.upper()}" in card] == list(get_gating(gating).learned_gates)


def test_gate_report_of_a_network_without_gates_is_refused():
    model = miniature("conv_stack", gating="residual")
    with pytest.raises(ValueError, match="needs blocks that learn a gate"):
        gate_report(model, kh.get_transform("mnist"), np.zeros((1, 28, 28, 1), "uint8"))


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
