"""Real processes that train together: asked to stop, in error, without a common folder."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from keras_highway.training.data.synthetic import synthetic_dataset
from keras_highway.training.distributed.supervise import _free_ports, worker_environment
from tests.checkpoints import arrays

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
BACKENDS = ("tensorflow", "jax")


@pytest.fixture
def start():
    """Starts a program; whatever becomes of the test, it and its children are ended."""
    processes = []

    def started(command, backend, **more) -> subprocess.Popen:
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", **more}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", *command]
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, **pipes))
        return processes[-1]

    yield started
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def supervise(start):
    """Starts two workers under a supervisor."""
    command = ["keras_highway.training.distributed.supervise", "--workers", "2", "--", "highway_fc10", "--tiny"]
    return lambda out, backend, *more: start([*command, "--out", str(out), *more], backend)


def wait_for(path, process, seconds=120) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None and time.monotonic() < end, f"{path} is not there, exit code {process.poll()}"
        time.sleep(0.05)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sigterm_saves_and_ends_with_its_own_code(tmp_path, supervise, backend):
    """The connection between the processes handles SIGTERM itself, once it starts."""
    process = supervise(tmp_path, backend, "--set", "epochs=20000")
    wait_for(tmp_path / "checkpoint.npz", process)
    process.send_signal(signal.SIGTERM)
    error = process.communicate(timeout=50)[1]  # less than the supervisor's patience
    assert process.returncode == 75, error[-3000:]
    assert "stopped; start it again" in error and "not every worker" not in error
    assert arrays(tmp_path / "checkpoint.npz") and not (tmp_path / "result.json").exists()


@pytest.mark.skipif(fcntl is None, reason="needs POSIX locks")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_of_one_worker_ends_all(tmp_path, supervise, backend):
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = supervise(tmp_path, backend)
        error = process.communicate(timeout=120)[1]
    assert process.returncode == 2, error[-3000:]
    assert "Another process is training in" in error and "restarting" not in error


@pytest.mark.parametrize("backend", BACKENDS)
def test_processes_with_different_data_are_refused(tmp_path, start, backend):
    """Each would hold out other images, and the parts of a batch would be no parts of one."""
    data = synthetic_dataset("synthetic_mnist")
    for rank, order in ((0, slice(None)), (1, slice(None, None, -1))):
        (tmp_path / str(rank)).mkdir()
        arrays_of = {"x_train": data.x_train[order], "y_train": data.y_train[order]}
        np.savez(tmp_path / str(rank) / "mnist.npz", **arrays_of, x_test=data.x_test, y_test=data.y_test)
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    command = ["keras_highway.training.train", "highway_fc10", "--tiny", "--set", "data=mnist"]
    processes = [
        start(
            [*command, "--data", str(tmp_path / str(rank)), "--out", str(tmp_path / "run")],
            backend,
            **worker_environment(addresses, rank),
        )
        for rank in (0, 1)
    ]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert any(process.returncode == 2 for process in processes), errors
    assert any("The processes of this run have different data='mnist'" in error for error in errors), errors
    assert not (tmp_path / "run" / "log.csv").exists()
