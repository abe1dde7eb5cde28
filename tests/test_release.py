"""zoo.release.distributions: what a wheel and an sdist may hold."""

import hashlib
import io
import json
import tarfile
import zipfile

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
        ({"keras_highway/zoo/weights/small.x/model.weights.h5": b"other"}, "not those that weights.json describes"),
        ({"tests/test_x.py": b""}, "holds tests/test_x.py"),
        ({f"{INFORMATION}/licenses/NOTICE": None}, "NOTICE is not in the wheel"),
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


def test_the_notice_names_every_weight_of_the_checkout_and_its_data():
    notice = (distributions.ROOT / "NOTICE").read_text("utf-8")
    assert tables.notice(notice) == notice
    for path in distributions._rows(distributions.ROOT):
        row = json.loads(path.read_text("utf-8"))
        assert not row["wheel"] or (row["name"] in notice and row["data_licence"] in notice), row["name"]


def test_building_removes_older_distributions_alone(tmp_path, monkeypatch):
    out = tmp_path / "mine"
    (out / ".git").mkdir(parents=True)
    (out / "thesis.txt").write_text("precious")
    for old in ("keras_highway-0.1.0-py3-none-any.whl", "keras_highway-0.1.0.tar.gz", "another-1.0.tar.gz"):
        (out / old).write_text("old")
    monkeypatch.setattr(distributions, "WORK", tmp_path / "work")

    def broken(*words, **_):
        raise distributions.ReleaseError("python -m build ended with 1: No module named build")

    monkeypatch.setattr(distributions, "_run", broken)
    assert distributions.main(["--out", str(out)]) == 1 and len(list(out.iterdir())) == 5

    def builds(*words, **_):
        made = words[words.index("--outdir") + 1]
        made.mkdir(parents=True)
        for kind in ("-py3-none-any.whl", ".tar.gz"):
            (made / f"keras_highway-0.2.0{kind}").write_text("new")

    monkeypatch.setattr(distributions, "_run", builds)
    monkeypatch.setattr(distributions, "_members", lambda wheel: {})
    wheel, sdist = distributions.build(out)
    assert {path.name for path in out.iterdir()} == {"thesis.txt", ".git", "another-1.0.tar.gz", wheel.name, sdist.name}


@pytest.mark.parametrize(
    ("text", "message"),
    [("<!-- table:weights -->\nx\n", "A table has a start or an end alone")],
)
def test_a_wrong_page_is_named(tmp_path, capsys, text, message):
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(SystemExit) as ended:
        tables.main([str(tmp_path / "page.md")])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.startswith(f"error: {tmp_path}/page.md: {message}")
