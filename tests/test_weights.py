"""Weight files: whole and of the right variant, or a clear error; rows and their files."""

import json
import runpy
import shutil
import sys
import types
import warnings
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
from hostile import refused

import keras_highway as kh
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import WeightFileError
from keras_highway.weights.load import load_exactly
from keras_highway.weights.sources import resolve

VARIANT, NAME = "mnist10_w16", "mnist10_w16.tvdn"
SHIPPED = [row.name for row in registry.WEIGHTS.values() if row.sha256]  # the others are third parties', on the Hub


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "model.weights.h5"
    weights_file.save(kh.create_model(VARIANT), path, VARIANT, 10)
    return path


@pytest.fixture
def small(tmp_path):
    """A weight file as Keras writes it, without a stamp and a seal."""
    path = tmp_path / "small.weights.h5"
    kh.create_model("highway_fc10", depth=2).save_weights(path)
    return path


def load_small(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kh.UncheckedWeights)
        return kh.create_model("highway_fc10", path, depth=2)


def check_refused(path, match, variant=VARIANT):
    with pytest.raises(ValueError, match=match):
        load_exactly(kh.create_model(variant), resolve(path, variant))


def flip(path):
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_files_that_hold_no_weights_are_refused(tmp_path):
    check_refused(tmp_path / "none.weights.h5", "is not a .weights.h5 file")
    for name, content in {"weights.dat": b"x", "foreign.weights.h5": b"not an HDF5 file at all" * 100}.items():
        (tmp_path / name).write_bytes(content)
        check_refused(tmp_path / name, "is not a")


def test_files_of_another_variant_are_refused(file, tmp_path):
    check_refused(file, "of variant 'mnist10_w16', not of 'mnist10_w32'", "mnist10_w32")
    kh.create_model("mnist10_w32").save_weights(tmp_path / "other.weights.h5")
    check_refused(tmp_path / "other.weights.h5", "does not hold weights of variant")
    with pytest.raises(ValueError, match="does not name its variant"):
        kh.load(str(tmp_path / "other.weights.h5"))
    spec = override(kh.get_spec("highway_fc10"), depth=5)
    build(override(spec, depth=6)).save_weights(tmp_path / "deep.weights.h5")
    model = build(spec)
    model.load_weights(tmp_path / "deep.weights.h5")  # Keras loads such a file without a word: this is why we check
    with pytest.raises(ValueError, match="Unexpected shapes: 2 of"):
        load_exactly(model, resolve(tmp_path / "deep.weights.h5", "highway_fc10"))


def test_arrays_in_another_order_are_refused(tmp_path):
    model, path = kh.create_model(VARIANT), tmp_path / "swapped.weights.h5"
    model.save_weights(path)
    with h5py.File(path, "a") as saved:
        for old, new in (("conv2d", "other"), ("dense", "conv2d"), ("other", "dense")):
            saved["layers"].move(old, new)
    check_refused(path, "does not fit")


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
        with pytest.raises(ValueError, match=r"not finite|beyond float16's largest"):
            weights_file.save(model, paths[1], VARIANT, 10, float16=True)
    assert paths[1].read_bytes() == before and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_weights_are_the_rows_file(name):
    row = registry.WEIGHTS[name]
    path = registry.file_of(row)
    stamp = weights_file.read(path).stamp
    classes = len(row.classes) or len(kh.CharLM(name).vocabulary.words)
    assert (stamp["variant"], stamp["classes"]) == (row.variant, classes)
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
    ours, theirs = ([(a.shape, np.asarray(a).tobytes()) for a in side] for side in (model.weights, arrays))
    assert sorted((tuple(shape), content) for shape, content in ours) == sorted(theirs)


def test_altered_weights_are_refused_wherever_they_lie(tmp_path, monkeypatch):
    folder = tmp_path / NAME
    shutil.copytree(registry.file_of(registry.find(NAME)).parent, folder)
    assert resolve(folder).checked and resolve(folder).info.classes == tuple("0123456789")
    flip(folder / registry.FILE)
    monkeypatch.setattr(registry, "folders", lambda name: [tmp_path / name])
    for weights in (folder, folder / registry.FILE, NAME):
        with pytest.raises(WeightFileError, match="damaged or altered"):
            kh.load(weights)


