"""Figures of trained weights: parts that keep each other's numbers, pairs counted by hand, tables of those numbers."""

import json

import numpy as np
import pytest

from keras_highway._support.files import atomic_write_json
from keras_highway.analysis.plots import write
from training import analysis_tables, depth, figure4, figures, net_figures
from zoo.release import claims


def test_a_part_leaves_the_others_numbers(tmp_path, monkeypatch):
    seen = []

    def part(data, out, runs, known):
        seen.append(known)
        return {"value": len(seen)}

    net, other = figures.DENSE, figures.IMAGES
    monkeypatch.setattr(figures, "PARTS", {"a": (net, part), "b": (net, part), "c": (other, part)})
    for name in ("a", "b", "c", "a"):
        figures.make(name, None, tmp_path)
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert {key: row["value"] for key, row in numbers[net].items() if key in "ab"} == {"a": 4, "b": 2}
    assert numbers[other]["c"] == {"value": 3} and len(numbers[other]["sha256"]) == 64
    assert set(numbers[net]["made"]) == {"a", "b"} and numbers[net]["made"]["a"]["hardware"]
    assert "a" not in seen[0] and seen[1]["a"] == {"value": 1} and seen[2] == {}


def test_numbers_of_earlier_weights_are_not_drawn_as_those_of_new_ones(tmp_path, monkeypatch):
    parts = {
        "a": (figures.DENSE, lambda *_: {"value": 1}),
        "old": (figures.DENSE, lambda *arguments: arguments[-1]["old"]),
    }
    monkeypatch.setattr(figures, "PARTS", parts)
    figures.make("a", None, tmp_path)
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    numbers[figures.DENSE] |= {"old": {"value": 2}, "sha256": 64 * "0"}
    atomic_write_json(tmp_path / "numbers.json", numbers)
    with pytest.raises(KeyError):
        figures.make("old", None, tmp_path)
    with pytest.raises(ValueError, match="has no old of these weights of"):
        figures.redraw("old", None, tmp_path)
    assert json.loads((tmp_path / "numbers.json").read_text()) == numbers


def test_baselines_need_their_runs(tmp_path):
    with pytest.raises(ValueError, match="--runs FOLDER"):
        figure4.baselines(None, tmp_path, None)


def test_drawing_alone_leaves_the_numbers(tmp_path, monkeypatch):
    computed = {"value": 0.25, "blocks": [1, 2]}
    monkeypatch.setattr(figures, "PARTS", {"a": (figures.DENSE, lambda *arguments: computed)})
    figures.make("a", None, tmp_path)
    before = (tmp_path / "numbers.json").read_bytes()
    computed["value"] += 1e-9  # the rounding of another machine
    figures.redraw("a", None, tmp_path)
    for wrong in ({"value": 0.26}, {"blocks": [1, 3]}, {"blocks": [1]}, {"more": 1}):
        computed.update({"value": 0.25, "blocks": [1, 2]} | wrong)
        with pytest.raises(ValueError, match=r"a differs from .*numbers\.json: measure it anew"):
            figures.redraw("a", None, tmp_path)
    assert (tmp_path / "numbers.json").read_bytes() == before


