"""Recipes that train a published net for a small part of its epochs: alike but for what names the net."""

from keras_highway.training.recipes import RECIPES

OWN = {"name", "variant", "weights"}


def differ(first, second):
    first, second = RECIPES[first].to_dict(), RECIPES[second].to_dict()
    return {key for key in first if first[key] != second[key]}


def test_cifar_nets_share_a_recipe():
    assert differ("cifar100_19layer_fast", "cifar10_19layer_fast") == OWN | {"data", "transform"}
    assert differ("highway_b_fast", "cifar10_19layer_fast") == OWN | {"source"}
    assert differ("highway_b_fast", "highway_c_fast") == OWN
    assert differ("highway_a_fast", "highway_b_fast") == OWN | {"epochs"}


def test_nets_of_110_layers():
    assert differ("highway110_fast", "resnet110_fast") == OWN
    schedule = {"epochs", "schedule", "warmup_epochs", "source"}
    assert differ("highway110_fast", "highway110") == schedule | {"name", "weights"}
