"""Hostile Keras archives and repositories: what Keras's own loading refuses, and that our doors read none of it.

`keras.saving.load_model` is Keras's. Its protections that a repository of ours relies on are pinned here; where it has
none, see docs/upstream.md.
"""

import copy
import importlib.util
import inspect
import io
import json
import pickle
import stat
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest
from huggingface_hub import snapshot_download
from keras.src.utils.python_utils import func_dump

import keras_highway as kh
import keras_highway.training.optimizers
from keras_highway.cli import main
from keras_highway.hub.error import HubError
from keras_highway.weights import registry
from keras_highway.weights.file import WeightFileError

REPO = "org/net"
URL = f"hf://{REPO}"
NAME = "mnist10_w16.tvdn"
WEIGHTS = "model.weights.h5"
X = np.random.default_rng(0).random((2, 28, 28, 1), "float32")


def outputs(weights) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(kh.load(weights)(X)))


def keras_loads(repository) -> Any:
    """Loads a repository as Keras does, which needs TensorFlow for names on the Hub, though for nothing else."""
    if importlib.util.find_spec("tensorflow"):
        return keras.saving.load_model(f"hf://{repository}")
    return keras.saving.load_model(snapshot_download(repository))


@pytest.fixture
def canary(tmp_path):
    """A file that code from outside would make."""
    path = tmp_path / "canary"
    yield path
    assert not path.exists(), "code from outside was run, or a file written from outside"


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> dict[str, bytes]:
    """The files of a small network's archive."""
    path = tmp_path_factory.mktemp("archive") / "net.keras"
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, name="last")]).save(path)
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def with_layer(archive, layer) -> dict[str, bytes]:
    """The archive with another last layer."""
    config = json.loads(archive["config.json"])
    config["config"]["layers"][-1] = layer
    return {**archive, "config.json": json.dumps(config).encode()}


def layer(name, module="keras.layers", **config) -> dict:
    return {"module": module, "class_name": name, "registered_name": None, "config": {"name": "last", **config}}


def python_lambda(canary) -> dict:
    """A Python function as Keras writes it, which makes a file."""
    code, defaults, closure = func_dump(eval(f"lambda x: __import__('pathlib').Path({str(canary)!r}).touch() or x"))
    config = {"value": code, "code": code, "defaults": defaults, "closure": closure}
    return {"class_name": "__lambda__", "config": config}


def function(module, name, registered=None) -> dict:
    return {"module": module, "class_name": "function", "config": name, "registered_name": registered or name}


def hostile_layers(canary) -> dict[str, dict]:
    run, shell = python_lambda(canary), f"touch {canary}"
    return {
        "a Lambda": layer("Lambda", function=run),
        "a Lambda's output shape": layer("Lambda", function=function("builtins", "relu"), output_shape=run),
        "a Lambda as activation": layer("Dense", units=2, activation=run),
        "a function of a module": layer("Lambda", function=function("os", "system")),
        "a built-in function": layer("Lambda", function=function("builtins", "exec")),
        "a function of ours": layer("Lambda", function=function("keras_highway.cli.main", "main")),
        "a function of ours by a registered name": layer(
            "Lambda", function=function("keras_highway", "main", "keras_highway>main")
        ),
        "a function of Keras that fetches": layer("Lambda", function=function("keras.utils", "get_file")),
        "the same by its inner name": layer("Lambda", function=function("keras.src.utils.file_utils", "get_file")),
        "a function that makes loading unsafe": layer(
            "Lambda", function=function("keras.config", "enable_unsafe_deserialization")
        ),
        "loading without safety": layer(
            "Lambda", function=function("keras.saving", "load_model"), arguments={"safe_mode": False}
        ),
        "a class of a module": layer("Popen", "subprocess", args=shell, shell=True),
        "a class of ours that is not registered": layer("RunFolder", "keras_highway.training.runs.run_folder"),
        "a file's lines as vocabulary": layer("StringLookup", vocabulary="/etc/passwd"),
        "a saved TensorFlow program": layer("TFSMLayer", filepath=str(canary.parent)),
        "a pickled PyTorch module": layer("TorchModuleWrapper", module=pickled(canary).hex()),
    }


class _Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path):
        self._path = path

    def __reduce__(self):
        return Path.touch, (self._path,)


def pickled(canary) -> bytes:
    return pickle.dumps(_Touch(canary))