def test_depth_is_drawn_from_the_numbers_without_data(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(depth, "write", lambda figure, *rest: drawn.append(figure) or write(figure, *rest))
    written = (figures.OUT / "numbers.json").read_bytes()
    (tmp_path / "numbers.json").write_bytes(written)
    for name in ("trim", "cifar_trim", "tune", "latency"):
        figures.redraw(name, None, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["numbers.json", "trim.png"]
    errors = drawn[0].axes[0]
    assert [text.get_text() for text in errors.texts] == [f"cut off at {errors.get_ylim()[1]:.0f} %"]
    assert {line.get_color() for line in drawn[0].axes[1].lines} == {"0.3"}  # as many parameters at a depth: one line
    assert (tmp_path / "numbers.json").read_bytes() == written


def test_figure_4_marks_where_its_scale_becomes_linear(monkeypatch, tmp_path):
    curve = {"samples": 100, "intact_accuracy": 1.0, "accuracy": [0.9, 1.0], "loss": [0.3, 0.1], "blocks": 2}
    drawn = {}
    monkeypatch.setattr(figure4, "write", lambda figure, path, title: drawn.update({path.name: figure.axes[0]}))
    nets = (figure4.HIGHWAY, *figure4.BASELINES, figure4.CIFAR)
    figure4._draw({name: {"training": curve, "test": curve} for name in nets}, tmp_path)
    training, test = (drawn[f"tvdn_figure4_baselines_{part}.png"] for part in ("training", "test"))
    assert [text.get_text() for text in training.texts] == ["linear below this line, logarithmic above"]
    assert training.get_yscale() == "symlog" and 0.01 in training.get_yticks()
    assert test.get_yscale() == "log" and not test.texts
    named = [text.get_text() for text in training.get_legend().get_texts()]
    assert named == ["highway", "residual", "plain", "plain, 10 layers", "intact network"]


def test_blocks_that_were_trimmed_are_noted_by_their_numbers():
    assert [depth._number(name) for name in ("stage1_block1", "stage1_block49")] == [1, 49]


def test_pairs_of_fine_tuned_nets():
    whole = np.array([True] * 90 + [False] * 10)
    ours = np.array([False] * 5 + [True] * 87 + [False] * 8)
    row = depth._pair(24, {49: whole, 24: ours})
    differences = whole.astype(float) - ours
    assert row["cost"] == pytest.approx(differences.mean()) and row["accuracy"] == 0.87
    assert row["standard_error"] == pytest.approx(differences.std() / 10)
    assert depth._pair(49, {49: whole, 24: ours})["cost"] == 0


def test_tables_of_made_up_numbers(tmp_path):
    def tuned(deep, cost):
        return {"blocks_left": deep, "accuracy": 0.9 - cost, "cost": cost, "standard_error": 0.001}

    seeds = [
        {
            "seed": s,
            "order": [3, 1, 2],
            "removed": {"blocks": k},
            "accuracy": [0.9],
            "lost": [0, 4, 9, 50],
            "gained": [0, 4, 0, 0],
        }
        for s, k in ((0, 1), (1, 2))
    ]
    curve = {
        "samples": 1000,
        "intact_accuracy": 0.99,
        "blocks": 3,
        "accuracy": [0.98, 0.99, 0.5],
        "worst_block": "stage1_block3",
    }
    baseline = {"seed": 1, "epochs": 50, "backend": "jax", "hardware": "a core", "test": curve, "training": curve}
    numbers = {
        "baselines": {"a_net": {**baseline, "test": {**curve, "blocks_that_cost_at_most_0.1_point": 1}}},
        "trim": {"samples": 1000, "seeds": seeds},
        "tune": {"epochs": 3, "seeds": [{"depths": [tuned(3, 0), tuned(2, 0.01), tuned(1, 0.03)]}] * 2},
        "latency": {
            "pairs": 25,
            "batch_size": 100,
            "depths": [
                {"blocks_left": d, "parameters": 1000 * d, "speed_up_quartiles": [0, 4 - d, 9]} for d in (3, 2, 1)
            ],
        },
    }
    numbers["made"] = {"tune": {"backend": "jax"}, "latency": {"backend": "tensorflow", "hardware": "a core"}}
    numbers["baselines"]["a_net"]["training"] = numbers["baselines"]["a_net"]["test"]
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({analysis_tables.NET: numbers}))
    lines = analysis_tables.figure4_table(path).splitlines()
    assert "| `a_net` | 1,000 test | 1.00 | 3 | 1 | 1.00 | 49.00, block3 |" in lines
    assert lines[-1] == "n = 1 net each, seed 1, 50 epochs. Trained on jax, a core."
    text = analysis_tables.trim_table(path)
    # Costs 0 and 0.9 points; errors sqrt(8)/1000 and sqrt(9 - 0.081)/1000.
    assert "| 1 to 2 (chosen) | 1,000 to 2,000 | 2.00 to 3.00 | 0.45 ± 0.29 | 2.00 ± 0.10 |" in text
    assert "(90.00 %; before, 90.00 %)" in text and "jax, speed-up tensorflow, a core." in text


def test_gini_index_by_hand():
    gates = np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    np.testing.assert_allclose(net_figures._gini(gates), [0, 0.75, 0.5])


def test_every_claim_has_a_verdict_and_no_empty_number():
    text = claims.page()
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert text.startswith(f"# Claims of the papers\n\n{len(rows)} claims") and "{" not in text and ": ;" not in text
