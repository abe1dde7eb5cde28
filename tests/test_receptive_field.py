"""Receptive fields of stems that users make: what is known is exact, what is not is refused."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from miniatures import numpy

from keras_highway.analysis import receptive_field, top_patches
from keras_highway.layers import HighwayConv2D


def behind(stem, shape=(12, 10, 3), **kwargs):
    """A network of a stem and a block of 1x1 convolutions."""
    inputs = keras.Input(shape)
    return keras.Model(inputs, HighwayConv2D(kernel_size=1, name="block", **kwargs)(stem(inputs)), name="net")


def nested(inputs):
    x = keras.Input(inputs.shape[1:])
    y = layers.Conv2D(4, 3, strides=2, padding="same")(x)
    inner = keras.Sequential([keras.Input(y.shape[1:]), layers.Conv2D(4, 3, padding="same"), layers.ReLU()])
    return keras.Model(x, inner(y))(inputs)


def of_operations(inputs):
    x = layers.Conv2D(3, 3, padding="same", use_bias=False)(inputs)
    return ops.concatenate([ops.relu(x) + inputs, ops.where(x > 0, -x, ops.clip(x / 2, 0, 1))], -1)


STEMS = {
    "depthwise": (layers.DepthwiseConv2D(7, padding="same"), 7, 1),
    "depthwise at stride 2": (layers.DepthwiseConv2D(3, strides=2, padding="same"), 3, 2),
    "dilated depthwise": (layers.DepthwiseConv2D(3, dilation_rate=2, padding="same"), 5, 1),
    "separable": (layers.SeparableConv2D(4, 7), 7, 1),
    "separable at stride 2": (layers.SeparableConv2D(4, 3, strides=2, padding="same"), 3, 2),
    "sequential": (keras.Sequential([layers.Conv2D(4, 7, padding="same")]), 7, 1),
    "nested": (nested, 7, 2),
    "operations": (of_operations, 3, 1),
    "augmentation": (lambda x: layers.RandomFlip()(layers.Conv2D(4, 3)(layers.Rescaling(2.0)(x))), 3, 1),
}


@pytest.mark.parametrize("size", [(12, 10), (None, None)])
@pytest.mark.parametrize("stem", STEMS)
def test_stems_of_ones_own(stem, size):
    make, kernel, stride = STEMS[stem]
    field = receptive_field(behind(make, (*size, 3)), "block")
    assert field.size.tolist() == [kernel] * 2 and field.stride.tolist() == [stride] * 2


@pytest.mark.parametrize("stem", ["depthwise", "separable at stride 2", "sequential", "nested", "operations"])
def test_they_see_these_rows_and_no_others(stem):
    model = behind(keras.models.clone_model(STEMS[stem][0]) if stem == "sequential" else STEMS[stem][0])
    field = receptive_field(model, "block")
    rows = np.random.default_rng(0).normal(size=(1, 12, 10, 3)).astype("float32").repeat(13, 0)
    rows[np.arange(12), np.arange(12)] += 3.0  # image i has row i changed, the last is as it was
    y = np.asarray(numpy(model(rows)))
    middle = y.shape[1] // 2
    moved = np.flatnonzero(np.abs(y[:-1, middle] - y[-1, middle]).max((1, 2)) > 1e-4)
    low, high = (int(field.stride[0] * middle + end[0]) for end in (field.first, field.last))
    assert moved.min() == max(low, 0) and moved.max() == min(high, 11)


REFUSED = {
    "Conv2DTranspose": layers.Conv2DTranspose(4, 7, padding="same"),
    "UpSampling2D": layers.UpSampling2D(2),
    "Permute": layers.Permute((2, 1, 3)),
    "Concatenate": lambda x: layers.Concatenate(axis=1)([x, x]),
    "Flip": lambda x: ops.flip(x, 1),
    "Softmax": layers.Softmax(axis=[1, 2]),
    "Dense": lambda x: layers.Dense(10)(layers.Conv2D(12, 3, padding="same", data_format="channels_first")(x)),
}


@pytest.mark.parametrize("size", [10, None])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_may_move_pixels_is_refused_by_name(kind, size):
    first = kind == "Dense"
    model = behind(
        REFUSED[kind], (3, 10, 10) if first else (size, size, 3), data_format="channels_first" if first else None
    )
    with pytest.raises(ValueError, match=rf"block='block' of model 'net', behind layer .* of type {kind}$"):
        receptive_field(model, "block")


def test_patches_behind_a_stem_in_a_model_of_its_own():
    images = np.random.default_rng(0).random((3, 12, 10, 1), "float32")
    stem = keras.Sequential([layers.Conv2D(4, 7, padding="same")])
    assert top_patches(behind(stem, (12, 10, 1)), images, "block", 0).patches.shape == (3, 7, 7, 1)
