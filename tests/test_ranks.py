"""One rule of when a label is among the k likeliest: in training, of photographs, and of wirings."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_highway._support.numerics import rank_of
from keras_highway.analysis.scores import PhotographScores, measure
from keras_highway.training.program import _sums

NAN, INF = np.nan, np.inf
# Scores of six classes, a label, and whether it is the likeliest and among the five likeliest.
CASES = [
    ([5, 4, 3, 2, 1, 0], 0, 1, 1),
    ([5, 4, 3, 2, 1, 0], 4, 0, 1),
    ([5, 4, 3, 2, 1, 0], 5, 0, 0),
    ([7, 7, 7, 7, 7, 7], 0, 1, 1),  # of equal ones the first is the likelier
    ([7, 7, 7, 7, 7, 7], 1, 0, 1),
    ([7, 7, 7, 7, 7, 7], 5, 0, 0),
    ([-INF, 4, -INF, 2, 1, 0], 1, 1, 1),
    ([NAN, 9, 3, 2, 1, 0], 1, 0, 0),
    ([NAN, 9, 3, 2, 1, 0], 0, 0, 0),
    ([NAN] * 6, 0, 0, 0),
    ([INF, 4, 3, 2, 1, 0], 0, 0, 0),
]
SCORES = np.array([scores for scores, *_ in CASES], np.float32)
LABELS = np.array([label for _, label, *_ in CASES])
TOP1, TOP5 = (np.array([case[i] for case in CASES]) for i in (2, 3))


def test_rank_of():
    rank = ops.convert_to_numpy(rank_of(LABELS, SCORES))
    assert rank.dtype == np.int32
    assert (rank < 1).tolist() == TOP1.astype(bool).tolist() and (rank < 5).tolist() == TOP5.astype(bool).tolist()
    assert rank[:6].tolist() == [0, 4, 5, 0, 1, 5]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rank_is_that_of_a_sort_in_any_dtype_and_shape(dtype):
    rng = np.random.default_rng(0)
    scores = ops.cast(rng.normal(size=(2, 3, 4, 9)), dtype)
    labels = rng.integers(0, 9, (2, 3, 4))
    order = np.argsort(-ops.convert_to_numpy(ops.cast(scores, "float32")), axis=-1, kind="stable")
    assert np.array_equal(ops.convert_to_numpy(rank_of(labels, scores)), (order == labels[..., None]).argmax(-1))


def test_training_photographs_and_wirings_count_by_it():
    weight = np.ones(len(LABELS), np.float32)
    sums = ops.convert_to_numpy(_sums(weight, ops.convert_to_tensor(LABELS), weight, ops.convert_to_tensor(SCORES)))
    assert sums.tolist() == [len(LABELS), TOP1.sum(), TOP5.sum(), len(LABELS)]

    with np.errstate(invalid="ignore"):  # of losses
        photographs = PhotographScores()
        photographs.add(SCORES, LABELS)
        assert (photographs.top1, photographs.top5) == (TOP1.sum(), TOP5.sum())

        x = keras.Input((6,))
        net = keras.Model(x, keras.layers.Activation("linear")(x))
        assert measure(net, (SCORES, LABELS))[0] == pytest.approx(TOP1.mean())


def test_of_few_classes_nan_is_not_among_five():
    rank = rank_of(np.array([0]), np.array([[NAN, 1.0]]))
    assert int(ops.convert_to_numpy(rank)[0]) >= 5
