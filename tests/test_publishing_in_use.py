"""Exports and commands with unusual settings, and next to files that exist already."""

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data import sample_digits
from keras_highway.export import export

SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}


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


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow's formats")
def test_an_export_does_not_replace_a_file_by_a_folder(tmp_path):
    (tmp_path / "net").write_text("mine")
    with pytest.raises(ValueError, match="is a file"):
        export(net(), tmp_path / "net", "tf_saved_model")
    assert (tmp_path / "net").read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


def test_what_is_no_number_names_no_class(tmp_path, capsys):
    model = net(classes=10)
    model.get_layer("head").kernel.assign(np.full((8, 10), 3e38))  # finite, and its products are not
    model.get_layer("stage3_block1").transform.bn2.gamma.assign(np.full(8, 1e20))
    model.save(tmp_path / "large.keras")
    image = str(sample_digits()[7])
    assert main(["classify", image, "--weights", str(tmp_path / "large.keras"), "--data-set", "cifar10", "--json"]) == 2
    out, error = capsys.readouterr()
    assert not out and "not finite" in error
