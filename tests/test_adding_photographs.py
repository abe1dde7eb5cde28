"""A net of photographs in the zoo: another size and other classes than its variant's, in half precision; its gates."""

import dataclasses
import json

import h5py
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.data.photographs import data_test_set
from keras_highway.training.loop import train
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import registry
from keras_highway.weights.info import read_row
from keras_highway.weights.publish import find_publishable, write_bundle
from keras_highway.weights.trained import weights_class
from zoo.release import add as adding

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
    """Of the arrays of more than one number in a weight file."""
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


def test_without_a_folder_the_message_names_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="name the folder of imagenette/val/CLASS"):
        data_test_set("imagenette", None, 10)
    with pytest.raises(FileNotFoundError, match=r"not found in .*name the folder of"):
        data_test_set("imagenette", tmp_path, 10)
