"""BasicBlock and BottleneckBlock under every gating, gate and option."""

import keras
import numpy as np
import pytest
from contracts import array, check_layer, to_numpy
from keras import ops

from keras_highway.gating import GATINGS
from keras_highway.layers import BasicBlock, BottleneckBlock

LEARNING = [name for name, row in GATINGS.items() if row.learned_gates]
ONE_GATE = [name for name in LEARNING if len(GATINGS[name].learned_gates) == 1]
SMALL = {BasicBlock: {"filters": 4}, BottleneckBlock: {"width": 2, "expansion": 2}}  # both give 4 channels
BLOCKS = pytest.mark.parametrize("block", [BasicBlock, BottleneckBlock])
X = (3, 5, 4, 4)

KINDS = [(g, {}) for g in GATINGS]
KINDS += [(g, {"gate": kind}) for g in LEARNING for kind in ("pointwise", "channel")]
# A rank of 3: all of fewer channels may be dead ReLUs, through which no gradient goes.
KINDS += [(g, {"gate": "low_rank", "gate_rank": 3}) for g in LEARNING]
KINDS += [(g, {"gate": "tied"}) for g in ONE_GATE]
IDS = [f"{g}-{k.get('gate', 'same')}" for g, k in KINDS]

# Each option under a gating of each sort (no gate, one, two); options in pairs, so that they also meet.
OPTIONS = [
    {"post_activation": True, "zero_init": True},
    {"final_relu": True, "batch_norm": False},
    {"zero_init": True, "batch_norm": False},
    {"stride": 2, "projection": "A"},
    {"stride": 2, "gate": "pointwise"},
    {"stride": 3, "gate": "channel"},
    {"stochastic_depth": 0.2, "post_activation": True},
    {"skip_dtype": "bfloat16", "kernel_initializer": "glorot_uniform"},
]


@BLOCKS
@pytest.mark.parametrize(("gating", "kind"), KINDS, ids=IDS)
def test_contract(block, gating, kind):
    gate_shape = X if kind.get("gate") == "tied" else None
    # Files are long to write and read: one in three is enough here, test_options has the others.
    reload = gating in ("plain", "coupled")
    check_layer(block, {**SMALL[block], "gating": gating, **kind}, X, gate_shape=gate_shape, reload=reload)


@BLOCKS
@pytest.mark.parametrize("gating", ["residual", "coupled", "full"])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o)))
def test_options(block, gating, options):
    learns = GATINGS[gating].learned_gates
    options = {k: v for k, v in options.items() if k != "gate" or learns}
    kwargs = {**SMALL[block], "gating": gating, **options}
    check_layer(block, kwargs, X, reload=gating == "full", train="skip_dtype" not in options)


@BLOCKS
@pytest.mark.parametrize("projection", ["A", "B"])
def test_transitions(block, projection):
    for channels, stride, is_transition in ((4, 1, False), (4, 2, True), (3, 1, True), (3, 2, True)):
        layer = block(**SMALL[block], stride=stride, projection=projection)
        y = layer(array(2, 5, 6, channels))
        assert layer.is_transition == is_transition
        assert tuple(y.shape) == (2, -(-5 // stride), -(-6 // stride), 4)
        assert [name for name, _ in layer.paths()] == ["transform", "transform_gate", "projection"][: 2 + is_transition]


@BLOCKS
def test_the_output_is_what_the_signals_say(block):
    for gating, row in GATINGS.items():
        layer = block(**SMALL[block], gating=gating, stride=2, gate_bias=-0.5)
        x = array(*X)
        y = to_numpy(layer(x))
        s = layer.signals(x)
        h, skip = to_numpy(s.h), to_numpy(s.x)
        t = to_numpy(s.t) if row.t == "learned" else s.t
        c = {"coupled": 1 - t, "learned": s.c, "zero": 0.0, "one": 1.0}[row.c]
        np.testing.assert_allclose(y, h * t + skip * to_numpy(c), atol=1e-5, err_msg=gating)
        assert skip.shape == h.shape == y.shape


@BLOCKS
@pytest.mark.parametrize("batch_norm", [True, False])
def test_zero_init(block, batch_norm):
    x = array(*X)
    common = {**SMALL[block], "zero_init": True, "batch_norm": batch_norm}
    for training in (False, True):
        residual = block(gating="residual", post_activation=True, **common)
        np.testing.assert_array_equal(to_numpy(residual(x, training=training)), np.maximum(x, 0))
        coupled = block(gating="coupled", gate="channel", gate_bias=-1.0, **common)
        t = 1 / (1 + np.exp(1.0))
        np.testing.assert_allclose(to_numpy(coupled(x, training=training)), (1 - t) * x, rtol=1e-5)


@BLOCKS
@pytest.mark.parametrize("kind", ["same", "pointwise", "low_rank", "channel"])
@pytest.mark.parametrize("batch_norm", [True, False])
def test_gates_start_at_their_bias(block, kind, batch_norm):
    layer = block(
        **SMALL[block],
        gating="full",
        gate=kind,
        gate_rank=1 if kind == "low_rank" else None,
        gate_bias=-3.0,
        batch_norm=batch_norm,
    )
    layer.build((None, *X[1:]))
    s = layer.signals(ops.zeros(X))
    for gate, expected in ((s.t, 1 / (1 + np.exp(3.0))), (s.c, 1 / (1 + np.exp(-3.0)))):
        np.testing.assert_allclose(to_numpy(gate), np.full(gate.shape, expected), rtol=1e-5)


def test_post_activation_and_final_relu_are_where_they_should_be():
    x = array(*X)
    for post, final in ((True, False), (False, True), (False, False)):
        layer = BasicBlock(4, post_activation=post, final_relu=final)
        y, h = to_numpy(layer(x)), to_numpy(layer.signals(x).h)
        assert (y.min() >= 0) == post
        assert (h.min() >= 0) == final


def test_the_stride_of_a_bottleneck_is_in_its_3x3():
    layer = BottleneckBlock(2, stride=2)
    layer.build((None, 8, 8, 4))
    assert [c.strides for c, _ in layer.transform.convolutions((None, 8, 8, 4))] == [(1, 1), (2, 2), (1, 1)]
    assert [c.kernel_size for c, _ in layer.transform.convolutions((None, 8, 8, 4))] == [(1, 1), (3, 3), (1, 1)]


@pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="TensorFlow has no channels_first convolutions on a CPU"
)
@BLOCKS
@pytest.mark.parametrize("options", [{"stride": 2}, {"stride": 2, "projection": "A"}, {"gate": "channel"}])
def test_channels_first(block, options):
    x = array(2, 5, 4, 4)
    last = block(**SMALL[block], **options, data_format="channels_last")
    first = block(**SMALL[block], **options, data_format="channels_first")
    y = to_numpy(last(x))
    first.build((None, 4, 5, 4))
    first.set_weights(last.get_weights())
    x_first = x.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(to_numpy(first(x_first)).transpose(0, 2, 3, 1), y, atol=1e-5)
    assert tuple(first.compute_output_shape(x_first.shape)) == tuple(first(x_first).shape)
