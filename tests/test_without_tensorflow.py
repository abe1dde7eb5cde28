"""Without TensorFlow, and without what draws pictures: the package on JAX, or on PyTorch where that is the backend."""

import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

ROOT = Path(__file__).parents[1]
BACKEND = "torch" if keras.backend.backend() == "torch" else "jax"
TRAIN = """
from keras_highway.training.train import main
main(["highway_fc10", "--tiny", "--strategy", "none", "--out", {out!r}])
"""
USE = """
import numpy as np
import keras_highway as kh
from keras_highway.cli import main
assert kh.create_model("highway20", classes=3)(np.zeros((1, 32, 32, 3), "float32")).shape == (1, 3)
assert kh.load("mnist10_w32.tvdn").name == "mnist10_w32"
assert main(["classify", "samples/digit_7.png"]) == 0
assert main(["gates", "samples/digit_7.png", "--out", {out!r}]) == 0
sys.modules["matplotlib.figure"] = None
assert main(["gates", "samples/digit_7.png", "--out", {out!r}]) == 2
"""


def run(code, missing, **variables):
    block = f"import sys; sys.modules.update(dict.fromkeys({missing!r}))"
    env = {**os.environ, "KERAS_BACKEND": BACKEND, **variables}
    command = [sys.executable, "-c", block + code]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


@pytest.mark.more
def test_tiny_recipe_trains_alone(tmp_path):
    missing = ("tensorflow", "tensorflow_datasets", "matplotlib", "matplotlib.pyplot", "PIL", "huggingface_hub")
    done = run(TRAIN.format(out=str(tmp_path / "run")), missing)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "% (n = 1) after 2 epochs" in done.stdout
    assert (tmp_path / "run" / "model.weights.h5").exists()


@pytest.mark.more
def test_networks_are_built_loaded_and_looked_at(tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "gates.png"
    done = run(USE.format(out=str(out)), ("tensorflow", "tensorflow_datasets"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "samples/digit_7.png: 7" in done.stdout and out.exists()
    assert 'Pictures need matplotlib: pip install "keras-highway[plots]"' in done.stderr


@pytest.mark.parametrize("code", ["import keras_highway", "from keras_highway.cli import main; main(['list'])"])
def test_a_backend_that_is_missing_is_named(code):
    done = run(f"\n{code}", ("tensorflow",), KERAS_BACKEND="tensorflow")
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert last.startswith(
        "ImportError: Keras's backend here is tensorflow, which is not installed: set KERAS_BACKEND="
    )
    assert 'pip install "keras-highway[tensorflow]"' in last
