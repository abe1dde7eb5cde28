"""Weight files: whole and of the right variant, or a clear error; rows and their files."""

import json
import runpy
import shutil
import sys
import types
from pathlib import Path

import h5py
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.load import load_exactly
from keras_highway.weights.sources import resolve

VARIANT = "mnist10_w16"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "model.weights.h5"
    weights_file.save(kh.create_model(VARIANT), path, VARIANT, 10)
    return path


def check_refused(path, match, variant=VARIANT):
    model = kh.create_model(variant)
    before = [np.asarray(w) for w in model.weights]
    with pytest.raises(ValueError, match=match):
        load_exactly(model, resolve(path, variant))
    for old, new in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, np.asarray(new))


def test_missing_file(tmp_path):
    check_refused(tmp_path / "none.weights.h5", "No weight file")


def test_wrong_suffix(tmp_path):
    (tmp_path / "weights.dat").write_bytes(b"x")
    check_refused(tmp_path / "weights.dat", r"\.weights\.h5")


def test_foreign_file(tmp_path):
    path = tmp_path / "foreign.weights.h5"
    path.write_bytes(b"not an HDF5 file at all" * 100)
    check_refused(path, "not a weight file, or is truncated")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9, 0.99])
def test_truncated_file(file, tmp_path, share):
    path = tmp_path / "cut.weights.h5"
    content = file.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    check_refused(path, "truncated")


def test_file_of_another_variant_by_its_stamp(file):
    check_refused(file, "of variant 'mnist10_w16', not of 'mnist10_w32'", "mnist10_w32")


def test_file_of_another_variant_without_a_stamp(tmp_path):
    path = tmp_path / "other.weights.h5"
    kh.create_model("mnist10_w32").save_weights(path)
    check_refused(path, "does not hold weights of variant")


def test_file_with_more_layers_than_the_model(tmp_path):
    """Keras loads such a file without a word: every layer of the model is in it."""
    spec = override(kh.get_spec("highway_fc10"), depth=5)
    path = tmp_path / "deep.weights.h5"
    build(override(spec, depth=6)).save_weights(path)
    model = build(spec)
    model.load_weights(path)  # this is why we check
    with pytest.raises(ValueError, match="besides 2 of"):
        load_exactly(model, resolve(path, "highway_fc10"))


def test_saving_leaves_the_optimizer_out(tmp_path):
    model = kh.create_model("highway_fc10", depth=3)
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(np.zeros((2, 28, 28, 1)), np.zeros(2), verbose=0)
    path = tmp_path / "a.weights.h5"
    weights_file.save(model, path, "highway_fc10", 10)
    with h5py.File(path) as saved:
        assert "optimizer" not in saved
    assert weights_file.read(path).stamp == {"variant": "highway_fc10", "classes": 10}


