"""Importing, loading and training take no module that only POSIX systems have; Windows itself is not tested."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What Windows has not; huggingface_hub and Keras take the first one where it is.
_BLOCKED = """
import sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline"):
    sys.modules[name] = None
import os
for name in ("pread", "getuid", "fork", "mkfifo", "O_NOFOLLOW"):
    delattr(os, name)
"""
_LOAD = """
import importlib, numpy as np, keras_highway as kh
for name in ("cli", "training.loop", "training.shards", "training.distributed.supervise", "weights.publish", "report"):
    importlib.import_module(f"keras_highway.{name}")
model = kh.load("mnist10_w16.tvdn")
print(model(np.zeros((1, 28, 28, 1), "float32")).shape)
kh.save(model, "net")
kh.save(kh.load("net"), "net")
from keras_highway.cli import main
assert main(["list"]) == 0
from keras_highway.training.train import main as train
train(["highway_fc10", "--tiny", "--set", "net.depth=2", "--out", "run"])
train(["highway_fc10", "--tiny", "--set", "net.depth=2", "--out", "run"])
"""


@pytest.mark.slow
def test_without_what_only_posix_has_all_works(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED + _LOAD],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "(1, 10)" in done.stdout and "highway_fc10_tiny: test accuracy" in done.stdout
    assert (tmp_path / "net" / "weights.json").is_file()
