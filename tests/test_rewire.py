"""Another wiring of the same layers: exact where nothing changes, and what was asked where something does."""

import keras
import numpy as np
import pytest
from miniatures import batch, miniature, numpy

from keras_highway.analysis import blocks, lesion, outputs, rewire, trace
from keras_highway.gating import GATINGS


def output(model, x):
    return numpy(model(x, training=False))


@pytest.mark.parametrize(
    ("family", "gating"),
    [(f, g) for f in ("conv_net", "conv_stack", "dense_stack") for g in GATINGS] + [("bottleneck", "coupled")],
)
def test_identity_and_lesion_of_every_gating(family, gating):
    model = miniature(family, gating=gating)
    x = batch(model)
    before = output(model, x)
    assert np.array_equal(output(rewire(model, {}), x), before)

    signals = trace(model, x)
    block = blocks(model)["stage1_block2"]
    lesioned = rewire(model, lesion("stage1_block2"))
    x2, c2 = signals["stage1_block2"].x, signals["stage1_block2"].c
    expected = x2 * c2 if gating in ("c_only", "full") else x2
    if getattr(block, "post_activation", False):
        expected = np.maximum(expected, 0)
    after = trace(lesioned, x)
    following = list(signals)[2]
    assert np.array_equal(after[following].x, expected)
    assert np.array_equal(after["stage1_block1"].y, signals["stage1_block1"].y)
    assert not np.array_equal(after[following].x, signals[following].x)
    assert np.array_equal(output(model, x), before)


@pytest.mark.parametrize("gating", ["coupled", "c_only"])
@pytest.mark.more
def test_lesion_with_a_tied_gate(gating):
    model = miniature("conv_net", gate="tied", gating=gating)
    x = batch(model)
    assert np.array_equal(output(rewire(model, {}), x), output(model, x))
    entry = trace(model, x)["stage1_block2"]
    expected = entry.x * entry.c if gating == "c_only" else entry.x
    lesioned = rewire(model, lesion("stage1_block2"))
    assert np.array_equal(trace(lesioned, x)["stage1_block3"].x, expected)


def test_a_lesion_computes_neither_transform_nor_gate():
    model = miniature("conv_stack", gating="coupled")
    block = blocks(model)["stage1_block2"]
    for path in (block.transform, block.transform_gate):
        path.kernel.assign(numpy(path.kernel) * np.nan)
    x = batch(model)
    assert not np.isfinite(output(model, x)).any()
    assert np.isfinite(output(rewire(model, lesion("stage1_block2")), x)).all()


def test_layers_and_weights_are_shared():
    model = miniature("conv_net")
    rewired = rewire(model, [lesion("stage1_block2"), lesion("stage2_block2")])
    assert rewired.name == model.name and rewired.input is model.input
    assert {id(w) for w in rewired.weights} == {id(w) for w in model.weights}
    assert rewired.get_layer("stage1_block1") is model.get_layer("stage1_block1")
    x = batch(model)
    before = output(rewired, x)
    kernel = model.get_layer("head").kernel
    kernel.assign(numpy(kernel) * 2.0)
    assert not np.array_equal(output(rewired, x), before)


def test_the_ways_to_write_a_plan_agree():
    model = miniature("dense_stack")
    x = batch(model)
    block = blocks(model)["stage1_block2"]
    expected = output(rewire(model, lesion("stage1_block2")), x)
    for plan in (
        lesion(block),
        [lesion(block)],
        {"stage1_block2": lesion("stage1_block2")},
        {block: lesion(block)},
        {"stage1_block2": None},
        {"stage1_block2": lambda x: x},
        {"stage1_block2": keras.layers.Identity()},
    ):
        assert np.array_equal(output(rewire(model, plan), x), expected)


@pytest.mark.parametrize("gate", ["same", "tied"])
def test_blocks_change_places(gate):
    model = miniature("conv_net", blocks=(4, 2), gate=gate)
    x = batch(model)
    before = output(model, x)
    plan = {"stage1_block3": "stage1_block4", "stage1_block4": "stage1_block3"}
    swapped = rewire(model, plan)
    after = trace(swapped, x)
    assert list(after)[:4] == ["stage1_block1", "stage1_block2", "stage1_block4", "stage1_block3"]
    assert np.array_equal(after["stage1_block4"].x, trace(model, x)["stage1_block2"].y)
    assert not np.array_equal(after.output, before)
    assert np.array_equal(output(rewire(swapped, plan), x), before)


