"""Our language model in training against one in PyTorch: loss after loss, all six gatings.

`oracles/make_char_lm_goldens.py` ran that once and stored the results. No
PyTorch here.
"""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from contracts import to_numpy
from oracles.seeded_char_lm import HIGHWAYS, LENGTH, NORM, SIZES, STREAMS, start, text

from keras_highway.data.ptb import deduplicate
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.language import LanguageProgram
from keras_highway.training.recipes import RECIPES

GOLDEN = Path(__file__).parent / "oracles" / "goldens" / "charlm.npz"
GATINGS = ("plain", "residual", "t_only", "c_only", "coupled", "full")


class Text:
    """A source with the golden text's words."""

    corpus = "golden"
    streams, steps, batches_per_epoch = STREAMS, text()[1].shape[2], len(text()[1])
    vocabulary = Vocabulary(
        ("<unk>", "<eos>", *"abcdefghi"), ("<pad>", "<start>", "<end>", "<unk>", "<eos>", *"abcd"), LENGTH
    )


def torch_names(net, gating):
    """Our variables by PyTorch's names, each with the function that makes ours of theirs."""
    convolution, linear, same = (lambda a: a.transpose(2, 1, 0)), np.transpose, np.asarray
    pairs = {"embedding.weight": (net.get_layer("char_embedding").embeddings, same)}

    def add(name, layer, turn):
        pairs[f"{name}.weight"] = (layer.kernel, turn)
        pairs[f"{name}.bias"] = (layer.bias, same)

    for i, layer in enumerate(net.get_layer("char_cnn").convolutions):
        add(f"convolutions.{i}", layer, convolution)
    for i in range(HIGHWAYS[gating]):
        block = net.get_layer(f"stage1_block{i + 1}")
        for name, layer in (("h", block.transform), ("t", block.transform_gate), ("c", block.carry_gate)):
            if layer is not None:
                add(f"highways.{i}.{name}", layer, linear)
    for i in range(2):
        lstm = net.get_layer(f"lstm{i + 1}")
        pairs[f"lstm.weight_ih_l{i}"] = (lstm.kernel, linear)
        pairs[f"lstm.weight_hh_l{i}"] = (lstm.recurrent_kernel, linear)
        pairs[f"lstm.bias_l{i}"] = (lstm.bias, same)
    add("head", net.get_layer("head"), linear)
    return pairs


@pytest.mark.parametrize(
    "gating", [pytest.param(g, marks=() if g in ("coupled", "full") else pytest.mark.slow) for g in GATINGS]
)
def test_ten_steps_are_those_of_pytorch(gating):
    sizes = {k: SIZES[k] for k in ("char_units", "kernels", "filters", "units")}  # the number of layers is the row's
    recipe = dataclasses.replace(
        RECIPES[f"charlm_large_{gating}"],
        overrides=(*sizes.items(), ("streams", STREAMS), ("dropout", 0.0)),
        precision="float32",
        clip_norm=NORM,
    )
    program = LanguageProgram(recipe, Text())
    pairs = torch_names(program.net, gating)
    assert len(pairs) == len(program.net.trainable_variables)
    shapes = {name: tuple(turn(to_numpy(v)).shape) for name, (v, turn) in pairs.items()}
    biases = {f"lstm.bias_l{i}": [f"lstm.bias_{part}_l{i}" for part in ("ih", "hh")] for i in range(2)}
    values = start({part: shapes[name] for name in shapes for part in biases.get(name, [name])})
    values |= {name: values[a] + values[b] for name, (a, b) in biases.items()}
    for name, (variable, turn) in pairs.items():
        variable.assign(turn(values[name]) if turn is not np.transpose else values[name].T)
    engine = Strategy().engine(program)
    spelled, inputs, targets = (a.astype("int32") for a in text())
    losses = []
    for x, y in zip(inputs, targets, strict=True):
        batch = deduplicate(x, multiple=8)
        total, tokens = np.asarray(engine.train((spelled[batch.words], batch.positions, y)), np.float64)
        losses.append(total / tokens)
    engine.sync()
    with np.load(GOLDEN) as golden:
        np.testing.assert_allclose(losses, golden[f"{gating}/losses"], rtol=2e-5)
        for name, (variable, _) in pairs.items():
            squares = float(np.sum(np.square(to_numpy(variable))))
            assert squares == pytest.approx(float(golden[f"{gating}/{name}"]), rel=1e-4), name
