"""Six models at once: one command, resumable, a failure of one is its own."""

import json
import subprocess
import sys
import time

import pytest

from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES
from training import table1a


def test_published_numbers_are_of_recipes():
    assert set(PUBLISHED_PERPLEXITIES) <= set(RECIPES)
    assert [PUBLISHED_PERPLEXITIES[f"charlm_large_{g}"] for g in table1a.GATINGS[:3]] == ["92.60", "91.32", "82.94"]


@pytest.mark.slow
def test_two_at_once_then_on_from_there(tmp_path, capsys):
    command = ["--tiny", "--out", str(tmp_path), "--gatings", "coupled", "residual", "--jobs", "2"]
    assert table1a.main([*command, "--until", "1"]) == 0
    assert "| coupled | 79.13 | not finished |" in capsys.readouterr().out
    assert table1a.main([*command, "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    results = {
        g: json.loads((tmp_path / f"charlm_large_{g}" / "result.json").read_text()) for g in ("coupled", "residual")
    }
    for gating, result in results.items():
        assert f"| {result['mean']:.2f} (n = 1) | {result['valid_perplexity']:.2f} | 2 |" in out, gating
    sessions = json.loads((tmp_path / "charlm_large_coupled" / "sessions.json").read_text())
    assert [session["from_step"] for session in sessions] == [0, 30]
    assert table1a.main([*command, "--table"]) == 0


@pytest.mark.slow
def test_a_failure_is_reported_and_leaves_the_others(tmp_path, capsys):
    (tmp_path / "charlm_large_plain").mkdir()
    other = changed(RECIPES["charlm_large_plain"], seed=7).to_dict()
    (tmp_path / "charlm_large_plain" / "recipe.json").write_text(json.dumps(other))
    (tmp_path / "charlm_large_plain" / "log.csv").write_text("epoch,train_loss,valid_perplexity\n1,2.0,9.0\n")
    command = ["--tiny", "--out", str(tmp_path), "--gatings", "plain", "coupled", "--set", "epochs=1"]
    assert table1a.main(command) == 1
    assert "charlm_large_plain: failed, see" in capsys.readouterr().err
    assert "holds a run of another recipe" in (tmp_path / "charlm_large_plain.log").read_text()
    finished = tmp_path / "charlm_large_coupled"
    before = {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()}
    assert "result.json" in before
    assert table1a.main([*command[:3], "--gatings", "coupled", "--set", "epochs=1"]) == 0
    assert {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()} == before
    with pytest.raises(SystemExit):
        table1a.main(["--jobs", "0"])


@pytest.mark.slow
def test_sigterm_stops_all_and_they_go_on(tmp_path):
    command = [
        sys.executable,
        "-m",
        "training.table1a",
        "--tiny",
        "--out",
        str(tmp_path),
        "--jobs",
        "2",
    ]
    command += ["--gatings", "plain", "coupled", "--set", "epochs=2000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while process.poll() is None and not (tmp_path / "charlm_large_coupled" / "log.csv").exists():
        time.sleep(0.1)
    process.terminate()
    error = process.communicate(timeout=120)[1]
    assert process.returncode == 75 and "failed" not in error, error[-2000:]
    assert (tmp_path / "charlm_large_coupled" / "checkpoint.npz").exists()
