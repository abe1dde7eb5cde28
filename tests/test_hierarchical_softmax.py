"""The softmax in two steps: probabilities that sum to one, the same for one word alone, in a language model."""

import dataclasses

import keras
import numpy as np
import pytest
from contracts import array, check_layer, to_numpy
from gradients import value_and_gradients
from keras import ops
from test_language import tiny
from test_language_training import LEARNS, TINY

import keras_highway as kh
from keras_highway.layers import HierarchicalSoftmax
from keras_highway.models.char_lm import make_token_losses, reset_state
from keras_highway.training.language import open_source
from keras_highway.training.loop import train

pytestmark = pytest.mark.slow


def by_hand(layer, x) -> np.ndarray:
    """Probabilities of all classes, one class after the other."""
    wc, bc, w, b = (to_numpy(v).astype(np.float64) for v in layer.weights)

    def softmax(z):
        e = np.exp(z - z.max())
        return e / e.sum()

    p = np.zeros((len(x), layer.classes))
    for n, row in enumerate(x):
        clusters = softmax(row @ wc + bc)
        for cluster in range(layer.clusters):
            members = [i for i in range(layer.classes) if i % layer.clusters == cluster]
            inside = softmax(
                np.array([row @ w[cluster, :, i // layer.clusters] + b[cluster, i // layer.clusters] for i in members])
            )
            for i, q in zip(members, inside, strict=True):
                p[n, i] = clusters[cluster] * q
    return p


@pytest.mark.parametrize(
    ("classes", "clusters", "default"), [(10, None, 4), (9, None, 3), (7, 3, 3), (5, 5, 5), (1, None, 1)]
)
def test_probabilities_by_hand(classes, clusters, default):
    layer = HierarchicalSoftmax(classes, clusters, "random_normal", "random_normal")
    x = array(6, 4)
    log_p = to_numpy(layer(x))
    assert layer.clusters == default
    np.testing.assert_allclose(np.exp(log_p), by_hand(layer, x), atol=1e-6)
    np.testing.assert_allclose(np.exp(log_p).sum(-1), 1.0, atol=1e-6)
    targets = np.arange(6) % classes
    np.testing.assert_allclose(
        to_numpy(layer.target_log_probabilities(x, targets)), log_p[np.arange(6), targets], atol=1e-6
    )


def test_one_word_alone_has_the_same_gradients():
    layer = HierarchicalSoftmax(11, None, "random_normal", "random_normal")
    x, targets = array(2, 3, 5), np.array([[0, 10, 3], [3, 7, 7]])
    layer(x)

    def alone():
        return ops.sum(layer.target_log_probabilities(x, targets))

    def among_all():
        return ops.sum(ops.take_along_axis(layer(x), targets[..., None], axis=-1))

    (one, actual), (other, expected) = (value_and_gradients(f, layer) for f in (alone, among_all))
    assert one == pytest.approx(other, rel=1e-6)
    for a, b in zip(actual, expected, strict=True):
        assert np.abs(b).max() > 0 and np.isfinite(a).all()
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_contract_and_errors():
    check_layer(HierarchicalSoftmax, {"classes": 10}, (3, 4), gated=False)
    with pytest.raises(ValueError, match=r"must not exceed.*clusters=4, classes=3"):
        HierarchicalSoftmax(3, 4)
    with pytest.raises(ValueError, match="classes"):
        HierarchicalSoftmax(0)
    with pytest.raises(ValueError, match="clusters"):
        HierarchicalSoftmax(10, clusters=0)


def test_kernels_start_as_those_of_a_matrix():
    """Glorot's bound of 30 features and 100 columns, not that of a convolution over clusters."""
    layer = HierarchicalSoftmax(100)
    layer.build((None, 30))
    kernel, bound = to_numpy(layer.kernel), (6 / 130) ** 0.5
    assert kernel.shape == (10, 30, 10)
    assert 0.99 * bound < np.abs(kernel).max() <= bound and kernel.std() == pytest.approx(bound / 3**0.5, rel=0.05)


def test_bfloat16_products_and_float32_probabilities():
    layer = HierarchicalSoftmax(10, dtype="mixed_bfloat16", kernel_initializer="random_normal")
    x, targets = array(6, 4), np.arange(6)
    log_p, alone = layer(x), layer.target_log_probabilities(x, targets)
    for values in (log_p, alone):
        assert keras.backend.standardize_dtype(values.dtype) == "float32"
    exact = by_hand(layer, x)
    np.testing.assert_allclose(np.exp(to_numpy(log_p)), exact, atol=2e-3)
    np.testing.assert_allclose(np.exp(to_numpy(alone)), exact[np.arange(6), targets], atol=2e-3)


@pytest.mark.slow
def test_a_language_model_with_it(tmp_path):
    """Trains on, scores, saves and comes back as any other; what is trained is what is scored."""
    keras.utils.set_random_seed(2)
    lm = tiny(hierarchical=True, streams=1)
    assert isinstance(lm.network.get_layer("head"), HierarchicalSoftmax)
    words, targets = ["the", "cat", "sat"], ["cat", "sat", "on"]
    log_p = lm.log_probabilities(words, targets)
    spelled, positions = lm.vocabulary.spell(words), np.arange(3, dtype=np.int32)[None]
    reset_state(lm.network)
    for layer in lm.network.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    losses = to_numpy(make_token_losses(lm.network)(spelled, positions, lm.vocabulary.ids(targets)[None]))
    np.testing.assert_allclose(losses[0], -log_p, atol=1e-5)
    assert lm.generate("the cat", words=5, seed=1) == lm.generate("the cat", words=5, seed=1)
    lm.save(tmp_path)
    np.testing.assert_array_equal(kh.CharLM(tmp_path).log_probabilities(words, targets), log_p)


@pytest.mark.slow
def test_training_with_it(tmp_path):
    """The run trains by one word's probability alone; what it reports is measured over all words."""
    recipe = dataclasses.replace(TINY, epochs=2, learning_rate=0.5, overrides=(*LEARNS, ("hierarchical", True)))
    result = train(recipe, None, tmp_path)
    lm, source = kh.CharLM(weights=tmp_path), open_source(recipe, None)
    assert isinstance(lm.network.get_layer("head"), HierarchicalSoftmax)
    assert result["mean"] < 0.8 * len(lm.vocabulary.words)  # that of a guess
    words = [lm.vocabulary.words[i] for i in source.test]
    log_p, state = [], lm._reader.start()
    for word, target in zip(words[:40], source.test[1:41], strict=True):
        of_all, state = lm._next(word, state)
        log_p.append(of_all[target])
    np.testing.assert_allclose(log_p, lm.log_probabilities(words[:40], words[1:41]), atol=1e-5)
    assert lm.perplexity(source.test) == pytest.approx(result["mean"], rel=1e-5)
