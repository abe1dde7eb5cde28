"""Mixup and CutMix: what is drawn, and what a batch becomes. Against timm's: test_rsb_oracle."""

import dataclasses

import numpy as np
import pytest
from keras import ops

from keras_highway.training.data.samples import BLEND, SHARE, Shard, cut_box, draw_row, mixed, partners
from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.program import make_loss
from keras_highway.training.recipes import RECIPES, tiny
from tests.miniatures import numpy

BASE = RECIPES["highway50_a2"]
ARRAYS = dataclasses.replace(tiny(BASE), rand_augment="", batch_size=8, train_images=52)


def rows_of(recipe, count=400):
    return np.stack([draw_row(recipe, epoch, step, 64, 48) for epoch in range(count // 20) for step in range(20)])


def test_draws_are_a_function_of_seed_epoch_and_step():
    one = draw_row(BASE, 3, 5, 64, 48)
    np.testing.assert_array_equal(one, draw_row(BASE, 3, 5, 64, 48))
    others = [draw_row(BASE, 3, 6, 64, 48), draw_row(BASE, 5, 3, 64, 48)]
    others.append(draw_row(dataclasses.replace(BASE, seed=1), 3, 5, 64, 48))
    assert all(not np.array_equal(one, other) for other in others)
    assert len(np.unique(rows_of(BASE), axis=0)) > 350  # of Mixup's shares many round to 0 or 1


def test_half_of_the_batches_are_cut_and_shares_follow_their_distributions():
    rows = rows_of(BASE, 2000)
    cut = rows[:, 3] > 0  # a bottom
    assert 0.46 < cut.mean() < 0.54
    mixup, cutmix = rows[~cut], rows[cut]
    np.testing.assert_array_equal(mixup[:, SHARE], mixup[:, BLEND])
    # Beta(a, a) has the variance 1 / (4 (2 a + 1)); a box is cut off where it leaves the image, so more is left.
    assert np.var(mixup[:, SHARE]) == pytest.approx(1 / (4 * 1.2), rel=0.1) and 0.45 < mixup[:, SHARE].mean() < 0.55
    areas = (cutmix[:, 3] - cutmix[:, 2]) * (cutmix[:, 5] - cutmix[:, 4])
    np.testing.assert_allclose(cutmix[:, SHARE], 1 - areas / (64 * 48), atol=1e-6)
    assert 0.55 < cutmix[:, SHARE].mean() < 0.75 and (cutmix[:, BLEND] == 1).all()


@pytest.mark.parametrize(("field", "cut"), [("mixup", False), ("cutmix", True)])
def test_with_one_kind_alone_all_batches_are_of_it(field, cut):
    rows = rows_of(dataclasses.replace(BASE, **{"mixup": 0.0, "cutmix": 0.0, field: 0.5}), 100)
    assert (rows[:, BLEND] == 1).all() == cut


def test_boxes_by_hand():
    assert cut_box(8, 8, 0.75, 4, 4) == (2, 6, 2, 6)  # a quarter of the area: half of the side
    assert cut_box(8, 8, 0.75, 0, 7) == (0, 2, 5, 8)
    assert cut_box(10, 6, 1.0, 3, 3) == (3, 3, 3, 3)
    assert cut_box(9, 9, 0.0, 4, 4) == (0, 9, 0, 9)


def test_a_batch_by_hand():
    images = np.zeros((4, 2, 3, 1), np.float32) + np.array([1, 2, 3, 4], np.float32)[:, None, None, None]
    blend = np.tile(np.array([0.25, 0.25, 0, 0, 0, 0], np.float32), (4, 1))
    cut = np.tile(np.array([0.5, 1.0, 0, 1, 1, 3], np.float32), (4, 1))
    actual = numpy(mixed(ops.convert_to_tensor(images), ops.convert_to_tensor(blend), 1))
    np.testing.assert_allclose(actual[:, 0, 0, 0], [1.75, 1.25, 3.75, 3.25])
    actual = numpy(mixed(ops.convert_to_tensor(images), ops.convert_to_tensor(cut), 2))
    np.testing.assert_array_equal(actual[..., 0], [[[1, 3, 3], [1, 1, 1]], [[2, 4, 4], [2, 2, 2]],
                                                  [[3, 1, 1], [3, 3, 3]], [[4, 2, 2], [4, 4, 4]]])  # fmt: skip
    np.testing.assert_array_equal(numpy(partners(ops.convert_to_tensor(np.arange(8)), 2)), [2, 3, 0, 1, 6, 7, 4, 5])


def test_unmixed_targets_are_those_without_mixing():
    labels, logits = ops.convert_to_tensor(np.array([1, 0])), ops.convert_to_tensor(np.eye(2, 3, dtype=np.float32))
    loss = make_loss(BASE, 3)
    whole = loss(labels, logits, (ops.convert_to_tensor(np.array([2, 2])), ops.ones(2)))
    np.testing.assert_allclose(numpy(whole), numpy(loss(labels, logits)))
    # Both of two classes with a share above the threshold of 0.2 count as 1, one below it as 0.
    shares = ops.convert_to_tensor(np.array([0.5, 0.9], np.float32))
    actual = numpy(loss(labels, ops.zeros((2, 3)) + 2.0, (ops.convert_to_tensor(np.array([2, 2])), shares)))
    np.testing.assert_allclose(actual, np.log1p(np.exp(2.0)) - np.array([2, 1]) * 2.0 / 3, rtol=1e-6)


def test_rows_go_with_the_batches_of_a_source_in_parts_and_after_a_restart():
    source = open_source(ARRAYS, None)
    whole = list(source.batches(1, 0, Shard()))
    assert [len(batch) for batch in whole] == [2] * 6 and whole[0][1].shape == (8, 6)
    np.testing.assert_array_equal(whole[4][1], np.tile(draw_row(ARRAYS, 1, 4, 64, 64), (8, 1)))
    for batch, later in zip(whole[2:], source.batches(1, 2, Shard()), strict=True):
        np.testing.assert_array_equal(batch[1], later[1])
    for batch, part in zip(whole, source.batches(1, 0, Shard(1, 2)), strict=True):
        np.testing.assert_array_equal(batch[0][4:], part[0])
        np.testing.assert_array_equal(batch[1][4:], part[1])
    assert all(len(batch) == 1 for batch in source.test_batches(8, Shard()))


def test_repeated_samples_are_of_the_same_image_with_other_crops():
    source = open_source(dataclasses.replace(ARRAYS, mixup=0.0, cutmix=0.0, crop_padding=4), None)
    samples = np.concatenate([batch for (batch,) in source.batches(0, 0, Shard())])
    np.testing.assert_array_equal(samples[:, 0], np.repeat(samples[::3, 0], 3))
    assert len(set(samples[:, 0])) == 16 and len(np.unique(samples[:, 1:3], axis=0)) > 20


def test_batches_that_part_pairs_are_refused():
    strategy = Strategy()
    strategy.replicas = 2
    strategy.check(dataclasses.replace(BASE, batch_size=32))
    with pytest.raises(ValueError, match=r"8 micro-batches of blocks of 2 samples that are mixed\. Received: batch"):
        strategy.check(dataclasses.replace(BASE, batch_size=48))
