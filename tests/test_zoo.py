"""The zoo: adding runs, cards, tables that cannot differ from their results."""

import dataclasses
import json
import re
import shutil

import h5py
import numpy as np
import pytest

import keras_highway as kh
from keras_highway._support.files import sha256_of
from keras_highway._support.terminal import Notice
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.tasks import format_recorded, of_this_file
from keras_highway.training.data.synthetic import synthetic_corpus
from keras_highway.training.loop import train
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from tests.finished_runs import finished_run
from zoo.release import add as adding
from zoo.release import tables
from zoo.release.add import add_search, check_stored, measure
from zoo.release.cards import card, described

README = tables.ROOT / "README.md"


def test_tables_are_those_of_the_results():
    named = set()
    for page in tables.pages():
        text = page.read_text("utf-8")
        named.update(re.findall(r"<!-- table:(\w+) -->", text))
        assert tables.render(text) == text, page
    assert named == set(tables.TABLES)
    assert {"README.md", "weights.md", "speed.md"} <= {page.name for page in tables.pages()}


def test_a_file_is_compared_with_what_was_measured_of_it():
    one = {
        "metric": "test_accuracy",
        "n": 1,
        "mean": 0.5,
        "std": None,
        "values": [0.5],
        "stored": {"test_accuracy": 0.4},
    }
    assert of_this_file(one) == {} and format_recorded(one) == ("50.00 % (n = 1)", 0.5)
    three = {**one, "n": 3, "std": 0.01, "values": [0.6, 0.5, 0.4], "stored": {}}
    assert of_this_file(three) == {"this_file": 0.6}  # of the first run
    assert format_recorded({**three, **of_this_file(three)}) == ("50.00 ± 1.00 % (n = 3), this file 60.00 %", 0.6)
    assert of_this_file({**three, "stored": {"test_accuracy": 0.59}}) == {"this_file": 0.59}
    assert of_this_file({**three, "values": []}) == {}


