"""Curves side by side; random searches; several models at once; supervision of workers."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from keras_highway.training.recipes import RECIPES
from keras_highway.training.recipes.charlm import PUBLISHED_PERPLEXITIES
from training import search, table1a
from training.compare import compare, read_run
from training.search import (
    FIGURE1,
    Rung,
    losses,
    recipe_of,
    report,
    run_search,
    summary,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
ZOO = ROOT / "zoo" / "weights"
FIGURE1_RECIPE = {"learning_rate": 0.1, "momentum": 0.9, "decay": 0.9, "seed": 0, "overrides": []}


def test_compare_draws_and_reports_the_last_epochs(tmp_path):
    runs = [ZOO / "mnist10_w16.tvdn", ZOO / "mnist10_w32.tvdn"]
    text = compare(runs, tmp_path / "curves.png")
    last = read_run(runs[0])[1][-1]
    assert f"| mnist10_w16 | {last['epoch']:.0f} | {last['train_loss']:.4f} " in text and "mnist10_w32" in text
    with Image.open(tmp_path / "curves.png") as image:
        assert image.size == (840, 960)  # the width of all pictures
    same = compare([runs[0], runs[0]], tmp_path / "same.png")
    assert same.count("mnist10_w16 (mnist10_w16.tvdn)") == 2


def test_runs_of_a_search_are_functions_of_their_place():
    cell = "highway_fc50"
    one = recipe_of(FIGURE1, cell, 3, 40)
    assert one == recipe_of(FIGURE1, cell, 3, 40) and one != recipe_of(FIGURE1, cell, 4, 40)
    drawn = [recipe_of(FIGURE1, cell, i, 40) for i in range(200)]
    biases = {dict(r.overrides)["gate_bias"] for r in drawn}
    assert biases == {-float(b) for b in range(1, 11)}  # TVDN 3.1: between -1 and -10
    assert {dict(r.overrides)["activation"] for r in drawn} == {"relu", "tanh"}
    assert min(r.learning_rate for r in drawn) < 0.002 and max(r.learning_rate for r in drawn) > 0.15
    assert "gate_bias" not in dict(recipe_of(FIGURE1, "plain_fc50", 0, 40).overrides)
    assert {RECIPES[c].variant for c in FIGURE1.cells} == {
        f"{k}_fc{d}" for k in ("plain", "highway") for d in (10, 20, 50, 100)
    }


@pytest.mark.slow
def test_search_halves_resumes_and_reports(tmp_path, monkeypatch):
    small = dataclasses.replace(FIGURE1, cells=("plain_fc10", "highway_fc10"))
    rungs = (Rung(3, 1), Rung(1, 2))
    run_search(small, rungs, None, tmp_path, small=True)
    lengths = {c: sorted(len(losses(tmp_path / c / str(i))) for i in range(3)) for c in small.cells}
    assert lengths == {"plain_fc10": [1, 1, 2], "highway_fc10": [1, 1, 2]}
    calls = []
    monkeypatch.setattr("keras_highway.training.loop.train", lambda *a, **k: calls.append(a))
    run_search(small, rungs, None, tmp_path, small=True)
    assert not calls  # all is there already
    text = report(small, rungs, tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    for cell in small.cells:
        summary = result["cells"][cell]
        firsts = sorted(losses(tmp_path / cell / str(i))[0] for i in range(3))
        assert summary["n"] == 3 and summary["best_epochs"] == 2
        assert summary["top_mean_loss"] == pytest.approx(sum(firsts) / 3)  # no rung has ten runs: the first
        assert summary["best_loss"] == losses(tmp_path / cell / str(summary["best_run"]))[-1]
        assert f"| `{cell}` | 3 | 0 |" in text
    with Image.open(tmp_path / "figure1.png") as image:
        assert image.size == (840, 480)
    assert len((tmp_path / "curves.csv").read_text().splitlines()) == 1 + 2 * 4


def test_the_mean_of_the_ten_best_is_that_of_the_last_rung_which_has_ten(tmp_path):
    """Twelve runs of one epoch, eleven on to two, the best on to three; one of the eleven diverges."""
    for i in range(12):
        (tmp_path / str(i)).mkdir()
        values = [1 + i, *([0.1 * (i + 1)] if i < 10 else []), *([0.01] if i == 0 else [])]
        rows = [f"{epoch},{loss},0.5" for epoch, loss in enumerate(values, start=1)]
        (tmp_path / str(i) / "log.csv").write_text("\n".join(["epoch,train_loss,test_accuracy", *rows, ""]))
        (tmp_path / str(i) / "recipe.json").write_text(json.dumps(FIGURE1_RECIPE))
    found = summary(tmp_path, (Rung(12, 1), Rung(11, 2), Rung(1, 3)))
    assert (found["top"], found["top_epochs"], found["best_loss"]) == (10, 2, 0.01)
    assert found["top_mean_loss"] == pytest.approx(0.55)
    assert found["at_chance"] == 10 == summary(tmp_path, (Rung(12, 1),))["at_chance"]  # losses of 3, 4, ..., 12
    assert summary(tmp_path, (Rung(12, 1),), classes=100)["at_chance"] == 8  # above 4.5


def test_a_search_promotes_by_the_loss_at_the_rung_before(tmp_path, monkeypatch):
    """Runs that went further before the search was killed, and one that diverged after its promotion."""
    logs = {"0": [1.0, 0.1], "1": [0.5], "2": [0.7, 9.0], "3": []}
    for name, values in logs.items():
        folder = tmp_path / "plain_fc10" / name
        folder.mkdir(parents=True)
        rows = [f"{epoch},{loss}" for epoch, loss in enumerate(values, start=1)]
        if rows:
            (folder / "log.csv").write_text("\n".join(["epoch,train_loss", *rows]) + "\n")
    (tmp_path / "plain_fc10" / "2" / "diverged.json").write_text("{}")
    resumed = []
    monkeypatch.setattr(search, "_resume", lambda recipe, data, folder, epochs: resumed.append((folder.name, epochs)))
    small = dataclasses.replace(FIGURE1, cells=("plain_fc10",))
    run_search(small, (Rung(4, 1), Rung(2, 2)), None, tmp_path)
    assert resumed == [("0", 1), ("1", 1), ("2", 1), ("3", 1), ("1", 2), ("2", 2)]


def supervised(tmp_path, worker, *options):
    """Starts the supervisor over workers of a few lines, in place of the training command."""
    package = tmp_path / "fake" / "keras_highway"
    shutil.copytree(ROOT / "keras_highway" / "training" / "distributed", package / "training" / "distributed")
    for name in ("__init__.py", "training/__init__.py"):
        (package / name).write_text("")
    (package / "training" / "train.py").write_text(worker)
    command = [sys.executable, "-m", "keras_highway.training.distributed.supervise", *options, "--", "RECIPE"]
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "KERAS_BACKEND": "tensorflow"}
    return subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


WORKER = """
import json, os, pathlib, signal, sys, time
rank = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
starts = pathlib.Path(f"starts{rank}")
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
"""


def test_all_workers_are_restarted_when_one_dies(tmp_path):
    worker = WORKER + (
        "if rank == 1 and len(starts.read_text()) < 3:\n    time.sleep(0.2); os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(60 if len(starts.read_text()) < 3 else 0.1)\n"
    )
    process = supervised(tmp_path, worker, "--workers", "2")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    assert [(tmp_path / f"starts{rank}").read_text() for rank in (0, 1)] == ["xxx", "xxx"]
    assert error.count("restarting all") == 2 and "-9" in error


def test_supervisor_does_not_repeat_named_errors(tmp_path):
    process = supervised(tmp_path, WORKER + "sys.exit(2)\n", "--workers", "2")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and "cannot work" in error
    assert (tmp_path / "starts0").read_text() == "x"


def test_several_workers_a_host_have_numbers_ports_and_gpus_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    worker = WORKER + (
        "task = json.loads(os.environ['TF_CONFIG'])\n"
        "numbers = [os.environ[f'KERAS_DISTRIBUTION_{k}'] for k in ('NUM_PROCESSES', 'PROCESS_ID', 'JOB_ADDRESSES')]\n"
        "settings = [os.environ['CUDA_VISIBLE_DEVICES'], *numbers, task['cluster']['worker'][rank]]\n"
        "pathlib.Path(f'settings{rank}').write_text(json.dumps(settings))\n"
    )
    process = supervised(
        tmp_path, worker, "--hosts", "a,b", "--rank", "1", "--workers", "2", "--port", "700", "--gpu-each"
    )
    _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    addresses = "a:700,a:701,b:700,b:701"
    assert json.loads((tmp_path / "settings2").read_text()) == ["4", "4", "2", addresses, "b:700"]
    assert json.loads((tmp_path / "settings3").read_text()) == ["5", "4", "3", addresses, "b:701"]
    assert not (tmp_path / "settings0").exists()
    process = supervised(tmp_path / "again", worker, "--workers", "3", "--gpu-each")
    _, error = process.communicate(timeout=60)
    assert process.returncode == 2 and "--workers 3, and CUDA_VISIBLE_DEVICES='4,5' names 2" in error


def wait_for(*paths):
    end = time.monotonic() + 30
    while not all(path.exists() for path in paths) and time.monotonic() < end:
        time.sleep(0.02)


def test_sigterm_reaches_the_workers_and_ends_with_its_own_code(tmp_path):
    worker = WORKER + (
        "from keras_highway.training.distributed.stopping import Stopped, stop_requests\n"
        "with stop_requests() as stop:\n"
        "    pathlib.Path(f'ready{rank}').touch()\n"
        "    while not stop.made: time.sleep(0.01)\n"
        "    pathlib.Path(f'saved{rank}').touch()\n"
        "    raise Stopped\n"
    )
    process = supervised(tmp_path, worker, "--workers", "2")
    wait_for(tmp_path / "ready0", tmp_path / "ready1")
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 75, error
    assert (tmp_path / "saved0").exists() and (tmp_path / "saved1").exists() and "it resumes" in error


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
