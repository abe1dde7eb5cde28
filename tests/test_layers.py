"""HighwayDense, HighwayConv2D and the layers that gates and transforms are made of."""

import keras
import numpy as np
import pytest
from contracts import EXAMPLES, array, check_layer, to_numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_highway.gating import GATINGS
from keras_highway.layers import (
    BasicBlock,
    BottleneckBlock,
    Branch,
    ChannelGate,
    HighwayConv2D,
    HighwayDense,
    LowRankDense,
    ZeroPadProjection,
)

LEARNING = [name for name, row in GATINGS.items() if row.learned_gates]
ONE_GATE = [name for name in LEARNING if len(GATINGS[name].learned_gates) == 1]
# Every gating with the usual gate, and every other kind of gate under each gating that has gates.
KINDS = [(g, {}) for g in GATINGS]
KINDS += [(g, {"gate": "low_rank", "gate_rank": 2}) for g in LEARNING]
KINDS += [(g, {"gate": "channel"}) for g in LEARNING]
KINDS += [(g, {"gate": "tied"}) for g in ONE_GATE]
IDS = [f"{g}-{k.get('gate', 'same')}" for g, k in KINDS]
channels_last_only = pytest.mark.skipif(
    keras.backend.backend() == "tensorflow", reason="TensorFlow has no channels_first convolutions on a CPU"
)


@pytest.mark.parametrize(("gating", "kind"), KINDS, ids=IDS)
def test_dense_contract(gating, kind):
    gate_shape = (4, 5) if kind.get("gate") == "tied" else None
    check_layer(HighwayDense, {"gating": gating, **kind}, (4, 5), gate_shape=gate_shape)


@pytest.mark.parametrize(("gating", "kind"), KINDS, ids=IDS)
def test_conv_contract(gating, kind):
    gate_shape = (2, 5, 4, 3) if kind.get("gate") == "tied" else None
    check_layer(HighwayConv2D, {"gating": gating, **kind}, (2, 5, 4, 3), gate_shape=gate_shape)


def sigmoid(z):
    return 1.0 / (1.0 + np.exp(-z))


