"""Analyses of batches, nets and pictures as users have them: 1-tuples, dicts, some blocks, channels without colours."""

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway import analysis
from keras_highway.cli import main
from keras_highway.reporting.report import make_report

X, Y = np.random.default_rng(0).random((20, 5), "float32"), np.arange(20) % 3


def net(gatings=("coupled", "coupled", "coupled"), wrap=lambda x: x):
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((5,), name="features")
    x = keras.layers.Dense(6)(x)
    for i, gating in enumerate(gatings, start=1):
        x = kh.layers.HighwayDense(gating=gating, name=f"stage1_block{i}")(x)
    return keras.Model(wrap(inputs), keras.layers.Dense(3, name="head")(x))


def conv(channels):
    keras.utils.set_random_seed(0)
    x = inputs = keras.Input((8, 8, channels))
    x = keras.layers.Conv2D(4, 3, padding="same")(x)
    for i in (1, 2):
        x = kh.layers.HighwayConv2D(4, 3, name=f"stage1_block{i}")(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(keras.layers.GlobalAveragePooling2D()(x)))


# --- Batches ------------------------------------------------------------------


def test_batches_of_one_part_are_samples():
    """As of `tf.data.Dataset.from_tensor_slices((x,))`, which `predict` takes."""
    model, parts = net(), [(X[:8],), (X[8:],)]
    np.testing.assert_allclose(
        analysis.gate_activity(model, parts).mean["stage1_block2"],
        analysis.gate_activity(model, X).mean["stage1_block2"],
        rtol=1e-6,
    )
    (error,) = analysis.estimation_error(model, parts).values()
    assert error.samples == 20
    assert analysis.gate_samples(model, parts).mean.shape == (20, 3)


@pytest.mark.parametrize(
    ("wrap", "batch"), [(lambda x: [x], lambda x: [x]), (lambda x: {"features": x}, lambda x: {"features": x})]
)
def test_batches_may_have_the_structure_of_the_model(wrap, batch):
    model = net(wrap=wrap)
    expected = analysis.lesion_curve(net(), (X, Y))
    curve = analysis.lesion_curve(model, [(batch(X[:8]), Y[:8]), (batch(X[8:]), Y[8:])])
    np.testing.assert_allclose(curve.loss, expected.loss, rtol=1e-5)
    activity = analysis.gate_activity(model, [(batch(X), Y)])
    assert activity.samples == 20
    np.testing.assert_allclose(
        activity.mean["stage1_block1"], analysis.gate_activity(net(), X).mean["stage1_block1"], rtol=1e-6
    )


def test_many_wirings_are_of_one_input():
    a, b = keras.Input((5,)), keras.Input((5,))
    x = kh.layers.HighwayDense(name="stage1_block1")(a + b)
    model = keras.Model([a, b], keras.layers.Dense(3, name="head")(x))
    with pytest.raises(ValueError, match=r"need a model of one input: evaluate rewire.*with 2 inputs"):
        analysis.lesion_curve(model, [([X, X], Y)])


# --- What is counted ----------------------------------------------------------


def test_a_log_softmax_ends_in_logits():
    model = net()
    ended = keras.Model(model.input, keras.layers.Activation("log_softmax")(model.output))
    np.testing.assert_allclose(
        analysis.lesion_curve(ended, (X, Y)).loss, analysis.lesion_curve(model, (X, Y)).loss, rtol=1e-5
    )


def test_data_that_a_layer_is_adapted_to_are_no_parameters():
    normalization = keras.layers.Normalization()
    normalization.adapt(X)
    model = net()
    whole = keras.Sequential([keras.Input((5,)), normalization, model])
    assert len(normalization.weights) >= 2
    assert analysis.cost(whole).total.parameters == analysis.cost(model).total.parameters == model.count_params()


def test_a_second_fit_records_the_step_between_once(tmp_path):
    model = net()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    stats = analysis.GateStats(X, tmp_path, tensorboard=False)
    model.fit(X, Y, epochs=1, callbacks=[stats], batch_size=10, verbose=0)
    model.fit(X, Y, epochs=2, initial_epoch=1, callbacks=[stats], batch_size=10, verbose=0)
    records = [(row.epoch, row.step) for row in stats.rows if row.block == "stage1_block1"]
    assert records == [(0, 0), (1, 2), (2, 4)]
    assert len((tmp_path / "gates.csv").read_text().splitlines()) == 1 + 3 * 3


def test_depths_may_be_any_iterable():
    latency = analysis.latency_curve(net(), ["stage1_block1"], X, depths=iter([3, 2]), repeats=1)
    assert latency.depth.tolist() == [3, 2]


def test_a_report_needs_a_name_for_each_label():
    with pytest.raises(ValueError, match=r"a name for each label.*2 names, labels up to 2"):
        make_report(net(), (X, Y), "t", classes=["a", "b"])


# --- Pictures -----------------------------------------------------------------


def test_pictures_count_blocks_as_the_network_does():
    pytest.importorskip("matplotlib")
    model = net(("residual", "coupled", "coupled"))
    activity = analysis.gate_activity(model, X)
    assert activity.numbers == (2, 3) and analysis.lesion_curve(model, (X, Y)).numbers == (1, 2, 3)
    profile = analysis.plot_gate_profile(activity, analysis.gate_bias(model))
    assert [list(axis.lines[0].get_xdata()) for axis in profile.axes] == [[2, 3], [2, 3]]
    routing = analysis.gate_routing(model, (X, Y), blocks=["stage1_block3"])
    assert routing.numbers == (3,)
    for figure, which in ((analysis.plot_routing_profile(routing), "x"), (analysis.plot_routing(routing), "y")):
        axis = getattr(figure.axes[0], f"{which}axis")
        assert [(tick.get_loc(), tick.label1.get_text()) for tick in axis.get_major_ticks()] == [(1, "3")]
    twice = analysis.rewire(model, {"stage1_block3": "stage1_block2"})
    assert analysis.gate_activity(twice, X).numbers == ()
    assert len(analysis.plot_routing(routing, classes=[0, 0]).axes) == 2  # one panel and its colour bar


@pytest.mark.parametrize("channels", [2, 5])
def test_images_without_colours_are_drawn_grey(channels):
    pytest.importorskip("matplotlib")
    images = np.random.default_rng(1).random((6, 8, 8, channels), "float32")
    patches = analysis.top_patches(conv(channels), images, "stage1_block2", 0, count=2)
    figure = analysis.plot_patches(patches)
    drawn = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    assert drawn and all(np.ndim(image) == 2 for image in drawn)


def test_the_gates_command_draws_what_is_learned(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    from PIL import Image

    Image.fromarray(np.full((28, 28), 9, "uint8")).save(tmp_path / "a.png")
    digits = [str(i) for i in range(10)]
    for gating in ("c_only", "residual"):
        model = kh.create_model("mnist10_w16", gating=gating, classifier_activation=None)
        kh.save(model, tmp_path / gating, digits, "mnist")
    command = ["gates", str(tmp_path / "a.png"), "--out", str(tmp_path / "gates.png"), "--weights"]
    assert main([*command, str(tmp_path / "c_only")]) == 0
    assert "wrote the carry gates of 8 blocks" in capsys.readouterr().out
    assert (tmp_path / "gates.png").stat().st_size > 0
    assert main([*command, str(tmp_path / "residual")]) == 2
    assert "There is no gate t to draw" in capsys.readouterr().err
