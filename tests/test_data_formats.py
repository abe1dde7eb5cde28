"""Analyses and pictures are equal for channels first and last."""

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway import analysis
from keras_highway.cli import main
from keras_highway.layers import HighwayConv2D

pytestmark = pytest.mark.usefixtures("computes_channels_first")
NAMES = ("stage1_block1", "stage1_block2")
IMAGES = np.random.default_rng(0).random((5, 12, 10, 3), "float32")
LABELS = np.array([0, 1, 0, 1, 1])


def net(data_format):
    """Two blocks, with the same weights in both formats."""
    first = data_format == "channels_first"
    x = inputs = keras.Input((3, 12, 10) if first else (12, 10, 3))
    for i, name in enumerate(NAMES):
        start = keras.initializers.GlorotUniform(i)
        x = HighwayConv2D(gate_bias=0.0, kernel_initializer=start, data_format=data_format, name=name)(x)
    return keras.Model(inputs, x), np.moveaxis(IMAGES, -1, 1) if first else IMAGES


@pytest.fixture(scope="module", params=["channels_last", "channels_first"])
def nets(request):
    """A network in Keras's own format and one in the other, each with its images."""
    other = "channels_first" if request.param == "channels_last" else "channels_last"
    before = keras.config.image_data_format()
    keras.config.set_image_data_format(request.param)
    yield net(request.param), net(other)
    keras.config.set_image_data_format(before)


def drawn(figure):
    """All that a figure shows."""
    return [np.ma.getdata(axis.get_images()[0].get_array()) for axis in figure.axes if axis.get_images()]


def gate_pictures(model, x):
    traces, activity, bias = analysis.trace(model, x), analysis.gate_activity(model, x), analysis.gate_bias(model)
    yield analysis.plot_gates(traces)
    yield analysis.plot_gates({name: entry._replace(c=entry.c) for name, entry in traces.items()}, gate="c")
    yield analysis.plot_gate_maps(activity)
    yield analysis.plot_gate_summary(bias, activity, traces, sample=1)
    yield analysis.plot_routing(analysis.gate_routing(model, (x, LABELS)))


def unit_pictures(model, x):
    yield analysis.plot_patches(analysis.top_patches(model, x, NAMES[1], 1, count=2, size=4))
    yield analysis.plot_guided(analysis.guided_backprop(model, x[:2], list(NAMES), 1), x[:2])


@pytest.mark.parametrize("pictures", [gate_pictures, unit_pictures])
def test_pictures_are_those_of_the_other_format(nets, pictures):
    for expected, actual in zip(pictures(*nets[0]), pictures(*nets[1]), strict=True):
        assert drawn(expected)
        for a, b in zip(drawn(expected), drawn(actual), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_patches_are_cut_from_height_and_width(nets):
    for model, x in nets:
        patches = analysis.top_patches(model, x, NAMES[1], 1, count=2, size=4)
        first = model.get_layer(NAMES[1]).data_format == "channels_first"
        assert patches.patches.shape == ((2, 3, 4, 4) if first else (2, 4, 4, 3))
        row, column = patches.corner[0]
        channels_last = np.moveaxis(patches.patches[0], 0, -1) if first else patches.patches[0]
        np.testing.assert_array_equal(channels_last, IMAGES[patches.image[0]][row : row + 4, column : column + 4])


def test_a_model_saved_channels_first_is_named_on_the_command_line_and_its_weights_do(tmp_path, capsys):
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        model = kh.load("mnist10_w16.tvdn")
    finally:
        keras.config.set_image_data_format(before)
    model.save(tmp_path / "net.keras")
    kh.save(model, tmp_path / "net")
    command = ["classify", "samples/digit_7.png", "--data-set", "mnist", "--weights"]
    assert main([*command, str(tmp_path / "net.keras")]) == 2
    message = capsys.readouterr().err
    assert "channels first" in message and "keras_highway.save(model, 'net')" in message
    assert main([*command, str(tmp_path / "net")]) == 0
    assert capsys.readouterr().out.startswith("samples/digit_7.png: 7 ")
