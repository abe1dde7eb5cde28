"""Users' own models: `kh.save`, killed at any time, to any folder, and the Hub; and used from there."""

import dataclasses
import hashlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import fake_hub as fake
import keras
import numpy as np
import pytest
import yaml
from PIL import Image

import keras_highway as kh
from keras_highway._support.terminal import Notice
from keras_highway.analysis.lesions import without
from keras_highway.cli import main
from keras_highway.data import Transform
from keras_highway.data.photographs import folder_test_set
from keras_highway.weights import registry
from keras_highway.weights.info import WeightFileError
from keras_highway.weights.load import FreshHead
from keras_highway.weights.publish import find_publishable, write_bundle
from tests.small_disks import files_of_at_most

PETS = ("bird", "cat", "dog")
NAME = "mnist10_w16.tvdn"
SMALL = {"blocks": (2, 1), "widths": (4, 8), "stem_width": 8, "input_shape": (32, 32, 3)}
TRANSFORM = Transform(size=np.array([32, 32]), channels=np.int8(3), scale=np.float64(1 / 255), mean=np.zeros(1))
SAVED = {"weights.json", "model.weights.h5"}
FILES = SAVED | {"README.md", "check.npz", "config.json", "metadata.json", "model.safetensors"}


def pet(kind, draw, size=32):
    """A noisy picture that is red, green or blue by its kind."""
    pixels = draw.integers(0, 90, (size, size, 3)).astype(np.uint8)
    pixels[..., PETS.index(kind)] += 150
    return pixels


def built(**overrides):
    return kh.create_model("resnet50", classes=3, **{**SMALL, **overrides})


def bundle(saved, folder):
    """The files of a repository."""
    folder.mkdir()
    write_bundle(find_publishable(str(saved)), "", folder)
    return folder


def seen(model):
    x = TRANSFORM.apply(np.stack([pet(kind, np.random.default_rng(1)) for kind in PETS]))
    return keras.ops.convert_to_numpy(model(x, training=False))


@pytest.fixture(scope="module")
def trained():
    """Three classes of pets, trained by `fit`."""
    keras.utils.set_random_seed(1)
    draw, model = np.random.default_rng(0), built()
    x = TRANSFORM.apply(np.stack([pet(kind, draw) for _ in range(16) for kind in PETS]))
    y = np.tile(np.arange(3), 16)
    model.compile(keras.optimizers.Adam(0.01), loss="sparse_categorical_crossentropy")
    model.fit(x, y, batch_size=16, epochs=6, verbose=0)
    # Batch normalization's averages of a few steps are far from the data's.
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(x, training=True)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9
    return model


@pytest.mark.more
def test_a_model_is_pushed_and_pulled_with_its_names(trained, fake_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", fake.TOKEN)
    kh.push_to_hub(trained, "org/pets", PETS, TRANSFORM)
    x = np.random.default_rng(1).random((2, 32, 32, 3), "float32")
    again = kh.load("hf://org/pets")
    np.testing.assert_allclose(np.asarray(again(x)), np.asarray(trained(x)), atol=1e-6)
    assert {label for _, label, _ in kh.decode_predictions(again(x), weights="hf://org/pets")[0]} == {
        "bird",
        "cat",
        "dog",
    }


def test_a_folder_is_loaded_and_classified_with_its_names(trained, tmp_path, capsys):
    folder = kh.save(trained, tmp_path / "pets", class_names=PETS, transform=TRANSFORM)
    assert {path.name for path in folder.iterdir()} == SAVED
    again = kh.load(folder)
    np.testing.assert_array_equal(seen(again), seen(trained))
    Image.fromarray(pet("dog", np.random.default_rng(7))).save(tmp_path / "rex.png")
    assert main(["classify", str(tmp_path / "rex.png"), "--weights", str(folder)]) == 0
    assert "rex.png: dog " in capsys.readouterr().out
    # A loaded model is saved without naming classes and transform: its weights know them.
    kh.save(again, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "weights.json").read_text())["classes"] == list(PETS)
    body = kh.load(folder, include_top=False)
    assert body.output_shape == (None, None, None, 32)


