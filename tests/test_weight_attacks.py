"""Hostile weight files: what was checked is what is set, walks, sizes and waits are bounded."""

import json
import os
import shutil
import warnings

import h5py
import keras
import numpy as np
import pytest
from hostile import quick, refused, zoo_folder  # noqa: F401

import keras_highway as kh
from keras_highway._support.files import read_regular
from keras_highway.weights import files as weights_file
from keras_highway.weights.info import WeightFileError
from keras_highway.weights.load import load_exactly
from keras_highway.weights.sources import resolve


@pytest.fixture
def small(tmp_path):
    """A weight file as Keras writes it, without a digest, and the call that builds its network."""
    path = tmp_path / "small.weights.h5"
    kh.create_model("highway_fc10", depth=2).save_weights(path)
    return path


def load_small(path):
    """A new network with the weights of a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", weights_file.UncheckedWeights)
        return kh.create_model("highway_fc10", path, depth=2)


def test_removed_blocks_that_are_none(small):
    with h5py.File(small, "a") as file:
        file.attrs["keras_highway"] = json.dumps({"variant": "highway_fc10", "classes": 10, "removed": ["nowhere"]})
    assert "'nowhere'" in refused(lambda: load_small(small), small)
    with pytest.raises(WeightFileError):
        load_small(small)


@pytest.mark.parametrize("levels", [1, 40])
def test_groups_and_arrays_under_two_names(small, levels):
    with h5py.File(small, "a") as file:
        inner = file.create_group("b0")
        if levels == 1:
            inner["x"] = inner["y"] = inner.create_dataset("z", data=np.zeros(3, "f4"))
        else:
            for level in range(1, levels):  # each would double the walk
                outer = file.create_group(f"b{level}")
                outer["x"] = outer["y"] = inner
                inner = outer
    assert "second name" in refused(lambda: resolve(small, "highway_fc10"), small)


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
    assert "save them uncompressed" in refused(lambda: resolve(small, "highway_fc10"), small)


def test_a_compressed_file_of_trained_weights_loads(small):
    with h5py.File(small, "a") as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            values = file[name][()]
            del file[name]
            file.create_dataset(name, data=values, compression="gzip")
    load_small(small)


@pytest.mark.parametrize(("stored", "value", "dtype"), [("f8", 1e300, "float32"), ("f4", 1e5, "float16")])
def test_numbers_that_the_models_precision_has_not(small, stored, value, dtype):
    with h5py.File(small, "a") as file:
        group = file["layers/head/vars"] if "head" in file["layers"] else file["layers/dense/vars"]
        values = group["1"][()].astype(stored)
        values[0] = value
        del group["1"]
        group["1"] = values
    file = resolve(small, "highway_fc10")
    model = kh.create_model("highway_fc10", depth=2)
    if dtype == "float16":
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype=dtype)])
        with pytest.raises(WeightFileError, match="not finite in float16"):
            weights_file.check_finite(np.full(3, value, stored), model.layers[0].bias)
        return
    before = model.get_weights()
    assert f"not finite in {dtype}" in refused(lambda: load_exactly(model, file), small)
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("suffix", [".weights.h5", ".keras"])
def test_a_file_replaced_after_its_check_is_not_read(tmp_path, suffix):
    path, model = tmp_path / f"a{suffix}", kh.create_model("highway_fc10", depth=2)
    (weights_file.save(model, path, "highway_fc10", 10) if suffix == ".weights.h5" else model.save(path))
    spec = {"depth": 2} if suffix == ".weights.h5" else {}
    file = resolve(path)
    path.unlink()
    path.write_bytes(b"other")
    loaded = kh.applications.model_of(file, **spec)
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not kh.models.origin.file_of(loaded).content  # it is held for as long as loading takes


def test_a_file_replaced_between_its_hash_and_its_reading_is_refused(folder, monkeypatch):
    other = folder.parent / "other.weights.h5"
    weights_file.save(kh.load(folder), other, "mnist10_w16", 10, transform="mnist")
    read = weights_file.read
    monkeypatch.setattr(
        weights_file, "read", lambda path, promised: (shutil.copyfile(other, path), read(path, promised))[1]
    )
    assert "damaged or altered: its sha256 is" in refused(lambda: resolve(folder), folder)


@pytest.mark.parametrize("suffix", [".weights.h5", ".safetensors", ".keras", ""])
def test_a_pipe_is_not_waited_for(tmp_path, suffix):
    os.mkfifo(tmp_path / f"pipe{suffix}")
    assert "a pipe or a device" in refused(lambda: resolve(tmp_path / f"pipe{suffix}"), tmp_path)
    with pytest.raises(ValueError, match="a pipe or a device"):
        read_regular(tmp_path / f"pipe{suffix}", 10)  # one that was put there after the look


@pytest.mark.parametrize("suffix", [".weights.h5", ".safetensors"])
def test_a_sparse_terabyte_is_not_read(small, suffix):
    path = small.with_name(f"sparse{suffix}")
    os.truncate(shutil.copyfile(small, path), 2**40)
    refused(lambda: resolve(path, "highway_fc10"), path)


@pytest.mark.parametrize("suffix", [".weights.h5", ".safetensors", ".keras", ".pt", "", "/a"])
def test_a_path_that_is_too_long(suffix):
    with pytest.raises(WeightFileError, match=r"^aaaa.*too long") as error:
        resolve("a" * 5000 + suffix)
    assert len(str(error.value)) < 600


def test_a_virtual_array_is_called_what_it_is_however_large(tmp_path):
    path = tmp_path / "virtual.weights.h5"
    with h5py.File(path, "w") as file:
        layout = h5py.VirtualLayout((2**20, 2**20), "float32")
        layout[0] = h5py.VirtualSource("other.h5", "secret", (2**20,))
        file.create_virtual_dataset("layers/dense/vars/0", layout)
    with pytest.raises(WeightFileError, match="layers/dense/vars/0 holds its values elsewhere"):
        weights_file.read(path)


def test_a_weight_file_with_links_is_refused(tmp_path):
    own, outside = tmp_path / "own.weights.h5", tmp_path / "outside.h5"
    kh.create_model("highway_fc10", depth=2).save_weights(own)
    with h5py.File(own, "a") as file:
        file["layers/more"] = h5py.ExternalLink(str(outside), "/secret")
    with pytest.raises(WeightFileError, match="layers/more is a link to another place"):
        kh.create_model("highway_fc10", weights=own, depth=2)
