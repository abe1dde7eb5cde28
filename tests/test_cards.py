"""A card says what is so: whose weights, what kind of network, the spread of each number, what the file gives."""

import dataclasses
import re

import numpy as np
import pytest
import yaml

import keras_highway as kh
from keras_highway.weights.card import DATA_SETS, _trained_on, kind_of, model_card
from keras_highway.weights.info import check_result
from zoo.release.results import _commits, all_short

RUN = {"name": "mnist10_w16", "epochs": 1, "batch_size": 7}


def card(row, recipe=()):
    return model_card(row, "org/name", dict(recipe), torch_names=False)


def header(text):
    return yaml.safe_load(text.split("---")[1])


def test_a_run_of_ones_own_under_a_name_of_the_zoo_is_not_the_zoos():
    row = kh.describe_weights("mnist10_w16.tvdn")
    assert "A checkout of keras_highway has these weights, too" in card(row, RUN)
    own = dataclasses.replace(row, sha256="0" * 64)
    text = card(own, RUN)
    assert "A checkout of keras_highway" not in text
    assert "epochs 1" in text and "batch_size 7" in text  # which --set may have changed


@pytest.mark.parametrize(
    ("name", "kind", "formula"),
    [
        ("charlm_large_plain.ptb", "plain", "`y = h`"),
        ("charlm_large_residual.ptb", "residual", "`y = h + x`"),
        ("charlm_large_c_only.ptb", "highway", "`y = H(x)·T(x) + x·C(x)`"),
        ("resnet20.blog", "residual", "`y = h + x`"),
        ("highway20.blog", "highway", "`y = H(x)·T(x) + x·C(x)`"),
    ],
)
def test_the_kind_of_network(name, kind, formula):
    row = kh.describe_weights(name)
    text = card(row)
    assert kind_of(row) == kind and f"{kind}-network" in header(text)["tags"]
    assert re.search(rf"^A .*{kind} (network|layers), {re.escape(formula)}", text, re.M)
    other = {"plain", "residual", "highway"} - {kind}
    assert not any(f"{word}-network" in tag for word in other for tag in header(text)["tags"])


@pytest.mark.parametrize("name", ["mnist10_w16.tvdn", "resnet20.blog"])
def test_a_card_claims_a_data_set_of_the_hub_for_its_own_classes_alone(name):
    row = kh.describe_weights(name)
    assert header(card(row))["datasets"] == [DATA_SETS[row.data]]
    own = card(dataclasses.replace(row, classes=tuple(f"own {i}" for i in range(10))))
    assert "datasets" not in header(own) and DATA_SETS[row.data] not in own
    assert f"trained on other classes than {row.data}" in own
    unnamed = dataclasses.replace(row, classes=tuple(map(str, range(10))))  # which may be these
    assert header(card(unnamed))["datasets"] == [DATA_SETS[row.data]]


def test_each_number_has_its_own_spread():
    row = kh.describe_weights("highway20.blog")
    metrics = {**row.metrics, "n": 3, "std": 0.0027, "top5": 0.995, "top5_std": 0.0003, "valid_perplexity": 9.0}
    results = header(card(dataclasses.replace(row, metrics=metrics)))["model-index"][0]["results"][0]["metrics"]
    spread = {result["name"]: result["args"].get("std") for result in results}
    assert spread == {"test accuracy": 0.0027, "test top-5 accuracy": 0.0003}  # the perplexity is of one run alone
    metrics.pop("top5_std")
    results = header(card(dataclasses.replace(row, metrics=metrics)))["model-index"][0]["results"][0]["metrics"]
    assert "std" not in results[1]["args"]


def test_what_the_file_itself_gives():
    row = kh.describe_weights("highway20.blog")
    stored = row.metrics["stored"]["test_accuracy"]
    assert f"| this file | weights in float16: test accuracy {100 * stored:.2f} % |" in card(row)
    assert stored != pytest.approx(row.metrics["mean"], abs=1e-4)
    row = kh.describe_weights("resnet20.blog")
    first, seed = row.metrics["values"][0], row.metrics["seeds"][0]
    assert f"| this file | the run with seed {seed}: test accuracy {100 * first:.2f} % |" in card(row)


def test_a_check_holds_each_gate_that_is_learned():
    from keras_highway.weights.trained import ClassifierWeights

    for gating, gates in (("full", "tc"), ("c_only", "c"), ("coupled", "t"), ("residual", "")):
        net = kh.create_model("highway_fc10", gating=gating, depth=3, units=5, classifier_activation=None)
        weights = ClassifierWeights(kh.describe_weights("highway_fc50_tanh.tvdn"), net)
        _, found = weights.traced(np.zeros((2, 28, 28, 1), "float32"))
        names = [name for name, block in kh.analysis.blocks(net).items()]
        assert set(found) == {f"gate/{name}/{gate}" for name in names for gate in gates}
        assert all(values.shape == (5,) for values in found.values())


def test_every_commit_of_several_seeds_is_named():
    assert all_short({"commit": "0123456789abcdef"}) == "0123456789ab"
    several = {"commit": "a" * 40, "commit_changes": ["a" * 40, None, "keras-highway 0.2.0", f"{'b' * 40}-dirty"]}
    assert all_short(several) == f"{'a' * 12}; keras-highway 0.2.0; {'b' * 12}-dirty"
    assert _commits({"commit": all_short(several)}) == f"`{'a' * 12}` and 2 more"
    assert _commits({"commit": "0123456789ab"}) == "`0123456789ab`"
    row = _trained_on({"hardware": "a core", **several})
    assert row == f"a core, commit `{'a' * 40}`, keras-highway 0.2.0, commit `{'b' * 40}-dirty`"
    with pytest.raises(ValueError, match="commit_changes"):
        check_result({"metric": "test_accuracy", "mean": 0.5, "std": None, "n": 1, "commit_changes": "abc"}, "result")
