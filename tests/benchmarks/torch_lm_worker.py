"""A process with PyTorch that takes a training step of its language model for each line it reads.

    python torch_lm_worker.py BATCH.npz

Answers each line with the processor seconds that it has used so far. The file
holds `spelled`, `positions`, `targets` and the sizes of the model.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "oracles"))
from torch_char_lm import CharLM, step, zero_state


def main(path):
    """Builds the model and answers."""
    with np.load(path) as file:
        arrays = [torch.from_numpy(file[name].astype(np.int64)) for name in ("spelled", "positions", "targets")]
        sizes = {name: file[name].tolist() for name in ("characters", "words", "char_units", "highways", "units")}
        model = CharLM(kernels=file["kernels"].tolist(), filters=file["filters"].tolist(), gating="coupled", **sizes)
    state = zero_state(model, len(arrays[1]))
    for _ in sys.stdin:
        _, state = step(model, *arrays, state)
        print(time.process_time(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
