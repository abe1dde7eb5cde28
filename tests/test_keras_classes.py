"""`.keras` files that name classes which other packages registered: Keras would make them, `kh.load` refuses."""

import json
import zipfile

import keras
import pytest

import keras_highway as kh
from keras_highway.weights.file import WeightFileError


@keras.saving.register_keras_serializable(package="users")
class Thing(keras.layers.Flatten):
    """What another package registered; it must not be made."""

    def __init__(self, **kwargs):
        pytest.fail("a class of another package was made")


def by_its_registered_name(config):
    flatten = {"module": "keras.layers", "class_name": "Flatten", "config": {"name": "last"}}
    config["config"]["layers"][1].update(flatten, registered_name="users>Thing")


def as_an_initializer(config):
    initializer = {"module": "keras.initializers", "class_name": "Zeros", "registered_name": "users>Thing"}
    config["config"]["layers"][-1]["config"]["kernel_initializer"] = {**initializer, "config": {}}


def as_text(config):
    config["config"]["layers"][-1]["config"]["kernel_initializer"] = "users>Thing"


def a_function_of_a_module_of_classes(config):
    initializer = {"module": "keras.initializers", "class_name": "deserialize", "registered_name": None, "config": {}}
    config["config"]["layers"][-1]["config"]["kernel_initializer"] = initializer


@pytest.mark.parametrize(
    "attack", [by_its_registered_name, as_an_initializer, as_text, a_function_of_a_module_of_classes]
)
def test_what_other_packages_registered_is_not_made(tmp_path, attack):
    path = tmp_path / "net.keras"
    kh.create_model("highway_fc10", depth=2, units=8).save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    config = json.loads(parts["config.json"])
    attack(config)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {**parts, "config.json": json.dumps(config)}.items():
            file.writestr(name, content)
    for door in (kh.load, kh.describe_weights):
        with pytest.raises(WeightFileError, match=r"net\.keras is not a network of keras_highway: it needs"):
            door(path)


def test_a_class_registered_under_the_name_of_one_of_keras_is_not_made(tmp_path):
    path = tmp_path / "net.keras"
    kh.create_model("highway_fc10", depth=2, units=8).save(path)
    scope = keras.saving.custom_object_scope({"Flatten": Thing})
    with scope, pytest.raises(WeightFileError, match="it needs 'Flatten'"):
        kh.load(path)
