"""Mixup and CutMix: what is drawn, and what a batch becomes. Against timm's: test_rsb_oracle."""

import dataclasses

import numpy as np
import pytest

from keras_highway.training.data.samples import BLEND, SHARE, draw_row
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.recipes import RECIPES

BASE = RECIPES["highway50_a2"]


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


def test_batches_that_part_pairs_are_refused():
    strategy = Strategy()
    strategy.replicas = 2
    strategy.check(dataclasses.replace(BASE, batch_size=32))
    with pytest.raises(ValueError, match=r"8 micro-batches of blocks of 2 samples that are mixed\. Received: batch"):
        strategy.check(dataclasses.replace(BASE, batch_size=48))
