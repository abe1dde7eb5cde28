"""The analyses of Highway50 beside ResNet50 on photographs: miniatures of both, photographs of noise."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from miniatures import miniature
from PIL import Image

from keras_highway import analysis
from keras_highway.data.images import ImageError
from keras_highway.data.transforms import TRANSFORMS
from training import figures, photograph_figures
from zoo.release import results

TRANSFORM = TRANSFORMS["imagenet_64"]
CLASSES = ("n01440764", "n02102040", "n02979186", "n03000684", "n03028079")


@pytest.fixture
def photographs(tmp_path):
    """A folder of data sets with an Imagenette of five classes, which their brightness tells apart."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 4), ("val", 6)):
        for k, name in enumerate(CLASSES):
            folder = tmp_path / "data" / "imagenette" / split / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draw.integers(0, 50, (80, 70 + i, 3)).astype(np.uint8) + 40 * k
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i}.png")
    return tmp_path / "data"


@pytest.fixture
def nets(monkeypatch):
    """Miniatures in the place of the trained nets."""
    gatings = {"highway50": {}, "resnet50": {"gating": "residual"}}
    models = {
        name: miniature("bottleneck", input_shape=(64, 64, 3), **gatings[net])
        for net, name in photograph_figures.NETS.items()
    }
    rows = {
        name: SimpleNamespace(images=TRANSFORM, sha256=net, classes=CLASSES)
        for net, name in photograph_figures.NETS.items()
    }
    for module in (photograph_figures, figures):
        monkeypatch.setattr(module, "registry", SimpleNamespace(find=rows.__getitem__))
    monkeypatch.setattr(photograph_figures, "load", models.__getitem__)
    return {net: models[name] for net, name in photograph_figures.NETS.items()}


def test_photographs_are_read_whole_and_in_no_order(photographs, nets, monkeypatch):
    monkeypatch.setattr(photograph_figures, "ORDER_BY", 7)
    data = figures._read_data("imagenette", photographs)
    assert data.x_train.shape == (7, 64, 64, 3) and data.x_test.shape == (30, 64, 64, 3)
    assert data.x_test.dtype == np.uint8 and data.classes == CLASSES
    assert np.bincount(data.y_test).tolist() == [6] * 5 and (np.diff(data.y_test) < 0).any()
    for x, y in ((data.x_train, data.y_train), (data.x_test, data.y_test)):
        np.testing.assert_allclose(x.mean((1, 2, 3)), 24.5 + 40 * y, atol=1.5)  # images stay with their labels
    (photographs / "imagenette" / "val" / CLASSES[0] / "0.png").write_bytes(b"no image")
    with pytest.raises(ImageError, match=r"val: .*0\.png: not an image file"):
        photograph_figures.read(photographs, TRANSFORM)
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(photographs / "elsewhere"))
    with pytest.raises(FileNotFoundError, match=r"elsewhere.imagenette.val or .*elsewhere.val: name the folder"):
        photograph_figures.read(None, TRANSFORM)


@pytest.mark.more
def test_pictures_and_numbers_of_both_nets(photographs, nets, tmp_path, monkeypatch):
    data, out = photograph_figures.read(photographs, TRANSFORM), tmp_path / "out"
    out.mkdir()
    numbers = photograph_figures.both_nets(data, out)
    each = [f"{kind}_imagenette_{net}.png" for net in nets for kind in ("estimation", "guided", "patches")]
    together = ["gate_maps_imagenette_highway50.png", "lesions_imagenette.png", "trim_imagenette.png"]
    assert sorted(path.name for path in out.iterdir()) == sorted([*each, *together])
    json.dumps(numbers)
    assert [numbers[net]["sha256"] for net in nets] == list(nets) and "gates" not in numbers["resnet50"]
    x = TRANSFORM.apply(data.x_test)
    for net, model in nets.items():
        lesions, trim = numbers[net]["lesions"], numbers[net]["trim"]
        right = (model.predict(x, verbose=0).argmax(1) == data.y_test).mean()
        assert lesions["samples"] == trim["samples"] == 30 and trim["ordered_by"] == 20
        assert lesions["intact_accuracy"] == trim["accuracy"][0] == pytest.approx(right)
        assert set(lesions["accuracy"]) == set(trim["removed"]) == {"stage1_block2", "stage1_block3", "stage2_block2"}
        order = analysis.trim_curve(model, (data.x_train, data.y_train), transform=TRANSFORM.apply).removed
        assert trim["removed"] == list(order)  # that of the training photographs
        small = analysis.without(model, trim["removed"][:2])
        assert trim["parameters"][2] == small.count_params()
        rest = (small.predict(x, verbose=0).argmax(1) == data.y_test).mean()
        assert trim["accuracy"][2] == pytest.approx(rest)
        assert numbers[net]["unit"]["block"] == photograph_figures.BLOCK
    assert sorted(path.stem for path in out.iterdir()) == sorted(
        name for pictures in results.PHOTOGRAPH_PICTURES.values() for name in pictures
    )
    gate = analysis.trace(nets["highway50"], x)["stage1_block2"].t.mean()
    assert numbers["highway50"]["gates"]["mean"]["stage1_block2"] == pytest.approx(gate, rel=1e-5)
    assert set(numbers["highway50"]["gates"]["mean"]) == set(analysis.blocks(nets["highway50"]))