def test_half_precision_is_half_the_size_and_near(tmp_path):
    model = kh.create_model(VARIANT)
    paths = [tmp_path / f"{name}.weights.h5" for name in ("whole", "half")]
    for path, float16 in zip(paths, (False, True), strict=True):
        weights_file.save(model, path, VARIANT, 10, float16, transform="mnist")
    size, half = (path.stat().st_size for path in paths)
    assert half < 0.7 * size
    assert weights_file.read(paths[1]).stamp == {"variant": VARIANT, "classes": 10, "transform": "mnist"}
    loaded = kh.create_model(VARIANT)
    load_exactly(loaded, resolve(paths[1], VARIANT))
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        assert b.dtype == np.float32
        np.testing.assert_array_equal(b, a.astype(np.float16).astype(np.float32))
    before = paths[1].read_bytes()
    for value in (1e5, np.nan):
        model.weights[0].assign(np.full(model.weights[0].shape, value))
        with pytest.raises(ValueError, match="not finite, or beyond float16's largest, 65504"):
            weights_file.save(model, paths[1], VARIANT, 10, float16=True)
    assert paths[1].read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_failed_saving_keeps_the_old_file(file, tmp_path, monkeypatch):
    path = tmp_path / "keep.weights.h5"
    path.write_bytes(file.read_bytes())
    model = kh.create_model(VARIANT)
    monkeypatch.setattr(weights_file.h5py, "File", lambda *a, **k: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        weights_file.save(model, path, VARIANT, 10)
    assert path.read_bytes() == file.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_load_without_a_stamp_asks_for_the_variant(tmp_path):
    path = tmp_path / "plain.weights.h5"
    kh.create_model(VARIANT).save_weights(path)
    with pytest.raises(ValueError, match="does not name its variant"):
        kh.load(str(path))


SHIPPED = [row.name for row in registry.WEIGHTS.values() if row.sha256]  # the others are third parties', on the Hub


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_are_the_rows_file(name):
    row = registry.WEIGHTS[name]
    path = registry.file_of(row)
    stamp = weights_file.read(path).stamp
    assert (stamp["variant"], stamp["classes"]) == (
        row.variant,
        len(row.classes) or len(kh.CharLM(name).vocabulary.words),
    )
    result = registry.result(name)
    assert result["weights"] == name and result["n"] == len(result["seeds"]) == len(result["values"])
    recipe = json.loads((path.parent / "recipe.json").read_text())
    assert recipe["variant"] == row.variant and recipe["name"] == row.recipe
    rows = (path.parent / "log.csv").read_text().splitlines()
    assert len(rows) == result["epochs"] + 1  # one line per epoch and the header
    assert result.get("of_epochs", result["epochs"]) == recipe["epochs"]
    last = dict(zip(rows[0].split(","), rows[-1].split(","), strict=True))
    if result["metric"] == "test_accuracy":
        assert float(last["test_accuracy"]) == result["values"][0]
    else:  # of a language model the log has the validation's
        assert float(last["valid_perplexity"]) == result["valid_perplexity"]


@pytest.mark.parametrize("name", [name for name in SHIPPED if registry.WEIGHTS[name].classes])
def test_a_shipped_network_has_the_arrays_of_its_file(name):
    model, arrays = kh.load(name), []
    with h5py.File(registry.file_of(registry.WEIGHTS[name])) as opened:
        opened.visititems(lambda key, item: arrays.append(item[()]) if isinstance(item, h5py.Dataset) else None)
    arrays = [array.astype("float32") for array in arrays if array.dtype.kind == "f"]
    loaded = [np.asarray(weight) for weight in model.weights]
    assert sorted(map(contents, loaded)) == sorted(map(contents, arrays))


def contents(array):
    """Shape and bytes, to be compared."""
    return array.shape, array.tobytes()


def test_altered_weights_are_refused(tmp_path, monkeypatch):
    row = registry.WEIGHTS["mnist10_w16.tvdn"]
    content = bytearray(registry.file_of(row).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / row.name).mkdir()
    (tmp_path / row.name / registry.FILE).write_bytes(bytes(content))
    monkeypatch.setattr(registry, "folders", lambda name: [tmp_path / name])
    with pytest.raises(ValueError, match="damaged or altered"):
        kh.load(row.name)


def test_weights_that_are_nowhere(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "folders", lambda name: [tmp_path / name])
    with pytest.raises(ValueError, match=r"No file of weights.* set KERAS_HIGHWAY_ZOO to the folder zoo/weights"):
        kh.load("mnist10_w16.tvdn")


def test_zoo_variable_comes_before_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HIGHWAY_ZOO", str(tmp_path))
    folders = registry.folders("a.b")
    assert folders[1] == tmp_path / "a.b" and folders[0].parents[2].name == "keras_highway"


@pytest.mark.parametrize(
    ("variant", "name", "match"),
    [
        ("mnist10_w16", "mnits", "Did you mean 'mnist'"),
        ("mnist10_w16", "mnist10_w32.tvdn", "of variant 'mnist10_w32', not of 'mnist10_w16'"),
        ("highway111", "cifar10", "No weights of 'highway111' are published yet"),
    ],
)
def test_unknown_weights(variant, name, match):
    with pytest.raises(ValueError, match=match):
        kh.create_model(variant, weights=name)


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("mnist10_w32", "'mnist10_w32' is a variant; its weights: mnist10_w32.tvdn"),
        (
            "resnet50",
            "'resnet50' is a variant; its weights: resnet50.imagenette, resnet50.a1, resnet50.a2, resnet50.a3",
        ),
        ("plain_fc10", "'plain_fc10' is a variant; no weights of it are published"),
        ("charlm_small_coupled", "'charlm_small_coupled' is a variant; its weights: charlm_small_coupled.ptb"),
    ],
)
def test_a_variant_is_no_name_of_weights(variant, message):
    with pytest.raises(ValueError) as error:
        kh.load(variant)
    assert str(error.value).startswith(message)


