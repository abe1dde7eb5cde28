"""Makes `goldens/charlm.npz` again: training steps of the language model in PyTorch, in all six gatings.

    .torchenv/bin/python tests/oracles/make_char_lm_goldens.py

Ten steps of plain SGD with carried state, without dropout, from the numbers
of `start`, on the batches of `text`, each gating with as many layers as [UIE,
5.2] compares. The file holds, for each gating, the loss
of every step `(10,)` and the sum of squares of each parameter after the last,
by PyTorch's name; of the two biases of an LSTM, their sum, `bias_l0`.
"""

from pathlib import Path

import numpy as np
import torch
from seeded_char_lm import HIGHWAYS, NORM, SIZES, STREAMS, start, text
from torch_char_lm import GATINGS, CharLM, step, zero_state


def make():
    """Writes the golden file."""
    golden = {}
    spelled, inputs, targets = (torch.from_numpy(a.astype(np.int64)) for a in text())
    for gating in GATINGS:
        model = CharLM(**SIZES, highways=HIGHWAYS[gating], gating=gating, dropout=0.0)
        parameters = dict(model.named_parameters())
        values = start({name: tuple(p.shape) for name, p in parameters.items()})
        with torch.no_grad():
            for name, p in parameters.items():
                p.copy_(torch.from_numpy(values[name]))
        state, losses = zero_state(model, STREAMS), []
        for x, y in zip(inputs, targets, strict=True):
            loss, state = step(model, spelled, x, y, state, norm=NORM)
            losses.append(loss)
        for i in range(2):
            parameters[f"lstm.bias_l{i}"] = parameters.pop(f"lstm.bias_ih_l{i}") + parameters.pop(f"lstm.bias_hh_l{i}")
        golden[f"{gating}/losses"] = np.array(losses)
        golden.update({f"{gating}/{name}": np.array(float((p.detach() ** 2).sum())) for name, p in parameters.items()})
        print(gating, " ".join(f"{loss:.4f}" for loss in losses))
    golden["versions"] = np.array(f"torch {torch.__version__}, numpy {np.__version__}")
    np.savez_compressed(Path(__file__).parent / "goldens" / "charlm.npz", **golden)


if __name__ == "__main__":
    make()
