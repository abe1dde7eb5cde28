"""The equation: values, gradients, precision, errors."""

import keras
import numpy as np
import pytest
from contracts import EXAMPLES, array, gradients, to_numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_highway import gating
from keras_highway.equation import mix
from keras_highway.gating import GATINGS, Signals, carry_gate_bias, gate_bias_for_depth, get_gating

X = np.array([[1.0, -2.0, 0.5]], "float32")
H = np.array([[3.0, 4.0, -1.0]], "float32")
T = np.array([[0.25, 0.5, 1.0]], "float32")
C = np.array([[0.5, 0.75, 0.0]], "float32")

# Worked out by hand from facts: y = h·t + x·c.
BY_HAND = {
    "plain": [3.0, 4.0, -1.0],
    "residual": [4.0, 2.0, -0.5],
    "t_only": [1.75, 0.0, -0.5],
    "c_only": [3.5, 2.5, -1.0],
    "coupled": [1.5, 1.0, -1.0],
    "full": [1.25, 0.5, -1.0],
}


def gates_of(name):
    row = GATINGS[name]
    t = T if row.t == "learned" else 1.0
    return t, {"zero": 0.0, "one": 1.0, "learned": C, "coupled": None}[row.c]


def test_there_are_the_six_gatings_of_the_table():
    assert list(GATINGS) == list(BY_HAND)
    learned = {name: row.learned_gates for name, row in GATINGS.items()}
    assert learned == {
        "plain": (),
        "residual": (),
        "t_only": ("t",),
        "c_only": ("c",),
        "coupled": ("t",),
        "full": ("t", "c"),
    }
    assert [name for name, row in GATINGS.items() if not row.has_skip] == ["plain"]
    with pytest.raises(TypeError):
        GATINGS["new"] = GATINGS["full"]


@pytest.mark.parametrize("name", BY_HAND)
def test_values_by_hand(name):
    y = mix(X, H, *gates_of(name))
    np.testing.assert_array_equal(to_numpy(y), [BY_HAND[name]])


@pytest.mark.parametrize("name", BY_HAND)
def test_gradients_are_those_of_the_papers(name):
    t, c = gates_of(name)
    dy = array(1, 3, seed=5)
    expected = {"h": t * dy, "x": (1 - t if c is None else c) * dy}
    if GATINGS[name].t == "learned":
        expected["t"] = (H - X) * dy if c is None else H * dy
    if GATINGS[name].c == "learned":
        expected["c"] = X * dy
    values = {k: v if v is None else ops.convert_to_tensor(v) for k, v in {"x": X, "h": H, "t": t, "c": c}.items()}
    weights = ops.convert_to_tensor(dy)

    def f(*args):
        return ops.sum(mix(**{**values, **dict(zip(expected, args, strict=True))}) * weights)

    for (arg, w), g in zip(expected.items(), gradients(f, *(values[a] for a in expected)), strict=True):
        np.testing.assert_allclose(g, np.broadcast_to(w, g.shape), rtol=1e-6, atol=1e-7, err_msg=arg)


def test_a_number_is_a_gate():
    np.testing.assert_array_equal(to_numpy(mix(X, H, 0.0)), X)
    np.testing.assert_array_equal(to_numpy(mix(X, H, 1.0)), H)
    np.testing.assert_array_equal(to_numpy(mix(X, H, 0.5)), (X + H) / 2)
    np.testing.assert_array_equal(to_numpy(mix(X, H, 0.0, 0.0)), np.zeros_like(X))
    np.testing.assert_array_equal(to_numpy(mix(*Signals(X, H))), H)


def test_the_arithmetic_is_float32_at_least():
    low = [ops.cast(v, "bfloat16") for v in (X, H, T)]
    assert keras.backend.standardize_dtype(mix(*low).dtype) == "float32"
    assert keras.backend.standardize_dtype(mix(*low, dtype="bfloat16").dtype) == "bfloat16"