def test_tag_data_set_and_name_mean_the_same():
    rows = {registry.find(name, VARIANT).name for name in ("tvdn", "mnist", "mnist10_w16.tvdn")}
    assert rows == {"mnist10_w16.tvdn"}


def test_rows_folders_and_the_wheel_name_the_same_weights(monkeypatch, tmp_path):
    """`hatch_build.py` is run here without hatchling; a folder that is too large leaves its weights out."""
    root = Path(kh.__file__).parents[1]
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    wheel_files = runpy.run_path(str(root / "hatch_build.py"))["wheel_files"]
    folders = {path.name for path in (root / "zoo" / "weights").iterdir()}
    assert set(SHIPPED) == folders and all(len(registry.find(name).sha256) == 64 for name in SHIPPED)
    files = wheel_files(root)
    zoo = root / "zoo" / "weights"
    whole = {name for name in SHIPPED if json.loads((zoo / name / "weights.json").read_text("utf-8"))["wheel"]}
    assert {"mnist10_w16.tvdn", "highway20.blog", "charlm_large_coupled.ptb", "charlm_small_coupled.ptb"} <= whole
    held = {target for target in files.values() if target.endswith("/model.weights.h5")}
    assert held == {f"keras_highway/zoo/weights/{name}/model.weights.h5" for name in whole}
    assert {f"keras_highway/zoo/weights/{name}/weights.json" for name in SHIPPED} <= set(files.values())
    assert {f"keras_highway/samples/digit_{k}.png" for k in range(10)} <= set(files.values())
    assert files[str(root / "zoo" / "results.csv")] == "keras_highway/zoo/results.csv"
    assert all(Path(source).is_file() and target.endswith(Path(source).name) for source, target in files.items())
    large = tmp_path / "zoo" / "weights" / "large.tvdn"
    large.mkdir(parents=True)
    for name, text in (("weights.json", '{"wheel": false}'), ("result.json", "{}"), ("model.weights.h5", "")):
        (large / name).write_text(text)
    inside = "keras_highway/zoo/weights/large.tvdn"
    assert set(wheel_files(tmp_path).values()) == {f"{inside}/weights.json", f"{inside}/result.json"}


