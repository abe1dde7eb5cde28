"""`dtype="float64"` is float64 throughout: parity with a network in plain NumPy to 1e-12."""

import keras
import numpy as np
import pytest
from miniatures import batch, miniature, numpy
from numpy.lib.stride_tricks import sliding_window_view

import keras_highway as kh

on_jax = keras.config.backend() == "jax"


def conv(x, kernel, stride):
    """A convolution padded by half its kernel on every side."""
    pad = kernel.shape[0] // 2
    x = np.pad(x, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    windows = sliding_window_view(x, kernel.shape[:2], (1, 2))[:, ::stride, ::stride]
    return np.einsum("nhwcij,ijco->nhwo", windows, kernel)


def branch(layer, x):
    for i in range(1, layer.depth + 1):
        norm = getattr(layer, f"bn{i}")
        x = conv(x, numpy(getattr(layer, f"conv{i}").kernel), layer.strides[i - 1])
        gamma, beta, mean, variance = map(numpy, (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance))
        x = gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta
        x = np.maximum(x, 0) if i < layer.depth or layer.activation is keras.activations.relu else x
    return x


def shortcut(block, x):
    if block.projection is None:
        return x
    if hasattr(block.projection, "conv1"):
        return branch(block.projection, x)
    x, more = x[:, :: block.stride, :: block.stride], block.filters - x.shape[-1]
    return np.pad(x, [(0, 0)] * 3 + [(more // 2, more - more // 2)])


def head(model, x):
    layer = model.get_layer("head")
    return x @ numpy(layer.kernel) + numpy(layer.bias)


def pooled(x, size, stride, pad):
    """Max-pooling after a rectifier: zeros beyond the edges."""
    x = np.pad(x, [(0, 0), pad, pad, (0, 0)])
    return sliding_window_view(x, (size, size), (1, 2))[:, ::stride, ::stride].max((-2, -1))


def conv_net(model, x):
    x = branch(model.get_layer("stem"), x)
    if any(layer.name == "stem_pool" for layer in model.layers):
        x = pooled(x, 3, 2, (1, 1))
    for block in kh.analysis.blocks(model).values():
        t = 1 / (1 + np.exp(-branch(block.transform_gate, x)))
        x = branch(block.transform, x) * t + shortcut(block, x) * (1 - t)
        x = np.maximum(x, 0) if block.post_activation else x
    return head(model, x.mean((1, 2)))


def conv_stack(model, x):
    convolved = lambda layer, x: conv(x, numpy(layer.kernel), 1) + numpy(layer.bias)  # noqa: E731
    x = np.maximum(convolved(model.get_layer("stem"), x)[:, 2:-2, 2:-2], 0)  # of 5 x 5 pixels, unpadded
    for block in kh.analysis.blocks(model).values():
        t = 1 / (1 + np.exp(-convolved(block.transform_gate, x)))
        x = np.maximum(convolved(block.transform, x), 0) * t + x * (1 - t)
    pool = model.get_layer("stage1_pool")
    (size, _), (stride, _) = pool.pool_size, pool.strides
    more = max(size - (x.shape[1] % stride or stride), 0)
    x = pooled(x, size, stride, (more // 2, more - more // 2))
    return head(model, x.reshape(len(x), -1))


def dense_stack(model, x):
    dense = lambda layer, x: x @ numpy(layer.kernel) + numpy(layer.bias)  # noqa: E731
    x = np.maximum(dense(model.get_layer("stem"), x.reshape(len(x), -1)), 0)
    for block in kh.analysis.blocks(model).values():
        t = 1 / (1 + np.exp(-dense(block.transform_gate, x)))
        x = np.maximum(dense(block.transform, x), 0) * t + x * (1 - t)
    return head(model, x)


@pytest.mark.skipif(on_jax, reason="refused there")
@pytest.mark.parametrize(
    ("family", "reference", "changes"),
    [
        ("conv_net", conv_net, {"projection": "A"}),
        ("conv_net", conv_net, {"projection": "B"}),
        ("bottleneck", conv_net, {"projection": "B"}),
        ("conv_stack", conv_stack, {}),
        ("dense_stack", dense_stack, {"activation": "relu"}),
    ],
)
def test_parity(family, reference, changes):
    model = miniature(family, dtype="float64", **changes)
    x = batch(model).astype("float64") + 1e-9  # float32 would not keep that
    actual, expected = numpy(model(x, training=False)), reference(model, x)
    assert actual.dtype == np.float64
    assert np.abs(actual - expected).max() < 1e-12 * max(1, np.abs(expected).max())


def test_language_models_refuse_it():
    with pytest.raises(ValueError, match="Language models compute in float32 at most"):
        kh.create_model("charlm_small_coupled", dtype="float64")


def test_jax_refuses_it(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="dtype='float64' is not for JAX"):
        kh.create_model("highway_fc10", depth=2, dtype="float64")
