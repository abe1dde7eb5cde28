"""A card says what is so: whose weights, what kind of network, the spread of each number, what the file gives."""

import dataclasses
import re

import pytest
import yaml

import keras_highway as kh
from keras_highway.weights.card import DATA_SETS, kind_of, model_card

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
        ("charlm_large_c_only.ptb", "highway", "`y = H(x)·T(x) + x·C(x)`"),
        ("resnet20.blog", "residual", "`y = h + x`"),
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
