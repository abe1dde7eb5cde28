"""Third-party ResNets: timm's files served by a Hub, converted once, against timm's own logits.

The files hold the seeded weights and BN statistics with which
`oracles/make_goldens.py` ran timm's models; no PyTorch here.
"""

import json
from pathlib import Path

import fake_hub as fake
import numpy as np
import pytest
from miniatures import replace_variants
from oracles.seeded_state import seeded_images, seeded_state
from safetensors.numpy import save

import keras_highway as kh
from keras_highway._support.terminal import Notice
from keras_highway.cli import main
from keras_highway.models.builder import build
from keras_highway.predictions import find_classifier
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from keras_highway.weights import registry, torch_files
from keras_highway.weights.hub import HubError, HubName
from keras_highway.weights.sources import resolve
from keras_highway.weights.torch_files import convert_torch_file, read_config, read_safetensors
from keras_highway.weights.torch_names import torch_state

GOLDENS = Path(__file__).parent / "oracles" / "goldens"
BUILDERS = {"resnet50": kh.ResNet50, "resnet101": kh.ResNet101, "resnet152": kh.ResNet152}
SIZE = 64


def timm_checkpoint(variant):
    """The content of a timm checkpoint as safetensors, batch counters and all; and timm's logits."""
    with np.load(GOLDENS / f"{variant}.npz") as golden:
        rows = (line.split() for line in str(golden["state"]).splitlines())
        state = seeded_state([(name, tuple(map(int, shape.split("x")))) for name, shape in rows])
        logits = golden[f"logits_{SIZE}"]
    norms = [name for name in state if name.endswith("running_var")]
    counters = {name.replace("running_var", "num_batches_tracked"): np.array(7) for name in norms}
    return save({**state, **counters}, metadata={"format": "pt"}), logits


def check_against_timm(fake_hub, tag, variant, capsys, tmp_path):
    content, logits = timm_checkpoint(variant)
    fake_hub.add(f"timm/{variant}.{tag}_in1k", {"model.safetensors": content})
    builder = BUILDERS[variant]
    word = {"a1": "imagenet", "a2": "a2", "a3": f"{variant}.a3"}[tag]
    model = builder(weights=word, input_shape=(SIZE, SIZE, 3), classifier_activation=None)
    actual = np.asarray(model(seeded_images(len(logits), SIZE), training=False))
    np.testing.assert_allclose(actual, logits, rtol=0, atol=1e-4)
    err = capsys.readouterr().err
    assert f"converting timm/{variant}.{tag}_in1k" in err and "Apache-2.0; R. Wightman" in err
    assert resolve(word, variant).classes == 1000
    assert "converting" not in capsys.readouterr().err  # the second time, from the cache
    (record,) = (tmp_path / "home" / "keras_highway" / "converted").glob("*/weights.json")
    assert json.loads(record.read_text())["licence"] == "Apache-2.0" and fake.sha256(content)[:16] in str(record)
    assert fake_hub.count("GET", "/content/") == 1


@pytest.mark.more
def test_resnet50_of_timm(fake_hub, capsys, tmp_path):
    check_against_timm(fake_hub, "a1", "resnet50", capsys, tmp_path)


@pytest.mark.more
def test_highway_resnet50_is_made_of_timms_weights_and_computes_what_they_do(fake_hub, capsys):
    content, logits = timm_checkpoint("resnet50")
    fake_hub.add("timm/resnet50.a1_in1k", {"model.safetensors": content})
    shape = {"input_shape": (SIZE, SIZE, 3), "classifier_activation": None}
    images = seeded_images(len(logits), SIZE)
    model = kh.HighwayResNet50(weights="imagenet", **shape)
    actual = np.asarray(model(images, training=False))
    np.testing.assert_allclose(actual, logits, rtol=0, atol=1e-4 * np.abs(logits).max())
    assert "highway_resnet50.a1: converting timm/resnet50.a1_in1k" in capsys.readouterr().err
    gates = kh.analysis.trace(model, images[:1])["stage3_block4"]
    np.testing.assert_allclose(gates.t, 0.1, rtol=1e-6)
    np.testing.assert_allclose(gates.c, 0.9, rtol=1e-6)
    again = kh.load("highway_resnet50.a1", **shape)
    assert capsys.readouterr().err == "" and fake_hub.count("GET", "/content/") == 1
    np.testing.assert_array_equal(np.asarray(again(images, training=False)), actual)


CONFIG = {
    "architecture": "resnet50",
    "pretrained_cfg": {
        "tag": "tv_in1k",
        "num_classes": 1000,
        "input_size": [3, 224, 224],
        "test_input_size": [3, 288, 288],
        "interpolation": "bilinear",
        "crop_pct": 0.875,
        "mean": [0.5, 0.5, 0.5],
        "std": [0.5, 0.5, 0.25],
        "license": "bsd-3-clause",
    },
}


