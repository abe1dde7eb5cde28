"""Units and their inputs: guided derivatives, receptive fields by changing pixels, patches by looking at all."""

import keras
import numpy as np
import pytest
from keras import layers, ops
from matplotlib.image import imread
from miniatures import batch, miniature, numpy

from keras_highway import analysis
from keras_highway._support.numerics import input_gradient
from keras_highway.analysis import guided_backprop, receptive_field, top_patches, trace
from keras_highway.layers import BasicBlock, HighwayConv2D, HighwayDense


def test_two_dense_relus_by_hand():
    inputs = keras.Input((2,))
    first = keras.layers.Dense(2, "relu", name="stem")
    block = HighwayDense(gating="plain", name="block")
    model = keras.Model(inputs, block(first(inputs)))
    first.set_weights([np.array([[1.0, -1.0], [1.0, 2.0]]), np.zeros(2)])
    block.set_weights([np.array([[2.0, 0.0], [-1.0, 0.0]]), np.zeros(2)])
    x = np.array([[1.0, 2.0], [-1.0, -1.0]], "float32")
    guided = guided_backprop(model, x, "block", 0)
    # For image 0, stem gives (3, 3) and the unit 2·3 − 1·3 = 3; the second stem unit speaks against it and is cut off.
    np.testing.assert_allclose(guided.gradient[0, 0], [2.0, 2.0])
    np.testing.assert_allclose(guided.value[0], [3.0, 0.0])
    np.testing.assert_array_equal(guided.gradient[0, 1], [0.0, 0.0])
    plain = input_gradient(lambda x: model(x)[:, 0], x)
    np.testing.assert_allclose(numpy(plain)[0], [3.0, 0.0])  # W1·(2, −1): the model itself is as it was


@pytest.mark.parametrize(("x", "guided", "plain"), [(2.0, 1.0, 0.5), (-2.0, 0.0, 0.0)])
def test_relus_inside_a_block_by_hand(x, guided, plain):
    inputs = keras.Input((1, 1, 1))
    block = BasicBlock(1, gating="residual", post_activation=True, batch_norm=False, name="block")
    model = keras.Model(inputs, block(inputs))
    centre = np.zeros((2, 3, 3, 1, 1))
    centre[:, 1, 1] = np.array([1.0, -0.5])[:, None, None]
    block.set_weights([centre[0], np.zeros(1), centre[1], np.zeros(1)])
    image = np.full((1, 1, 1, 1), x, "float32")
    # y = relu(x − 0.5·relu(x)): the branch speaks against the unit, so that only the skip's 1 is left.
    assert guided_backprop(model, image, "block", 0).gradient.item() == guided
    assert numpy(input_gradient(model, image)).item() == plain


def in_model(*parts):
    def apply(x):
        inner = keras.Input(x.shape[1:])
        y = inner
        for part in parts:
            y = part(y)
        return keras.Model(inner, y)(x)

    return apply


SPELLINGS = {
    "layer": lambda dense: [dense, keras.layers.ReLU()],
    "of a model in a model": lambda dense: [in_model(in_model(dense, keras.layers.ReLU()))],
    "operation of a model": lambda dense: [in_model(dense, ops.relu)],
    "relu6": lambda dense: [dense, keras.layers.Activation("relu6")],
}


def with_dense(spelling, activation="relu"):
    """A net of a dense layer, a ReLU and a block, with the same weights in any spelling."""
    inputs = keras.Input((8,))
    dense = keras.layers.Dense(8, kernel_initializer=keras.initializers.GlorotUniform(1))
    x = inputs
    for part in spelling(dense):
        x = part(x)
    block = HighwayDense(activation=activation, gate_bias=0.0, name="block")
    model = keras.Model(inputs, block(x))
    block.set_weights([np.random.default_rng(i).normal(size=w.shape) for i, w in enumerate(block.get_weights())])
    return model


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_relu_is_guided_in_any_spelling(spelling):
    x = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    expected = guided_backprop(with_dense(lambda dense: [dense, keras.layers.Activation("relu")]), x, "block", 1)
    model = with_dense(SPELLINGS[spelling])
    guided = guided_backprop(model, x, "block", 1)
    np.testing.assert_allclose(guided.gradient, expected.gradient, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(guided.value, expected.value, rtol=1e-5)
    assert np.abs(numpy(input_gradient(lambda x: model(x)[:, 1], x)) - guided.gradient[0]).max() > 0.1


@pytest.mark.parametrize("family", ["conv_stack", "conv_net"])
def test_all_blocks_of_a_stage(family):
    model = miniature(family)
    x = batch(model, 2)
    before = model.get_weights()
    guided = guided_backprop(model, 255 * x, "stage1", 1, transform=lambda pixels: pixels / np.float32(255))
    assert guided.blocks == ("stage1_block1", "stage1_block2", "stage1_block3")
    assert guided.gradient.shape == (3, *x.shape) and guided.position.shape == (3, 2, 2)
    for row, (name, entry) in enumerate(list(trace(model, x).items())[:3]):
        y = entry.y[..., 1]
        np.testing.assert_allclose(guided.value[row], y.max((1, 2)), rtol=1e-5)
        field = receptive_field(model, name)
        for i, gradient in enumerate(guided.gradient[row]):
            assert y[i][tuple(guided.position[row, i])] == pytest.approx(y[i].max(), rel=1e-6)
            rows, columns, _ = np.nonzero(gradient)
            for pixels, place, axis in (
                (rows, guided.position[row, i, 0], 0),
                (columns, guided.position[row, i, 1], 1),
            ):
                low, high = (int(field.stride[axis] * place + end[axis]) for end in (field.first, field.last))
                assert low <= pixels.min() and pixels.max() <= high
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True))


