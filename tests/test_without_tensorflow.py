"""On JAX, training data sets in memory needs neither TensorFlow nor what draws pictures."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
CODE = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from training.train import main
main(["highway_fc10", "--tiny", "--strategy", "none", "--out", {out!r}])
"""
MISSING = ("tensorflow", "tensorflow_datasets", "matplotlib", "matplotlib.pyplot", "PIL", "huggingface_hub")


def test_tiny_recipe_trains_on_jax_alone(tmp_path):
    code = CODE.format(missing=MISSING, out=str(tmp_path / "run"))
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "% (n = 1) after 2 epochs" in done.stdout
    assert (tmp_path / "run" / "model.weights.h5").exists()
