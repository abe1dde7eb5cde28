"""`zoo/results.csv` and `kh.list_weights(details=True)`: every metric of every weight, from one table."""

import csv
import dataclasses
import json

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.analysis import StageCost
from keras_highway.cli import listing
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights import registry as details
from zoo.release import gates, metrics


def test_the_table_is_that_of_the_results(capsys, monkeypatch):
    """Parameters and multiply-adds, which take seconds to count, are compared in a slow test."""
    with metrics.TABLE.open(newline="") as file:
        written = {row["name"]: row for row in csv.DictReader(file)}
    counted = {name: (row["parameters"], row["multiply_adds"]) for name, row in written.items()}
    monkeypatch.setattr(metrics, "_cost", lambda row: StageCost("total", *map(int, counted[row.name]), 0, 0))
    assert metrics.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_multiply_adds_are_counted(capsys):
    assert metrics.main(["--check"]) == 0, capsys.readouterr().err


def test_every_weight_is_a_row_and_numbers_are_those_of_its_result():
    table = kh.list_weights(details=True)
    assert [row["name"] for row in table] == kh.list_weights() == sorted(registry.WEIGHTS)
    for row in table:
        assert list(row) == list(details.COLUMNS)
        path = metrics.WEIGHTS / row["name"] / "result.json"
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
    whole, counted = kh.list_weights("resnet50.a1", details=True)[0], metrics._row(small, {"resnet50": {"median": 9.0}})
    assert whole["parameters"] - counted["parameters"] == 990 * (2048 + 1)
    assert counted["multiply_adds"] == pytest.approx((whole["multiply_adds"] - 1000 * 2048) * (64 / 224) ** 2, rel=0.01)
    assert counted["cpu_images_per_second"] is None  # that is of 224 pixels


@pytest.mark.slow
def test_weights_of_another_net_count_as_it_is():
    """Overrides of the variant and blocks left out, as of `residual_fc50_tanh` and of `trim`."""
    row, speed = registry.find("highway_fc50_tanh.tvdn"), {"highway_fc50_tanh": {"median": 9.0}}
    whole = metrics._row(row, speed)
    assert whole["parameters"] == kh.load(row.name).count_params() and whole["cpu_images_per_second"] == 9.0
    residual = metrics._row(dataclasses.replace(row, overrides={"gating": "residual"}), speed)
    (block, *_) = kh.analysis.blocks(kh.load(row.name))
    shorter = metrics._row(dataclasses.replace(row, removed=(block,)), speed)
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
    monkeypatch.setattr(registry, "get", lambda name: row)
    gates.main([row.name])
    assert capsys.readouterr().out == f"{row.name}: no gates to measure, they are constant\n"


def test_speed_is_what_was_measured_in_one_run():
    measured = json.loads(metrics.SPEED.read_text())
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
    assert registry.zoo_files("results.csv")[0] == metrics.ROOT / "keras_highway" / "zoo" / "results.csv"

    kh.save(kh.load("mnist10_w16.tvdn"), tmp_path / "mnist10_w16.own")
    monkeypatch.setenv(registry.ZOO_VARIABLE, str(tmp_path))
    registry.reread()
    try:
        row = kh.list_weights("*.own", details=True)[0]
        assert (row["variant"], row["top1"], row["parameters"]) == ("mnist10_w16", None, None)
        assert "mnist10_w16.own" not in [row["name"] for row in metrics.rows()]
    finally:
        monkeypatch.undo()
        registry.reread()


@pytest.mark.slow
def test_a_net_takes_images_of_the_size_that_its_weights_were_tested_on(tmp_path):
    """The variant's own size is 224 pixels."""
    form, path = {"blocks": (1, 1), "widths": (4, 8), "stem_width": 8}, tmp_path / "x.weights.h5"
    net = kh.create_model("highway50", input_shape=(64, 64, 3), classes=3, **form)
    weights_file.save(net, path, "highway50", 3, overrides=form, transform="imagenet_64")
    assert kh.load(path).input_shape == (None, 64, 64, 3)
    assert kh.load(path, input_shape=(96, 80, 3)).input_shape == (None, 96, 80, 3)
    assert kh.load(path, include_top=False).input_shape == (None, None, None, 3)


def saved_by_keras(path, **options) -> keras.Model:
    """Weights that say nothing of themselves, of a small variant."""
    model = kh.create_model("mnist10_w16", **options)
    for index, variable in enumerate(model.weights):
        variable.assign(np.random.default_rng(index).uniform(0.5, 1.5, variable.shape))
    model.save_weights(path)
    return model


@pytest.mark.filterwarnings("ignore::keras_highway.UncheckedWeights")
@pytest.mark.parametrize("options", [{"include_top": False}, {"include_top": False, "pooling": "avg"}])
def test_weights_without_a_head_fit_a_model_without_one(options, tmp_path):
    """As in keras.applications, whose files without the top are of models without it."""
    path = tmp_path / "body.weights.h5"
    saved = saved_by_keras(path, **options)
    loaded = kh.create_model("mnist10_w16", weights=str(path), **options)
    for ours, theirs in zip(saved.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.warns(kh.UncheckedWeights, match="Nor does it name its variant: .* taken for 'mnist10_w16'"):
        kh.create_model("mnist10_w16", weights=str(path), **options)
    with pytest.raises(ValueError, match=r"the file lacks 1 of \(144, 10\)"):  # never a random head without a word
        kh.create_model("mnist10_w16", weights=str(path))


@pytest.mark.filterwarnings("ignore::keras_highway.UncheckedWeights")
def test_weights_of_other_classes_that_name_none(tmp_path):
    """The head's own shapes tell how many there are."""
    path = tmp_path / "five.weights.h5"
    saved = saved_by_keras(path, classes=5)
    body = kh.create_model("mnist10_w16", include_top=False, weights=str(path))
    for ours, theirs in zip(saved.weights, body.weights, strict=False):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.warns(kh.FreshHead, match="The head for 7 classes is fresh: .* has one for 5"):
        other = kh.create_model("mnist10_w16", classes=7, weights=str(path))
    np.testing.assert_array_equal(other.weights[-3], saved.weights[-3])
    np.testing.assert_array_equal(
        kh.create_model("mnist10_w16", classes=5, weights=str(path)).weights[-2], saved.weights[-2]
    )