@pytest.mark.parametrize(
    ("variant", "name", "match"),
    [
        (VARIANT, "mnits", "Did you mean 'mnist'"),
        (VARIANT, "mnist10_w32.tvdn", "of variant 'mnist10_w32', not of 'mnist10_w16'"),
        ("", "mnist10_w32", "'mnist10_w32' is a variant; its weights: mnist10_w32.tvdn"),
        ("", "plain_fc10", "'plain_fc10' is a variant; no weights of it are published"),
    ],
)
def test_unknown_weights_are_refused_with_suggestions(variant, name, match):
    with pytest.raises(ValueError, match=match):
        kh.create_model(variant, weights=name) if variant else kh.load(name)


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
    assert {NAME, "highway20.blog", "charlm_large_coupled.ptb", "charlm_small_coupled.ptb"} <= whole
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


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_neither_loaded_nor_saved(tmp_path, value):
    model, path = kh.create_model("highway_fc10", depth=2), tmp_path / "a.weights.h5"
    kernel = model.get_layer("head").kernel
    kernel.assign(np.full(kernel.shape, value))
    model.save_weights(path)
    assert "values that are not finite" in refused(lambda: resolve(path), path)
    before = path.read_bytes()
    with pytest.raises(WeightFileError, match="not finite"):
        weights_file.save(model, path, "highway_fc10", 10)
    assert path.read_bytes() == before


def change(path, key, values):
    """Replace an array of a file."""
    with h5py.File(path, "a") as file:
        old = file[key][()]
        del file[key]
        file[key] = values(old)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (lambda old: old.astype("int32"), "of dtype int32"),
        (lambda old: old.astype("f8") + 1e300, "not finite"),
        (lambda old: old[0], "fit"),
    ],
)
def test_arrays_that_no_weights_have_are_refused(small, values, match):
    change(small, "layers/dense/vars/1", values)
    with pytest.raises(ValueError, match=match):
        load_small(small)


def test_values_beyond_the_models_precision_and_negative_variances_are_refused(small, tmp_path):
    change(small, "layers/dense/vars/1", lambda old: old + 1e5)
    with pytest.raises(WeightFileError, match="not finite in float16"), warnings.catch_warnings():
        warnings.simplefilter("ignore", kh.UncheckedWeights)
        kh.create_model("highway_fc10", small, depth=2, dtype="float16")
    path = tmp_path / "a.weights.h5"
    kh.create_model("highway20").save_weights(path)
    change(path, "layers/branch/bn1/vars/3", lambda old: old - 2)
    with pytest.raises(WeightFileError, match="variance and gets negative"):
        kh.create_model("highway20", path)


@pytest.mark.parametrize("change", ["swapped", "one number"])
def test_a_file_that_another_program_changed_is_refused(file, tmp_path, change):
    path = tmp_path / "a.weights.h5"
    path.write_bytes(file.read_bytes())
    with h5py.File(path, "a") as saved:
        first, second = (saved[f"layers/highway_conv2d{i}/transform/vars/0"] for i in ("", "_1"))
        if change == "swapped":
            first[...], second[...] = second[()], first[()]
        elif change == "one number":
            first[0, 0, 0, 0] += 1e-6
        else:
            text = saved.attrs["keras_highway"].decode()
            saved.attrs["keras_highway"] = np.bytes_(text.replace('"classes": 10', '"classes": 11'))
    assert "another program has changed it" in refused(lambda: resolve(path), path)


def test_a_file_without_a_seal_is_loaded_with_a_warning(small):
    with h5py.File(small, "a") as saved:
        saved.attrs["keras_highway"] = json.dumps({"variant": "highway_fc10", "classes": 10})
    with pytest.warns(kh.UncheckedWeights, match="was not checked"):
        kh.create_model("highway_fc10", small, depth=2)


