"""Gates that blocks share: two of them under the gating `full`, and gates of fully connected nets."""

import keras
import numpy as np
import pytest
from contracts import array, to_numpy
from keras import ops
from miniatures import MINIATURES, batch, miniature, numpy

from keras_highway.analysis import lesion, rewire, trace
from keras_highway.analysis.cost import cost
from keras_highway.layers import HighwayDense
from keras_highway.models.builder import build
from keras_highway.specs import override


def sigmoid(x):
    return numpy(ops.sigmoid(x))


def small(family, gating, **changes):
    """Three blocks that share their gates."""
    changes = {"blocks": (4,), "widths": (4,), **changes} if family == "conv_net" else changes
    return miniature(family, gate="tied", gating=gating, **changes)


def shared_by(model):
    """Names of the blocks with a tied gate."""
    return [layer.name for layer in model.layers if getattr(layer, "gate", None) == "tied"]


FAMILIES = pytest.mark.parametrize("family", ["conv_net", "dense_stack"])


def test_parameters_by_hand():
    dense = override(MINIATURES["dense_stack"], gate="tied")  # 784 inputs, 3 highway layers of 6 units, 10 classes
    ends, layer = 784 * 6 + 6 + 6 * 10 + 10, 6 * 6 + 6
    assert build(dense).count_params() == ends + 3 * layer + layer
    assert build(override(dense, gating="full")).count_params() == ends + 3 * layer + 2 * layer
    assert build(override(dense, gating="full", scanned=True)).count_params() == ends + 3 * layer + 2 * layer
    conv = override(MINIATURES["conv_net"], gate="tied", blocks=(4,), widths=(4,), stem_width=4)
    branch = 2 * (9 * 4 * 4 + 2 * 4)  # two convolutions, each with gamma and beta
    ends = 9 * 3 * 4 + 2 * 4 + 4 * 10 + 10
    shared = 2 * (9 * 4 * 4 + 4)  # with biases in place of gamma and beta
    # The first block has gates of its own, the other three share them.
    assert cost(build(conv)).total.parameters == ends + 4 * branch + branch + shared
    assert cost(build(override(conv, gating="full"))).total.parameters == ends + 4 * branch + 2 * branch + 2 * shared


def test_layer_names():
    """A weight file depends on them."""
    model = build(override(MINIATURES["conv_net"], gate="tied", gating="full", blocks=(2, 2)))
    gates = [layer.name for layer in model.layers if "gate" in layer.name]
    assert gates == ["stage1_gate", "stage1_carry_gate", "stage2_gate", "stage2_carry_gate"]
    for gating in ("t_only", "c_only", "coupled"):
        model = build(override(MINIATURES["dense_stack"], gate="tied", gating=gating))
        assert [layer.name for layer in model.layers if "gate" in layer.name] == ["stage1_gate"]
    model = build(override(MINIATURES["dense_stack"], gate="tied", gating="full"))
    paths = [w.path for w in model.weights if "gate" in w.path]
    assert paths == [f"stage1_{gate}/{part}" for gate in ("gate", "carry_gate") for part in ("kernel", "bias")]
    stack = build(override(MINIATURES["dense_stack"], gate="tied", scanned=True)).get_layer("stage1")
    assert [(w.name, w.shape) for w in stack.weights[2:]] == [
        ("transform_gate_kernel", (6, 6)),
        ("transform_gate_bias", (6,)),
    ]


@pytest.mark.parametrize(("family", "gating"), [("conv_net", "full"), ("dense_stack", "coupled")])
def test_every_block_reaches_the_shared_gates(family, gating):
    """With all blocks but one taken out, the one that is left moves them."""
    model = small(family, gating)
    names = shared_by(model)
    assert len(names) == 3
    gates = [layer for layer in model.layers if layer.name in ("stage1_gate", "stage1_carry_gate")]
    assert len(gates) == 1 + (gating == "full")
    x, y = batch(model), np.array([0, 1])
    for name in names:
        alone = rewire(model, {other: None for other in names if other != name})
        kernels = [w for gate in gates for w in gate.trainable_weights if w.name == "kernel"]
        before = [numpy(w) for w in kernels]
        alone.compile(keras.optimizers.SGD(1e-3), keras.losses.SparseCategoricalCrossentropy(True), run_eagerly=True)
        alone.train_on_batch(x, y)
        assert all((numpy(w) != old).any() for w, old in zip(kernels, before, strict=True)), name


@FAMILIES
def test_trace_and_rewire_under_full(family):
    model = small(family, "full")
    x = batch(model)
    signals = trace(model, x)
    np.testing.assert_array_equal(signals.output, numpy(model(x, training=False)))
    previous, name = shared_by(model)[:2]
    at = signals[previous].y
    for layer, gate in (("stage1_gate", signals[name].t), ("stage1_carry_gate", signals[name].c)):
        np.testing.assert_array_equal(sigmoid(model.get_layer(layer)(at, training=False)), gate)
    lesioned = trace(rewire(model, lesion(name)), x)
    np.testing.assert_array_equal(lesioned[shared_by(model)[2]].x, signals[name].x * signals[name].c)
    swapped = rewire(model, {previous: name, name: previous})
    assert (numpy(swapped(x)) != signals.output).any()
    np.testing.assert_array_equal(numpy(rewire(swapped, {previous: name, name: previous})(x)), signals.output)


def test_a_full_block_needs_both_logits():
    x = array(2, 5)
    block = HighwayDense(gate="tied", gating="full", name="lonely")
    for gate, received in ((None, "None"), (x, "1 tensors"), ([x], "1 tensors"), ([x, x, x], "3 tensors")):
        with pytest.raises(ValueError, match=f"needs the logits of 2.*{received}"):
            block(x, gate=gate)
    t, c = array(2, 5, seed=1), array(2, 5, seed=2)
    signals = block.signals(x, (t, c))
    np.testing.assert_array_equal(to_numpy(signals.t), sigmoid(t))
    np.testing.assert_array_equal(to_numpy(signals.c), sigmoid(c))
    assert block.count_params() == 5 * 5 + 5