@pytest.mark.more
def test_any_resnet_on_the_hub(fake_hub, capsys):
    """Not in our table: torchvision's, a later recipe of timm's; the transform is the repository's own."""
    content, logits = timm_checkpoint("resnet50")
    fake_hub.add("timm/resnet50.tv_in1k", {"model.safetensors": content, "config.json": json.dumps(CONFIG).encode()})
    name = "hf://timm/resnet50.tv_in1k"
    model = kh.load(name, input_shape=(SIZE, SIZE, 3), classifier_activation=None)
    np.testing.assert_allclose(model(seeded_images(len(logits), SIZE), training=False), logits, rtol=0, atol=1e-4)
    transform = kh.get_transform(name)
    assert (transform.size, transform.crop, transform.interpolation) == ((288, 288), 0.875, "bilinear")
    assert transform.mean == (0.5, 0.5, 0.5) and transform.std == (0.5, 0.5, 0.25)
    row = kh.describe_weights(name)
    assert (row.variant, row.data, row.classes[1], row.licence) == ("resnet50", "imagenet", "goldfish", "bsd-3-clause")
    assert resolve(name).info.variant == "resnet50"
    assert resolve(name, "highway_resnet50").info.variant == "highway_resnet50"


def test_a_repository_of_something_else(fake_hub):
    fake_hub.add("org/other", {"README.md": b"nothing"})
    with pytest.raises(HubError, match=r"download model\.weights\.h5 of hf://org/other.*no such file"):
        kh.load("hf://org/other")
    fake_hub.add("org/vit", {"model.safetensors": save({"cls_token": np.zeros(3)}), "config.json": b"{}"})
    with pytest.raises(ValueError, match="does not have the names of a ResNet50"):
        kh.load("hf://org/vit")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*no config.json")
def test_a_local_state_dict(tmp_path, fake_hub):
    content, logits = timm_checkpoint("resnet50")
    path = tmp_path / "mine.safetensors"
    path.write_bytes(content)
    images = seeded_images(len(logits), SIZE)
    for model in (
        kh.ResNet50(weights=str(path), input_shape=(SIZE, SIZE, 3), classifier_activation=None),
        kh.load(path, input_shape=(SIZE, SIZE, 3), classifier_activation=None),
    ):
        np.testing.assert_allclose(model(images, training=False), logits, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match=r"holds weights of 'resnet50', not of 'resnet101'; nothing was set"):
        kh.ResNet101(weights=str(path))


@pytest.mark.slow
def test_pinned_weights_are_of_that_commit_and_no_other_bytes(fake_hub, hub_table, capsys, tmp_path):
    content, _ = timm_checkpoint("resnet50")
    commit = fake_hub.add("timm/resnet50.a1_in1k", {"model.safetensors": content})
    assert main(["fetch", "highway_resnet50.a1", "--pin"]) == 0  # it is made of the same file
    entry = {"revision": commit, "sha256": fake.sha256(content)}
    assert json.loads(hub_table.read_text()) == {"resnet50.a1": entry}
    assert f"commit {commit}, sha256 {entry['sha256']}" in capsys.readouterr().out
    for name in ("resnet50.a1", "highway_resnet50.a1"):
        assert (registry.find(name).revision, registry.find(name).sha256) == (commit, entry["sha256"])
    fake_hub.add("timm/resnet50.a1_in1k", {"model.safetensors": b"something else"})
    resolve("resnet50.a1")  # another file is the newest; the pinned one is read
    hub_table.write_text(json.dumps({"resnet50.a1": {**entry, "sha256": "0" * 64}}))
    registry.reread()
    with pytest.raises(ValueError, match="is damaged or altered"):
        resolve("resnet50.a1")
    assert main(["fetch", "mnist10_w16.tvdn", "--pin"]) == 2
    assert "Only third-party weights are pinned" in capsys.readouterr().err


def test_pickles_are_refused(tmp_path):
    (tmp_path / "model.pt").write_bytes(b"\x80\x04pickle")
    with pytest.raises(ValueError, match="is a pickle, which can run code"):
        kh.ResNet50(weights=str(tmp_path / "model.pt"))


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "tag"), [("resnet101", "a2"), ("resnet152", "a3")])
def test_deeper_resnets_of_timm(fake_hub, variant, tag, capsys, tmp_path):
    check_against_timm(fake_hub, tag, variant, capsys, tmp_path)


@pytest.fixture
def small(monkeypatch):
    """States of two CIFAR nets in the authors' layout, of one block a stage instead of 18."""
    few = {name: override(VARIANTS[name], blocks=(1, 1, 1)) for name in ("resnet110", "highway110")}
    replace_variants(monkeypatch, few)
    return {name: torch_state(build(spec)) for name, spec in few.items()}


def converted(tmp_path, state, variant):
    source = tmp_path / "model.safetensors"
    source.write_bytes(save(state))
    convert_torch_file(source, tmp_path / "model.weights.h5", variant)
    return kh.load(str(tmp_path / "model.weights.h5"))


def test_the_authors_cifar_nets_there_and_back(small, tmp_path):
    back = torch_state(converted(tmp_path, small["highway110"], "highway110"))
    assert {"layer1.0.gate1.weight", "layer1.0.gatebn2.bias", "layer2.0.shortcut.0.weight", "linear.bias"} <= set(back)
    assert all(np.array_equal(back[name], array) for name, array in small["highway110"].items())