def conv(x, kernel, bias, stride=1):
    """A convolution with zeros around, `k // 2` on every side, one tap of the kernel at a time."""
    kh, kw = kernel.shape[:2]
    padded = np.pad(x, [(0, 0), (kh // 2, kh // 2), (kw // 2, kw // 2), (0, 0)])
    rows, cols = -(-x.shape[1] // stride), -(-x.shape[2] // stride)
    y = np.zeros((len(x), rows, cols, kernel.shape[3])) + bias
    for i in range(kh):
        for j in range(kw):
            tap = padded[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (cols - 1) * stride + 1 : stride]
            y += np.einsum("bhwc,co->bhwo", tap, kernel[i, j])
    return y


def formula(gating, x, h, t, c):
    return {
        "plain": h,
        "residual": h + x,
        "t_only": h * t + x,
        "c_only": h + x * c,
        "coupled": h * t + x * (1 - t),
        "full": h * t + x * c,
    }[gating]


def computed(layer, x, linear):
    """The output by NumPy from the layer's weights; `linear(x, kernel, bias)` is its function class."""

    def gate(part):
        return 0.0 if part is None else sigmoid(linear(x, *map(to_numpy, part.weights)))

    h = np.maximum(linear(x, *map(to_numpy, layer.transform.weights)), 0)
    return formula(layer.gating, x, h, gate(layer.transform_gate), gate(layer.carry_gate))


@pytest.mark.parametrize("gating", GATINGS)
def test_dense_against_numpy(gating):
    x = array(7, 5)
    layer = HighwayDense(gating=gating, gate_bias=-0.5)
    y = layer(x)
    np.testing.assert_allclose(to_numpy(y), computed(layer, x, lambda x, w, b: x @ w + b), atol=1e-5)


@pytest.mark.parametrize("gating", GATINGS)
def test_conv_against_numpy(gating):
    x = array(2, 6, 5, 3)
    layer = HighwayConv2D(gating=gating, gate_bias=-0.5, gate_kernel_size=1)
    y = layer(x)
    np.testing.assert_allclose(to_numpy(y), computed(layer, x, conv), atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_branch_against_numpy(stride):
    x = array(2, 7, 6, 3)
    branch = Branch((4, 5), (3, 3), (stride, 1), batch_norm=False, final_bias=0.25)
    y = to_numpy(branch(x))
    k1, b1, k2, b2 = map(to_numpy, (*branch.conv1.weights, *branch.conv2.weights))
    assert (b1 == 0).all() and (b2 == 0.25).all()
    np.testing.assert_allclose(y, conv(np.maximum(conv(x, k1, b1, stride), 0), k2, b2), atol=1e-4)


@pytest.mark.parametrize("gating", LEARNING)
@pytest.mark.parametrize("kind", ["same", "low_rank", "channel"])
def test_gates_start_at_their_bias(gating, kind):
    rank = 2 if kind == "low_rank" else None
    layer = HighwayDense(gating=gating, gate_bias=-3.0, gate=kind, gate_rank=rank)
    layer.build((None, 4))
    signals = layer.signals(ops.zeros((1, 4)))
    row = GATINGS[gating]
    t = to_numpy(signals.t) if row.t == "learned" else None
    c = to_numpy(signals.c) if row.c == "learned" else None
    if t is not None:
        np.testing.assert_allclose(t, np.full_like(t, sigmoid(-3.0)), rtol=1e-5)
    if c is not None:
        np.testing.assert_allclose(c, np.full_like(c, sigmoid(3.0)), rtol=1e-5)
    assert layer.carry_gate is None or row.c == "learned"


def test_a_data_independent_gate_ignores_the_data():
    layer, dependent = HighwayDense(gate="channel", gating="full"), HighwayDense(gating="full")
    for each in (layer, dependent):
        each.build((None, 4))
    a, b = layer.signals(array(3, 4)), layer.signals(array(3, 4, seed=1))
    np.testing.assert_array_equal(to_numpy(a.t), to_numpy(b.t))
    np.testing.assert_array_equal(to_numpy(a.c), to_numpy(b.c))
    assert (to_numpy(a.h) != to_numpy(b.h)).any()
    assert (to_numpy(dependent.signals(array(3, 4)).t) != to_numpy(dependent.signals(array(3, 4, seed=1)).t)).any()


@pytest.mark.parametrize("make", [lambda **k: HighwayDense(**k), lambda **k: HighwayConv2D(**k)])
def test_stochastic_depth(make):
    layer = make(stochastic_depth=0.25, gate_bias=0.0)
    x = np.tile(array(1, 3, 3, 4), (4000, 1, 1, 1))
    inference = to_numpy(layer(x[:1], training=False))[0]
    np.testing.assert_array_equal(inference, to_numpy(layer.combine(layer.signals(x[:1])))[0])
    y = to_numpy(layer(x, training=True))
    dropped = (y == x).all(axis=(1, 2, 3))
    assert abs(dropped.mean() - 0.25) < 0.03
    # A kept update is scaled up, so that the mean over many draws is the output at inference.
    kept = y[~dropped] - x[~dropped]
    np.testing.assert_allclose(kept, np.broadcast_to((inference - x[0]) / 0.75, kept.shape), rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(y.mean(axis=0), inference, atol=0.05)
    np.testing.assert_array_equal(to_numpy(layer(x, training=False))[0], to_numpy(layer(x, training=False))[-1])


@pytest.mark.parametrize("gating", GATINGS)
def test_skip_is_the_output_with_the_transform_shut(gating):
    layer, x = HighwayDense(gating=gating), array(3, 4)
    layer.build(x.shape)
    signals = layer.signals(x)
    expected = x * to_numpy(signals.c) if GATINGS[gating].c == "learned" else x
    np.testing.assert_allclose(to_numpy(layer.skip(signals)), expected, rtol=1e-6)


@pytest.mark.parametrize("options", [{"final_bias": -6.0}, {"batch_norm": False}, {"activation": "relu"}])
def test_branch_contract(options):
    check_layer(Branch, {"filters": (4, 3), "kernel_sizes": (3, 1), **options}, (4, 5, 4, 2), gated=False)


sizes, kernels, strides = st.integers(1, 9), st.integers(1, 5), st.integers(1, 3)


@settings(max_examples=EXAMPLES)
@given(h=sizes, w=sizes, k=st.tuples(kernels, kernels), s=st.tuples(strides, strides))
def test_branch_shapes(h, w, k, s):
    branch = Branch((2, 3), k, s, batch_norm=False)
    expected = branch.compute_output_shape((1, h, w, 2))
    assert tuple(branch(array(1, h, w, 2)).shape) == expected
    assert [shape for _, shape in branch.convolutions((1, h, w, 2))][-1] == expected
    assert branch.compute_output_shape((None, None, w, 2)) == (None, None, *expected[2:])


@settings(max_examples=EXAMPLES)
@given(h=sizes, w=sizes, channels=st.integers(1, 4), more=st.integers(0, 3), stride=strides)
def test_zero_pad_projection(h, w, channels, more, stride):
    x = array(1, h, w, channels)
    layer = ZeroPadProjection(channels + more, stride)
    y = to_numpy(layer(x))
    assert y.shape == layer.compute_output_shape(x.shape)
    before = more // 2
    np.testing.assert_array_equal(y[..., before : before + channels], x[:, ::stride, ::stride])
    assert np.delete(y, np.s_[before : before + channels], axis=-1).sum() == 0


def test_small_layer_contracts():
    check_layer(ChannelGate, {"channels": 3, "bias": -1.0}, (4, 5, 3), gated=False)
    check_layer(LowRankDense, {"units": 4, "rank": 2, "bias": -1.0}, (4, 3), gated=False)
    check_layer(ZeroPadProjection, {"filters": 5, "stride": 2}, (4, 5, 4, 2), gated=False)


@channels_last_only
@pytest.mark.parametrize("gate", [{}, {"gate": "channel"}, {"gate": "low_rank", "gate_rank": 2}])
def test_channels_first(gate):
    x = array(2, 5, 4, 3)
    last = HighwayConv2D(data_format="channels_last", **gate)
    first = HighwayConv2D(data_format="channels_first", **gate)
    y = to_numpy(last(x))
    first.build((None, 3, 5, 4))
    first.set_weights(last.get_weights())
    np.testing.assert_allclose(to_numpy(first(x.transpose(0, 3, 1, 2))).transpose(0, 2, 3, 1), y, atol=1e-5)


@pytest.mark.parametrize(
    ("layer", "shape", "output", "instead"),
    [
        (HighwayDense(units=6, name="wide"), (2, 4), "units=6", "keras.layers.Dense"),
        (HighwayConv2D(filters=6, name="wide"), (2, 5, 5, 4), "filters=6", "keras.layers.Conv2D"),
    ],
)
def test_a_change_of_width_is_refused(layer, shape, output, instead):
    with pytest.raises(ValueError, match="must equal the input width") as error:
        layer(array(*shape))
    for part in (type(layer).__name__, "'wide'", str(shape), output, instead):
        assert part in str(error.value)


@pytest.mark.parametrize(("make", "shape"), [(HighwayDense, (3,)), (HighwayConv2D, (2, 4))])
def test_wrong_rank(make, shape):
    with pytest.raises(ValueError, match="needs an input of") as error:
        make(name="here")(np.zeros(shape, "float32"))
    assert str(shape) in str(error.value) and "'here'" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gating": "highway"}, "`gating` must be one of"),
        ({"gate_bias": float("nan")}, "gate_bias=nan"),
        ({"gate": "low_rank"}, "gate_rank=None"),
        ({"gate_rank": 2}, "gate='same', gate_rank=2"),
        ({"gate": "tied", "gating": "residual"}, "gating='residual'"),
        ({"skip_dtype": "int32"}, "skip_dtype='int32'"),
        ({"stochastic_depth": 1.0}, "stochastic_depth=1.0"),
        ({"stochastic_depth": 0.1, "gating": "plain"}, "gating='plain'"),
    ],
)
@pytest.mark.parametrize("make", [HighwayDense, HighwayConv2D])
def test_bad_arguments(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


@pytest.mark.parametrize("width", [-1, 2.5, True])
def test_bad_widths(width):
    for make in (
        lambda: HighwayDense(units=width),
        lambda: HighwayConv2D(filters=width),
        lambda: Branch((width,), (3,)),
        lambda: ZeroPadProjection(width),
        lambda: ChannelGate(width),
        lambda: LowRankDense(width, 1),
        lambda: LowRankDense(3, width),
        lambda: BasicBlock(width),
        lambda: BottleneckBlock(width),
    ):
        with pytest.raises(ValueError, match="must be a positive integer"):
            make()


def test_a_seeded_initializer_gives_transform_and_gates_different_kernels():
    layer = HighwayDense(gating="full", kernel_initializer=keras.initializers.GlorotUniform(seed=7))
    layer.build((None, 5))
    h, t, c = (to_numpy(path.kernel) for path in (layer.transform, layer.transform_gate, layer.carry_gate))
    assert np.abs(h - t).min() > 0 and np.abs(h - c).min() > 0 and np.abs(t - c).min() > 0


def test_a_kernel_size_of_gates_without_a_kernel():
    with pytest.raises(ValueError, match="`gate_kernel_size` must be None"):
        HighwayConv2D(4, gate="channel", gate_kernel_size=7)
    assert HighwayConv2D(4, gate="channel").get_config()["gate_kernel_size"] is None
