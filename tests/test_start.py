"""Training on a user's folders, from trained weights: its names and claims, fresh heads, frozen stages."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data.datasets import OWN_CLASSES
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training import loop
from keras_highway.training.program import ImageProgram, data_and_names
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.weights.publish import find_publishable, write_bundle

SMALL = (("blocks", (1, 1)), ("widths", (4, 8)), ("stem_width", 8), ("input_shape", (32, 32, 3)))
RECIPE = dataclasses.replace(
    RECIPES["resnet50"],
    batch_size=2,
    epochs=1,
    warmup_epochs=0,
    transform="cifar10",
    overrides=SMALL,
    learning_rate=0.01,
)


def photographs(root, names):
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        for k, name in enumerate(names):
            (root / split / name).mkdir(parents=True)
            for i in range(2):
                pixels = draw.integers(0, 100, (40, 40, 3)).astype(np.uint8)
                pixels[..., k] += 120
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return root


def weights_of(model):
    """Weights of all layers except the head, by path."""
    return {w.path: np.asarray(w) for layer in model.layers if layer.name != "head" for w in layer.weights}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Weights of three classes to start from."""
    model = kh.create_model("resnet50", classes=3, **dict(SMALL))
    return kh.save(model, tmp_path_factory.mktemp("start") / "pets", list("abc"), TRANSFORMS["cifar10"])


@pytest.mark.slow
def test_a_run_starts_from_weights_with_a_fresh_head_and_records_what_it_was_trained_on(start, tmp_path, capsys):
    folder = photographs(tmp_path / "data", ["cat", "dog"])
    result = loop.train(changed(RECIPE, init=str(start), freeze="body"), folder, tmp_path / "run")
    assert (result["data"], result["class_names"]) == ("", ["cat", "dog"])
    net = kh.load(tmp_path / "run")
    assert net.output_shape == (None, 2)
    before, after = weights_of(kh.load(start)), weights_of(net)
    assert before.keys() == after.keys() and len(before) > 20
    for path, value in before.items():
        np.testing.assert_array_equal(after[path], value, err_msg=path)
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["freeze"] == "body"

    image = str(folder / "val" / "dog" / "0.png")
    capsys.readouterr()  # the run's lines
    assert main(["classify", image, "--weights", str(tmp_path / "run"), "--top", "2"]) == 0
    assert {word for word in capsys.readouterr().out.split() if word.isalpha()} == {"cat", "dog"}

    for fields, expected in (({}, None), ({"dataset": "my cats", "license": "MIT"}, "mit")):
        bundle = tmp_path / f"bundle_{expected}"
        bundle.mkdir()
        write_bundle(find_publishable(str(tmp_path / "run"), **fields), "org/pets", bundle)
        card = (bundle / "README.md").read_text()
        header = yaml.safe_load(card.split("---\n")[1])
        assert header.get("license") == expected and "datasets" not in header
        assert ("trained on my cats" in card) == bool(fields) and "2: cat, dog" in card
        assert not any(word in card for word in ("trained on imagenet", "ILSVRC", "Apache"))
        np.testing.assert_array_equal(kh.load(bundle).layers[-1].get_weights()[0], net.layers[-1].get_weights()[0])


@pytest.mark.parametrize(("names", "same"), [("abc", True), ("abd", False), ("acb", True), ("", True), ("012", True)])
def test_classes_of_other_names_have_a_fresh_head(start, names, same):
    """`start` has a, b and c; where the data do not name theirs, as many are taken for these."""
    recipe = dataclasses.replace(RECIPE, init=str(start))
    source = SimpleNamespace(classes=3, images=4, test_images=4, class_names=tuple(names))
    net, known = ImageProgram(recipe, source, None).net, kh.load(start)
    kernel, trained = (np.asarray(model.get_layer("head").kernel) for model in (net, known))
    trained = trained[:, [0, 2, 1]] if names == "acb" else trained  # each class keeps its own
    assert np.array_equal(kernel, trained) == same and (same or np.abs(kernel).max() > 0)
    assert all(np.array_equal(value, weights_of(net)[path]) for path, value in weights_of(known).items())


def test_what_the_folders_are_decides_what_a_result_claims():
    recipe = RECIPES["highway50"]
    assert data_and_names(recipe, ("cat", "dog")) == ("", ["cat", "dog"])
    assert data_and_names(recipe, ("n01440764", "n02102040")) == ("imagenet", ["tench", "English_springer"])
    shih_tzu, tench = "n02086240", "n01440764"
    dogs = RECIPES["highway50_imagenette"]
    assert data_and_names(dogs, (tench,)) == ("imagenette", ["tench"])
    assert data_and_names(dogs, (shih_tzu,)) == ("imagewoof", ["Shih-Tzu"])
    whole = tuple(sorted(OWN_CLASSES["imagenette"]))
    assert data_and_names(recipe, whole)[0] == "imagenette" and "tench" in data_and_names(recipe, whole)[1]
    assert data_and_names(recipe, (tench, "other")) == ("", [tench, "other"])  # which `evaluate` compares with folders
    assert data_and_names(dogs, (shih_tzu, tench)) == ("", ["Shih-Tzu", "tench"])
    assert data_and_names(RECIPES["mnist10_w16"], ()) == ("mnist", [])
    assert data_and_names(dataclasses.replace(recipe, data="tfds:pets"), ("cat",)) == ("tfds:pets", ["cat"])


@pytest.mark.slow
def test_stages_are_frozen_up_to_the_one_that_is_named(start, tmp_path):
    folder = photographs(tmp_path / "data", ["a", "b", "c"])
    loop.train(changed(RECIPE, init=str(start), freeze="stage1", epochs=2), folder, tmp_path / "run")
    before, after = weights_of(kh.load(start)), weights_of(kh.load(tmp_path / "run"))
    for path, value in before.items():
        frozen = path.startswith(("stem", "stage1"))
        assert np.array_equal(after[path], value) or not frozen, path
    assert any(not np.array_equal(after[p], v) for p, v in before.items() if p.startswith("stage2"))
