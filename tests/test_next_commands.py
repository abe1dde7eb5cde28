"""After training on photographs: the commands that are printed, and `verify --data`, find the images they need."""

import dataclasses
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from keras_highway.applications import create_model
from keras_highway.cli import main
from keras_highway.publishing import weights_class
from keras_highway.publishing.verify import Verification
from keras_highway.training import shards
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.results import _form
from keras_highway.training.summary import summary
from keras_highway.weights import file as weights_file
from keras_highway.weights.description import describe_weights

NAMES = ("cat", "dog")
SMALL = {"blocks": (1, 1), "widths": (2, 3), "stem_width": 4, "input_shape": (32, 32, 3)}
RECIPE = dataclasses.replace(RECIPES["resnet50"], weights="resnet50.mine", transform="cifar10")
RESULT = {"weights": "resnet50.mine", "variant": "resnet50", "data": "", "class_names": list(NAMES)}
METRIC = {"metric": "test_accuracy", "n": 1, "mean": 0.75, "std": None, "seeds": [0], "values": [0.75], "epochs": 1}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Photographs of two classes, three cats to one dog, and their shards."""
    root, draw = tmp_path_factory.mktemp("pets"), np.random.default_rng(0)
    for split in ("train", "val"):
        for name, count in zip(NAMES, (3, 1), strict=True):
            (root / "photographs" / split / name).mkdir(parents=True)
            for i in range(count):
                image = Image.fromarray(draw.integers(0, 256, (40, 50, 3), np.uint8))
                image.save(root / "photographs" / split / name / f"ILSVRC2012_val_{i + 1:08d}.JPEG")
    shards.write(root / "photographs", root / "shards", images=2)
    return root


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run, whose net takes all for cats."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    folder.mkdir()
    net = create_model("resnet50", classes=2, **SMALL)
    head = net.get_layer("head")
    head.set_weights([np.zeros(head.kernel.shape), np.array([3.0, 0.0])])
    weights_file.save(net, folder / "model.weights.h5", "resnet50", 2, transform="cifar10", **_form(net))
    (folder / "result.json").write_text(json.dumps({**RESULT, **METRIC}))
    return folder


def evaluate(run, data_dir) -> list[str]:
    """The words of the command that the end of the run prints."""
    lines = summary(RECIPE, METRIC, run, data_dir).splitlines()
    return next(shlex.split(line)[3:] for line in lines if " evaluate " in line)


@pytest.mark.parametrize("data", ["photographs", "shards"])
@pytest.mark.parametrize("named", [True, False])
def test_the_command_that_is_printed_measures_the_photographs(folders, run, data, named, monkeypatch, capsys):
    monkeypatch.delenv("KERAS_HIGHWAY_DATA", raising=False)
    if not named:
        monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(folders / data))
    command = evaluate(run, str(folders / data) if named else None)
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["images"], report["top1"]) == (4, 0.75)
    assert report["data"] == str(folders / data / ("val" if data == "photographs" else ""))


def test_shards_are_read_as_their_folder_is(folders):
    from keras_highway.data.photographs import folder_test_set
    from keras_highway.training.data.shard_test_set import shard_test_set

    there = folder_test_set(folders / "photographs", 2, class_names=NAMES[::-1])
    here = shard_test_set(folders / "shards", 2, class_names=NAMES[::-1])
    assert here.images == there.images == 4
    for ours, other in zip(here.photographs, sorted(there.photographs), strict=True):
        assert (ours.file.read(), ours.label) == (Path(other.file).read_bytes(), other.label)
        assert Path(ours.file.name).name == other.file.name  # by which ReaL labels are found
    with pytest.raises(ValueError, match=r"shards must have the classes of the weights: it has cat for cow"):
        shard_test_set(folders / "shards", 2, class_names=("cow", "dog"))


def test_names_of_damaged_shards_are_refused(folders, tmp_path):
    from keras_highway.training.data.shard_test_set import shard_test_set

    manifest = shards.write(folders / "photographs", tmp_path, images=4)
    (shard,) = manifest["splits"]["val"]["shards"]
    index = tmp_path / Path(shard["file"]).with_suffix(".json")
    known = json.loads(index.read_text())
    for changes, message in (({"files": ["cat/1.JPEG"]}, "names 1 images and places 4"), ({"files": 3}, "files")):
        index.write_text(json.dumps({**known, **changes}))
        shard["index_sha256"] = shards.sha256_of(index)
        (tmp_path / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(ValueError, match=message):
            shard_test_set(tmp_path, 2)


def test_what_takes_no_shards_asks_for_the_photographs(folders, run, tmp_path, capsys):
    command = ["report", str(run), "--out", str(tmp_path / "r.html"), "--data", str(folders / "shards")]
    assert main(command) == 2
    assert "shards contains TFRecord shards: name their folder of photographs" in capsys.readouterr().err
    assert main(["evaluate", str(run)]) == 2
    assert "needs --data DIR with photographs" in capsys.readouterr().err


@pytest.fixture
def weights(run):
    """As `verify` opens them."""
    row = dataclasses.replace(describe_weights(run), data="")
    return weights_class("resnet50").open(row, run / "model.weights.h5")


def test_verify_measures_photographs_of_ones_own(folders, weights, monkeypatch, capsys):
    monkeypatch.setattr("keras_highway.publishing.verify", lambda repository: Verification(weights, 0.0))
    root = folders / "photographs"
    for folder, where in ((root, root / "val"), (root / "val", root / "val")):
        assert main(["verify", "org/pets", "--data", str(folder)]) == 0
        line = capsys.readouterr().out.splitlines()[-1]
        assert line == f"accuracy on the 4 test photographs of {where}: 75.00 %, recorded: 75.00 %"
    assert main(["verify", "org/pets", "--data", str(folders / "shards")]) == 2
    assert "shards contains TFRecord shards: name their folder of photographs" in capsys.readouterr().err
    assert main(["verify", "org/pets", "--data", str(folders / "none")]) == 2
    assert "name no data set that is known: name the folder of their test photographs" in capsys.readouterr().err


def test_photographs_of_ones_own_are_described_by_what_the_card_says(folders, weights, monkeypatch):
    weights.row = dataclasses.replace(weights.row, data="my pets")
    monkeypatch.setenv("KERAS_HIGHWAY_DATA", str(folders / "photographs"))
    assert weights.measure().where == "on the 4 test photographs of my pets"
    weights.row = dataclasses.replace(weights.row, classes=("cow", "dog"))
    with pytest.raises(ValueError, match="must have the classes of the weights"):
        weights.measure()