@pytest.mark.parametrize(("classes", "activation"), [(1, None), (1, "sigmoid"), (3, None), (3, "sigmoid")])
def test_save_and_load_keep_the_activation_of_the_head(classes, activation, tmp_path):
    model = kh.create_model("mnist10_w16", classes=classes, classifier_activation=activation)
    folder, x = kh.save(model, tmp_path / "net", transform="mnist"), np.random.default_rng(0).random((2, 28, 28, 1))
    again = kh.load(folder)
    np.testing.assert_array_equal(np.asarray(again(x)), np.asarray(model(x)))
    assert "softmax" in str(kh.load(folder, classifier_activation="softmax").get_layer("head").activation)
    assert json.loads((folder / "weights.json").read_text())["activation"] == (activation or "linear")
    os.remove(folder / "weights.json")  # the weight file knows it, too
    np.testing.assert_array_equal(np.asarray(kh.load(folder)(x)), np.asarray(model(x)))
    alone: Any = keras.saving.load_model(bundle(kh.save(again, tmp_path / "more"), tmp_path / "bundle"))
    np.testing.assert_array_equal(np.asarray(alone(x)), np.asarray(model(x)))
    assert kh.create_model("mnist10_w16", classes=1).get_layer("head").activation is keras.activations.sigmoid


def test_save_takes_the_size_of_images_from_the_model(trained, tmp_path):
    folder = kh.save(trained, tmp_path / "pets", PETS, TRANSFORM)
    larger = kh.save(kh.load(folder, input_shape=(48, 40, 3)), tmp_path / "larger")
    assert kh.get_transform(larger) == dataclasses.replace(TRANSFORM, size=(48, 40))


def test_save_keeps_the_weights_if_names_or_transform_are_missing(trained, tmp_path):
    with pytest.raises(ValueError, match=r"pass transform=.*pets\.weights\.h5"):
        kh.save(trained, tmp_path / "new" / "pets", PETS)
    np.testing.assert_array_equal(seen(kh.load(tmp_path / "new" / "pets.weights.h5")), seen(trained))


def test_save_warns_of_new_names_on_the_head_of_loaded_weights(trained, tmp_path):
    model = kh.load(kh.save(trained, tmp_path / "pets", PETS, TRANSFORM))
    with pytest.warns(Notice, match="tells apart bird, cat, dog"):
        kh.save(model, tmp_path / "fish", ["carp", "eel", "tench"])
    kh.save(model, tmp_path / "same", PETS)  # pytest turns warnings into errors
    model.layers[-1].kernel.assign_add(keras.ops.ones((32, 3)))
    kh.save(model, tmp_path / "fish", ["carp", "eel", "tench"])


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_classify_applies_a_threshold_to_a_head_of_one_output(activation, tmp_path, capsys):
    model = kh.create_model("mnist10_w16", classes=1, classifier_activation=activation)
    model.get_layer("head").set_weights([np.zeros((144, 1)), np.full(1, np.log(0.6 / 0.4))])
    folder, image = kh.save(model, tmp_path / "net", ["even"], "mnist"), str(tmp_path / "a.png")
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(image)
    assert main(["classify", image, "--weights", str(folder)]) == 0
    assert capsys.readouterr().out == f"{image}: even 60.00 %\n"
    assert main(["classify", image, "--weights", str(folder), "--threshold", "0.7"]) == 0
    assert capsys.readouterr().out == f"{image}: not even (even 60.00 %)\n"
    ((name, score),) = [prediction[1:] for prediction in kh.classify(image, folder)]
    assert name == "even" and score == pytest.approx(0.6)
    with pytest.raises(ValueError, match="the name of class 1"):
        kh.save(model, folder, ["odd", "even"], "mnist")


def test_classify_names_every_label_at_the_threshold(tmp_path, capsys):
    model = kh.create_model("mnist10_w16", classes=3, classifier_activation="sigmoid")
    probabilities = np.array([0.9, 0.2, 0.6])
    model.get_layer("head").set_weights([np.zeros((144, 3)), np.log(probabilities / (1 - probabilities))])
    folder, image = kh.save(model, tmp_path / "net", PETS, "mnist"), str(tmp_path / "a.png")
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(image)
    for threshold, expected in (("0.5", "bird 90.00 %  dog 60.00 %"), ("0.95", "none (bird 90.00 %)")):
        assert main(["classify", image, "--weights", str(folder), "--threshold", threshold]) == 0
        assert capsys.readouterr().out == f"{image}: {expected}\n"
    assert [name for _, name, _ in kh.classify(image, folder, threshold=0.1)] == ["bird", "dog", "cat"]
    assert kh.classify(image, folder, threshold=0.95) == []


