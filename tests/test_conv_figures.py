"""The analyses of convolutional nets: pictures and numbers of a miniature, claims of made-up numbers."""

import dataclasses
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from miniatures import batch, miniature

from keras_highway import analysis
from keras_highway.applications import load
from keras_highway.data import load_image, sample_digits
from keras_highway.variants import VARIANTS
from keras_highway.weights import registry
from training import figures, net_figures
from zoo.release import results

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


@pytest.mark.slow
def test_the_unit_of_the_digits_is_the_strongest_of_its_block(tmp_path):
    digits = np.stack([load_image(path, registry.find(figures.IMAGES).images) for path in sample_digits()])
    unit = figures.unit((digits, None), tmp_path)
    model, x = load(figures.IMAGES), registry.find(figures.IMAGES).images.apply(digits)
    outputs = keras.Model(model.input, model.get_layer("stage1_block2").output).predict(x, verbose=0)
    peaks = outputs.max((1, 2))  # of ten digits; the nine strongest of each channel count
    assert unit["block"] == "stage1_block2" and unit["samples"] == len(digits) == 10
    assert unit["channel"] == (np.sort(peaks, 0)[1:].mean(0) - outputs.mean((0, 1, 2))).argmax()
    assert unit["activation"] == pytest.approx(sorted(peaks[:, unit["channel"]])[::-1][:9], rel=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == {"patches.png", "guided.png"}


@pytest.mark.parametrize("there", [False, True])
def test_a_part_is_made_if_its_weights_are_there(there, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(figures, "make", lambda name, *arguments: made.append(name))
    known = {figures.DENSE} | ({NAME} if there else set())
    monkeypatch.setattr(figures, "registry", SimpleNamespace(WEIGHTS=known))
    figures.main(["--out", str(tmp_path)])
    assert "gates" in made and ("cifar10_conv" in made) == there
