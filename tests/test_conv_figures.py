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
from training import analysis_tables, figures, net_figures
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


def test_claims(tmp_path):
    gates = {
        "samples": 10_000,
        "bias_start": -2.0,
        "bias_mean": -2.5,
        "bias_share_that_fell": 0.75,
        "bias_with_depth": -0.5,
        "bias_with_activity": 0.25,
        "mean_gate": 0.2,
        "open_on_average": 0.1,
        "open_for_one_sample": 0.125,
        "open_for_some_sample": 0.5,
        "blocks": 14,
        "early_blocks": 7,
        "change_in_early_blocks": 0.625,
    }
    lesions = {"samples": 1000, "intact_accuracy": 0.9, "accuracy": {"stage1_block1": 0.5, "a": 0.9, "b": 0.899}}
    swaps = {"samples": 500, "intact_accuracy": 0.9, "one_swap": {"stage1": 0.8, "stage2": 0.89}}
    estimation = {"stage1": {"mean": [0.02, 0.0], "scale": 0.5}, "stage2": {"mean": [-0.04, 0.0], "scale": 0.5}}
    net = {"gates": gates, "lesions": lesions, "reshuffle": swaps, "estimation": estimation}
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps({NAME: {"cifar10_conv": net}}))
    lines = analysis_tables.conv_claims_table(path).splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[:10]]
    head, _, fell, slope, active, opened, change, lesioned, swapped, estimated = rows
    assert head == ["claim of another net", f"`{NAME}`"]
    assert fell[1] == "75 % end below the -2 they started from; their mean is -2.50"
    assert slope[1].startswith("**not here**") and active[1].startswith("**not here**: the mean gate is 0.200")
    assert opened[1].startswith("**not here**: 12 % of the gates are above 0.5 for one sample, 50.0 % for")
    assert change[1].startswith("62 % of the change is in the first 7 of 14 blocks")
    assert lesioned[1] == (
        "2 of 3 cost at most 0.1 point of accuracy on 1,000 test images, the median 0.10 points, the most, "
        "stage1_block1, 40.00"
    )
    assert swapped[1].startswith("two blocks in each other's place cost 10.00 (stage1) and 1.00 (stage2) points")
    assert estimated[1].startswith("in its stages it is up to 0.04 and 0.08 of")
    few = {**gates, "open_for_one_sample": 0.1, "change_in_early_blocks": 0.5}
    assert analysis_tables._opened(few).startswith("10 % of the gates")
    assert analysis_tables._changed(few).startswith("**not here**: 50 % of")
    made = {"commit": "0123456789abcdef-dirty", "hardware": "one processor"}
    path.write_text(json.dumps({NAME: {"cifar10_conv": net, "made": {"cifar10_conv": made}}}))
    *_, pictures, _, command = results.conv_section(path)
    assert pictures.startswith(f"- `{NAME}`: [TVDN, Figure 2](analysis/tvdn_figure2_cifar10_conv.png), ")
    assert pictures.endswith("Made on one processor, `0123456789ab-dirty`.") and "cifar10_conv" in command


def test_one_stage_and_no_net(tmp_path):
    assert analysis_tables._listed(["1"]) == "1" and analysis_tables._listed(["1", "2", "3"]) == "1, 2 and 3"
    (tmp_path / "numbers.json").write_text("{}")
    assert analysis_tables.conv_claims_table(tmp_path / "numbers.json") == ""
    assert results.conv_section(tmp_path / "numbers.json") == []
