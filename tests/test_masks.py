"""Masks pass what keeps its positions: no layer warns that it loses one, and losses leave out what is padding."""

import keras
import numpy as np
import pytest
from contracts import array, to_numpy

from keras_highway.layers import HierarchicalSoftmax, HighwayDense

WORDS = np.array([[1, 2, 0], [3, 0, 0]])


def embedded():
    inputs = keras.Input((3,))
    return inputs, keras.layers.Embedding(5, 6, mask_zero=True)(inputs)


@pytest.mark.parametrize(
    "options",
    [{"gate": "channel"}, {"gate": "low_rank", "gate_rank": 2}, {"gate": "channel", "gating": "full"}],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_blocks_of_every_gate(options):
    inputs, x = embedded()
    y = HighwayDense(**options)(x)  # a warning would be an error
    model = keras.Model(inputs, y)
    np.testing.assert_array_equal(to_numpy(model.compute_mask(WORDS, WORDS != 0)), WORDS != 0)


def test_a_hierarchical_softmax():
    inputs, x = embedded()
    model = keras.Model(inputs, HierarchicalSoftmax(9)(x))
    assert getattr(model.output, "_keras_mask", None) is not None
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    targets = array(2, 3).argsort(-1)
    loss = model.evaluate(WORDS, targets, verbose=0)
    log_p = np.take_along_axis(to_numpy(model(WORDS)), targets[..., None], -1)[..., 0]
    assert loss == pytest.approx(-log_p[WORDS != 0].mean(), rel=1e-5)