def biased(folder, probabilities, class_names):
    """A saved net with a sigmoid that gives the same probabilities for every image."""
    classes, p = len(probabilities), np.array(probabilities)
    model = kh.create_model("mnist10_w16", classes=classes, classifier_activation="sigmoid")
    model.get_layer("head").set_weights([np.zeros((144, classes)), np.log(p / (1 - p))])
    return kh.save(model, folder, class_names, "mnist")


def evaluated(capsys, folder, data):
    assert main(["evaluate", str(folder), "--data", str(data), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def images_in(folder, names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.zeros((28, 28), np.uint8)).save(folder / name)


def test_evaluate_counts_images_and_labels_of_a_csv_file(tmp_path, capsys):
    net = biased(tmp_path / "net", [0.9, 0.2, 0.6], PETS)
    images_in(tmp_path / "val", ["a.png", "b.png", "c.png"])
    (tmp_path / "val" / "labels.csv").write_text("image,labels\na.png,dog;bird\nb.png,bird\nc.png,\n")
    result = evaluated(capsys, net, tmp_path)
    assert (result["images"], result["accuracy"]) == (3, pytest.approx(1 / 3))
    assert result["per_label"] == pytest.approx(2 / 3)
    chances = [0.9 * 0.8 * 0.6, 0.9 * 0.8 * 0.4, 0.1 * 0.8 * 0.4]
    assert result["loss"] == pytest.approx(-np.log(chances).mean() / 3)
    assert main(["evaluate", str(net), "--data", str(tmp_path)]) == 0
    assert "accuracy 33.33 % (all labels), 66.67 % (per label), loss" in capsys.readouterr().out
    (tmp_path / "val" / "labels.csv").write_text("image,labels\na.png,eel\n")
    assert main(["evaluate", str(net), "--data", str(tmp_path)]) == 2
    assert "Received: eel" in capsys.readouterr().err
    with pytest.raises(ValueError, match="sigmoid"):
        folder_test_set(tmp_path, 3)


@pytest.mark.parametrize(("class_names", "accuracy"), [(["even"], 0.75), (["odd"], 0.25), (None, 0.25)])
def test_evaluate_takes_two_folders_for_a_head_of_one_output(class_names, accuracy, tmp_path, capsys):
    net = biased(tmp_path / "net", [0.6], class_names)
    images_in(tmp_path / "val", ["even/a.png", "even/b.png", "even/c.png", "odd/a.png"])
    assert evaluated(capsys, net, tmp_path)["accuracy"] == accuracy


@pytest.mark.more
def test_photographs_are_evaluated_by_a_saved_folder(trained, tmp_path, capsys):
    folder = kh.save(trained, tmp_path / "pets", class_names=PETS, transform=TRANSFORM)
    for kind in PETS:
        (tmp_path / "val" / kind).mkdir(parents=True)
        Image.fromarray(pet(kind, np.random.default_rng(9))).save(tmp_path / "val" / kind / "1.png")
    assert main(["evaluate", str(folder), "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["top1"] == 1.0
    assert main(["report", str(folder), "--out", str(tmp_path / "r.html")]) == 2
    assert "needs --data DIR with photographs" in capsys.readouterr().err
    (tmp_path / "val" / "cat" / "2.png").write_bytes(b"no image")
    assert main(["report", str(folder), "--data", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 2
    output = capsys.readouterr()
    assert "over 3 test images" in output.out and "1 files could not be read" in output.out and "2.png" in output.err
    numbers = json.loads((tmp_path / "r.json").read_text())
    assert (numbers["images"], numbers["accuracy"], numbers["lesions"]["intact_accuracy"]) == (3, 1.0, 1.0)


@pytest.mark.more
def test_a_card_claims_nothing_that_is_not_known(trained, tmp_path):
    card = bundle(kh.save(trained, tmp_path / "pets", PETS, TRANSFORM), tmp_path / "a") / "README.md"
    card = card.read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    assert not {"license", "datasets", "model-index", "metrics"} & set(header)
    for word in ("trained on", "ImageNet", "imagenet", "Apache", "recipe", "log.csv", "curve", "hf://", "| data"):
        assert word not in card, word
    assert "3: bird, cat, dog" in card and "blocks [2, 1]" in card
    kh.save(trained, tmp_path / "pets", PETS, TRANSFORM, dataset="my pets", license="CC-BY-4.0")
    card = (bundle(tmp_path / "pets", tmp_path / "b") / "README.md").read_text()
    header = yaml.safe_load(card.split("---\n")[1])
    assert header["license"] == "cc-by-4.0" and "datasets" not in header and "trained on my pets" in card


@pytest.mark.slow
def test_a_trimmed_a_converted_and_a_fine_tuned_model_are_saved(trained, tmp_path):
    shorter = without(trained, ["stage1_block2"])
    highway = kh.highway_from_resnet(trained)
    fresh = kh.reset_classifier(trained, 5)
    for name, model in {"shorter": shorter, "highway": highway, "fresh": fresh}.items():
        folder = kh.save(model, tmp_path / name, transform=TRANSFORM)
        np.testing.assert_array_equal(seen(kh.load(folder)), seen(model), err_msg=name)
        assert [w.shape for w in kh.load(folder).weights] == [w.shape for w in model.weights], name
    assert json.loads((tmp_path / "shorter" / "weights.json").read_text())["removed"] == ["stage1_block2"]
    assert json.loads((tmp_path / "highway" / "weights.json").read_text())["overrides"]["gate"] == "channel"
    assert kh.load(tmp_path / "shorter", include_top=False).output_shape == (None, None, None, 32)
    with pytest.warns(FreshHead):
        assert np.isfinite(seen(kh.load(tmp_path / "shorter", classes=2))).all()


def test_keras_alone_loads_what_is_published(trained, tmp_path):
    folder = bundle(kh.save(trained, tmp_path / "pets", transform=TRANSFORM), tmp_path / "bundle")
    assert {path.name for path in folder.iterdir()} == FILES
    np.testing.assert_array_equal(seen(keras.saving.load_model(folder)), seen(trained))


@pytest.mark.more
def test_a_keras_file_comes_back_with_its_overrides(trained, tmp_path):
    trained.save(tmp_path / "pets.keras")
    model = keras.saving.load_model(tmp_path / "pets.keras")
    with pytest.raises(ValueError, match=r"not variant 'resnet50' as it was built.*overrides="):
        kh.save(model, tmp_path / "pets", transform=TRANSFORM)
    kh.save(model, tmp_path / "pets", transform=TRANSFORM, variant="resnet50", overrides=SMALL)
    np.testing.assert_array_equal(seen(kh.load(tmp_path / "pets")), seen(model))


@pytest.mark.parametrize("name", ["mnist10_w16.tvdn", "resnet50"])
@pytest.mark.more
def test_preprocessing_inside_is_saved_as_the_transform(name, tmp_path):
    if name in kh.list_weights():
        model = kh.load(name, include_preprocessing=True)
    else:
        model = built(input_shape=None, include_preprocessing=TRANSFORM)
    names = ("a", "b", "c") if name == "resnet50" else None
    for _ in range(2):  # a model that was saved is as it was
        folder = kh.save(model, tmp_path / "net", class_names=names)
    transform = kh.get_transform(model)
    assert kh.get_transform(folder) == transform
    draw = np.random.default_rng(0)
    pixels = draw.integers(0, 256, (2, 45, 61, transform.channels), np.uint8)
    expected = np.asarray(keras.ops.convert_to_numpy(model(pixels)))
    whole, network = kh.load(folder, include_preprocessing=True), kh.load(folder)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(whole(pixels)), expected)
    inside = keras.ops.convert_to_numpy(model.get_layer("preprocessing")(pixels))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(network(inside)), expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="preprocesses images itself"):
        kh.save(model, tmp_path / "none", transform="cifar10")
    assert kh.features(model).model.output_shape  # its layers are its own still


def test_what_comes_before_preprocessing_is_not_lost(tmp_path):
    inputs = keras.Input((None, None, 1))
    flipped = keras.layers.RandomFlip()(inputs)
    model = kh.create_model("mnist10_w16", input_tensor=flipped, include_preprocessing=True)
    with pytest.raises(ValueError, match=r"save the network without what.*include_preprocessing=True\) adds"):
        kh.save(model, tmp_path / "none")


def test_what_cannot_be_saved_is_refused_in_a_sentence(trained, tmp_path):
    body = keras.Model(trained.input, trained.layers[-2].output)
    x = keras.layers.Dropout(0.5)(trained.layers[-2].output)
    other = keras.Model(trained.input, keras.layers.Dense(3, name="head")(x), name="resnet50")
    for folder, file in {"full": "thesis.txt", "foreign": "weights.json"}.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).write_text('{"kg": 70}')
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for model, more, message in (
        (trained, {}, "preprocessing of this model's images is unknown.*pass transform="),
        (trained, {"transform": "imagenet"}, r"images of shape \(224, 224, 3\) and the model takes \(32, 32, 3\)"),
        (trained, {"transform": TRANSFORM, "class_names": ["cat"]}, "`class_names` must be 3 names"),
        (trained, {"transform": TRANSFORM, "class_names": {"cat", "dog", "bird"}}, "`class_names` must be 3 names"),
        (trained, {"transform": TRANSFORM, "class_names": 3}, "`class_names` must be 3 names"),
        (trained, {"transform": TRANSFORM, "class_names": ["cat", "dog", "\x1b[2J"]}, "`class_names` is"),
        (trained, {"transform": TRANSFORM, "name": "../pets"}, "`name` is malformed"),
        (trained, {"transform": TRANSFORM, "folder": "my:pets"}, "folder's name, .* is malformed"),
        (trained, {"transform": {"size": 3}}, "must be a Transform or a name"),
        (trained, {"transform": TRANSFORM, "folder": "pets.keras"}, "has the name of a file"),
        (trained, {"transform": TRANSFORM, "folder": "pets.weights.h5"}, "has the name of a file"),
        (trained, {"transform": TRANSFORM, "folder": "loop"}, "holds something else"),
        (trained, {"transform": TRANSFORM, "folder": "foreign"}, "holds something else"),
        (trained, {"transform": TRANSFORM, "folder": "full"}, "holds something else"),
        (trained, {"transform": TRANSFORM, "dataset": "pets\n"}, "`dataset` is malformed"),
        (body, {"transform": TRANSFORM}, "must end in a classifier 'head'"),
        (other, {"transform": TRANSFORM, "overrides": SMALL}, "it has a layer 'dropout"),
        (keras.Sequential([keras.layers.Dense(2)]), {}, "takes a functional keras.Model"),
    ):
        with pytest.raises(ValueError, match=message):
            kh.save(model, tmp_path / more.pop("folder", "none"), **more)
    assert not (tmp_path / "none").exists() and (tmp_path / "foreign" / "weights.json").read_text() == '{"kg": 70}'


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory):
    return kh.save(trained, tmp_path_factory.mktemp("saved") / "pets", transform=TRANSFORM)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"overrides": {**SMALL, "widths": [1000, 1000]}}, "does not hold weights of 'resnet50' with"),
        ({"overrides": {**SMALL, "blocks": [10**6, 1]}}, "override that is not of its arrays: blocks"),
        ({"overrides": {**SMALL, "colour": 1}}, "unknown field"),
        ({"removed": ["stage9_block9"]}, "stage9_block9"),
    ],
)
def test_a_folder_that_lies_about_its_form_is_refused(saved, tmp_path, changes, message):
    folder = shutil.copytree(saved, tmp_path / "pets")
    row = json.loads((folder / "weights.json").read_text()) | changes
    (folder / "weights.json").write_text(json.dumps(row))
    with pytest.raises((ValueError, WeightFileError), match=message):
        kh.load(folder)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program catches it."""


def model(seed) -> keras.Model:
    keras.utils.set_random_seed(seed)
    return kh.create_model("highway_fc10", depth=2, units=8)


def loaded(folder):
    x = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
    return keras.ops.convert_to_numpy(kh.load(folder)(x))


def contents(folder) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory) -> tuple[Path, Path]:
    """Two models, saved; their classes have other names."""
    top = tmp_path_factory.mktemp("bundles")
    names = [[f"{letter}{i}" for i in range(10)] for letter in "ab"]
    first, second = (kh.save(model(i), top / str(i), names[i], transform="mnist") for i in range(2))
    assert contents(first).keys() == contents(second).keys() == SAVED
    return first, second


@pytest.fixture
def among(tmp_path, bundles) -> Path:
    """The first of the two models, among files of the user's."""
    target = shutil.copytree(bundles[0], tmp_path / "net")
    (target / "notes.txt").write_text("mine")
    (target / "pictures").mkdir()
    (target / "pictures" / "a").write_text("mine")
    return target


