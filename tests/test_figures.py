"""Figures of trained weights: numbers of each part, pictures of a miniature, pairs counted by hand."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from miniatures import batch, miniature
from PIL import Image

from keras_highway import analysis
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.variants import VARIANTS
from training import depth, figures, net_figures, photograph_figures
from zoo.release import claims, results


def test_a_part_leaves_the_others_numbers(tmp_path, monkeypatch):
    seen = []

    def part(data, out, runs, known):
        seen.append(known)
        return {"value": len(seen)}

    net, other = figures.DENSE, figures.IMAGES
    monkeypatch.setattr(figures, "PARTS", {"a": (net, part), "b": (net, part), "c": (other, part)})
    for name in ("a", "b", "c", "a"):
        figures.make(name, None, tmp_path)
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert {key: row["value"] for key, row in numbers[net].items() if key in "ab"} == {"a": 4, "b": 2}
    assert numbers[other]["c"] == {"value": 3} and len(numbers[other]["sha256"]) == 64
    assert set(numbers[net]["made"]) == {"a", "b"} and numbers[net]["made"]["a"]["hardware"]
    assert "a" not in seen[0] and seen[1]["a"] == {"value": 1} and seen[2] == {}


def test_drawing_alone_leaves_the_numbers(tmp_path, monkeypatch):
    computed = {"value": 0.25, "blocks": [1, 2]}
    monkeypatch.setattr(figures, "PARTS", {"a": (figures.DENSE, lambda *arguments: computed)})
    figures.make("a", None, tmp_path)
    before = (tmp_path / "numbers.json").read_bytes()
    computed["value"] += 1e-9  # the rounding of another machine
    figures.redraw("a", None, tmp_path)
    for wrong in ({"value": 0.26}, {"blocks": [1, 3]}, {"blocks": [1]}, {"more": 1}):
        computed.update({"value": 0.25, "blocks": [1, 2]} | wrong)
        with pytest.raises(ValueError, match=r"a differs from .*numbers\.json: measure it anew"):
            figures.redraw("a", None, tmp_path)
    assert (tmp_path / "numbers.json").read_bytes() == before


def test_pairs_of_fine_tuned_nets():
    whole = np.array([True] * 90 + [False] * 10)
    ours = np.array([False] * 5 + [True] * 87 + [False] * 8)
    row = depth._pair(24, {49: whole, 24: ours})
    differences = whole.astype(float) - ours
    assert row["cost"] == pytest.approx(differences.mean()) and row["accuracy"] == 0.87
    assert row["standard_error"] == pytest.approx(differences.std() / 10)
    assert depth._pair(49, {49: whole, 24: ours})["cost"] == 0


def test_gini_index_by_hand():
    gates = np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0]])
    np.testing.assert_allclose(net_figures._gini(gates), [0, 0.75, 0.5])


def test_every_claim_has_a_verdict_and_no_empty_number():
    text = claims.page()
    rows = [line for line in text.splitlines() if line.startswith("| [")]
    assert text.startswith(f"# Claims of the papers\n\n{len(rows)} claims") and "{" not in text and ": ;" not in text


NAME = "cifar10_19layer.fast"
PICTURES = [
    "drop",
    "estimation",
    "gate_maps",
    "guided",
    "patches",
    "reshuffle",
    *(f"tvdn_figure{i}" for i in (2, 3, 4)),
]


@pytest.mark.more
def test_pictures_and_numbers(tmp_path, monkeypatch):
    stage = VARIANTS["mnist10_w16"].stages[0]
    stages = [dataclasses.replace(stage, filters=filters, highways=(3, 3, 3)) for filters in (4, 6)]
    model = miniature("conv_stack", stages=stages, input_shape=(24, 24, 3))
    images, labels = batch(model, 12), np.arange(12) % 3
    row = SimpleNamespace(variant="mnist10_w16", images=SimpleNamespace(apply=lambda x: np.asarray(x, "float32") / 255))
    monkeypatch.setattr(net_figures, "load", lambda name: model)
    monkeypatch.setattr(net_figures.registry, "find", lambda name: row)
    pixels = np.uint8(255 * (images - images.min()) / np.ptp(images))
    numbers = net_figures.conv_net(NAME, "_net", (pixels, labels), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}_net.png" for name in PICTURES)
    assert sorted(PICTURES) == sorted(results.CONV_PICTURES)
    json.dumps(numbers, default=float)
    bias, x = analysis.gate_bias(model), row.images.apply(pixels)
    gates = numbers["gates"]
    assert (gates["samples"], gates["bias_start"]) == (12, -1.0)
    assert gates["bias_share_that_fell"] == pytest.approx(np.mean([(b < -1).mean() for b in bias.values()]))
    traces = analysis.trace(model, x)
    change = [np.abs(entry.y - entry.x).mean() for entry in traces.values()]
    assert gates["change_in_early_blocks"] == pytest.approx(sum(change[:3]) / sum(change), rel=1e-5)
    assert gates["mean_gate"] == pytest.approx(np.mean([entry.t.mean() for entry in traces.values()]), rel=1e-5)
    assert list(numbers["lesions"]["accuracy"]) == list(bias) and numbers["lesions"]["samples"] == 12
    intact = (model.predict(x, verbose=0).argmax(1) == labels).mean()
    assert numbers["lesions"]["intact_accuracy"] == pytest.approx(intact)
    without = (
        analysis.rewire(model, {"stage2_block2": analysis.lesion("stage2_block2")}).predict(x, verbose=0).argmax(1)
    )
    assert numbers["lesions"]["accuracy"]["stage2_block2"] == pytest.approx((without == labels).mean())
    assert list(numbers["reshuffle"]["one_swap"]) == ["stage1", "stage2"] == list(numbers["estimation"])
    outputs = traces[net_figures.BLOCK].y
    strongest = np.sort(outputs.max((1, 2)), 0)[3:].mean(0)  # of the nine strongest of 12 images
    assert numbers["unit"]["channel"] == (strongest - outputs.mean((0, 1, 2))).argmax()


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
        assert trim["removed"] == list(order)  # from the training photographs
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
