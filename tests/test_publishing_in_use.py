"""Exports and commands with unusual settings, and next to files that exist already."""

import io

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data import sample_digits
from keras_highway.export import export

SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
X = np.random.default_rng(0).random((2, 32, 32, 3), "float32")


def net(**changes):
    return kh.create_model("highway20", weights=None, **{**SMALL, **changes})


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's formats")
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16"])
def test_a_net_with_a_net_inside_is_exported_in_float32(policy, tmp_path):
    body, images = net(include_top=False, pooling="avg", dtype=policy), keras.Input((32, 32, 3))
    model = keras.Model(images, keras.layers.Dense(3, dtype=policy)(body(images)))
    assert export(model, tmp_path / "n", "tf_saved_model") < 1e-3
    sequential = keras.Sequential([keras.Input((32, 32, 3)), body, keras.layers.Dense(3, dtype=policy)])
    assert export(sequential, tmp_path / "s", "tf_saved_model") < 1e-3


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's formats")
def test_an_export_leaves_alone_what_another_one_writes(tmp_path):
    """Two processes that exported to one path destroyed each other's file."""
    theirs = tmp_path / ".partial-net" / "variables"
    theirs.mkdir(parents=True)
    (theirs / "variables.index").write_text("half")
    export(net(), tmp_path / "net", "tf_saved_model")
    assert (theirs / "variables.index").read_text() == "half"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".partial-net", "net"]


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's formats")
def test_an_export_does_not_replace_a_file_by_a_folder(tmp_path):
    (tmp_path / "net").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        export(net(), tmp_path / "net", "tf_saved_model")
    assert (tmp_path / "net").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's formats")
def test_representative_images_of_any_dtype(tmp_path):
    images = np.random.default_rng(0).random((20, 32, 32, 3))
    assert export(net(), tmp_path / "net.tflite", "litert", int8=images) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [[], ["--data", "."]])
def test_int8_of_photographs_says_what_there_is(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    kh.save(net(), "own", transform=kh.get_transform("cifar10"))
    assert main(["export", "own", "--format", "litert", "--int8", "--out", "i.tflite", *arguments]) == 2
    error = capsys.readouterr().err
    assert "--int8 is scaled by training images of mnist, cifar10, cifar100" in error
    assert "an unknown data set" in error


def test_what_is_no_number_names_no_class(tmp_path, capsys):
    model = net(classes=10)
    model.get_layer("head").kernel.assign(np.full((8, 10), 3e38))  # finite, and its products are not
    model.get_layer("stage3_block1").transform.bn2.gamma.assign(np.full(8, 1e20))
    model.save(tmp_path / "large.keras")
    image = str(sample_digits()[7])
    assert main(["classify", image, "--weights", str(tmp_path / "large.keras"), "--data-set", "cifar10", "--json"]) == 2
    out, error = capsys.readouterr()
    assert not out and "not finite" in error


@pytest.mark.slow
def test_gates_of_a_net_in_a_scan_are_refused(tmp_path, capsys):
    kh.save(kh.create_model("plain_fc1000", weights=None), tmp_path / "fc", transform="mnist")
    arguments = ["gates", str(sample_digits()[7]), "--weights", str(tmp_path / "fc"), "--out", str(tmp_path / "g.png")]
    assert main(arguments) == 2 and "build the model with scanned=False" in capsys.readouterr().err


def test_characters_beyond_the_output_are_escaped(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["list", "mnist10_w32*"]) == 0
    out.flush()
    assert b"\\xb1" in out.buffer.getvalue()


def test_without_standard_input_a_file_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["lm", "score", "-"]) == 2 and "There is no standard input to read" in capsys.readouterr().err
