"""Training on your own folders and from trained weights: classes, heads, frozen stages."""

import dataclasses
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from PIL import Image

import keras_highway as kh
from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.data.datasets import OWN_CLASSES, load_dataset
from keras_highway.data.photographs import relabelled
from keras_highway.data.transforms import CLASSES, TRANSFORMS
from keras_highway.predictions import find_classifier
from keras_highway.publishing import find_publishable, write_bundle
from keras_highway.publishing.images import ClassifierWeights
from keras_highway.training import loop
from keras_highway.training.data.source import ArraySource, open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import train
from keras_highway.training.program import Program
from keras_highway.training.recipe import Recipe, changed, with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.results import _data_and_names, _form
from keras_highway.training.runs.run_folder import RunFolder
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry

OWN = ("apple", "pear", "plum")
RECIPE = changed(RECIPES["highway_fc10"], epochs=1, batch_size=3, overrides=(("depth", 2), ("units", 4)))
NUMBERS = {"metric": "test_accuracy", "n": 1, "mean": 0.5, "std": None, "seeds": [0], "values": [0.5]}


def data_set(folder, name="mnist", classes=None):
    """Six images of three classes."""
    shape = (28, 28) if name == "mnist" else (32, 32, 3)
    x, y = np.random.default_rng(0).integers(0, 256, (6, *shape), np.uint8), np.arange(6) % 3
    named = {} if classes is None else {"classes": np.array(classes)}
    np.savez(folder / f"{name}.npz", x_train=x, y_train=y, x_test=x, y_test=y, **named)
    return folder


def source_of(recipe: Recipe, folder) -> ArraySource:
    source = open_source(recipe, folder)
    assert isinstance(source, ArraySource)
    return source


def test_a_run_on_arrays_with_classes_of_ones_own_names_them(tmp_path, capsys):
    folder = data_set(tmp_path, classes=OWN)
    result = train(RECIPE, folder, tmp_path / "run")
    assert (result["data"], result["class_names"]) == ("mnist", list(OWN))
    assert [name for _, name in find_classifier(str(tmp_path / "run")).classes] == list(OWN)
    guess = kh.decode_predictions(np.array([[0.1, 0.2, 0.7]]), weights=tmp_path / "run", top=1)[0][0]
    assert guess.name == "plum"
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "a.png")
    capsys.readouterr()
    assert main(["classify", str(tmp_path / "a.png"), "--weights", str(tmp_path / "run"), "--top", "3"]) == 0
    assert {word for word in capsys.readouterr().out.split() if word.isalpha()} == set(OWN)


def test_a_run_is_measured_by_the_names_of_its_classes(tmp_path, capsys):
    """The same images under the same names, which other numbers stand for; other names are refused."""
    own, other, strange = (tmp_path / name for name in ("own", "other", "strange"))
    for folder in (own, other, strange):
        folder.mkdir()
    data_set(own, classes=OWN)
    train(RECIPE, own, tmp_path / "run")
    with np.load(own / "mnist.npz") as arrays:
        x, y = arrays["x_train"], arrays["y_train"]
    np.savez(other / "mnist.npz", x_train=x, y_train=2 - y, x_test=x, y_test=2 - y, classes=np.array(OWN[::-1]))
    data_set(strange, classes=("a", "b", "c"))
    capsys.readouterr()
    accuracies = []
    for folder in (own, other):
        assert main(["evaluate", str(tmp_path / "run"), "--data", str(folder)]) == 0
        accuracies.append(re.findall(r"accuracy +[0-9.]+ %", capsys.readouterr().out))
        weights = find_publishable(str(tmp_path / "run"))
        accuracies.append(ClassifierWeights.open(weights.row, weights.folder / registry.FILE).measure(folder).value)
    assert accuracies[0] and accuracies[:2] == accuracies[2:]
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(strange)]) == 2
    assert "mnist.npz must have the classes of the weights: it has a, b, c for apple" in capsys.readouterr().err


def test_labels_of_the_same_classes_stay_as_they_are(tmp_path):
    """Of two of one name, too."""
    names = ("a", "other", "other")
    data = load_dataset("mnist", data_set(tmp_path, classes=names))
    assert relabelled("mnist.npz", data, names) is data is relabelled("mnist.npz", data, ())


@pytest.mark.parametrize("classes", [None, CLASSES["mnist"]])
def test_names_that_the_package_knows_are_not_recorded(tmp_path, classes):
    """Results of known data sets stay as they were, and their runs go on."""
    assert source_of(RECIPE, data_set(tmp_path, classes=classes)).class_names == ()
    assert source_of(dataclasses.replace(RECIPE, data="synthetic_mnist"), None).class_names == ()


def test_class_names_of_a_run_do_not_change(tmp_path):
    folder = RunFolder(tmp_path, {}, Strategy())
    (tmp_path / "checkpoint.npz").write_bytes(b"begun")
    (tmp_path / "data.json").write_text(json.dumps({"steps": 3, "class_names": ["a", "c"]}))
    with pytest.raises(ValueError, match="begun with other data: class_names"):
        folder.check_data({"steps": 3, "class_names": ["a", "b"]})


def run_of(folder, data):
    """A finished run of a small net of a variant for CIFAR-10, on data of a hundred classes without names."""
    net = create_model("resnet20", classes=100, blocks=(1, 1), widths=(4, 4), stem_width=4)
    weights_file.save(net, folder / "model.weights.h5", "resnet20", 100, transform="cifar10", **_form(net))
    result = {"weights": "resnet20.x", "variant": "resnet20", "data": data, **NUMBERS}
    (folder / "result.json").write_text(json.dumps(result))
    return str(folder)