def check_one_sentence(path, match):
    with pytest.raises(weights_file.WeightFileError, match=match) as error:
        resolve(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_neither_loaded_nor_saved(tmp_path, value):
    """Also of a file without a digest."""
    model, path = kh.create_model("highway_fc10", depth=2), tmp_path / "a.weights.h5"
    kernel = model.get_layer("head").kernel
    kernel.assign(np.full(kernel.shape, value))
    model.save_weights(path)
    check_one_sentence(path, "values that are not finite")
    before = path.read_bytes()
    with pytest.raises(weights_file.WeightFileError, match="not finite"):
        weights_file.save(model, path, "highway_fc10", 10)
    assert path.read_bytes() == before


@pytest.mark.parametrize("dtype", ["int32", "bool", "S8", "complex64"])
def test_weights_are_floating_point_numbers(tmp_path, dtype):
    path = tmp_path / "a.weights.h5"
    kh.create_model("highway_fc10", depth=2).save_weights(path)
    with h5py.File(path, "a") as saved:
        values = saved["layers/dense/vars/1"][()]
        del saved["layers/dense/vars/1"]
        saved["layers/dense/vars/1"] = values.astype(dtype)
    check_one_sentence(path, f"of dtype .*{'S8' if dtype == 'S8' else dtype}")


def test_the_digest_knows_what_the_seal_no_longer_does(file, tmp_path):
    """A program that changes the file cuts the seal off: two arrays of one shape, swapped; and one number."""
    for change in ("swapped", "one number", "stamp"):
        path = tmp_path / f"{change}.weights.h5"
        path.write_bytes(file.read_bytes())
        with h5py.File(path, "a") as saved:
            first, second = (saved[f"layers/highway_conv2d{i}/transform/vars/0"] for i in ("", "_1"))
            assert first.shape == second.shape
            if change == "swapped":
                first[...], second[...] = second[()], first[()]
            elif change == "one number":
                first[0, 0, 0, 0] += 1e-6
            else:
                text = saved.attrs["keras_highway"].decode()
                saved.attrs["keras_highway"] = np.bytes_(text.replace('"classes": 10', '"classes": 11'))
        assert b"keras_highway sha256" not in path.read_bytes()
        check_one_sentence(path, "damaged or altered: the digest")


def test_a_file_without_a_digest_is_loaded_with_a_warning(tmp_path):
    """A stamp without a digest."""
    model, path = kh.create_model("highway_fc10"), tmp_path / "old.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "a") as saved:
        saved.attrs["keras_highway"] = json.dumps({"variant": "highway_fc10", "classes": 10})
    with pytest.warns(weights_file.UncheckedWeights, match="was not checked"):
        again = kh.load(path)
    for a, b in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_folder_of_the_zoo_is_checked_wherever_it_lies(tmp_path):
    folder = tmp_path / "anywhere"
    shutil.copytree(registry.file_of(registry.find("mnist10_w16.tvdn")).parent, folder)
    assert resolve(folder).checked and resolve(folder).class_names == tuple("0123456789")
    content = bytearray((folder / registry.FILE).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / registry.FILE).write_bytes(content)
    for path in (folder, folder / registry.FILE):
        with pytest.raises(weights_file.WeightFileError, match=r"its sha256 is .*, that in .*weights\.json is"):
            kh.load(path)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"variant": "mnist10_w32", "sha256": ""}, r"of variant 'mnist10_w16', but weights\.json names 'mnist10_w32'"),
        ({"classes": ["a", "b", "c"]}, "of 10 classes, but weights.json names 3"),
        ({"classes": [str(i) for i in range(12)]}, "of 10 classes, but weights.json names 12"),
    ],
)
def test_a_row_that_does_not_belong_to_its_file(tmp_path, change, match):
    shutil.copytree(registry.file_of(registry.find("mnist10_w16.tvdn")).parent, tmp_path / "a")
    row = tmp_path / "a" / "weights.json"
    row.write_text(json.dumps({**json.loads(row.read_text()), **change}))
    with pytest.raises(ValueError, match=match):
        resolve(tmp_path / "a")


def test_accuracy_of_the_shipped_convolutional_net():
    assert registry.result("mnist10_w16.tvdn")["mean"] >= 0.9935
    assert registry.result("mnist10_w32.tvdn")["mean"] >= 0.9945


def test_a_file_that_fails_half_way_leaves_the_weights(tmp_path):
    """The same shapes in another order: Keras sets what it can before it raises."""
    model = kh.create_model(VARIANT)
    path = tmp_path / "swapped.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "a") as saved:
        layers = saved["layers"]
        layers.move("conv2d", "other")
        layers.move("dense", "conv2d")
        layers.move("other", "dense")
    check_refused(path, "does not fit")
