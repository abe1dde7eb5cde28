"""Several devices compute what one does: weights within 1e-5 on every strategy, in processes of their own."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from keras_highway.training.distributed import strategy as strategies
from keras_highway.training.distributed.strategy import make_strategy
from keras_highway.training.distributed.supervise import _free_ports, worker_environment
from tests.checkpoints import arrays

ROOT = Path(__file__).parents[1]
TOLERANCE = 1e-5
# backend, strategy, devices, processes; the first of a backend is the reference.
WAYS = {
    "tf": ("tensorflow", "none", 1, 1),
    "tf mirrored": ("tensorflow", "mirrored", 2, 1),
    "tf multiworker": ("tensorflow", "multiworker", 1, 2),
    "jax": ("jax", "none", 1, 1),
    "jax devices": ("jax", "jax", 2, 1),
    "jax processes": ("jax", "jax", 1, 2),
}


def run(out, way) -> Path:
    """Trains the nets of `strategy_worker` in one way; returns the folder."""
    backend, name, devices, processes = WAYS[way]
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(processes)]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "tests.strategy_worker", str(out), name, str(devices)]
    environments = [{**environment, **worker_environment(addresses, rank)} for rank in range(processes)]
    workers = [
        subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for env in environments
    ]
    for worker in workers:
        text = worker.communicate(timeout=240)[0].decode()
        assert worker.returncode == 0, text[-3000:]
    return out


@pytest.fixture(scope="module")
def references(tmp_path_factory):
    """The folders of runs on one device, by backend."""
    return {way: run(tmp_path_factory.mktemp("one_device"), way) for way in ("tf", "jax")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=[pytest.mark.slow] * (WAYS[way][3] > 1)) for way in WAYS if " " in way],
)
def test_equals_one_device(references, tmp_path, way):
    one, several = references[way.split()[0]], run(tmp_path, way)
    for net in ("bn", "rsb", "muon"):
        actual, expected = (arrays(folder / net / "checkpoint.npz") for folder in (several, one))
        assert list(actual) == list(expected)
        for name in actual:
            if not name.startswith("seed/"):
                np.testing.assert_allclose(actual[name], expected[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
        for row, other in zip(rows(several / net), rows(one / net), strict=True):
            for key in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
                assert float(row[key]) == pytest.approx(float(other[key]), rel=1e-4)
    moved = arrays(one / "bn" / "checkpoint.npz")["net/head/kernel"]
    assert np.abs(moved - moved.mean()).max() > 100 * TOLERANCE  # such a tolerance tells nets apart
    if way == "tf mirrored":
        with np.load(tmp_path / "masks.npz") as masks:
            assert not np.array_equal(masks["replica_0"], masks["replica_1"])
            assert 0.3 < np.mean(masks["replica_0"] == masks["replica_1"]) < 0.7


def rows(folder) -> list[dict]:
    with (folder / "log.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_unknown_strategies_and_wrong_backends_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="Did you mean 'mirrored'"):
        make_strategy("miror")
    with pytest.raises(ValueError, match="needs KERAS_BACKEND=jax"):
        make_strategy("jax")
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match="TF_CONFIG, see docs"):
        make_strategy("multiworker")
    monkeypatch.setattr(strategies.keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="needs KERAS_BACKEND=tensorflow"):
        make_strategy("mirrored")


@pytest.mark.parametrize(("kind", "index", "place"), [("chief", 0, 0), ("worker", 1, 2)])
def test_a_chief_is_the_first_of_the_processes(monkeypatch, kind, index, place):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}}))
    assert strategies._tf_cluster() == {"index": place, "count": 3}


@pytest.mark.parametrize(
    "config",
    [
        "{",
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
    ],
)
def test_a_broken_configuration_is_named(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    with pytest.raises(ValueError, match="TF_CONFIG must hold a cluster of workers"):
        strategies._tf_cluster()