def test_adding_a_search(tmp_path):
    with pytest.raises(ValueError, match="no finished search"):
        add_search(tmp_path, tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    cells = {"plain_fc10": {"n": 2, "best_run": 1}, "highway_fc10": {"n": 2, "best_run": 0}}
    curves = (
        "cell,run,epoch,train_loss\nplain_fc10,0,1,inf\nplain_fc10,1,1,0.5\nplain_fc10,1,2,0.25\nhighway_fc10,0,1,0.1\n"
    )
    (out / "result.json").write_text(json.dumps({"search": "figure1", "cells": cells}))
    (out / "curves.csv").write_text(curves)
    folder = add_search(out, tmp_path)
    assert (folder / "curves.csv").read_text() == curves and folder == tmp_path / "zoo" / "searches" / "figure1"
    drawn = (tmp_path / "docs" / "figure1.png").read_bytes()
    (tmp_path / "docs" / "figure1.png").unlink()
    assert add_search(folder, tmp_path) == folder  # draws it again
    assert (tmp_path / "docs" / "figure1.png").read_bytes() == drawn and (folder / "curves.csv").read_text() == curves


def test_adding_runs_pools_their_seeds(tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "ZOO", tmp_path)
    run = finished_run(tmp_path / "a", 1, 0.99)
    recipe = json.loads((run / "recipe.json").read_text())
    (run / "recipe.json").write_text(json.dumps({**recipe, "source": "an older text"}))
    folder = adding.add([run, finished_run(tmp_path / "b", 2, 0.98)])
    assert json.loads((folder / "recipe.json").read_text()) == {**recipe, "seed": 1}
    result = json.loads((folder / "result.json").read_text())
    assert (result["n"], result["seeds"], result["values"]) == (2, [1, 2], [0.99, 0.98])
    assert result["mean"] == pytest.approx(0.985) and result["std"] == pytest.approx(0.0070711, rel=1e-4)
    file = folder / "model.weights.h5"
    row = json.loads((folder / "weights.json").read_text())
    assert (row["name"], row["sha256"], row["wheel"]) == ("mnist10_w16.tvdn", sha256_of(file), True)
    assert weights_file.read(file).stamp["variant"] == "mnist10_w16"
    assert "98.50 ± 0.71 % (n = 2)" in (folder / "card.md").read_text()


def test_a_new_weight_is_a_folder_and_nothing_else(tmp_path, monkeypatch):
    run = finished_run(tmp_path / "run", 1, 0.99)
    for name in ("recipe.json", "result.json"):
        (run / name).write_text((run / name).read_text().replace("mnist10_w16.tvdn", "mnist10_w16.new"))
    weights_file.save(kh.create_model("mnist10_w16"), run / "model.weights.h5", "mnist10_w16", 10)
    recipe = dataclasses.replace(RECIPES["mnist10_w16"], weights="mnist10_w16.new")
    monkeypatch.setattr(adding, "RECIPES", {**RECIPES, recipe.name: recipe})
    zoo = tmp_path / "zoo"
    zoo.mkdir()
    monkeypatch.setattr(adding, "ZOO", zoo)
    folder = adding.add([run])
    monkeypatch.setenv("KERAS_HIGHWAY_ZOO", str(zoo))
    row = kh.describe_weights("mnist10_w16.new")
    assert "mnist10_w16.new" in kh.list_weights() and row.metrics["mean"] == 0.99
    assert row.data_licence == kh.describe_weights("mnist10_w16.tvdn").data_licence and row.classes == tuple(
        "0123456789"
    )
    assert kh.load("mnist10_w16.new").name == "mnist10_w16"
    assert 'kh.load("mnist10_w16.new")' in (folder / "card.md").read_text()
    folder.rename(zoo / "other")
    with pytest.warns(Notice, match=r"other/weights\.json is of weights 'mnist10_w16\.new'.*KERAS_HIGHWAY_ZOO"):
        others = kh.list_weights()
    assert "mnist10_w16.new" not in others and "mnist10_w16.tvdn" in others  # one bad folder hides no others
    (zoo / "other").rename(folder)
    assert "mnist10_w16.new" in kh.list_weights()  # a folder that comes or goes is seen at once
    shutil.rmtree(folder)
    assert "mnist10_w16.new" not in kh.list_weights()
    with pytest.raises(ValueError, match=r"Unknown weights.*'mnist10_w16.new'"):
        kh.load("mnist10_w16.new")


@pytest.mark.more
def test_entries_in_the_wheel_are_bounded_together(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(adding, "ZOO", tmp_path)
    run = finished_run(tmp_path / "a", 1, 0.99)
    size = sum(path.stat().st_size for path in adding.add([run]).iterdir())
    (tmp_path / "other.b").mkdir()
    (tmp_path / "other.b" / "weights.json").write_text('{"wheel": true}')
    (tmp_path / "other.b" / "model.weights.h5").write_bytes(b"0" * 5000)
    for bound, whole in ((size + 6000, True), (size + 4000, False)):
        monkeypatch.setattr(adding, "_ALL_IN_WHEEL", bound)
        assert json.loads((adding.add([run]) / "weights.json").read_text())["wheel"] is whole
    (tmp_path / "other.b" / "weights.json").write_text('{"wheel": false}')
    assert json.loads((adding.add([run]) / "weights.json").read_text())["wheel"] is True
    (run / "result.json").unlink()
    with pytest.raises(SystemExit) as ended:
        adding.main([str(run)])
    assert ended.value.code == 2
    assert capsys.readouterr().err == f"error: {run} holds no finished run: there is no {run / 'result.json'}.\n"


@pytest.mark.parametrize(
    ("variant", "metric", "before", "kept", "lost"),
    [
        ("mnist10_w16", "test accuracy", 0.99, 0.9897, 0.9896),
        ("charlm_small_coupled", "test perplexity", 80.0, 80.0099, 80.0101),
    ],
)
def test_how_far_half_precision_may_move_a_metric(variant, metric, before, kept, lost, monkeypatch):
    row = dataclasses.replace(registry.find("mnist10_w16.tvdn"), variant=variant)
    monkeypatch.setattr("zoo.release.add.measure", lambda *_: kept)
    assert check_stored(row, registry.FILE, None, before) == kept
    for actual in (lost, float("nan")):
        monkeypatch.setattr("zoo.release.add.measure", lambda *_, actual=actual: actual)
        with pytest.raises(ValueError, match=f"in float16 its {metric} is"):
            check_stored(row, registry.FILE, None, before)


@pytest.mark.slow
def test_half_precision_must_keep_what_was_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "ZOO", tmp_path)
    measured, accuracies = [], {"float32": 0.9900, "float16": 0.9899}

    def measured_before(row, folder, data_dir):
        with h5py.File(folder / registry.FILE) as file:
            dtypes = []
            file.visititems(lambda _, item: dtypes.append(str(item.dtype)) if getattr(item, "shape", ()) else None)
        measured.append((row.name, dtypes[0], data_dir))
        return accuracies[dtypes[0]]

    monkeypatch.setattr("zoo.release.add.measure", measured_before)
    folder = adding.add([finished_run(tmp_path / "a", 1, 0.99)], float16=True, data_dir="data")
    assert measured == [("mnist10_w16.tvdn", "float32", "data"), ("mnist10_w16.tvdn", "float16", "data")]
    result = json.loads((folder / "result.json").read_text())
    assert result["mean"] == 0.99 and result["stored"] == {"dtype": "float16", "test_accuracy": 0.9899}
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    accuracies["float32"] = 0.9910
    with pytest.raises(ValueError, match=r"in float16 its test accuracy is 0\.98990, in float32 0\.99100"):
        adding.add([finished_run(tmp_path / "b", 1, 0.991)], float16=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert not list(tmp_path.glob(".partial*"))


def write_corpus(folder):
    """The synthetic corpus as files; returns the folder of its folder."""
    corpus = synthetic_corpus()
    (folder / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        words = " ".join(corpus.vocabulary.words[i] for i in getattr(corpus, split))
        (folder / "ptb" / f"{split}.txt").write_text(words.replace(" <eos> ", "\n"))
    return folder


def test_what_is_stored_is_measured(tmp_path):
    """Of a shipped net on images that it was not made for, by hand."""
    row = registry.find("mnist10_w16.tvdn")
    x = np.random.default_rng(0).integers(0, 256, (30, 28, 28, 1)).astype("uint8")
    probabilities = kh.load(row.name).predict(kh.preprocess_input(x, weights=row.name), verbose=0)
    y = np.where(np.arange(30) < 12, probabilities.argmax(1), (probabilities.argmax(1) + 1) % 10)
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    assert measure(row, registry.file_of(row).parent, tmp_path) == 0.4


@pytest.mark.slow
def test_a_language_model_in_the_zoo(tmp_path, monkeypatch):
    """A tiny run under the published recipe's name: weights with their vocabulary, a card on how to use them."""
    data = write_corpus(tmp_path)
    recipe = dataclasses.replace(tiny(RECIPES["charlm_small_coupled"]), data=str(data / "ptb"), test_tokens=None)
    train(recipe, None, tmp_path / "run")
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    name = "charlm_small_coupled"
    published = {**RECIPES[name].to_dict(), "seed": 3}
    (tmp_path / "run" / "recipe.json").write_text(json.dumps(published))
    (tmp_path / "run" / "result.json").write_text(json.dumps({**result, "weights": f"{name}.ptb"}))
    monkeypatch.setattr(adding, "ZOO", tmp_path)
    folder = adding.add([tmp_path / "run"])
    before, after = (kh.CharLM(weights=path) for path in (tmp_path / "run", folder))
    assert measure(registry.find(f"{name}.ptb"), folder, data) == pytest.approx(result["mean"], rel=1e-5)
    (data / "ptb" / "train.txt").write_text("other words\n")
    with pytest.raises(ValueError, match="has other words than the training"):
        measure(registry.find(f"{name}.ptb"), folder, data)
    text = "ba den"
    assert after.score(text).perplexity == before.score(text).perplexity
    card = (folder / "card.md").read_text()
    assert f'kh.CharLM("{name}.ptb")' in card and f"test perplexity of the last epoch: **{result['mean']:.2f}" in card
    assert f"| `{name}.ptb` | {result['mean']:.2f} (n = 1) | about 93 |" in tables.language_table(tmp_path)


@pytest.mark.parametrize("name", sorted(tables.all_results()))
def test_cards_are_what_publish_sends(name):
    folder = tables.ROOT / "zoo" / "weights" / name
    assert (folder / "card.md").read_text("utf-8") == card(registry.described(registry.find(name)), folder)
    assert (folder / "curve.png").is_file()


def test_adding_refuses_unfinished_and_mixed_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "ZOO", tmp_path / "empty")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no finished run"):
        adding.add([tmp_path / "empty"])
    a, b = finished_run(tmp_path / "a", 1, 0.99), finished_run(tmp_path / "b", 2, 0.98)
    recipe = json.loads((b / "recipe.json").read_text())
    (b / "recipe.json").write_text(json.dumps({**recipe, "learning_rate": 1.0}))
    with pytest.raises(ValueError, match="different recipes"):
        adding.add([a, b])
    with pytest.raises(ValueError, match=r"'mnist10_w16' is not the one of that name .* learning_rate differ"):
        adding.add([b])
    c = finished_run(tmp_path / "c", 3, 0.97)
    (c / "result.json").write_text(json.dumps({**json.loads((c / "result.json").read_text()), "epochs": 18}))
    with pytest.raises(ValueError, match="different numbers of epochs"):
        adding.add([a, c])
    with pytest.raises(ValueError, match=r"is after 18 epochs and log.csv has \d+: the run has resumed"):
        adding.add([c])  # its weights are not those of the last line


@pytest.mark.slow
def test_an_entry_names_the_recipe_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "ZOO", tmp_path)
    short = dataclasses.replace(RECIPES["mnist10_w16"], name="mnist10_w16_short")
    monkeypatch.setattr(adding, "RECIPES", {**RECIPES, short.name: short})
    run = finished_run(tmp_path / "a", 1, 0.99)
    (run / "recipe.json").write_text(json.dumps({**short.to_dict(), "seed": 1}))
    folder = adding.add([run])
    assert json.loads((folder / "weights.json").read_text())["recipe"] == "mnist10_w16_short"
    assert "python -m keras_highway train mnist10_w16_short" in (folder / "card.md").read_text()


def test_cards_say_how_pixels_become_input():
    assert described(TRANSFORMS["mnist"]) == "pixels in [0, 255] of 28x28, greyscale, times 1/256"
    assert described(TRANSFORMS["cifar10"]).endswith("minus (0.485, 0.456, 0.406), over (0.229, 0.224, 0.225)")
    assert "each image minus its mean" in described(TRANSFORMS["cifar_contrast"])
