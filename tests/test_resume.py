"""Exact resume under SIGKILL: a run killed at random steps ends with the weights of one left alone."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.checkpoints import arrays

ROOT = Path(__file__).parents[1]
# Muon, image sizes and dropout by phase, stochastic depth, crops, mirroring, a moving average: all must come back.
COMMAND = (
    "cifar10_19layer_fast --tiny --strategy none --save-steps 1 "
    "--set epochs=8 --set ema=0.9 --set precision=float32 --set net.stochastic_depth=0.2"
)
TIMES = {"seconds", "images_per_second", "waiting"}


def start(out, backend, *more) -> subprocess.Popen:
    command = [sys.executable, "-m", "keras_highway.training.train", *COMMAND.split(), "--out", str(out), *more]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_saves(process, path, count) -> int:
    """Waits until a checkpoint was written `count` times, or the process ended; returns how often it was."""
    seen, last = 0, path.stat().st_mtime_ns if path.exists() else 0
    while seen < count and process.poll() is None:
        now = path.stat().st_mtime_ns if path.exists() else 0
        seen, last = seen + (now != last), now
        time.sleep(0.0005)
    return seen


def log(folder) -> list[dict]:
    with (folder / "log.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]


def kill_often(tmp_path, backend, kills, seed) -> list[int]:
    """Kills a run so often, each time after a random number of steps; returns these."""
    draw, cut, steps = random.Random(seed), tmp_path / "cut", []
    while len(steps) < kills:
        process = start(cut, backend)
        steps.append(wait_for_saves(process, cut / "checkpoint.npz", draw.randint(1, max(1, 46 // kills))))
        time.sleep(draw.random() * 0.01)
        assert process.poll() is None, process.communicate()[1].decode()[-2000:]
        process.send_signal(signal.SIGKILL)
        process.communicate()
    return steps


def assert_same_end(tmp_path, backend):
    runs = [start(tmp_path / name, backend) for name in ("cut", "whole")]
    for run in runs:
        error = run.communicate()[1].decode()
        assert run.returncode == 0, error[-2000:]
    cut, whole = (arrays(tmp_path / name / "checkpoint.npz") for name in ("cut", "whole"))
    assert list(cut) == list(whole) and any(name.startswith("average/") for name in cut)
    for name, value in whole.items():
        np.testing.assert_array_equal(cut[name], value, err_msg=name)
    assert log(tmp_path / "cut") == log(tmp_path / "whole")
    assert len(log(tmp_path / "whole")) == 8


@pytest.mark.slow
def test_killed_runs_end_alike(tmp_path):
    steps = kill_often(tmp_path, "tensorflow", 2, seed=0)
    assert sum(steps) >= 2
    assert_same_end(tmp_path, "tensorflow")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_runs_killed_a_dozen_times_end_alike(tmp_path, backend):
    steps = kill_often(tmp_path, backend, 12, seed=1)
    print(f"{backend}: killed 12 times, after {steps} saved steps each")
    assert sum(steps) >= 12
    assert_same_end(tmp_path, backend)


def worker_pids(supervisor) -> list[int]:
    children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def supervised(out, backend) -> subprocess.Popen:
    recipe = ["resnet110", "--tiny", "--save-steps", "1", "--set", "epochs=3", "--set", "train_images=80"]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [
        sys.executable,
        "-m",
        "keras_highway.training.distributed.supervise",
        "--workers",
        "2",
        "--grace",
        "5",
        "--",
        *recipe,
    ]
    return subprocess.Popen([*command, "--out", str(out)], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
@pytest.mark.timeout(1500)  # it waits 500 s for each of two
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_two_workers_of_which_one_is_killed_end_like_two_left_alone(tmp_path, backend):
    """The supervisor starts both again. That two workers compute what one device does is tested in test_strategies:
    here, over 30 steps of batch normalization, rounding would grow to anything."""
    supervisor = supervised(tmp_path / "cut", backend)
    wait_for_saves(supervisor, tmp_path / "cut" / "checkpoint.npz", 12)
    os.kill(worker_pids(supervisor)[1], signal.SIGKILL)
    error = supervisor.communicate(timeout=500)[1]
    assert supervisor.returncode == 0, error[-3000:]
    # The other worker may outlive its partner's death and die of the next meeting.
    assert 1 <= error.count("restarting all") <= 2 and "-9" in error
    whole = supervised(tmp_path / "whole", backend)
    assert "restarting all" not in whole.communicate(timeout=500)[1] and whole.returncode == 0
    one, two = (arrays(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut"))
    largest = max(np.abs(two[name] - one[name]).max() for name in one)
    print(f"{backend}: worker 1 of 2 killed and both restarted; largest difference from a run left alone {largest:.1e}")
    assert largest <= 1e-6
    assert log(tmp_path / "cut") == log(tmp_path / "whole")
    assert [row["step"] for row in log(tmp_path / "cut")] == ["10", "20", "30"]


@pytest.mark.more
def test_sigterm_saves_and_exits_with_its_own_code(tmp_path):
    process = start(tmp_path, "tensorflow", "--set", "epochs=2000")
    wait_for_saves(process, tmp_path / "checkpoint.npz", 3)
    process.terminate()
    out, error = process.communicate(timeout=60)
    assert process.returncode == 75, error.decode()[-2000:]
    assert arrays(tmp_path / "checkpoint.npz") and not (tmp_path / "result.json").exists()
    assert b"Traceback" not in error and out.count(b"epoch") < 2000
