"""Analyses of batches, nets and pictures as users have them: 1-tuples, dicts, some blocks, channels without colours."""

import keras
import numpy as np
import pytest

import keras_highway as kh
from keras_highway import analysis
from keras_highway.cli import main
from keras_highway.publishing.card import _trained_on
from keras_highway.report import make_report
from keras_highway.weights.info import RESULT
from zoo.release.commits import all_short
from zoo.release.results import _commits

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


def test_a_last_batch_of_one_sample_may_be_lists():
    parts = [(X[:8].tolist(), Y[:8].tolist()), (X[8:9].tolist(), Y[8:9].tolist())]
    np.testing.assert_allclose(
        analysis.lesion_curve(net(), parts).loss, analysis.lesion_curve(net(), (X[:9], Y[:9])).loss, rtol=1e-5
    )


def test_batches_of_a_model_of_two_inputs_may_have_more_than_these():
    a, b = keras.Input((5,), name="a"), keras.Input((5,), name="b")
    x = kh.layers.HighwayDense(name="stage1_block1")(a + b)
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(3, name="head")(x))
    with pytest.warns(UserWarning, match="structure of `inputs`"):  # as in `predict`
        activity = analysis.gate_activity(model, [{"a": X, "b": X, "id": np.arange(20)}])
    assert activity.samples == 20


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


@pytest.mark.slow
def test_a_report_counts_parameters_as_cost_does():
    normalization = keras.layers.Normalization()
    normalization.adapt(X)
    whole = keras.Sequential([keras.Input((5,)), normalization, net()])
    report = make_report(whole, (X, Y), "t", samples=12)
    assert report.facts["parameters"] == analysis.cost(whole).total.parameters == net().count_params()
    with pytest.raises(ValueError, match="Labels must be class numbers"):
        make_report(net(), (X, np.array(list("abcde" * 4))), "t", classes=["a", "b"])


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
    one = analysis.plot_gates(analysis.trace(net(), X, blocks=["stage1_block1"])).axes[0].yaxis
    assert [tick.get_loc() for tick in one.get_major_ticks()] == [1]


def test_every_commit_of_several_seeds_is_named():
    assert all_short({"commit": "0123456789abcdef"}) == "0123456789ab"
    several = {"commit": "a" * 40, "commit_changes": ["a" * 40, None, "keras-highway 0.2.0", f"{'b' * 40}-dirty"]}
    assert all_short(several) == f"{'a' * 12}; keras-highway 0.2.0; {'b' * 12}-dirty"
    assert _commits({"commit": all_short(several)}) == f"`{'a' * 12}` and 2 more"
    assert _commits({"commit": "0123456789ab"}) == "`0123456789ab`"
    row = _trained_on({"hardware": "a core", **several})
    assert row == f"a core, commit `{'a' * 40}`, keras-highway 0.2.0, commit `{'b' * 40}-dirty`"
    with pytest.raises(ValueError, match="commit_changes"):
        RESULT.check({"metric": "test_accuracy", "mean": 0.5, "std": None, "n": 1, "commit_changes": "abc"}, "result")


@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_images_without_colours_are_drawn_grey(channels, dtype):
    pytest.importorskip("matplotlib")
    images = np.random.default_rng(1).integers(0, 256, (6, 8, 8, channels)).astype(dtype)
    model = conv(channels)
    patches = analysis.top_patches(model, images, "stage1_block2", 0, count=2)
    drawn = [axis.images[0] for axis in analysis.plot_patches(patches).axes if axis.images]
    for image in drawn:
        values = image.get_array()
        assert values.ndim == 2 and image.get_clim() == (0, 255 if dtype == "uint8" else 1)
        assert values.min() < 0.5 * image.get_clim()[1] < values.max() <= image.get_clim()[1]
    assert drawn
    picture = analysis.plot_gates(analysis.trace(model, images.astype("float32")), images[0]).axes[0].images[0]
    assert picture.get_array().shape == (8, 8)


@pytest.mark.slow
def test_the_gates_command_draws_what_is_learned(tmp_path, capsys, monkeypatch):
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
    drawn = {}
    monkeypatch.setattr("keras_highway.cli.images.plot_gates", lambda *a, **options: drawn.update(options))
    main([*command, str(tmp_path / "c_only")])
    assert drawn["gate"] == "c"
    monkeypatch.undo()
    assert main([*command, str(tmp_path / "residual")]) == 2
    assert "There is no gate t to draw" in capsys.readouterr().err