def test_the_attacks_are_attacks(tmp_path):
    """What must not be run would make the file if it were."""
    path = tmp_path / "made"
    pickle.loads(pickled(path))
    assert path.exists()
    path.unlink()
    config = layer("Lambda", function=python_lambda(path))["config"]
    keras.layers.Lambda.from_config(config, safe_mode=False)(np.zeros((1, 2)))
    assert path.exists()


@pytest.mark.parametrize("attack", hostile_layers(Path("/nowhere")))
def test_keras_refuses_what_would_run_code(fake_hub, archive, canary, attack):
    fake_hub.add(REPO, with_layer(archive, hostile_layers(canary)[attack]))
    with pytest.raises((ValueError, TypeError, AttributeError, ImportError)):
        model = keras_loads(REPO)
        model(np.zeros((1, 2), "float32"))


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
                continue  # of a config that is none Keras and our classes raise nearly anything
            if isinstance(made, keras.layers.Layer):
                try:
                    made(np.zeros((1, 4, 4, 2), "float32"))
                except Exception:
                    continue


# --- Archives that write elsewhere -------------------------------------------------


def members(outside: Path) -> dict[str, list]:
    link = zipfile.ZipInfo("assets/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    return {
        "upwards": ["../../canary", "assets/../../../canary", "..\\..\\canary"],
        "absolute": [str(outside / "canary"), "assets/a"],
        "through a link": [link, "assets/link/canary"],
    }


def files_outside(folder, inside) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if inside not in path.parents)


@pytest.mark.parametrize("attack", members(Path("/nowhere")))
def test_an_archive_writes_nothing_outside_of_its_folder(archive, tmp_path, canary, monkeypatch, attack):
    inside = tmp_path / "scratch" / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(inside))
    path = tmp_path / "net.keras"
    with zipfile.ZipFile(path, "w") as file:
        for name, content in archive.items():
            file.writestr(name, content)
        for name in members(tmp_path)[attack]:
            file.writestr(name, str(tmp_path))
    before = files_outside(tmp_path, inside)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras names each path that it leaves out
        try:
            keras.saving.load_model(path)
        except NotADirectoryError:
            assert attack == "through a link"  # the link was written as a file
    assert files_outside(tmp_path, inside) == before
    assert not any(path.is_symlink() for path in inside.rglob("*"))


# --- Pickles, links and sizes in weight files --------------------------------------


def npz_of_objects(canary) -> bytes:
    stream, values = io.BytesIO(), np.empty(1, object)
    values[0] = _Touch(canary)
    np.savez(stream, **{"layers/dense/vars": values, "__root__": values})
    return stream.getvalue()


def test_pickles_of_a_repository_are_not_opened(fake_hub, archive, canary):
    beside = {name: pickled(canary) for name in ("pytorch_model.bin", "assets/a.pkl", "tokenizer.pickle", "a.py")}
    fake_hub.add(REPO, {**archive, **beside})
    keras_loads(REPO)  # they are downloaded, no more
    alone = {name: content for name, content in archive.items() if name != WEIGHTS}
    fake_hub.add("org/npz", {**alone, "model.weights.npz": npz_of_objects(canary)})
    with pytest.raises(ValueError, match=r"could not be loaded|allow_pickle"):
        keras_loads("org/npz")


def h5_with(path: Path, how, outside: Path) -> bytes:
    """A network's weights of which the first array lies elsewhere."""
    with h5py.File(path, "a") as file:
        group: Any = file["layers/dense/vars"]
        shape, size = group["0"].shape, group["0"].nbytes
        del group["0"]
        if how == "a link":
            group["0"] = h5py.ExternalLink(str(outside), "/secret")
        elif how == "external bytes":
            group.create_dataset("0", shape, "float32", external=[(str(outside), 0, size)])
        else:
            layout = h5py.VirtualLayout(shape, "float32")
            layout[...] = h5py.VirtualSource(str(outside), "secret", shape)
            group.create_virtual_dataset("0", layout)
    return path.read_bytes()


@pytest.mark.parametrize("how", ["a link", "external bytes", "a virtual array"])
def test_weights_that_lie_in_other_files_are_not_read(fake_hub, archive, tmp_path, how):
    outside, own = tmp_path / "outside.h5", tmp_path / "own.h5"
    with h5py.File(outside, "w") as file:
        file["secret"] = np.full((2, 2), 7, "float32")
    own.write_bytes(archive[WEIGHTS])
    fake_hub.add(REPO, {**archive, WEIGHTS: h5_with(own, how, outside)})
    with pytest.raises(ValueError):
        keras_loads(REPO)