def test_a_file_of_another_net_is_refused(small, tmp_path):
    with pytest.raises(ValueError, match="nothing was set"):
        converted(tmp_path, small["resnet110"], "highway110")
    with pytest.raises(ValueError, match="no classifier"):
        converted(tmp_path, {"conv1.weight": np.zeros(3)}, "highway110")
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\x80\x04pickle", "not a weight file"),
        (save({"a": np.zeros(2, "int32")}), "a is of dtype int32"),
        (save({"a": np.array([np.nan], "float32")}), "not finite"),
        (save({"bn1.running_var": np.array([-1.0], "float32")}), "negative variances"),
    ],
)
def test_safetensors_that_hold_no_weights_are_refused(tmp_path, content, match):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match=match):
        read_safetensors(tmp_path / "model.safetensors")


def test_rows_of_timm_say_whose_they_are_and_how_they_are_fed():
    rows = [registry.WEIGHTS[f"{variant}.{tag}"] for variant in BUILDERS for tag in ("a1", "a2", "a3")]
    assert {row.repository for row in rows} == {f"timm/{v}.{t}_in1k" for v in BUILDERS for t in ("a1", "a2", "a3")}
    assert all(row.origin and row.licence and row.data_licence and len(row.classes) == 1000 for row in rows)
    assert {row.transform.crop for row in rows} == {0.95} and {row.transform.size for row in rows} == {(224, 224)}
    assert registry.find("imagenet", "resnet50").name == "resnet50.a1"
    assert kh.decode_predictions(np.eye(1000)[[1]], 1, "resnet50.a1") == [[("n01443537", "goldfish", 1.0)]]


LABELS = [f"bird{i}" for i in range(10)]


def config(root=(), **changes):
    """timm's of a ResNet50 with the `pretrained_cfg` of the net it was made from."""
    return {**CONFIG, **dict(root), "pretrained_cfg": {**CONFIG["pretrained_cfg"], **changes}}


@pytest.fixture(scope="module")
def net_of_ten():
    """The file of a net of ten classes that is converted quickly."""
    return save(torch_state(kh.create_model("resnet110")))


@pytest.fixture
def of_ten(fake_hub, monkeypatch, net_of_ten):
    """Publishes a `config.json` next to that net, with a ResNet50's name."""
    monkeypatch.setattr(torch_files, "_resnet_of", lambda names: "resnet110")

    def add(values):
        fake_hub.add("me/birds", {torch_files.SAFETENSORS: net_of_ten, "config.json": json.dumps(values).encode()})
        return "hf://me/birds"

    return add


def test_a_fine_tuned_net_of_timms_is_loaded_with_its_own_classes(of_ten):
    name = of_ten(config({"num_classes": 10, "label_names": LABELS}))
    assert kh.describe_weights(name).classes == tuple(LABELS) and kh.describe_weights(name).data == ""
    assert kh.load(name).output_shape == (None, 10)


def test_a_local_file_has_the_transform_and_classes_of_the_config_next_to_it(tmp_path, monkeypatch, net_of_ten):
    monkeypatch.setattr(torch_files, "_resnet_of", lambda names: "resnet110")
    monkeypatch.setattr(torch_files, "home_folder", lambda: tmp_path / "home")
    path = tmp_path / "birds.safetensors"
    path.write_bytes(net_of_ten)
    with pytest.warns(Notice, match="no config.json"):
        assert kh.load(path).output_shape == (None, 10)
    values = config({"num_classes": 10, "label_names": LABELS})
    (tmp_path / "config.json").write_text(json.dumps(values))
    model = kh.load(path)
    info = read_config(tmp_path / "config.json", HubName("me/birds"))
    for described in (kh.describe_weights(path), kh.describe_weights(model)):
        assert (described.classes, described.transform) == (tuple(LABELS), info.transform)
    assert find_classifier(str(path)).classes[3] == ("3", "bird3")
    (tmp_path / "config.json").write_text(json.dumps(config({"num_classes": 10}, global_pool="max")))
    with pytest.raises(ValueError, match="pooling"):
        kh.load(path)


@pytest.mark.parametrize("name", ["resnetaa50.a1h_in1k/model.safetensors", "resnetblur50.safetensors"])
def test_local_nets_with_the_arrays_of_a_resnet_are_refused_by_name(name, tmp_path):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match="blurs"):
        kh.load(tmp_path / name)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (config({"num_classes": 10}, interpolation="lanczos"), "lanczos"),
        (config({"num_classes": 10, "architecture": "resnetblur50"}), "resnetblur50"),
        (config({"num_classes": 10, "model_args": {"act_layer": "silu"}}), "alone.*another network, by 'act_layer'"),
    ],
)
def test_a_config_of_timms_is_not_passed_over(of_ten, values, match):
    with pytest.raises(ValueError, match=match):
        kh.load(of_ten(values))
