"""The training entry: the paper's optimizer, exact resume, run folders, recipes."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from PIL import Image

import keras_highway as kh
from keras_highway.variants import VARIANTS
from training import loop, sources
from training.optimizers import PaperSGD
from training.recipe import Recipe
from training.recipes import RECIPES
from training.run_folder import RunFolder, write_whole
from training.train import main

TINY = dataclasses.replace(
    RECIPES["mnist10_w16"],
    overrides=(),
    variant="mnist10_w16",
    epochs=3,
    batch_size=40,
)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    """A small learnable stand-in in the layout of mnist.npz: class k is a bright square at place k."""
    draw = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("data")

    def split(n):
        y = np.arange(n) % 10
        x = draw.integers(0, 60, (n, 28, 28)).astype(np.uint8)
        for image, k in zip(x, y, strict=True):
            image[5 * (k // 4) + 3 : 5 * (k // 4) + 8, 6 * (k % 4) + 2 : 6 * (k % 4) + 8] = 250
        return x, y

    (a, b), (c, d) = split(200), split(50)
    np.savez(folder / "mnist.npz", x_train=a, y_train=b, x_test=c, y_test=d)
    return folder


@pytest.mark.parametrize("nesterov", [False, True])
def test_paper_sgd_against_its_equations(nesterov):
    kernel, bias = keras.Variable([[1.0, -2.0]], name="kernel"), keras.Variable([0.5, 0.5], name="bias")
    optimizer = PaperSGD(0.1, momentum=0.9, nesterov=nesterov, l2=0.01, bias_multiplier=2.0)
    optimizer.build([kernel, bias])
    w, b, vw, vb = np.array([[1.0, -2.0]]), np.array([0.5, 0.5]), 0.0, 0.0
    for step in range(3):
        gw, gb = np.array([[0.3, 0.1]]) * (step + 1), np.array([-0.2, 0.4])
        optimizer.apply([keras.ops.convert_to_tensor(gw, "float32"), keras.ops.convert_to_tensor(gb, "float32")])
        gw, gb = gw + 0.01 * w, 2.0 * gb
        vw, vb = 0.9 * vw - 0.1 * gw, 0.9 * vb - 0.1 * gb
        w, b = (w + 0.9 * vw - 0.1 * gw, b + 0.9 * vb - 0.1 * gb) if nesterov else (w + vw, b + vb)
    np.testing.assert_allclose(np.asarray(kernel), w, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(bias), b, rtol=1e-5)


def test_schedule_of_the_published_steps():
    rate = loop._schedule(RECIPES["mnist10_w16"], 600)  # 100 epochs of 600 steps: by 10 at epochs 33 and 67
    values = [float(rate(step)) for step in (0, 33 * 600, 33 * 600 + 1, 67 * 600, 67 * 600 + 1, 59_999)]
    np.testing.assert_allclose(values, [0.03, 0.03, 0.003, 0.003, 0.0003, 0.0003], rtol=1e-5)


def test_training_learns_and_writes_its_folder(mnist, tmp_path):
    result = loop.train(dataclasses.replace(TINY, variant="highway_fc10", epochs=8, batch_size=10), mnist, tmp_path)
    assert result["mean"] > 0.9 and result["n"] == 1 and result["std"] is None
    assert result["hardware"] and result["versions"]["keras"] == keras.__version__
    rows = RunFolder(tmp_path, json.loads((tmp_path / "recipe.json").read_text())).rows()
    assert len(rows) == 8 and float(rows[-1]["train_loss"]) < 0.1 * float(rows[0]["train_loss"])
    assert float(rows[-1]["test_accuracy"]) == result["mean"]
    assert kh.load(str(tmp_path)).output_shape == (None, 10)


class Killed(BaseException):
    """Stands for a process that dies."""


@pytest.mark.parametrize("file", ["checkpoint.keras", "log.csv", "result.json"])
def test_resume_is_exact(mnist, tmp_path, monkeypatch, file):
    """Dies as it writes a file of the second epoch (or the last file); goes on; weights are bit-identical."""
    whole = loop.train(TINY, mnist, tmp_path / "whole")
    real, count = write_whole, 0

    def dies(path, write):
        nonlocal count
        count += path.name == file
        if path.name == file and (count == 2 or file == "result.json"):
            raise Killed
        real(path, write)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "write_whole", dies)
        patch.setattr("training.run_folder.write_whole", dies)
        with pytest.raises(Killed):
            loop.train(TINY, mnist, tmp_path / "cut")
    resumed = loop.train(TINY, mnist, tmp_path / "cut")
    assert resumed["values"] == whole["values"] and resumed["train_loss"] == whole["train_loss"]
    a, b = (keras.saving.load_model(tmp_path / name / "checkpoint.keras") for name in ("whole", "cut"))
    for ours, theirs in zip(a.weights, b.weights, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def test_write_whole_keeps_the_old_file_when_writing_fails(tmp_path):
    path = tmp_path / "file.json"
    path.write_text("old")

    def fails(temporary):
        temporary.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_whole(path, fails)
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["file.json"]


def test_infinite_loss_stops_and_keeps_the_last_checkpoint(mnist, tmp_path):
    bad = dataclasses.replace(TINY, variant="highway_fc10", learning_rate=1e20, nesterov=False)
    with pytest.raises(FloatingPointError, match="epoch 1"):
        loop.train(bad, mnist, tmp_path)
    assert not (tmp_path / "checkpoint.keras").exists()


def test_folder_of_another_recipe_is_refused(mnist, tmp_path):
    RunFolder(tmp_path, TINY.to_dict())
    with pytest.raises(ValueError, match="another recipe"):
        loop.train(dataclasses.replace(TINY, seed=9), mnist, tmp_path)


def test_every_recipe_names_a_variant_and_every_variant_its_recipe():
    for recipe in RECIPES.values():
        assert isinstance(recipe, Recipe) and recipe.variant in VARIANTS
    for spec in VARIANTS.values():
        assert not spec.recipe or RECIPES[spec.recipe].variant == spec.name


@pytest.fixture
def images(tmp_path):
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("cat", "dog"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8)).save(folder / f"{i}.png")
    return tmp_path


def test_image_folder_is_a_function_of_seed_and_epoch(images):
    recipe = dataclasses.replace(RECIPES["highway50"], batch_size=4)
    source = sources.open_source(recipe, images)
    assert (source.images, source.classes) == (6, 2)
    first, again, second = (
        [(np.asarray(x), np.asarray(y)) for x, y in source.epoch(epoch)["x"]] for epoch in (0, 0, 1)
    )
    assert [x.shape for x, _ in first] == [(4, 224, 224, 3), (2, 224, 224, 3)]
    for (x, y), (x2, y2) in zip(first, again, strict=True):
        np.testing.assert_array_equal(x, x2)
        np.testing.assert_array_equal(y, y2)
    assert not np.array_equal(first[0][0], second[0][0])
    assert sorted(np.concatenate([y for _, y in first])) == [0, 0, 0, 1, 1, 1]
    assert [x.shape[1:] for x, _ in source.test()["x"]] == [(224, 224, 3)] * 2


def test_image_folder_errors(images, tmp_path):
    recipe = RECIPES["highway50"]
    with pytest.raises(FileNotFoundError, match="train"):
        sources.open_source(recipe, tmp_path / "none")
    (images / "val" / "bird").mkdir()
    with pytest.raises(ValueError, match="different classes: bird"):
        sources.open_source(recipe, images)
    (images / "train" / "bird").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        sources.open_source(recipe, images)


def test_unknown_recipe_names_the_near_ones(capsys):
    with pytest.raises(SystemExit) as error:
        main(["mnist10_w61"])
    assert error.value.code == 2 and "Did you mean 'mnist10_w16'" in capsys.readouterr().err