def test_the_unguided_derivative_is_that_of_a_small_change():
    """A net of tanh and sigmoid alone has nothing to guide."""
    model = miniature("dense_stack", activation="tanh")
    x = batch(model, 1)
    guided = guided_backprop(model, x, "stage1_block3", 2)
    assert guided.position.shape == (1, 1, 0)
    direction = np.sign(guided.gradient[0])
    ends = [trace(model, x + side * np.float32(1e-3) * direction)["stage1_block3"].y[0, 2] for side in (1, -1)]
    assert (ends[0] - ends[1]) / 2e-3 == pytest.approx(np.abs(guided.gradient).sum(), rel=1e-2)


FIELDS = {
    "conv_stack": ("stage1_block2", (1, 1), (-2, -2), (6, 6)),  # conv 5 valid, then two blocks of 3
    "conv_net": ("stage2_block1", (2, 2), (-10, -10), (10, 10)),  # 1 of the stem, 3 times 2, then 1 and (at stride 2) 2
    "bottleneck": ("stage1_block1", (4, 4), (-9, -9), (9, 9)),  # conv 7 at stride 2, pool 3 at stride 2, conv 3
}


@pytest.mark.parametrize("family", FIELDS)
def test_receptive_fields_are_what_changes_the_unit(family):
    name, stride, first, last = FIELDS[family]
    model = miniature(
        family, include_top=family != "bottleneck", input_shape=(32, 32, 3) if family == "bottleneck" else None
    )
    field = receptive_field(model, name)
    assert [tuple(map(int, part)) for part in field] == [stride, first, last]
    assert field.size.tolist() == [last[0] - first[0] + 1] * 2
    x = batch(model, 1)
    y = trace(model, x)[name].y
    middle = y.shape[1] // 2
    rows = np.repeat(x, x.shape[1], 0)
    rows[np.arange(len(rows)), np.arange(len(rows))] += 3.0  # image i has row i changed
    # Batches of other sizes are rounded apart by up to 4e-7; the least of the changes seen is 3e-4.
    moved = np.abs(trace(model, rows)[name].y[:, middle, middle] - y[0, middle, middle]).max(-1) > 1e-5
    low, high = (stride[0] * middle + end[0] for end in (first, last))
    seen = np.arange(max(low, 0), min(high, len(rows) - 1) + 1)
    assert not moved[np.setdiff1d(np.arange(len(rows)), seen)].any()
    assert moved[seen].mean() > 0.6 and moved[seen[len(seen) // 4]]  # ReLUs and maxima hide some of them


def test_top_patches_are_the_strongest_places():
    model = miniature("conv_stack")
    pixels = (255 * batch(model, 23)).astype("uint8")
    transform = lambda x: x / np.float32(255)  # noqa: E731
    top = top_patches(model, pixels, "stage1_block1", 3, count=5, batch_size=4, transform=transform)
    y = trace(model, transform(pixels))["stage1_block1"].y[..., 3]
    order = np.argsort(-y.max((1, 2)), kind="stable")[:5]
    assert top.image.tolist() == order.tolist() and top.patches.dtype == np.uint8
    np.testing.assert_allclose(top.value, y.max((1, 2))[order], rtol=1e-6)
    assert top.patches.shape == (5, 7, 7, 1)  # conv 5, then conv 3
    for image, corner, position, patch in zip(top.image, top.corner, top.position, top.patches, strict=True):
        assert y[image][tuple(position)] == y[image].max()
        np.testing.assert_array_equal(corner, np.clip(position - 1, 0, 21))
        np.testing.assert_array_equal(patch, pixels[image][corner[0] : corner[0] + 7, corner[1] : corner[1] + 7])
    wide = top_patches(model, pixels, "stage1_block1", 3, count=99, size=50, transform=transform)
    assert wide.patches.shape == pixels.shape and not wide.corner.any()


def test_pictures(tmp_path):
    model = miniature("conv_stack")
    x = batch(model, 3)
    guided = guided_backprop(model, x, ["stage1_block1", "stage1_block3"], 0)
    figure = analysis.plot_guided(guided, x, tmp_path / "guided.png")
    *panels, _ = figure.axes
    drawn = [axis.get_images()[0].get_array() for axis in panels]
    assert len(drawn) == 9 and {axis.get_images()[0].get_clim() for axis in panels[3:]} == {(-1, 1)}
    np.testing.assert_allclose(drawn[3], guided.gradient[0, 0, ..., 0] / np.abs(guided.gradient[0, 0]).max(), rtol=1e-6)
    assert figure.axes[6].get_ylabel() == "stage1\nblock3" and imread(tmp_path / "guided.png").std() > 0.05
    patches = top_patches(model, x, "stage1_block1", 0)
    figure = analysis.plot_patches(patches, tmp_path / "patches.png")
    np.testing.assert_array_equal(
        figure.axes[1].get_images()[0].get_array() > 0.5, _stretched(patches.patches[1]) > 0.5
    )
    assert len([axis for axis in figure.axes if axis.get_images()]) == 3
    assert figure.axes[-1].get_xlabel().startswith("value of a pixel") and figure.axes[0].get_title().startswith("y ")
    with pytest.raises(ValueError, match="2 images"):
        analysis.plot_guided(guided, x[:2])


def _stretched(patch):
    return ((patch - patch.min()) / (patch.max() - patch.min()))[..., 0]


def test_wrong_units_and_images_are_refused():
    model, dense = miniature("conv_stack"), miniature("dense_stack")
    x = batch(model)
    for message, call in {
        "channel=4": lambda: guided_backprop(model, x, "stage1_block1", 4),
        "Did you mean 'stage1_block1'": lambda: guided_backprop(model, x, "stage1_blok1", 0),
        "batch axis": lambda: guided_backprop(model, x[0], "stage1", 0),
        "block='stage1'": lambda: guided_backprop(model, x, ["stage1", "stage1_block1"], 0),
        "channel=-1": lambda: top_patches(model, x, "stage1_block1", -1),
        "count=0": lambda: top_patches(model, x, "stage1_block1", 0, count=0),
        "pixel": lambda: top_patches(dense, batch(dense), "stage1_block1", 0),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def behind(stem, shape=(12, 10, 3), **kwargs):
    """A network of a stem and a block of 1x1 convolutions."""
    inputs = keras.Input(shape)
    return keras.Model(inputs, HighwayConv2D(kernel_size=1, name="block", **kwargs)(stem(inputs)))


def nested(inputs):
    x = keras.Input(inputs.shape[1:])
    y = layers.Conv2D(4, 3, strides=2, padding="same")(x)
    inner = keras.Sequential([keras.Input(y.shape[1:]), layers.Conv2D(4, 3, padding="same"), layers.ReLU()])
    return keras.Model(x, inner(y))(inputs)


def of_operations(inputs):
    x = layers.Conv2D(3, 3, padding="same", use_bias=False)(inputs)
    return ops.concatenate([ops.relu(x) + inputs, ops.where(x > 0, -x, ops.clip(x / 2, 0, 1))], -1)


STEMS = {
    "depthwise at stride 2": (layers.DepthwiseConv2D(3, strides=2, padding="same"), 3, 2),
    "dilated depthwise": (layers.DepthwiseConv2D(3, dilation_rate=2, padding="same"), 5, 1),
    "separable at stride 2": (layers.SeparableConv2D(4, 3, strides=2, padding="same"), 3, 2),
    "nested": (nested, 7, 2),
    "operations": (of_operations, 3, 1),
}


@pytest.mark.parametrize("size", [(12, 10), (None, None)])
@pytest.mark.parametrize("stem", STEMS)
def test_stems_of_ones_own(stem, size):
    make, kernel, stride = STEMS[stem]
    field = receptive_field(behind(make, (*size, 3)), "block")
    assert field.size.tolist() == [kernel] * 2 and field.stride.tolist() == [stride] * 2


REFUSED = {
    "Conv2DTranspose": layers.Conv2DTranspose(4, 7, padding="same"),
    "Permute": layers.Permute((2, 1, 3)),
    "Concatenate": lambda x: layers.Concatenate(axis=1)([x, x]),
    "Softmax": layers.Softmax(axis=[1, 2]),
}


@pytest.mark.parametrize("size", [10, None])
@pytest.mark.parametrize("kind", REFUSED)
def test_what_may_move_pixels_is_refused_by_name(kind, size):
    first = kind == "Dense"
    model = behind(
        REFUSED[kind], (3, 10, 10) if first else (size, size, 3), data_format="channels_first" if first else None
    )
    with pytest.raises(ValueError, match=f"of type {kind}$"):
        receptive_field(model, "block")
