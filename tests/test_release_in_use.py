"""The maintainers' commands where something is missing, odd or in the way: nothing is lost, nothing half taken."""

import json
import os
import types

import pytest

from keras_highway._support import files
from zoo.release import add as adding
from zoo.release import distributions, tables
from zoo.release.add import add_search, pooled
from zoo.release.tables import bring_up_to_date

RESULT = {
    "metric": "test_accuracy",
    "mean": 0.75,
    "std": None,
    "n": 1,
    "values": [0.75],
    "seeds": [1],
    "epochs": 10,
    "backend": "tensorflow",
    "commit": "a" * 12,
    "data": "imagenet",
}


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
    left = {
        "thesis.txt",
        ".git",
        "another-1.0.tar.gz",
        "keras_highway-0.2.0-py3-none-any.whl",
        "keras_highway-0.2.0.tar.gz",
    }
    assert {path.name for path in out.iterdir()} == left == {wheel.name, sdist.name, *left}
    assert wheel.parent == sdist.parent == out


def test_top_5_of_some_runs_is_not_that_of_all():
    with_top5 = {**RESULT, "top5": 0.95, "top5_std": None}
    pool = pooled([with_top5, {**RESULT, "seeds": [2]}])
    assert pool["n"] == 2 and "top5" not in pool and "top5_std" not in pool
    assert pooled([with_top5, {**with_top5, "seeds": [2], "top5": 0.85}])["top5"] == pytest.approx(0.9)


def entry(tmp_path, monkeypatch, name, **changes):
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "result.json").write_text(json.dumps({**RESULT, "variant": "highway50", **changes}))
    monkeypatch.setattr(
        tables, "WEIGHTS", dict.fromkeys(os.listdir(tmp_path), types.SimpleNamespace(recipe="a_recipe"))
    )


def test_published_errors_are_no_accuracies(tmp_path, monkeypatch):
    entry(tmp_path, monkeypatch, "highway50_uie.uie", hardware="a machine")
    assert "| `highway50_uie.uie` | 75.00 % (n = 1) | - | 10 |" in tables.weights_table(tmp_path)
    entry(tmp_path, monkeypatch, "mnist10_w16.tvdn", hardware="another")
    table = tables.weights_table(tmp_path)
    assert "| `mnist10_w16.tvdn` | 75.00 % (n = 1) | 99.4" in table and "Trained on a machine; another." in table


def test_results_that_name_neither_hardware_nor_precision(tmp_path, monkeypatch):
    entry(tmp_path, monkeypatch, "highway20.blog")
    assert "Trained on unknown." in tables.weights_table(tmp_path)
    changes = {"metric": "test_perplexity", "mean": 80.0, "values": [80.0], "valid_perplexity": 81.0}
    entry(tmp_path, monkeypatch, "charlm_small_coupled.ptb", **changes, variant="charlm_small_coupled")
    assert "| 10 | float32 |" in tables.language_table(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- table:wieghts -->\nx\n<!-- end:wieghts -->\n", "Unknown table 'wieghts'"),
        ("<!-- table:weights -->\nx\n", "A table has a start or an end alone"),
    ],
)
def test_a_wrong_page_is_named(tmp_path, capsys, text, message):
    (tmp_path / "page.md").write_text(text)
    with pytest.raises(SystemExit) as ended:
        tables.main([str(tmp_path / "page.md")])
    error = capsys.readouterr().err
    assert ended.value.code == 2 and error.startswith(f"error: {tmp_path}/page.md: {message}")


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    page = tmp_path / "README.md"
    page.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(files, "to_disk", full)
        with pytest.raises(OSError, match=r"README\.md could not be written"):
            bring_up_to_date(page, "new", False)
    assert page.read_text() == "old" and os.listdir(tmp_path) == ["README.md"]
    assert bring_up_to_date(page, "new", False) == 0 and page.read_text() == "new"


def test_a_search_is_taken_whole_or_not_at_all(tmp_path, capsys):
    out, entry = tmp_path / "out", tmp_path / "zoo" / "searches" / "figure1"
    for folder, content in ((out, '{"search": "figure1", "cells": []}'), (entry, "OLD")):
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(content)
    (entry / "curves.csv").write_text("OLD")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "figure1.png").write_text("OLD")
    for wrong in (False, True):
        with pytest.raises(ValueError, match="there is no .*curves" if not wrong else None):
            add_search(out, tmp_path)
        assert (tmp_path / "docs" / "figure1.png").read_text() == "OLD"
        assert [(entry / name).read_text() for name in ("result.json", "curves.csv")] == ["OLD", "OLD"]
        (out / "curves.csv").write_text("not a table of curves")
    with pytest.raises(SystemExit) as ended:
        adding.main([str(tmp_path)])
    assert ended.value.code == 2 and "holds no finished run: there is no" in capsys.readouterr().err
