"""`kh.load` and the command line run no code of hostile `.keras` files and repositories."""

import copy
import inspect
import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from hostile import refused
from keras.src.utils.python_utils import func_dump

import keras_highway as kh
import keras_highway.training.optimizers
from keras_highway.cli import main
from keras_highway.weights import registry
from keras_highway.weights.hub import HubError
from keras_highway.weights.info import WeightFileError

REPO = "org/net"
URL = f"hf://{REPO}"
NAME = "mnist10_w16.tvdn"
WEIGHTS = "model.weights.h5"
X = np.random.default_rng(0).random((2, 28, 28, 1), "float32")


def outputs(weights) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(kh.load(weights)(X)))


@pytest.fixture
def canary(tmp_path):
    """A file that code from outside would make."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code from outside was run, or a file written from outside"


def layer(name, module="keras.layers", **config) -> dict:
    return {"module": module, "class_name": name, "registered_name": None, "config": {"name": "last", **config}}


def python_lambda(canary) -> dict:
    """A Python function as Keras writes it, which makes a file."""
    code, defaults, closure = func_dump(eval(f"lambda x: __import__('pathlib').Path({str(canary)!r}).touch() or x"))
    config = {"value": code, "code": code, "defaults": defaults, "closure": closure}
    return {"class_name": "__lambda__", "config": config}


def function(module, name, registered=None) -> dict:
    return {"module": module, "class_name": "function", "config": name, "registered_name": registered or name}


class _Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path):
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def pickled(canary) -> bytes:
    return pickle.dumps(_Touch(canary))


def test_the_attacks_are_attacks(tmp_path):
    """Each attack makes the file when it runs."""
    path = tmp_path / "made"
    pickle.loads(pickled(path))
    assert path.exists()
    path.unlink()
    config = layer("Lambda", function=python_lambda(path))["config"]
    keras.layers.Lambda.from_config(config, safe_mode=False)(np.zeros((1, 2)))
    assert path.exists()


def registered() -> list[str]:
    ours = ("keras_highway>", "keras_highway_training>")  # other tests register classes of their own
    return sorted(name for name in keras.saving.get_custom_objects() if name.startswith(ours))


def test_what_is_registered_are_classes_of_layers_and_optimizers():
    page = (Path(__file__).parents[1] / "docs" / "reliability.md").read_text("utf-8")
    assert f"| {len(registered())} classes | none run |" in page
    for name in registered():
        kinds = (keras.layers.Layer, keras.optimizers.Optimizer, keras.optimizers.schedules.LearningRateSchedule)
        assert issubclass(keras.saving.get_custom_objects()[name], (*kinds, keras.Initializer)), name


def fields_of(name) -> list[str]:
    cls = keras.saving.get_custom_objects()[name]
    return [field for field in inspect.signature(cls.__init__).parameters if field not in ("self", "kwargs")]


@pytest.mark.parametrize("name", registered())
def test_no_field_of_a_class_of_ours_is_run(canary, name):
    """Each field in turn, and all of them at once, hold a Python function, a function of the system, a class."""
    cls = keras.saving.get_custom_objects()[name]
    values = [python_lambda(canary), function("os", "system"), layer("Popen", "subprocess", args=f"touch {canary}")]
    for value in values:
        fields = fields_of(name)
        for some in [[field] for field in fields] + [fields]:
            config = {"module": cls.__module__, "class_name": cls.__name__, "registered_name": name}
            config["config"] = {field: copy.deepcopy(value) for field in some}
            try:
                made: Any = keras.saving.deserialize_keras_object(config)
            except Exception:
                continue  # Keras and our classes raise many errors on a bad config
            if isinstance(made, keras.layers.Layer):
                try:
                    made(np.zeros((1, 4, 4, 2), "float32"))
                except Exception:
                    continue


def published(canary) -> dict[str, bytes]:
    """Good weights next to all hostile files above."""
    folder = registry.file_of(registry.find(NAME)).parent
    own = {name: (folder / name).read_bytes() for name in (WEIGHTS, "weights.json")}
    config = layer("Lambda", function=python_lambda(canary))
    more = ("pytorch_model.bin", "model.pkl", "modeling.py", "assets/../a.pkl")
    return {**own, "config.json": json.dumps(config).encode(), **{name: pickled(canary) for name in more}}


def test_our_doors_read_no_config_and_no_pickle(fake_hub, canary, tmp_path, capsys):
    fake_hub.add(REPO, published(canary))
    np.testing.assert_array_equal(outputs(URL), outputs(NAME))
    assert not fake_hub.count("GET", "config.json") and not fake_hub.count("GET", "pytorch_model")
    (tmp_path / "huge").mkdir()
    for name, content in published(canary).items():
        if "/" not in name:
            (tmp_path / "huge" / name).write_bytes(content)
    (tmp_path / "huge" / "config.json").write_text('{"a":' * 200_000)
    np.testing.assert_array_equal(outputs(tmp_path / "huge"), outputs(NAME))
    assert main(["fetch", URL]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_our_doors_refuse_archives_and_pickles(fake_hub, canary, tmp_path, capsys):
    (tmp_path / "image.png").touch()
    for name in ("net.bin", "net.pt", "net.weights.h5", "net.keras", "net.safetensors"):
        (tmp_path / name).write_bytes(pickled(canary))
        with pytest.raises(ValueError, match=name):
            kh.load(tmp_path / name)
        assert main(["classify", "--weights", str(tmp_path / name), str(tmp_path / "image.png")]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and name in err, err
    fake_hub.add(REPO, {"pytorch_model.bin": pickled(canary), "config.json": b"{}"})
    with pytest.raises(HubError, match=REPO):
        kh.load(URL)


@keras.saving.register_keras_serializable(package="users")
class Thing(keras.layers.Flatten):
    """A class of another package."""

    def __init__(self, **kwargs):
        pytest.fail("a class of another package was made")


def writes_a_picture(canary, module="keras.layers", name="Lambda") -> dict:
    """A Lambda of a function of Keras that writes to the path it is given."""
    return layer(name, module, function=function("keras.utils", "save_img"), arguments={"path": str(canary)})


def of_our_package(name) -> dict:
    return layer(name, "keras_highway.training.run_folder") | {"registered_name": f"keras_highway>{name}"}


def initialized_by(module, name, registered=None) -> dict:
    initializer = {"module": module, "class_name": name, "registered_name": registered, "config": {}}
    return layer("Dense", units=2, kernel_initializer=initializer)


ATTACKS = {
    "a Python function": lambda canary: layer("Lambda", function=python_lambda(canary)),
    "a Python function as activation": lambda canary: layer("Dense", units=2, activation=python_lambda(canary)),
    "a Lambda": writes_a_picture,
    "a Lambda of another name": lambda canary: writes_a_picture(canary, "keras", "layers.Lambda"),
    "a Lambda of another module": lambda canary: writes_a_picture(canary, "keras.src.layers.core.lambda_layer"),
    "a function that writes": lambda canary: layer("Dense", units=2, activation=function("keras.utils", "save_img")),
    "a function that fetches": lambda canary: layer("Dense", units=2, activation=function("keras.utils", "get_file")),
    "a function as a class": lambda canary: initialized_by("keras.utils", "get_file"),
    "a function among classes": lambda canary: initialized_by("keras.initializers", "deserialize"),
    "a function of the system": lambda canary: initialized_by("os", "system"),
    "a class of the system": lambda canary: layer("Popen", "subprocess", args=f"touch {canary}", shell=True),
    "a class of ours that is not registered": lambda canary: of_our_package("RunFolder"),
    "a layer of another package": lambda canary: layer("Flatten") | {"registered_name": "users>Thing"},
    "an initializer of another package": lambda canary: initialized_by("keras.initializers", "Zeros", "users>Thing"),
}


def saved_with(path, hostile) -> Path:
    """Save a network with another layer in the place of its first."""
    kh.create_model("highway_fc10", depth=2, units=8).save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    config = json.loads(parts["config.json"])
    hostile["config"]["name"] = config["config"]["layers"][1]["name"]
    config["config"]["layers"][1].update(hostile)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {**parts, "config.json": json.dumps(config)}.items():
            file.writestr(name, content)
    return path


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_network_of_ours_with_other_code_in_it_is_refused(tmp_path, canary, attack):
    path = saved_with(tmp_path / "net.keras", ATTACKS[attack](canary))
    for door in (kh.load, kh.describe_weights):
        with pytest.raises(WeightFileError, match=r"net\.keras cannot be loaded .*: it names .*only classes of Keras"):
            door(path)


def test_an_error_of_keras_is_shown_without_its_colours(tmp_path):
    path = saved_with(tmp_path / "net.keras", layer("MaxPooling2D", pool_size=99))
    assert "output size" in refused(lambda: kh.load(path), path)


def test_a_class_registered_under_the_name_of_one_of_keras_is_not_made(tmp_path):
    path = tmp_path / "net.keras"
    kh.create_model("highway_fc10", depth=2, units=8).save(path)
    scope = keras.saving.custom_object_scope({"Flatten": Thing})
    with scope, pytest.raises(WeightFileError, match="names 'Flatten'"):
        kh.load(path)
