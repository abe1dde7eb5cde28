"""Gates that blocks share: two of them under the gating `full`, and those of fully connected nets."""

import keras
import numpy as np
import pytest
from contracts import array, check_layer, check_round_trip, gradients, to_numpy
from keras import ops
from miniatures import MINIATURES, batch, miniature, numpy

from keras_highway.analysis import blocks, lesion, rewire, trace, trim
from keras_highway.analysis.cost import cost
from keras_highway.analysis.gates import gate_bias
from keras_highway.analysis.lesions import lesion_curve, without
from keras_highway.layers import BasicBlock, HighwayDense, HighwayDenseStack
from keras_highway.models.builder import build
from keras_highway.specs import override
from keras_highway.variants import VARIANTS


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


def test_no_block_is_tested_with_the_statistics_of_another():
    """A gate's output depends on the image alone, in training as in inference: nothing of the blocks mixes in it."""
    model = small("conv_net", "full")
    for name in ("stage1_gate", "stage1_carry_gate"):
        gate = model.get_layer(name)
        assert not gate.non_trainable_weights
        x = np.random.default_rng(0).normal(size=(3, 8, 8, 4)).astype("float32")
        np.testing.assert_allclose(numpy(gate(x, training=True))[:1], numpy(gate(x[:1], training=False)), atol=1e-5)


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


def test_they_start_at_the_gate_bias():
    for family in ("conv_net", "dense_stack"):
        spec = override(MINIATURES[family], gate="tied", gating="full", gate_bias=-3.0)
        model = build(spec)
        for gate, start in (("t", -3.0), ("c", 3.0)):
            assert {float(v) for name in shared_by(model) for v in gate_bias(model, gate)[name]} == {start}


@pytest.mark.parametrize(
    ("family", "gating"), [("conv_net", "full"), ("dense_stack", "full"), ("dense_stack", "coupled")]
)
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


@FAMILIES
@pytest.mark.more
def test_lesions_and_trimming_under_full(family):
    model = small(family, "full")
    x = batch(model, 6)
    labels = numpy(model(x)).argmax(-1)
    names = shared_by(model)
    curve = lesion_curve(model, (x, labels), names, batch_size=4)  # all in one pass, against one by one
    for name, loss in zip(curve.blocks, curve.loss, strict=True):
        logits = numpy(rewire(model, lesion(name))(x)).astype("float64")
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        np.testing.assert_allclose(loss, -logits[np.arange(6), labels].mean(), rtol=1e-5)
    short = without(model, names[:2])
    np.testing.assert_array_equal(numpy(short(x)), numpy(rewire(model, dict.fromkeys(names[:2]))(x)))
    smallest = trim(model, (x, labels), 1.0)
    assert smallest.curve.parameters[0] == model.count_params() and smallest.curve.parameters[-1] > 0


@FAMILIES
def test_round_trip_under_full(family, tmp_path):
    model = small(family, "full")
    check_round_trip(model, [batch(model)])
    model.save_weights(tmp_path / "model.weights.h5")
    again = build(override(MINIATURES[family], gate="tied", gating="full", **_size(family)), classifier_activation=None)
    again.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(numpy(again(batch(model))), numpy(model(batch(model))))


def _size(family):
    return {"blocks": (4,), "widths": (4,)} if family == "conv_net" else {}


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


def test_a_full_block_in_half_precision():
    inputs = [keras.Input((5, 4, 4)) for _ in range(3)]
    low = BasicBlock(4, gate="tied", gating="full", dtype="mixed_bfloat16")
    assert low(inputs[0], gate=inputs[1:]).dtype == "float32"


def test_specs_that_are_refused():
    with pytest.raises(ValueError, match="'tied' needs a gating that learns a gate"):
        build(override(VARIANTS["highway_fc10"], gate="tied", gating="residual"))
    with pytest.raises(ValueError, match=r"gate='same' or 'tied' without stochastic depth.*Received: gate='channel'"):
        build(override(MINIATURES["dense_stack"], scanned=True, gate="channel"))
    with pytest.raises(ValueError, match=r"`gate` must be one of 'same', 'tied'. Received: gate='low_rank'"):
        HighwayDenseStack(3, gate="low_rank")


@pytest.mark.parametrize("gating", ["coupled", "full"])
def test_the_scan_computes_what_the_layers_do(gating):
    """20 layers: two steps of the scan and two layers left over."""
    stack = HighwayDenseStack(20, activation="tanh", gate_bias=-1.0, gate="tied", gating=gating)
    stack.build((None, 6))
    layers, x = [stack.block(i) for i in range(20)], array(5, 6)
    kernels = {to_numpy(layer.transform_gate.kernel).tobytes() for layer in layers}
    assert len(kernels) == 1 and len({to_numpy(layer.transform.kernel).tobytes() for layer in layers}) == 20
    y = x
    gates = to_numpy(stack.signals(x).t)
    for layer, gate in zip(layers, gates, strict=True):
        np.testing.assert_allclose(gate, to_numpy(layer.signals(y).t), rtol=1e-5, atol=1e-5)
        y = to_numpy(layer(y))
    np.testing.assert_allclose(to_numpy(stack(x)), y, rtol=1e-5, atol=1e-5)
    (actual,) = gradients(lambda v: ops.sum(stack(v) ** 2), x)

    def chain(v):
        for layer in layers:
            v = layer(v)
        return ops.sum(v**2)

    np.testing.assert_allclose(actual, gradients(chain, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_the_scanned_stack_keeps_the_contract_of_a_layer():
    check_layer(
        HighwayDenseStack,
        {"depth": 11, "gating": "full", "gate": "tied", "gate_bias": -1.0, "activation": "tanh"},
        (5, 6),
        gated=False,
    )


def test_the_cost_of_a_scanned_net_is_that_of_its_layers():
    spec = override(MINIATURES["dense_stack"], gate="tied")
    assert cost(build(spec)).total[1:3] == cost(build(override(spec, scanned=True))).total[1:3]


def test_a_block_with_gates_of_its_own_in_the_place_of_one_without():
    model = small("conv_net", "coupled")
    first, *others = blocks(model)
    plan = {others[1]: first}  # a stage's first block has gates of its own
    x = batch(model)
    alone = numpy(rewire(model, plan)(x))
    assert np.isfinite(alone).all() and (alone != numpy(model(x))).any()
