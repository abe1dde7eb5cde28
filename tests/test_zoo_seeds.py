"""Later seeds of an entry of the zoo: its weights stay, and no number is lost."""

import json
import shutil

import pytest

import keras_highway as kh
from keras_highway._support.files import atomic_write_json, sha256_of
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from tests.finished_runs import finished_run
from zoo.release import add as adding


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """Of one run, its file as another version of h5py would have written it, with a gate report."""
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    monkeypatch.setattr(adding, "ZOO", zoo)
    folder = adding.add([finished_run(tmp_path / "a", 1, 0.99)])
    weights_file.save(kh.load(folder), folder / "model.weights.h5", "mnist10_w16", 10, overrides={})  # other bytes
    row = json.loads((folder / "weights.json").read_text())
    atomic_write_json(folder / "weights.json", {**row, "sha256": sha256_of(folder / "model.weights.h5")})
    shutil.copy(registry.file_of(registry.WEIGHTS["mnist10_w16.tvdn"]).with_name("gates.json"), folder)
    change(folder, stored={"dtype": "float16"}, hardware="a core; b core", commit="1")
    return folder


def change(folder, **values):
    """Sets values of a result."""
    result = json.loads((folder / "result.json").read_text())
    atomic_write_json(folder / "result.json", {**result, **values})


def contents(folder):
    """The bytes of each file."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_later_seed_joins_an_entry(entry, tmp_path):
    before, later = contents(entry), finished_run(tmp_path / "b", 2, 0.98)
    (later / "log.csv").write_text((later / "log.csv").read_text() + "\n")
    change(later, hardware="b core", commit="2")
    assert adding.add([entry, later]) == entry
    after = contents(entry)
    assert after.keys() == before.keys() | {"log_seed2.csv"}
    assert [name for name in before if after[name] != before[name]] == ["card.md", "result.json"]
    assert after["log_seed2.csv"] == (later / "log.csv").read_bytes()
    result = json.loads(after["result.json"])
    assert (result["values"], result["mean"], result["stored"]) == ([0.99, 0.98], 0.985, {"dtype": "float16"})
    assert (result["hardware"], result["commit"], result["commit_changes"]) == ("a core; b core", "1", ["1", "2"])
    card = after["card.md"].decode("utf-8")
    assert "98.50 \u00b1 0.71 % (n = 2)" in card and "Transform gates" in card
    adding.add([entry, finished_run(tmp_path / "c", 3, 0.97)])  # a third, as the first two have no top-5
    assert contents(entry).keys() == after.keys() | {"log_seed3.csv"}
    assert json.loads((entry / "result.json").read_text())["values"] == [0.99, 0.98, 0.97]
    assert contents(entry)["model.weights.h5"] == before["model.weights.h5"]


def test_what_would_lose_numbers_of_an_entry_is_refused(entry, tmp_path):
    later = finished_run(tmp_path / "b", 2, 0.98)
    several = finished_run(tmp_path / "several", 4, 0.97)
    change(several, n=2, seeds=[4, 5], values=[0.97, 0.97])
    before = contents(entry)
    for runs, float16, message in (
        ([entry, later], True, "leave out --float16"),
        ([entry, finished_run(tmp_path / "c", 1, 0.97)], False, r"different seeds\. Received: 1, 1"),
        ([later, entry], False, "give it first"),
        ([several], False, "of several runs"),
        ([entry, several], False, "of several runs"),
    ):
        with pytest.raises(ValueError, match=message):
            adding.add(runs, float16)
        assert contents(entry) == before
    weights_file.save(kh.load("mnist10_w16.tvdn"), entry / "model.weights.h5", "mnist10_w16", 10)
    with pytest.raises(ValueError, match=r"is not the file whose sha256 its weights\.json names"):
        adding.add([entry, later])
    change(entry, n=2, seeds=[1, 3], values=[0.99, 0.98], top5=1.0)
    with pytest.raises(ValueError, match="mean top-5 of 2 runs"):
        adding.add([entry, later])


@pytest.mark.slow
def test_a_seed_joins_an_entry_that_is_older_than_a_field_of_recipes(entry, tmp_path):
    recipe = json.loads((entry / "recipe.json").read_text())
    assert recipe.pop("beta_2") == RECIPES["mnist10_w16"].beta_2
    atomic_write_json(entry / "recipe.json", recipe)
    later = finished_run(tmp_path / "b", 2, 0.98)
    adding.add([entry, later])
    assert json.loads((entry / "result.json").read_text())["values"] == [0.99, 0.98]
    other = finished_run(tmp_path / "c", 3, 0.98)
    changed = {**json.loads((other / "recipe.json").read_text()), "beta_2": 0.5}
    atomic_write_json(other / "recipe.json", changed)
    with pytest.raises(ValueError, match="different recipes"):
        adding.add([entry, other])


def test_results_that_do_not_name_their_precision_are_of_float32():
    old = {**registry.result("highway_fc50_tanh.tvdn"), "seeds": [1], "values": [0.9]}
    assert "precision" not in old
    assert adding.pooled([old, {**old, "precision": "float32", "seeds": [2]}])["n"] == 2
    with pytest.raises(ValueError, match=r"one precision\. Received: .*mixed_bfloat16"):
        adding.pooled([old, {**old, "precision": "mixed_bfloat16", "seeds": [2]}])


def test_an_error_while_a_seed_joins_leaves_the_entry(entry, tmp_path, monkeypatch):
    before = contents(entry)
    monkeypatch.setattr(adding, "write_card", lambda *_: (_ for _ in ()).throw(OSError("full disk")))
    with pytest.raises(OSError, match="full disk"):
        adding.add([entry, finished_run(tmp_path / "b", 2, 0.98)])
    assert contents(entry) == before and [path.name for path in entry.parent.iterdir()] == [entry.name]


def test_a_copy_of_an_entry_is_stored_anew(entry, tmp_path):
    """What was measured of the file in half precision is not of the one that is written."""
    copy = shutil.copytree(entry, tmp_path / "copy")
    adding.add([copy])
    assert "stored" not in json.loads((entry / "result.json").read_text())
