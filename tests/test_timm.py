"""Other people's ResNets: timm's files served by a Hub, converted once, against timm's own logits.

The files hold the seeded weights and BN statistics with which
`oracles/make_goldens.py` ran timm's models; no PyTorch here.
"""

import json
from pathlib import Path

import fake_hub as fake
import numpy as np
import pytest
from oracles.seeded_state import seeded_images, seeded_state
from safetensors.numpy import save

import keras_highway as kh
from keras_highway import applications
from keras_highway.convert import timm, torch_state
from keras_highway.convert.timm import read_safetensors
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS
from keras_highway.weights import load, registry
from keras_highway.weights.resolve import convert_torch_file, resolve

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
    ours = np.asarray(model(seeded_images(len(logits), SIZE), training=False))
    np.testing.assert_allclose(ours, logits, rtol=0, atol=1e-4)
    err = capsys.readouterr().err
    assert f"converting timm/{variant}.{tag}_in1k" in err and "Apache-2.0; R. Wightman" in err
    assert resolve(word, variant).classes == 1000
    assert "converting" not in capsys.readouterr().err  # the second time, from the cache
    (record,) = (tmp_path / "home" / "keras_highway" / "converted").glob("*.json")
    facts = json.loads(record.read_text())
    assert facts["source_sha256"] == fake.sha256(content) and facts["licence"] == "Apache-2.0"
    assert fake_hub.count("GET", "/content/") == 1


def test_resnet50_of_timm(fake_hub, capsys, tmp_path):
    check_against_timm(fake_hub, "a1", "resnet50", capsys, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "tag"), [("resnet101", "a2"), ("resnet152", "a3")])
def test_deeper_resnets_of_timm(fake_hub, variant, tag, capsys, tmp_path):
    check_against_timm(fake_hub, tag, variant, capsys, tmp_path)


@pytest.fixture
def small(monkeypatch):
    """States of two CIFAR nets in the authors' layout, of one block a stage instead of 18."""
    few = {name: override(VARIANTS[name], blocks=(1, 1, 1)) for name in ("resnet110", "highway110")}
    for module in (timm, applications, load):
        monkeypatch.setattr(module, "VARIANTS", few)
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


@pytest.mark.parametrize("content", [b"", b"\x80\x04pickle", b"\xff" * 100])
def test_no_safetensors_file(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ValueError, match="no safetensors file, or is truncated"):
        read_safetensors(tmp_path / "model.safetensors")


@pytest.fixture
def cifar_row(fake_hub, small, monkeypatch):
    """Other people's weights of a net that converts quickly, as a row of the table."""
    name = "highway110.theirs"
    row = registry.WeightsInfo(
        name=name,
        variant="highway110",
        data="cifar10",
        recipe="theirs",
        classes=kh.get_spec("highway110").classes * ("class",),
        transform=kh.get_transform("cifar10"),
        sha256="",
        origin="Somebody",
        repository="them/net",
        file="model.safetensors",
    )
    monkeypatch.setattr(registry, "WEIGHTS", {name: row})
    fake_hub.add("them/net", {"model.safetensors": save(small["highway110"])})
    return row


def test_a_damaged_conversion_is_made_again(cifar_row, tmp_path):
    first = kh.load(cifar_row.name).get_weights()
    (path,) = (tmp_path / "home" / "keras_highway" / "converted").glob("*.h5")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    again = kh.load(cifar_row.name).get_weights()
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_a_foreign_net_in_the_repository_leaves_nothing_to_trust(cifar_row, fake_hub, small, tmp_path):
    fake_hub.add("them/net", {"model.safetensors": save(small["resnet110"])})
    for _ in range(2):
        with pytest.raises(ValueError, match="nothing was set"):
            kh.load(cifar_row.name)
    assert list((tmp_path / "home" / "keras_highway" / "converted").iterdir()) == []


def test_rows_of_timm_say_whose_they_are_and_how_they_are_fed():
    rows = [registry.WEIGHTS[f"{variant}.{tag}"] for variant in BUILDERS for tag in ("a1", "a2", "a3")]
    assert {row.repository for row in rows} == {f"timm/{v}.{t}_in1k" for v in BUILDERS for t in ("a1", "a2", "a3")}
    assert all(row.origin and row.licence and row.data_licence and len(row.classes) == 1000 for row in rows)
    assert {row.transform.crop for row in rows} == {0.95} and {row.transform.size for row in rows} == {(224, 224)}
    assert registry.find("imagenet", "resnet50").name == "resnet50.a1"
    assert kh.decode_predictions(np.eye(1000)[[1]], 1, "resnet50.a1") == [[("n01443537", "goldfish", 1.0)]]
