"""Lesions, permutations and removals: one pass over all of them gives what each rewired network gives."""

import keras
import numpy as np
import pytest
from miniatures import batch, miniature, numpy

from keras_highway.analysis import (
    blocks,
    drop_k_curve,
    kendall_tau,
    lesion,
    lesion_curve,
    reshuffle_curve,
    rewire,
    score,
)
from keras_highway.analysis.rewire import BatchedRewiring
from keras_highway.applications import load
from keras_highway.data import load_dataset
from keras_highway.gating import GATINGS
from keras_highway.layers import ChannelGate, HighwayDense
from keras_highway.predictions import get_transform


def labelled(model, n=6):
    return batch(model, n), np.arange(n) % model.output_shape[-1]


def measured(model, x, labels):
    """Accuracy and cross-entropy of logits by Keras."""
    logits = numpy(model(x, training=False))
    loss = keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    return (logits.argmax(-1) == labels).mean(), numpy(loss).mean()


@pytest.mark.parametrize(
    ("family", "changes"),
    [("dense_stack", {"gating": gating}) for gating in GATINGS]
    + [("conv_stack", {}), ("conv_net", {"blocks": (3, 3)}), ("conv_net", {"gate": "tied", "gating": "c_only"})],
)
def test_a_lesion_curve_is_that_of_the_rewired_networks(family, changes):
    model = miniature(family, **changes)
    data = labelled(model)
    curve = lesion_curve(model, data, batch_size=4)
    known = blocks(model)
    assert curve.blocks == tuple(name for name in known if not known[name].is_transition)
    assert curve.transitions == tuple(name for name in known if known[name].is_transition) and curve.samples == 6
    assert curve.blocks == tuple(list(known)[number - 1] for number in curve.numbers)
    np.testing.assert_allclose([curve.intact_accuracy, curve.intact_loss], measured(model, *data), rtol=1e-5)
    expected = [measured(rewire(model, lesion(name)), *data) for name in curve.blocks]
    np.testing.assert_allclose(np.stack([curve.accuracy, curve.loss], 1), expected, rtol=1e-5)
    assert np.unique(curve.loss).size == len(curve.blocks)


@pytest.mark.parametrize("gate", ["same", "tied"])
def test_any_plans_in_one_batch(gate):
    model = miniature("conv_net", blocks=(4, 2), gate=gate)
    inputs = keras.Input((32, 32, 3))
    nested = keras.Model(inputs, keras.layers.Rescaling(0.5)(model(inputs)))
    plans = [
        {"stage1_block3": "stage1_block4", "stage1_block4": "stage1_block3"},
        {},
        {"stage1_block3": None, "stage2_block2": lesion("stage2_block2")},
        {"stage1_block4": None, "stage1_block2": "stage1_block3"},
        {},
    ]
    x = batch(model, 3)
    expected = np.stack([numpy(rewire(model, plan)(x, training=False)) for plan in plans])
    rewiring = BatchedRewiring(model, plans)
    np.testing.assert_allclose(rewiring(x), expected, atol=1e-5)
    np.testing.assert_allclose(rewiring(x[1:2]), expected[:, 1:2], atol=1e-5)  # a smaller last batch
    np.testing.assert_allclose(BatchedRewiring(nested, plans)(x), expected / 2, atol=1e-5)


def test_a_gate_that_blocks_share_and_that_does_not_look_at_the_data():
    """It has one row whatever the batch, and so for every plan's copies of it."""
    inputs = keras.Input((8,))
    gate = ChannelGate(8, bias=-0.5, name="gate")(inputs)
    h = inputs
    for i in range(3):
        h = HighwayDense(gate="tied", name=f"b{i}")(h, gate=gate)
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(h))
    data = np.random.default_rng(0).normal(size=(7, 8)).astype("float32"), np.arange(7) % 3
    curve = lesion_curve(model, data)
    for name, loss in zip(curve.blocks, curve.loss, strict=True):
        np.testing.assert_allclose(loss, measured(rewire(model, lesion(name)), *data)[1], rtol=1e-5)


def test_kendall_tau_by_hand():
    assert kendall_tau([0, 1, 2, 3]) == 1 and kendall_tau([3, 2, 1, 0]) == -1
    assert kendall_tau([1, 0, 2]) == pytest.approx(1 / 3)  # of three pairs two agree
    assert kendall_tau([2, 0, 1]) == pytest.approx(-1 / 3)