# --- Our doors ---------------------------------------------------------------------


def published(canary) -> dict[str, bytes]:
    """Good weights, and beside them all that is hostile above."""
    folder = registry.file_of(registry.get(NAME)).parent
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


def test_our_doors_refuse_archives_and_pickles(fake_hub, archive, canary, tmp_path, capsys):
    bad = {name: pickled(canary) for name in ("net.bin", "net.pt", "net.weights.h5", "net.keras", "net.safetensors")}
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
    with zipfile.ZipFile(tmp_path / "lambda.keras", "w") as file:
        for name, content in with_layer(archive, layer("Lambda", function=python_lambda(canary))).items():
            file.writestr(name, content)
    for name in (*bad, "lambda.keras"):
        with pytest.raises(ValueError, match=name):
            kh.load(tmp_path / name)
        assert main(["classify", "--weights", str(tmp_path / name), str(tmp_path / "image.png")]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and name in err, err
    fake_hub.add(REPO, {"pytorch_model.bin": pickled(canary), "config.json": b"{}"})
    with pytest.raises(HubError, match=REPO):
        kh.load(URL)


def writes_a_picture(canary, module="keras.layers", name="Lambda", **fields) -> dict:
    """A Lambda of a function of Keras that writes to the path it is given."""
    write, to = function("keras.utils", "save_img"), {"path": str(canary)}
    return layer(name, module, function=write, arguments=to, **fields)


@pytest.mark.parametrize(
    "attack",
    [
        lambda canary: writes_a_picture(canary),
        lambda canary: writes_a_picture(canary, "keras", "layers.Lambda"),
        lambda canary: writes_a_picture(canary, "keras.src.layers.core.lambda_layer"),
        lambda canary: layer("Dense", units=2, activation=function("keras.utils", "save_img")),
        lambda canary: layer("Dense", units=2, activation=function("keras.utils", "get_file")),
        lambda canary: layer("Popen", "subprocess", args=f"touch {canary}", shell=True),
    ],
)
def test_a_saved_network_of_ours_with_something_hostile_in_it_is_refused(tmp_path, canary, attack):
    path = tmp_path / "net.keras"
    kh.create_model("highway_fc10", depth=2, units=8).save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    config = json.loads(parts["config.json"])
    hostile = attack(canary)
    hostile["config"]["name"] = config["config"]["layers"][1]["name"]
    config["config"]["layers"][1].update(hostile)
    with zipfile.ZipFile(path, "w") as file:
        for name, content in {**parts, "config.json": json.dumps(config)}.items():
            file.writestr(name, content)
    with pytest.raises(WeightFileError, match=r"net\.keras (holds a Lambda|names|is not a network)"):
        kh.load(path)(X)


def test_a_pickle_in_the_cache_is_refused(fake_hub, canary):
    fake_hub.add(REPO, published(canary))
    kh.load(URL)
    (path,) = Path(kh.hub.cache_folder()).glob(f"models--org--net/snapshots/*/{WEIGHTS}")
    path.resolve().write_bytes(pickled(canary))
    with pytest.raises(ValueError, match=r"model\.weights\.h5 of hf://org/net: .*damaged or altered.*It was removed"):
        kh.load(URL)
    np.testing.assert_array_equal(outputs(URL), outputs(NAME))


def test_a_weight_file_with_links_is_refused(tmp_path):
    own, outside = tmp_path / "own.weights.h5", tmp_path / "outside.h5"
    kh.create_model("highway_fc10", depth=2).save_weights(own)
    with h5py.File(own, "a") as file:
        file["layers/more"] = h5py.ExternalLink(str(outside), "/secret")
    with pytest.raises(WeightFileError, match="layers/more is a link to another place"):
        kh.create_model("highway_fc10", weights=own, depth=2)


def test_a_quantized_network_is_for_keras_to_load(tmp_path):
    net = kh.create_model("highway_fc10", depth=3, units=4, input_shape=(4, 4, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of layers that stay in float
        net.quantize("int8")
    net.save(tmp_path / "net.keras")
    with pytest.raises(WeightFileError, match=r"quantized network: keras\.saving\.load_model reads it"):
        kh.load(tmp_path / "net.keras")
