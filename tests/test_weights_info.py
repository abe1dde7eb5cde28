"""What is known of weights, as a row and as JSON; gate reports."""

import dataclasses
import json

import numpy as np
import pytest
from miniatures import batch, miniature

import keras_highway as kh
from keras_highway.gating import get_gating
from keras_highway.weights import registry
from keras_highway.weights.card import _gates
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.info import from_json, to_json
from keras_highway.weights.trained import gate_report

NAME = "mnist10_w16.tvdn"


def test_a_row_comes_back_from_json():
    for name in registry.WEIGHTS:
        row = describe_weights(name)
        assert from_json(json.loads(json.dumps(to_json(row)))) == row


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
    with pytest.raises(ValueError, match="incomplete or malformed"):
        from_json({**to_json(registry.find(NAME)), **change})


@pytest.mark.parametrize("values", [None, [], {}, 3, {"name": "a"}])
def test_no_rows(values):
    with pytest.raises(ValueError, match="incomplete or malformed"):
        from_json(values)


def test_unknown_keys_are_of_later_versions():
    row = registry.find(NAME)
    assert from_json({**to_json(row), "new": 1}) == row


def test_a_language_model_takes_no_images():
    row = registry.find("charlm_small_coupled.ptb")
    assert row.classes == () and row.transform is None
    for images in (lambda: row.images, lambda: kh.preprocess_input(np.zeros((1, 28, 28, 1)), weights=row.name)):
        with pytest.raises(ValueError, match=r"reads words, not images. Use keras_highway\.CharLM"):
            images()
    with pytest.raises(ValueError, match="incomplete or malformed"):
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


def test_a_report_of_replaced_weights_is_not_shown(monkeypatch, tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "gates.json").write_text('{"sha256": "old", "samples": 1, "blocks": {}}')
    monkeypatch.setattr(registry, "folders", lambda name: [tmp_path / name])
    assert describe_weights(NAME).gate_report == {}