def only(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("renamed", [0, 1])
def test_a_mix_of_old_and_new_files_is_refused_until_the_next_save(among, bundles, monkeypatch, renamed):
    """The process is killed after some of the two renames into the folder."""
    left, replace = [renamed], os.replace

    def killed(source, target):
        if Path(target).parent == among:
            if not left[0]:
                raise Killed
            left[0] -= 1
        replace(source, target)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", killed)
        patch.setattr(shutil, "rmtree", lambda *args, **kwargs: None)  # SIGKILL runs no cleaning up
        kh.save(model(1), among, transform="mnist")
    if contents(among)["model.weights.h5"] != contents(bundles[0])["model.weights.h5"]:
        with pytest.raises(WeightFileError, match="is damaged or altered"):
            kh.load(among)
    else:
        np.testing.assert_array_equal(loaded(among), loaded(bundles[0]))
    kh.save(model(0), among, transform="mnist")
    np.testing.assert_array_equal(loaded(among), loaded(bundles[0]))


def test_save_replaces_its_own_files_and_keeps_others(among):
    old = loaded(among)
    (among / "notes.txt").chmod(0o444)
    parent, inode, changed = among.parent.stat(), among.stat().st_ino, (among / "notes.txt").stat().st_ctime_ns
    kh.save(model(2), among, transform="mnist")
    assert not np.array_equal(loaded(among), old)
    row = json.loads((among / "weights.json").read_text())
    assert row["sha256"] == contents(among)["model.weights.h5"]
    assert (among / "pictures" / "a").read_text() == "mine"
    assert (among / "notes.txt").read_text() == "mine" and (among / "notes.txt").stat().st_ctime_ns == changed
    # The folder is the same one and nothing changed next to it: it may be a mount point, its parent read-only.
    assert among.stat().st_ino == inode and among.parent.stat().st_mtime_ns == parent.st_mtime_ns


def test_save_on_a_full_disk_leaves_the_good_folder(among, tmp_path):
    before = contents(among), only(among)
    for target in (among, tmp_path / "new"):
        with files_of_at_most(1000), pytest.raises(OSError, match="could not be written: File too large"):
            kh.save(model(2), target, transform="mnist")
    assert (contents(among), only(among)) == before and only(tmp_path) == ["net"]


@pytest.fixture
def own_zoo(tmp_path, monkeypatch):
    """A user's own zoo."""
    monkeypatch.setenv(registry.ZOO_VARIABLE, str(tmp_path / "zoo"))
    registry.reread()
    yield tmp_path / "zoo"
    monkeypatch.undo()
    registry.reread()


def test_a_name_without_a_dot_loads_the_newest_save(own_zoo):
    net = model(0)
    kh.save(net, own_zoo / "digits", transform="mnist")
    assert kh.load("digits").count_params() == net.count_params() and kh.load(NAME).name == "mnist10_w16"
    time.sleep(0.01)  # clocks of file systems may be as coarse
    net.get_layer("head").bias.assign(1.0 + net.get_layer("head").bias)
    kh.save(net, own_zoo / "digits", transform="mnist")
    np.testing.assert_array_equal(kh.load("digits").get_layer("head").bias, net.get_layer("head").bias)


def test_a_folder_of_a_known_name_is_mentioned(bundles, tmp_path, monkeypatch):
    shutil.copytree(bundles[0], tmp_path / NAME)
    monkeypatch.chdir(tmp_path)
    with pytest.warns(kh.Notice, match=f"To load the folder, write './{NAME}'"):
        assert kh.load(NAME).name == "mnist10_w16"
    assert kh.load(f"./{NAME}").count_params() == kh.load(bundles[0]).count_params()


@pytest.mark.slow
def test_own_weights_under_a_name_of_the_zoo_do_not_have_its_measurements(tmp_path):
    net = kh.load(NAME)
    assert kh.describe_weights(net).metrics["mean"] > 0.9
    net.get_layer("head").kernel.assign(0 * net.get_layer("head").kernel)
    kh.save(net, tmp_path / NAME)
    for mine in (tmp_path / NAME, kh.load(tmp_path / NAME)):
        row = kh.describe_weights(mine)
        assert row.name == NAME and not row.metrics and not row.gate_report


def test_an_installed_package_finds_the_files_of_a_clone_around_it(tmp_path, monkeypatch):
    row = registry.find("highway_fc50_tanh.tvdn")
    clone = registry.file_of(row).parents[3]
    monkeypatch.setattr(registry, "_PACKAGE", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert registry.local_file(row) is None
    monkeypatch.chdir(clone)
    assert registry.local_file(row) == clone / "zoo" / "weights" / row.name / "model.weights.h5"