def test_nearly_closed_gates_move_a_float32_skip_and_not_a_bfloat16_one():
    x, h = np.full((1, 8), 100.0, "float32"), np.full((1, 8), 50.0, "float32")
    t = ops.full((1, 8), float(1 / (1 + np.exp(6.0))))  # gate bias -6: t = 0.0025, an update of -0.12
    np.testing.assert_allclose(to_numpy(mix(x, h, t)), x - 50.0 / (1 + np.exp(6.0)), rtol=1e-6)
    np.testing.assert_array_equal(to_numpy(mix(x, h, t, dtype="bfloat16")), x)


shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=EXAMPLES)
@given(shape=shapes, mask=st.lists(st.booleans(), min_size=4, max_size=4), cut=st.integers(0, 3), coupled=st.booleans())
def test_gates_broadcast(shape, mask, cut, coupled):
    gate_shape = [1 if m else s for s, m in zip(shape, mask, strict=False)][min(cut, len(shape) - 1) :]
    x, h, t, c = array(*shape), array(*shape, seed=1), array(*gate_shape, seed=2), array(*gate_shape, seed=3)
    y = mix(x, h, t, None if coupled else c)
    assert tuple(y.shape) == tuple(shape)
    expected = h * t + x * ((1 - t) if coupled else c)
    np.testing.assert_allclose(to_numpy(y), expected, rtol=1e-4, atol=1e-5)


@settings(max_examples=EXAMPLES)
@given(a=shapes, b=shapes)
def test_x_and_h_of_different_shape_are_refused(a, b):
    if a == b:
        b = [*b, 2]
    with pytest.raises(ValueError, match="same shape") as error:
        mix(np.zeros(a, "float32"), np.zeros(b, "float32"))
    assert f"x.shape={tuple(a)}" in str(error.value) and f"h.shape={tuple(b)}" in str(error.value)
    assert "Dense" in str(error.value) and "project" in str(error.value)  # what to use instead


@pytest.mark.parametrize("gate_shape", [(3,), (1, 2, 4)])
def test_a_gate_that_does_not_broadcast_is_refused(gate_shape):
    x, bad = np.zeros((2, 4), "float32"), np.zeros(gate_shape, "float32")
    for kwargs in ({"t": bad}, {"c": bad}):
        with pytest.raises(ValueError, match="broadcasts to x") as error:
            mix(x, x, **kwargs)
        assert str(gate_shape) in str(error.value) and "(2, 4)" in str(error.value)


def test_symbolic_tensors_with_unknown_sizes():
    x = keras.Input((None, 4))
    with pytest.raises(ValueError, match="same shape"):
        mix(x, keras.Input((None, 5)))
    assert mix(x, keras.Input((None, 4)), keras.Input((7, 1))).shape == (None, 7, 4)


@pytest.mark.parametrize("name", ["Coupled", None])
def test_unknown_gating(name):
    with pytest.raises(ValueError, match="must be one of 'plain'") as error:
        get_gating(name)
    assert f"Received: gating={name!r}" in str(error.value)


@pytest.mark.parametrize("bias", [float("nan"), "much"])
def test_gate_bias_must_be_a_finite_number(bias):
    with pytest.raises(ValueError, match="finite number") as error:
        gating.check_gate_bias(bias)
    assert f"gate_bias={bias!r}" in str(error.value)


def test_gate_bias_for_depth():
    assert [gate_bias_for_depth(d) for d in (10, 20, 30)] == [-1.0, -2.0, -3.0]
    assert (gate_bias_for_depth(3), gate_bias_for_depth(1000)) == (-1.0, -3.0)
    # "Approximately" 10, 20 and 30: the nearest of them.
    assert [gate_bias_for_depth(d) for d in (11, 14, 15, 19, 24, 25, 32)] == [-1.0, -1.0, -2.0, -2.0, -2.0, -3.0, -3.0]
    assert type(gate_bias_for_depth(19)) is float


@given(bias=st.floats(-20, 20))
def test_a_learned_carry_gate_starts_as_the_coupled_one(bias):
    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    np.testing.assert_allclose(sigmoid(carry_gate_bias(bias)), 1 - sigmoid(bias), rtol=1e-6, atol=1e-12)