def test_reshuffled_stages():
    model = miniature("dense_stack", depth=6)
    data = labelled(model)
    curve = reshuffle_curve(model, data, swaps=(1, 3), seeds=(0, 5))
    assert curve.orders.shape == (4, 5) and curve.stage == "stage1"
    assert curve.swaps.tolist() == [1, 3, 1, 3] and curve.seeds.tolist() == [0, 0, 5, 5]
    for i, order in enumerate(curve.orders):
        assert sorted(order) == list(range(5)) and curve.tau[i] == kendall_tau(order)
        plan = {curve.blocks[a]: curve.blocks[b] for a, b in enumerate(order)}
        expected = measured(rewire(model, plan), *data)
        np.testing.assert_allclose([curve.accuracy[i], curve.loss[i]], expected, rtol=1e-5)
    assert [(order != np.arange(5)).sum() for order in curve.orders[::2]] == [2, 2]
    again = reshuffle_curve(model, data, swaps=(1, 3), seeds=(0, 5))
    assert np.array_equal(again.orders, curve.orders) and np.array_equal(again.loss, curve.loss)


def test_only_blocks_that_can_swap_positions_do():
    model = miniature("conv_net", blocks=(3, 2), gate="tied")
    data = labelled(model)
    assert reshuffle_curve(model, data, "stage1", seeds=(0,)).blocks == ("stage1_block2", "stage1_block3")
    for stage in ("stage2", "stage3", None):
        with pytest.raises(ValueError, match=f"stage={stage!r}"):
            reshuffle_curve(model, data, stage)


def test_wrong_blocks_and_data_are_refused():
    model = miniature("conv_net")
    x, labels = labelled(model)
    for data, chosen, message in (
        ((x, labels), "stage2_block1", "transition"),
        ((x, labels), "stage1_blok2", "Did you mean 'stage1_block2'"),
        ((x, labels), [], "blocks="),
        (x, None, "no labels"),
        ((x, labels + 5), None, "up to 10"),
        ((x[:0], labels[:0]), None, "empty"),
    ):
        with pytest.raises(ValueError, match=message):
            lesion_curve(model, data, chosen)
    with pytest.raises(ValueError, match="'stage2_block2' cannot replace block 'stage1_block2'"):
        BatchedRewiring(model, [{"stage1_block2": "stage2_block2"}])
    plain = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    with pytest.raises(ValueError, match="no gated blocks"):
        lesion_curve(plain, (np.zeros((1, 3)), np.zeros(1, int)))


def wide(x, inputs):
    return keras.layers.Concatenate()([x, keras.layers.Dense(4)(inputs)])


def tower(x, inputs):
    return keras.layers.Add()([x, HighwayDense(name="b3")(inputs)])


@pytest.mark.parametrize("around", [wide, tower])
def test_a_bypass_of_the_blocks_is_refused_wherever_its_layers_are(around):
    """The origin of a tensor counts, not the order."""
    inputs = keras.Input((6,))
    x = HighwayDense(name="b2")(HighwayDense(name="b1")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(3)(around(x, inputs)))
    data = np.ones((4, 6), "float32"), np.array([0, 1, 2, 0])
    for size in (1, 4):
        with pytest.raises(ValueError, match="bypasses"):
            lesion_curve(model, data, batch_size=size)
    assert np.isfinite(score(model, [{}], data).loss)  # a wiring alone has no copies


def test_the_trained_50_layer_net_leans_on_its_first_blocks(data_dir):
    """[TVDN, 4.2] on MNIST: early layers matter, layers 15 to 45 have close to no effect."""
    data = load_dataset("mnist", data_dir)
    transform = get_transform("mnist").apply
    test = data.x_test[:500], data.y_test[:500]
    curve = lesion_curve(load("highway_fc50_tanh.tvdn"), test, transform=transform)
    cost = curve.intact_accuracy - curve.accuracy
    assert len(cost) == 49 and cost.argmax() < 5
    assert np.abs(cost[14:45]).max() <= 0.01 < cost[:5].max()


def test_random_removals_are_nested():
    model = miniature("dense_stack", depth=6)
    data = labelled(model)
    curve = drop_k_curve(model, data, ks=(1, 3, 5), seeds=(0, 1))
    assert curve.accuracy.shape == curve.loss.shape == (3, 2)
    for row, k in enumerate(curve.k):
        for column, order in enumerate(curve.dropped):
            assert sorted(order) == sorted(blocks(model))
            expected = measured(rewire(model, [lesion(name) for name in order[:k]]), *data)
            np.testing.assert_allclose([curve.accuracy[row, column], curve.loss[row, column]], expected, rtol=1e-5)
    np.testing.assert_allclose(curve.loss[2, 0], curve.loss[2, 1], rtol=1e-6)  # all five, whatever the order
    for ks in ((6,), (0,), ()):
        with pytest.raises(ValueError, match="from 1 to 5"):
            drop_k_curve(model, data, ks=ks)