def test_a_replacement_of_ones_own():
    model = miniature("conv_stack")
    x = batch(model)
    half = rewire(model, {"stage1_block3": lambda x: keras.ops.multiply(x, 0.5)})
    doubled = rewire(half, {"stage1_block2": keras.layers.Rescaling(2.0)})
    x3 = trace(model, x)["stage1_block2"].x
    pooled = model.get_layer("stage1_pool")(x3 * 2.0 * 0.5)
    expected = model.get_layer("head")(model.get_layer("flatten")(pooled))
    np.testing.assert_array_equal(output(doubled, x), numpy(expected))


def test_compiled_models_keep_their_optimizer_and_rewired_ones_train():
    model = miniature("dense_stack")
    model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    rewired = rewire(model, {"stage1_block2": None})
    assert not rewired.compiled
    rewired.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = batch(model, 8)
    before = output(model, x)
    rewired.fit(x, np.arange(8), epochs=1, verbose=0)
    assert not np.array_equal(output(model, x), before)
    assert len(model.optimizer.variables) == 2  # iteration and learning rate: no slots for a clone


def test_a_rewired_model_can_be_saved(tmp_path):
    model = miniature("conv_net", gating="c_only")
    plan = {"stage1_block2": lesion("stage1_block2"), "stage2_block2": None}
    rewired = rewire(model, plan)
    rewired.save(tmp_path / "lesioned.keras")
    x = batch(model)
    loaded = keras.models.load_model(tmp_path / "lesioned.keras")
    assert np.array_equal(output(loaded, x), output(rewired, x))


def test_nested_models_stay_nested():
    backbone = miniature("conv_net", name="backbone", include_top=False)
    inputs = keras.Input((32, 32, 3))
    model = keras.Model(inputs, keras.layers.GlobalAveragePooling2D()(backbone(inputs, training=False)))
    x = batch(model)
    rewired = rewire(model, lesion("stage1_block2"))
    assert not np.array_equal(output(rewired, x), output(model, x))
    inner = rewire(backbone, lesion("stage1_block2"))
    np.testing.assert_allclose(output(rewired, x), output(inner, x).mean((1, 2)), rtol=1e-5, atol=1e-7)
    assert "backbone" in [layer.name for layer in rewired.layers]


@pytest.fixture(scope="module")
def conv_net():
    """Nothing is changed in it."""
    return miniature("conv_net")


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"stage1_blok2": None}, "Did you mean 'stage1_block2'"),
        (lesion("stage2_block1"), "transition"),
        ({"stage1_block2": "stage2_block2"}, "'stage2_block2' cannot replace block 'stage1_block2'"),
        ({"stage1_block2": keras.layers.Flatten(name="flat")}, "4096"),
        ({"stage1_block2": 3}, "'stage1_block2': 3"),
        (["stage1_block2"], "plan="),
    ],
)
def test_wrong_plans(plan, message, conv_net):
    with pytest.raises(ValueError, match=message):
        rewire(conv_net, plan)


@pytest.mark.slow
def test_a_model_that_gives_gates_trains_as_the_model_and_can_be_saved(tmp_path):
    model = miniature("conv_net", gating="full")
    gates = outputs(model, "t")
    both = keras.Model(model.input, gates.output)
    x = batch(model, 6)
    norms = [v for v in both.non_trainable_variables if "moving_mean" in v.path]
    before = [numpy(v) for v in norms]
    both(x, training=True)
    moved = [np.abs(numpy(v) - old).max() for v, old in zip(norms, before, strict=True)]
    assert len(moved) > 4 and min(moved) > 0  # those inside of the blocks, too
    both.save(tmp_path / "net.keras")
    for ours, theirs in zip(
        keras.tree.flatten(both(x, training=False)),
        keras.tree.flatten(keras.models.load_model(tmp_path / "net.keras")(x, training=False)),
        strict=True,
    ):
        np.testing.assert_allclose(numpy(theirs), numpy(ours), atol=1e-6)
