"""Saving, publishing and exporting under settings that users have, and beside files that lie there already."""

import io

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data import sample_digits
from keras_highway.data.transforms import Transform
from keras_highway.export import export
from keras_highway.weights.card import described
from keras_highway.weights.info import FILE, ROW, read_row
from keras_highway.weights.publish import find_publishable
from keras_highway.weights.trained import CHECK, compare_check, weights_class

SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
X = np.random.default_rng(0).random((2, 32, 32, 3), "float32")


def net(**changes):
    return kh.create_model("highway20", weights=None, **{**SMALL, **changes})


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16", "float64"])
def test_what_is_saved_under_a_policy_is_what_is_computed_without_it(policy, tmp_path):
    if policy == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 by default")
    model = net(dtype="float32")
    kh.save(model, tmp_path / "a" / "net", transform="cifar10")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        kh.save(model, tmp_path / "b" / "net", transform="cifar10")
        kh.save(net(), tmp_path / "c", transform="cifar10")
    finally:
        keras.config.set_dtype_policy(before)
    ours, theirs = files(tmp_path / "a" / "net"), files(tmp_path / "b" / "net")
    names = (CHECK, "config.json", "model.safetensors", "README.md")
    assert [ours[name] for name in names] == [theirs[name] for name in names]
    row = read_row(tmp_path / "c" / ROW)
    assert compare_check(weights_class(row.variant).open(row, tmp_path / "c" / FILE), tmp_path / "c" / CHECK) < 1e-5


@pytest.mark.usefixtures("computes_channels_first")
def test_a_folder_that_was_saved_channels_first_is_what_its_card_says(tmp_path):
    model = net()
    kh.save(model, tmp_path / "a" / "net", transform="cifar10")
    keras.config.set_image_data_format("channels_first")
    try:
        first = net(input_shape=(3, 32, 32))
        first.set_weights(model.get_weights())
        kh.save(first, tmp_path / "b" / "net", transform="cifar10")
    finally:
        keras.config.set_image_data_format("channels_last")
    assert (tmp_path / "a" / "net" / "config.json").read_bytes() == (
        tmp_path / "b" / "net" / "config.json"
    ).read_bytes()
    np.testing.assert_allclose(
        to_numpy(keras.saving.load_model(tmp_path / "b" / "net")(X)), to_numpy(model(X)), atol=1e-5
    )


def test_a_folder_with_a_name_of_the_zoo_is_not_taken_for_the_zoo(tmp_path, monkeypatch, capsys):
    """`publish` sent the zoo's weights, without a word."""
    kh.save(net(), tmp_path / "highway20.blog", transform="cifar10")
    monkeypatch.chdir(tmp_path)
    assert main(["publish", "highway20.blog", "--repo", "org/own", "--dry-run"]) == 2
    assert "is the name of weights of the zoo, and here also a folder of others" in capsys.readouterr().err
    assert find_publishable("./highway20.blog").row.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"scale": 1 / 127.5, "mean": (1.0,)}, "times 1/127.5, minus (1.0,), over (1.0,)"),
        ({"scale": 1 / 255, "std": (0.5,)}, "times 1/255, minus (0.0,), over (0.5,)"),
        ({"scale": 1 / 255}, "times 1/255"),
        ({"scale": 2.0}, "times 2"),
    ],
)
def test_cards_state_what_pixels_go_through(fields, text):
    assert described(Transform(size=(8, 8), channels=3, **fields)).endswith(f"RGB, {text}")


def test_operations_that_would_be_lost_are_refused(tmp_path):
    body, images = net(), keras.Input((32, 32, 3))
    x = keras.ops.clip(images, -3, 3)
    for layer in body.layers[1:]:
        x = layer(x)
    with pytest.raises(ValueError, match="it has an operation 'clip"):
        kh.save(keras.Model(images, x, name="highway20"), tmp_path / "net", transform="cifar10")
    assert not (tmp_path / "net").exists()


def test_a_card_of_a_folder_names_no_other_place(tmp_path):
    kh.save(net(), tmp_path / "runs dir" / "pets", name="resnet20.blog", transform="cifar10")
    card = (tmp_path / "runs dir" / "pets" / "README.md").read_text("utf-8")
    assert 'weights = "path/of/this/folder"' in card and 'load_model("path/of/this/folder")' in card
    assert 'load("resnet20.blog")' not in card


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
    assert main(arguments) == 2 and "run in a scan" in capsys.readouterr().err


def test_characters_beyond_the_output_are_escaped(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", out)
    assert main(["list", "mnist10_w32*"]) == 0
    out.flush()
    assert b"\\xb1" in out.buffer.getvalue()


def test_without_standard_input_a_file_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["lm", "score", "-"]) == 2 and "There is no standard input to read" in capsys.readouterr().err
