"""zoo.release.distributions: what a wheel and an sdist may hold."""

import hashlib
import io
import json
import runpy
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import pytest

from zoo.release import distributions, tables
from zoo.release.distributions import ReleaseError, check_sdist, check_wheel

NAME = "keras_highway-0.2.0"
INFORMATION = f"{NAME}.dist-info"


@pytest.fixture
def checkout(tmp_path):
    """Two entries of a zoo, of which one goes into the wheel."""
    for name, wheel in (("small.x", True), ("large.x", False)):
        folder = tmp_path / "zoo" / "weights" / name
        folder.mkdir(parents=True)
        row = {"name": name, "wheel": wheel, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        (folder / "weights.json").write_text(json.dumps(row))
    (tmp_path / "LICENSE").write_text("licence")
    (tmp_path / "NOTICE").write_text("small.x: some data")
    return tmp_path


def members():
    inside = "keras_highway/zoo/weights"
    return {
        "keras_highway/__init__.py": b"",
        "keras_highway/py.typed": b"",
        f"{inside}/small.x/model.weights.h5": b"small.x",
        f"{inside}/small.x/weights.json": b"{}",
        f"{inside}/large.x/weights.json": b"{}",
        f"{INFORMATION}/METADATA": b"",
        f"{INFORMATION}/licenses/LICENSE": b"licence",
        f"{INFORMATION}/licenses/NOTICE": b"small.x: some data",
    }


def wheel_of(folder, files):
    path = folder / f"{NAME}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_a_right_wheel_is_described(checkout):
    lines = check_wheel(wheel_of(checkout, members()), checkout)
    assert "8 files" in lines[0] and lines[1].endswith("LICENSE, NOTICE")
    assert lines[2:] == ["  weights: small.x, 7 bytes, sha256 as weights.json has it"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"keras_highway/zoo/weights/large.x/model.weights.h5": b"large.x"}, "holds the weights of"),
        ({"keras_highway/zoo/weights/small.x/model.weights.h5": None}, "holds the weights of"),
        ({"keras_highway/zoo/weights/small.x/model.weights.h5": b"other"}, "not those that weights.json describes"),
        ({"tests/test_x.py": b""}, "holds tests/test_x.py"),
        ({"keras_highway/py.typed": None}, "py.typed is not in the wheel"),
        ({f"{INFORMATION}/licenses/NOTICE": None}, "NOTICE is not in the wheel"),
        ({f"{INFORMATION}/licenses/LICENSE": b"other"}, "LICENSE in the wheel is another"),
    ],
)
def test_a_wrong_wheel_is_refused(checkout, changes, message):
    files = {name: content for name, content in {**members(), **changes}.items() if content is not None}
    with pytest.raises(ReleaseError, match=message):
        check_wheel(wheel_of(checkout, files), checkout)


def test_weights_without_a_notice_are_refused(checkout):
    (checkout / "NOTICE").write_text("nothing")
    files = {**members(), f"{INFORMATION}/licenses/NOTICE": b"nothing"}
    with pytest.raises(ReleaseError, match="does not name all weights"):
        check_wheel(wheel_of(checkout, files), checkout)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], None),
        (["zoo/runs/x/log.csv"], "holds zoo/runs/x/log.csv"),
        (["zoo/weights/large.x/model.weights.h5"], "too large for the wheel"),
        (["tests/test_x.py"], "holds tests/test_x.py"),
    ],
)
def test_what_an_sdist_holds(checkout, more, message):
    path = checkout / f"{NAME}.tar.gz"
    inside = [*distributions._IN_SDIST, "keras_highway/__init__.py", "zoo/weights/small.x/model.weights.h5", *more]
    with tarfile.open(path, "w:gz") as archive:
        for name in inside:
            archive.addfile(tarfile.TarInfo(f"{NAME}/{name}"), io.BytesIO())
    if message is None:
        assert f"{len(inside)} files" in check_sdist(path, checkout)[0]
    else:
        with pytest.raises(ReleaseError, match=message):
            check_sdist(path, checkout)


def test_an_sdist_may_hold_what_the_wheel_is_made_of(monkeypatch, tmp_path):
    path = tmp_path / f"{NAME}.tar.gz"
    interface = types.ModuleType("hatchling.builders.hooks.plugin.interface")
    interface.BuildHookInterface = object
    monkeypatch.setitem(sys.modules, interface.__name__, interface)  # hatchling itself is not needed
    wheel_files = runpy.run_path(str(distributions.ROOT / "hatch_build.py"))["wheel_files"]
    made_of = [str(Path(file).relative_to(distributions.ROOT)) for file in wheel_files(distributions.ROOT)]
    assert {"samples/digit_7.png", "zoo/results.csv"} <= set(made_of)
    with tarfile.open(path, "w:gz") as archive:
        for name in distributions._IN_SDIST | {"keras_highway/__init__.py", *made_of}:
            archive.addfile(tarfile.TarInfo(f"{NAME}/{name}"), io.BytesIO())
    check_sdist(path)


def test_the_notice_names_every_weight_of_the_checkout_and_its_data():
    notice = (distributions.ROOT / "NOTICE").read_text("utf-8")
    assert tables.notice(notice) == notice
    for path in distributions._rows(distributions.ROOT):
        row = json.loads(path.read_text("utf-8"))
        assert not row["wheel"] or (row["name"] in notice and row["data_licence"] in notice), row["name"]


def test_the_notice_names_the_data_that_pictures_show():
    known = {"": "MNIST's", "cifar10_conv": "CIFAR's", "cifar100_conv": "CIFAR's"}
    known |= {f"imagenette_{net}": "Imagenette's" for net in ("highway50", "resnet50")}
    root = Path(__file__).parents[1]
    paragraph = (root / "NOTICE").read_text("utf-8").partition("docs/analysis/")[2].partition("vocabulary.json")[0]
    folder = root / "docs" / "analysis"
    pictures = [path.stem for kind in ("guided", "patches") for path in folder.glob(f"{kind}*.png")]
    assert len(pictures) >= 6
    assert all(known[name.partition("_")[2]] in paragraph for name in pictures)