def test_unknown_removed_blocks_are_refused(small):
    with h5py.File(small, "a") as file:
        file.attrs["keras_highway"] = json.dumps({"variant": "highway_fc10", "classes": 10, "removed": ["nowhere"]})
    assert "'nowhere'" in refused(lambda: load_small(small), small)


def test_further_groups_and_arrays_are_refused_in_bounded_time(small):
    with h5py.File(small, "a") as file:
        inner = file.create_group("b0")
        inner["x"] = inner["y"] = inner.create_dataset("z", data=np.zeros(3, "f4"))
        for level in range(1, 40):  # each would double the walk
            outer = file.create_group(f"b{level}")
            outer["x"] = outer["y"] = inner
            inner = outer
    assert "fit" in refused(lambda: load_small(small), "highway_fc10")


@pytest.mark.parametrize("shape", [(5000, 5000), (10,)], ids=["array", "chunk"])
def test_compressed_zeros_are_refused_before_they_are_read(small, shape, monkeypatch):
    with h5py.File(small, "a") as file:
        chunks = (25_000_000,) if len(shape) == 1 else (500, 500)
        options = {"maxshape": (None,) * len(shape), "chunks": chunks, "compression": "gzip"}
        file.create_dataset("a", data=np.zeros(shape, "f4"), **options)
    whole = h5py.Dataset.__getitem__

    def read(item, where):
        assert item.name != "/a", "it was read"
        return whole(item, where)

    monkeypatch.setattr(h5py.Dataset, "__getitem__", read)
    assert "times as large as the file" in refused(lambda: resolve(small, "highway_fc10"), small)


def test_a_file_replaced_after_its_check_is_not_read(tmp_path):
    path, model = tmp_path / "a.weights.h5", kh.create_model("highway_fc10", depth=2)
    weights_file.save(model, path, "highway_fc10", 10)
    file = resolve(path)
    path.unlink()
    path.write_bytes(b"other")
    loaded = kh.applications.model_of(file, depth=2)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("suffix", [".weights.h5", ""])
def test_a_path_that_is_too_long_is_refused(suffix):
    with pytest.raises(WeightFileError, match=r"^aaaa.*too long") as error:
        resolve("a" * 5000 + suffix)
    assert len(str(error.value)) < 600


def test_arrays_of_other_files_are_refused(small, tmp_path):
    path = tmp_path / "virtual.weights.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((2**20, 2**20), "float32")
        layout[0] = h5py.VirtualSource("other.h5", "secret", (2**20,))
        file.create_virtual_dataset("layers/dense/vars/0", layout)
    with pytest.raises(WeightFileError, match="values are elsewhere"):
        weights_file.read(path)
    with h5py.File(small, "a") as file:
        del file["layers/dense/vars/0"]
        file["layers/dense/vars/0"] = h5py.ExternalLink(str(tmp_path / "outside.h5"), "/secret")
    with pytest.raises(ValueError, match="fit"):
        load_small(small)


def saved_by_keras(path, **options) -> keras.Model:
    """Weights that say nothing of themselves, of a small variant."""
    model = kh.create_model(VARIANT, **options)
    for index, variable in enumerate(model.weights):
        variable.assign(np.random.default_rng(index).uniform(0.5, 1.5, variable.shape))
    model.save_weights(path)
    return model


@pytest.mark.filterwarnings("ignore::keras_highway.UncheckedWeights")
@pytest.mark.parametrize("options", [{"include_top": False}])
def test_weights_without_a_head_fit_a_model_without_one(options, tmp_path):
    """As in keras.applications, whose files without the top are of models without it."""
    path = tmp_path / "body.weights.h5"
    saved = saved_by_keras(path, **options)
    with pytest.warns(kh.UncheckedWeights, match="assumed to hold 'mnist10_w16'"):
        loaded = kh.create_model(VARIANT, weights=str(path), **options)
    for ours, theirs in zip(saved.weights, loaded.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match=r"Missing shapes: 1 of \(144, 10\)"):  # never a random head without a word
        kh.create_model(VARIANT, weights=str(path))
