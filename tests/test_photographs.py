"""`evaluate` on photographs: folders, ImageNet-V2, ReaL labels, TensorFlow Datasets; what is reported of wrong ones."""

import csv
import json
import re
import types

import numpy as np
import pytest
from PIL import Image

from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.data import load_image
from keras_highway.data.photographs import EncodedImage, _labels, folder_test_set, read_batches
from keras_highway.data.transforms import IMAGENET_64, imagenet_classes
from keras_highway.weights import files as weights_file

WNIDS = [identifier for identifier, _ in imagenet_classes()]


def constant(path, classes, likely):
    """A network that predicts for every image: these classes, likeliest first, then all others alike."""
    scores = np.zeros(classes)
    scores[list(likely)] = 5.0 - np.arange(len(likely))
    model = create_model("resnet20", classes=classes)
    head = model.get_layer("head")
    head.set_weights([np.zeros(head.kernel.shape), scores])
    weights_file.save(model, path, "resnet20", classes)
    return str(path), scores


@pytest.fixture(scope="module")
def ten(tmp_path_factory):
    """A file of 10 classes, and the scores that it gives every image."""
    return constant(tmp_path_factory.mktemp("weights") / "net.weights.h5", 10, (3, 1, 4, 6))


def folder(root, names, count=2, start=1):
    draw = np.random.default_rng(0)
    for name in names:
        (root / name).mkdir(parents=True)
        for _ in range(count):
            image = Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8))
            image.save(root / name / f"ILSVRC2012_val_{start:08d}.JPEG")
            start += 1
    return root


def report(capsys, *arguments):
    code = main(["evaluate", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_top_1_top_5_and_loss_of_a_folder(capsys, tmp_path, ten):
    path, scores = ten
    root = folder(tmp_path / "set" / "val", [f"class{i}" for i in range(10)])
    (root / "class3" / "ILSVRC2012_val_00000007.JPEG").write_bytes(b"no image")
    table = tmp_path / "table.csv"
    arguments = (path, "--data", tmp_path / "set", "--batch-size", 3, "--csv", table)
    code, result = report(capsys, *arguments)
    assert (code, result["images"], result["broken"]) == (2, 19, 1)
    assert result["top1"] == pytest.approx(1 / 19)  # the other photograph of class 3
    assert result["top5"] == pytest.approx((1 + 2 * 3 + 2) / 19)  # class 0 is the first of the others
    labels = [i for i in range(10) for _ in range(2)]
    labels.remove(3)
    losses = np.log(np.exp(scores).sum()) - scores[labels]
    assert result["loss"] == pytest.approx(losses.mean(), abs=1e-5)
    report(capsys, *arguments)
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 and lines[0] == lines[1] and float(lines[0]["top1"]) == pytest.approx(1 / 19)
    table.write_text("a,b\n")
    assert main(["evaluate", *map(str, arguments)]) == 2
    assert "begins with weights,data,images" in capsys.readouterr().err


@pytest.mark.more
def test_imagenets_classes_by_identifier_version_2_and_reassessed_labels(capsys, tmp_path):
    path, _ = constant(tmp_path / "net.weights.h5", 1000, (217, 0))
    some = folder(tmp_path / "imagenette", [WNIDS[0], WNIDS[217], WNIDS[482]])  # three of Imagenette's ten
    code, result = report(capsys, path, "--data", some)
    assert (code, result["images"]) == (0, 6) and result["top1"] == pytest.approx(2 / 6)
    real = [[] for _ in range(50_000)]
    real[0], real[1], real[4] = [482, 217], [5], [217]  # the first two are in class 0's folder, the fifth in 482's
    (tmp_path / "real.json").write_text(json.dumps(real))
    _, result = report(capsys, path, "--data", some, "--real", tmp_path / "real.json")
    assert (result["real_images"], result["real"]) == (3, pytest.approx(2 / 3))
    numbered = folder(tmp_path / "v2", ["0", "10", "217", "9"], count=1)
    _, result = report(capsys, path, "--data", numbered, "--v2")
    assert result["top1"] == 1 / 4
    labels = [label for _, label in folder_test_set(numbered, 1000, numbered=True).photographs]
    assert labels == [0, 10, 217, 9]


def test_pixels_are_those_of_load_image_in_order(tmp_path):
    test_set = folder_test_set(folder(tmp_path, "abc", count=5), 3)
    batches = list(read_batches(test_set.photographs, IMAGENET_64, 4, workers=2))
    assert [len(batch.labels) for batch in batches] == [4, 4, 4, 3]
    assert np.concatenate([batch.labels for batch in batches]).tolist() == [0] * 5 + [1] * 5 + [2] * 5
    for batch in batches:
        for pixels, name in zip(batch.pixels, batch.names, strict=True):
            np.testing.assert_array_equal(pixels, load_image(name, IMAGENET_64))
            with open(name, "rb") as file:
                np.testing.assert_array_equal(pixels, load_image(EncodedImage(file.read(), "it"), IMAGENET_64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "{root}/ten", "--v2"], "folders named 0 to 9. Received: class0"),
        (["--data", "{root}/two"], "The weights have 10 classes,.*has 2"),
        (["--data", "{root}/ten", "--real", "{root}/wrong.json"], "must be a list of 50000 lists"),
        (["--data", "{root}/ten", "--csv", "{root}/none/a.csv"], "There is no folder .*none"),
    ],
)
def test_what_is_refused(capsys, tmp_path, arguments, message, ten):
    path, _ = ten
    folder(tmp_path / "ten" / "val", [f"class{i}" for i in range(10)], count=1)
    folder(tmp_path / "two", ["cat", "dog"])
    (tmp_path / "npz").mkdir()
    (tmp_path / "npz" / "cifar10.npz").write_bytes(b"")
    (tmp_path / "wrong.json").write_text("[[1], [2]]")
    assert main(["evaluate", path, *(text.format(root=tmp_path) for text in arguments)]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_labels_of_a_set_are_the_classes_of_the_weights_by_name():
    def labels(names, classes, class_names=()):
        return _labels("some/set", types.SimpleNamespace(num_classes=len(names), names=names), classes, class_names)

    assert labels(["dog", "cat", "cow"], 3, ("cat", "cow", "dog")) == [2, 0, 1]
    assert labels(["dog", "cat"], 2, ("0", "1")) == labels(["0", "1"], 2, ("dog", "cat")) == [0, 1]
    assert labels(["n01440764", "n02102040"], 2, ("English_springer", "tench")) == [1, 0]
    assert labels(["n02102040", "n01440764"], 1000) == [217, 0]  # Imagenette, of weights of ImageNet's thousand
    with pytest.raises(ValueError, match="it has Border_terrier, Shih-Tzu for English_spr"):
        labels(["n02086240", "n02093754"], 2, ("tench", "English_springer"))
    with pytest.raises(ValueError, match="it has Cow for cow"):
        labels(["dog", "cat", "Cow"], 3, ("cat", "cow", "dog"))
    with pytest.raises(ValueError, match="a4 and 5 others for b0, "):
        labels([f"a{i}" for i in range(10)], 10, [f"b{i}" for i in range(10)])
    # A crane is a bird and a machine; the bird's identifier is the smaller one, and so its class.
    assert labels(["n03126707", "n02012849"], 2, ("crane", "crane")) == [1, 0]
    with pytest.raises(ValueError, match="The weights have 3 classes, some/set has 2"):
        labels(["dog", "cat"], 3, ("cat", "cow", "dog"))