def test_the_data_set_of_a_run_is_the_one_it_was_trained_on(tmp_path, capsys):
    """Not the one that its variant was published for."""
    classifier = find_classifier(run_of(tmp_path, "cifar100"))
    assert classifier.data == "cifar100"
    assert tuple(name for _, name in classifier.classes) == CLASSES["cifar100"]
    data_set(tmp_path, "cifar100")
    assert main(["evaluate", str(tmp_path), "--data", str(tmp_path)]) == 0
    assert "on the 6 test images of cifar100" in capsys.readouterr().out


def test_made_up_data_are_those_that_the_variant_is_for(tmp_path):
    """There is nothing of that name to evaluate on."""
    assert find_classifier(run_of(tmp_path, "synthetic_cifar10")).data == "cifar10"


SMALL = (("blocks", (1, 1)), ("widths", (4, 8)), ("stem_width", 8), ("input_shape", (32, 32, 3)))
FINE_TUNING = dataclasses.replace(
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
    """Of the layers but the head, by their paths."""
    return {w.path: np.asarray(w) for layer in model.layers if layer.name != "head" for w in layer.weights}


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Weights of three classes to start from."""
    model = kh.create_model("resnet50", classes=3, **dict(SMALL))
    return kh.save(model, tmp_path_factory.mktemp("start") / "pets", list("abc"), TRANSFORMS["cifar10"])


@pytest.mark.slow
def test_a_run_starts_from_weights_with_a_fresh_head_and_records_what_it_was_trained_on(start, tmp_path, capsys):
    folder = photographs(tmp_path / "data", ["cat", "dog"])
    result = loop.train(changed(FINE_TUNING, init=str(start), freeze="body"), folder, tmp_path / "run")
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


@pytest.mark.slow
def test_stages_are_frozen_up_to_the_one_that_is_named(start, tmp_path):
    folder = photographs(tmp_path / "data", ["a", "b", "c"])
    loop.train(changed(FINE_TUNING, init=str(start), freeze="stage1", epochs=2), folder, tmp_path / "run")
    before, after = weights_of(kh.load(start)), weights_of(kh.load(tmp_path / "run"))
    for path, value in before.items():
        frozen = path.startswith(("stem", "stage1"))
        assert np.array_equal(after[path], value) or not frozen, path
    assert any(not np.array_equal(after[p], v) for p, v in before.items() if p.startswith("stage2"))


def test_weights_of_another_image_size_are_a_start(start):
    """`start` was saved for 32 x 32; the recipe's images are of the variant's own size."""
    overrides = tuple(pair for pair in SMALL if pair[0] != "input_shape")
    recipe = dataclasses.replace(FINE_TUNING, transform="imagenet", overrides=overrides, init=str(start))
    source = SimpleNamespace(classes=2, images=4, test_images=4)
    assert Program(recipe, source, None).net.input_shape == (None, 224, 224, 3)
    sized = dataclasses.replace(recipe, overrides=(*overrides, ("input_shape", (None, None, 3))))
    assert Program(sized, source, None).net.input_shape == (None, None, None, 3)


@pytest.mark.parametrize(("names", "same"), [("abc", True), ("abd", False), ("acb", True), ("", True), ("012", True)])
def test_classes_of_other_names_have_a_fresh_head(start, names, same):
    """`start` has a, b and c; where the data do not name theirs, as many are taken for these."""
    recipe = dataclasses.replace(FINE_TUNING, init=str(start))
    source = SimpleNamespace(classes=3, images=4, test_images=4, class_names=tuple(names))
    net, known = Program(recipe, source, None).net, kh.load(start)
    kernel, trained = (np.asarray(model.get_layer("head").kernel) for model in (net, known))
    trained = trained[:, [0, 2, 1]] if names == "acb" else trained  # each class keeps its own
    assert np.array_equal(kernel, trained) == same and (same or np.abs(kernel).max() > 0)
    assert all(np.array_equal(value, weights_of(net)[path]) for path, value in weights_of(known).items())


def test_what_the_folders_are_decides_what_a_result_claims():
    recipe = RECIPES["highway50"]
    assert _data_and_names(recipe, ("cat", "dog")) == ("", ["cat", "dog"])
    assert _data_and_names(recipe, ("n01440764", "n02102040")) == ("imagenet", ["tench", "English_springer"])
    shih_tzu, tench = "n02086240", "n01440764"
    dogs = RECIPES["highway50_imagenette"]
    assert _data_and_names(dogs, (tench,)) == ("imagenette", ["tench"])
    assert _data_and_names(dogs, (shih_tzu,)) == ("imagewoof", ["Shih-Tzu"])
    whole = tuple(sorted(OWN_CLASSES["imagenette"]))
    assert _data_and_names(recipe, whole)[0] == "imagenette" and "tench" in _data_and_names(recipe, whole)[1]
    assert _data_and_names(recipe, (tench, "other")) == ("", [tench, "other"])  # which `evaluate` compares with folders
    assert _data_and_names(dogs, (shih_tzu, tench)) == ("", ["Shih-Tzu", "tench"])
    assert _data_and_names(RECIPES["mnist10_w16"], ()) == ("mnist", [])
    assert _data_and_names(dataclasses.replace(recipe, data="tfds:pets"), ("cat",)) == ("tfds:pets", ["cat"])


def test_settings_of_a_start_are_checked():
    with pytest.raises(ValueError, match=r"number of classes follows from the data.*Received: net.classes=10"):
        with_settings(RECIPES["highway50"], ["net.classes=10"])
    with pytest.raises(ValueError, match=r"`init`. Received: freeze='stage1'"):
        changed(FINE_TUNING, freeze="stage1")
    assert "init" not in FINE_TUNING.to_dict()  # a run that has none resumes where older versions left it
    assert changed(FINE_TUNING, init="x").to_dict()["init"] == "x"
