"""The zoo: adding runs and later seeds, photographs, cards, tables that cannot differ from their results."""

import dataclasses
import json
import re
import shutil

import h5py
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway._support.files import atomic_write_json, sha256_of
from keras_highway._support.terminal import Notice
from keras_highway.data.photographs import data_test_set
from keras_highway.training.data.synthetic import synthetic_corpus
from keras_highway.training.loop import train
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import read_row
from keras_highway.weights.publish import find_publishable, write_bundle
from keras_highway.weights.trained import weights_class
from tests.finished_runs import finished_run
from zoo.release import add as adding
from zoo.release import tables
from zoo.release.add import check_stored, measure
from zoo.release.cards import card

README = tables.ROOT / "README.md"


def test_tables_are_those_of_the_results():
    named = set()
    for page in tables.pages():
        text = page.read_text("utf-8")
        named.update(re.findall(r"<!-- table:(\w+) -->", text))
        assert tables.render(text) == text, page
    assert named == set(tables.TABLES)
    assert {"README.md", "weights.md", "speed.md"} <= {page.name for page in tables.pages()}


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


def write_corpus(folder):
    """The synthetic corpus as files; returns the folder of its folder."""
    corpus = synthetic_corpus()
    (folder / "ptb").mkdir()
    for split in ("train", "valid", "test"):
        words = " ".join(corpus.vocabulary.words[i] for i in getattr(corpus, split))
        (folder / "ptb" / f"{split}.txt").write_text(words.replace(" <eos> ", "\n"))
    return folder


def test_what_is_stored_is_measured(tmp_path):
    """A shipped net on other images, measured by hand."""
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
        adding.add([c])  # its weights are not of the last line


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """An entry of one run, its file as another version of h5py would have written it, with a gate report."""
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


def test_an_error_while_a_seed_joins_leaves_the_entry(entry, tmp_path, monkeypatch):
    before = contents(entry)
    monkeypatch.setattr(adding, "write_card", lambda *_: (_ for _ in ()).throw(OSError("full disk")))
    with pytest.raises(OSError, match="full disk"):
        adding.add([entry, finished_run(tmp_path / "b", 2, 0.98)])
    assert contents(entry) == before and [path.name for path in entry.parent.iterdir()] == [entry.name]


NAMES = {"n01440764": "tench", "n02102040": "English_springer"}
SMALL = (("blocks", (2, 1)), ("widths", (4, 8)), ("stem_width", 8), ("input_shape", (64, 64, 3)))


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """A folder of data sets with an Imagenette of two classes."""
    root, draw = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for split, count in (("train", 16), ("val", 10)):
        for k, name in enumerate(NAMES):
            folder = root / "imagenette" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 120, (70 + i, 80, 3)).astype(np.uint8)
                pixels[..., k] += 100
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def recipe():
    return dataclasses.replace(
        RECIPES["highway50_imagenette"],
        weights="highway50.two_classes",  # no entry of the zoo
        overrides=SMALL,
        transform="imagenet_64",
        batch_size=8,
        epochs=2,
        warmup_epochs=1,
    )


@pytest.fixture(scope="module")
def run(photographs, recipe, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(recipe, photographs / "imagenette", folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("float16", [False, True])
def test_a_run_becomes_an_entry_that_gives_the_same_logits(run, photographs, recipe, float16, tmp_path, monkeypatch):
    monkeypatch.setattr(adding, "ZOO", tmp_path)
    monkeypatch.setattr(adding, "RECIPES", {**RECIPES, recipe.name: recipe})
    folder = adding.add([run], float16=float16, data_dir=photographs)
    row = read_row(folder / registry.ROW)
    assert row.classes == tuple(NAMES.values()) and row.images.size == (64, 64) and row.variant == "highway50"
    assert (row.data, row.licence) == ("imagenette", "Apache-2.0") and "ImageNet" in row.data_licence
    file = folder / registry.FILE
    stored = weights_class(row.variant).open(row, file)
    x = np.random.default_rng(1).random((2, 64, 64, 3), "float32")
    expected = kh.load(run, classifier_activation=None).predict(x, verbose=0)
    assert np.abs(expected).max() > 1e-3
    close = {"rtol": 5e-3, "atol": 1e-3} if float16 else {"rtol": 1e-6, "atol": 1e-7}
    np.testing.assert_allclose(stored.network.predict(x, verbose=0), expected, **close)
    assert _dtypes(file) == {"float16" if float16 else "float32"}
    assert kh.load(file).output_shape == (None, 2)  # the file itself states its form
    result = json.loads((folder / "result.json").read_text())
    measured = stored.measure(photographs)
    assert measured.value == pytest.approx(result["mean"], abs=0.1)  # of 20, read by Pillow, not by TensorFlow
    assert measured.where == "on the 20 test photographs of imagenette"
    if float16:
        assert result["stored"] == {"dtype": "float16", "test_accuracy": measured.value}
    report = stored.gate_report(photographs)
    assert report["samples"] == 20 and len(report["blocks"]) == 3
    assert all(0 < block["t"]["mean"] < 1 for block in report["blocks"].values())


def _dtypes(file) -> set[str]:
    """Dtypes of the arrays of more than one number in a weight file."""
    found = set()
    with h5py.File(file) as content:
        content.visititems(
            lambda _, item: found.add(str(item.dtype)) if isinstance(item, h5py.Dataset) and item.ndim else None
        )
    return found


def test_folders_of_other_imagenet_classes_are_refused(tmp_path):
    """As many dogs as the weights have classes, under WordNet's identifiers, are not these classes."""
    for identifier in ("n02086240", "n02087394"):  # Shih-Tzu, Rhodesian_ridgeback
        (tmp_path / "imagenette" / "val" / identifier).mkdir(parents=True)
    with pytest.raises(ValueError, match=r"the classes of the weights: it has .*Shih-Tzu for English_springer, tench"):
        data_test_set("imagenette", tmp_path, 2, tuple(NAMES.values()))


def test_wordnet_folders_are_the_classes_of_that_name_in_any_order(photographs):
    backwards = data_test_set("imagenette", photographs, 2, tuple(NAMES.values())[::-1])
    labels = {photograph.file.parent.name: photograph.label for photograph in backwards.photographs}
    assert labels == {"n01440764": 1, "n02102040": 0}


@pytest.mark.slow
def test_a_run_at_another_size_than_the_variants_can_be_published(run, tmp_path):
    write_bundle(find_publishable(run), "org/photographs", tmp_path)
    check = np.load(tmp_path / "check.npz")
    assert check["pixels"].shape == (2, 64, 64, 3)
    net = kh.load(tmp_path, classifier_activation=None)
    logits = net.predict(kh.preprocess_input(check["pixels"], weights=str(tmp_path)), verbose=0)
    np.testing.assert_allclose(logits, check["logits"], rtol=1e-3, atol=1e-5)


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
