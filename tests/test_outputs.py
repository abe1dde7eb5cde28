"""Symbolic signals of the blocks: what `trace` measures, and a loss on them."""

import keras
import numpy as np
import pytest
from miniatures import batch, miniature, numpy

import keras_highway as kh


@pytest.mark.parametrize("signal", ["t", "h", "x", "y"])
def test_outputs_are_what_trace_measures(signal):
    model = miniature("conv_net", blocks=(1, 1), widths=(4, 4))
    outputs = kh.analysis.outputs(model, signal)
    x = batch(model)
    traced = kh.analysis.trace(model, x)
    values = keras.Model(model.input, [outputs.output, dict(outputs)])(x)
    np.testing.assert_array_equal(numpy(values[0]), numpy(model(x)))
    assert list(outputs) == list(traced)
    for name, value in values[1].items():
        np.testing.assert_array_equal(numpy(value), getattr(traced[name], signal))


def test_a_learned_carry_gate_and_single_blocks():
    model = miniature("dense_stack", gating="full")
    assert list(kh.analysis.outputs(model, "c", blocks="stage1_block2")) == ["stage1_block2"]
    assert not kh.analysis.outputs(miniature("dense_stack"), "c")  # coupled: 1 - t
    with pytest.raises(ValueError, match="`signal` must be one of x, h, t, c, y"):
        kh.analysis.outputs(model, "T")


def test_a_loss_on_the_gates_closes_them():
    model = miniature("dense_stack")
    gates = kh.analysis.outputs(model, "t")
    mean = keras.ops.mean(keras.ops.stack(list(gates.values())), axis=(0, 2))
    both = keras.Model(model.input, [gates.output, mean])
    both.compile(keras.optimizers.SGD(0.05), ["mse", lambda y, t: keras.ops.mean(t)], run_eagerly=True)
    x = batch(model, 4)
    predictions, before = (numpy(value) for value in both(x))
    for _ in range(3):
        both.train_on_batch(x, [predictions, np.zeros((4, 1))])
    assert numpy(both(x)[1]).mean() < before.mean()
