"""What a user names, and where: a zoo of one's own, folders that hold something else, names that folders share."""

import dataclasses
import hashlib
import shutil
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data.transforms import CLASSES, TRANSFORMS
from keras_highway.training.data import source as sources
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.recipes import RECIPES
from keras_highway.training.run_folder import RunFolder
from keras_highway.weights import registry

SHIPPED = "mnist10_w16.tvdn"
DIGITS = [f"digit {i}" for i in range(10)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    """A model of one's own in a zoo of one's own, by a name without a dot."""
    keras.utils.set_random_seed(0)
    model = kh.create_model("highway_fc10", depth=2, units=8)
    return kh.save(model, tmp_path_factory.mktemp("zoo") / "digits", DIGITS, transform="mnist")


@pytest.fixture
def own_zoo(saved, monkeypatch):
    monkeypatch.setenv(registry.ZOO_VARIABLE, str(saved.parent))
    registry.reread()
    yield saved
    monkeypatch.undo()
    registry.reread()


def contents(folder) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir() if path.is_file()}


def start(out, **changes):
    recipe = dataclasses.replace(RECIPES["mnist10_w16"], **changes)
    return RunFolder(out, recipe, Strategy())


# --- a zoo of one's own ---------------------------------------------------------------------------------------------


def test_a_name_without_a_dot_is_a_name_like_others(own_zoo):
    assert kh.load("digits").count_params() == kh.load(own_zoo).count_params()
    assert kh.load(SHIPPED).name == "mnist10_w16"
    assert "" not in registry.words() and {"digits", SHIPPED, "tvdn", "mnist"} <= registry.words()
    with pytest.raises(ValueError, match=r"Unknown weights for 'highway_fc10': ''\. Use instead"):
        registry.find("", "highway_fc10")


# --- folders that hold something else -------------------------------------------------------------------------------


def test_training_does_not_overwrite_a_saved_model(saved, tmp_path):
    target = shutil.copytree(saved, tmp_path / "digits")
    before = contents(target)
    with pytest.raises(ValueError, match=r"digits holds model\.weights\.h5, weights\.json and no recipe\.json"):
        start(target)
    assert contents(target) == before


@pytest.mark.parametrize(
    ("name", "text"), [("data.json", "{}"), ("recipe.json", '{"name": "Pancakes"}'), ("steps.csv", "1,2")]
)
def test_training_does_not_overwrite_files_of_the_users(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        start(tmp_path)
    assert (tmp_path / name).read_text() == text and list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_run_begins_beside_files_that_it_does_not_write(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    start(tmp_path)
    start(tmp_path)  # and again, before anything was trained
    assert (tmp_path / "notes.txt").read_text() == "mine"


# --- names that folders share ---------------------------------------------------------------------------------------


def test_a_folder_of_a_known_name_is_mentioned(saved, tmp_path, monkeypatch):
    shutil.copytree(saved, tmp_path / SHIPPED)
    (tmp_path / "imagenet").mkdir()
    shipped = registry.file_of(registry.find(SHIPPED)).parent
    monkeypatch.chdir(tmp_path)
    with pytest.warns(kh.Notice, match=f"To load the folder, write './{SHIPPED}'"):
        assert kh.load(SHIPPED).name == "mnist10_w16"
    assert kh.load(f"./{SHIPPED}").count_params() == kh.load(saved).count_params()
    with warnings.catch_warnings(), pytest.raises(ValueError, match="Unknown weights"):  # a folder of images, say
        warnings.simplefilter("error")
        kh.load("imagenet")
    monkeypatch.chdir(shipped.parent)
    with warnings.catch_warnings():  # the folder is what the name means
        warnings.simplefilter("error")
        assert kh.load(SHIPPED).name == "mnist10_w16"


# --- data -----------------------------------------------------------------------------------------------------------


def test_one_class_is_nothing_to_learn(tmp_path):
    for split in ("train", "val"):
        (tmp_path / split / "cat").mkdir(parents=True)
        Image.fromarray(np.zeros((40, 40, 3), np.uint8)).save(tmp_path / split / "cat" / "1.png")
    with pytest.raises(ValueError, match="train has one class, cat: there is nothing to tell apart"):
        sources.open_source(RECIPES["resnet50"], tmp_path)


@pytest.fixture(scope="module")
def small_cifar(tmp_path_factory) -> Path:
    """A CIFAR-10 of few images."""
    draw, folder = np.random.default_rng(0), tmp_path_factory.mktemp("data")
    x, y = draw.integers(0, 256, (20, 32, 32, 3), np.uint8), np.arange(20) % 10
    np.savez(folder / "cifar10.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    return folder


@pytest.mark.parametrize("command", ["evaluate", "report"])
def test_images_of_another_size_are_refused_in_a_line(command, small_cifar, tmp_path, capsys):
    net = kh.create_model("highway20", input_shape=(64, 64, 3), blocks=(1, 1, 1), widths=(2, 2, 2), classes=10)
    transform = dataclasses.replace(TRANSFORMS["cifar10"], size=(64, 64))
    folder = kh.save(net, tmp_path / "c64", CLASSES["cifar10"], transform=transform, dataset="cifar10")
    out = ["--out", str(tmp_path / "r.html")] if command == "report" else []
    assert main([command, str(folder), "--data", str(small_cifar), *out]) == 2
    told = capsys.readouterr().err
    assert "64 x 64 x 3" in told and "cifar10 with images of 32 x 32 x 3" in told
