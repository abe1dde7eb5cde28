"""The character-aware language model: its layers, its parameters, its carried state, its de-duplicated form."""

import keras
import numpy as np
import pytest
from contracts import array, check_layer, to_numpy
from gradients import value_and_gradients
from keras import ops
from test_language import tiny as tiny_lm

import keras_highway as kh
from keras_highway._support.keras_models import without_values
from keras_highway.cli.listing import parameters as listed_parameters
from keras_highway.data.ptb import deduplicate, every
from keras_highway.layers import CarriedLSTM, CharCNN, CharEmbedding, HierarchicalSoftmax
from keras_highway.models.char_lm import build_char_lm, make_token_losses, reset_state
from keras_highway.specs import override
from keras_highway.variants import LM_VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights.load import load_exactly
from keras_highway.weights.sources import resolve

TINY = override(
    LM_VARIANTS["charlm_large_coupled"],
    kernels=(1, 3),
    filters=(3, 4),
    characters=9,
    char_units=2,
    units=3,
    streams=2,
    classes=11,
    input_shape=(6,),
    init_range=0.5,
)
SPELLING = np.random.default_rng(0).integers(1, 9, (11, 6)) * (np.arange(6) < np.arange(11)[:, None] % 4 + 3)


def tiny(**changes):
    """A network of a few hundred parameters that gives logits, without dropout."""
    return build_char_lm(override(TINY, **{"dropout": 0.0, **changes}), classifier_activation=None)


def text(steps, streams=2, seed=0):
    return np.random.default_rng(seed).integers(0, 11, (streams, steps)).astype("int32")


def fed(batch):
    """A batch as the network takes it: spelled words, positions."""
    return [SPELLING[batch.words], batch.positions]


def by_hand(size, layers_of_highway):
    """Parameters from the published sizes; a highway layer or its gate is a square matrix and a bias."""
    kernels = {"large": (50, 100, 150, 200, 200, 200, 200), "small": (25, 50, 75, 100, 125, 150)}[size]
    units = {"large": 650, "small": 300}[size]
    width = sum(kernels)  # 1100, 525
    cnn = sum(k * 15 * filters + filters for k, filters in enumerate(kernels, start=1))
    lstm = sum(4 * (units * (inputs + units) + units) for inputs in (width, units))
    return 51 * 15 + cnn + layers_of_highway * (width * width + width) + lstm + units * 10_000 + 10_000


@pytest.mark.parametrize(
    ("name", "parameters", "squares"),
    [
        ("charlm_large_coupled", 19_367_965, ("large", 4)),  # two layers of transform and gate
        ("charlm_large_residual", 19_367_965, ("large", 4)),
        ("charlm_large_plain", 15_734_665, ("large", 1)),  # one layer, no gate
        ("charlm_large_full", 21_790_165, ("large", 6)),
        ("charlm_small_coupled", 5_310_115, ("small", 2)),
        ("charlm_small_residual", 5_310_115, ("small", 2)),
        ("charlm_small_plain", 5_033_965, ("small", 1)),
        *((f"charlm_large_{gating}", 19_367_965, ("large", 4)) for gating in ("t_only", "c_only")),
        *((f"charlm_small_{gating}", 5_310_115, ("small", 2)) for gating in ("t_only", "c_only")),
        ("charlm_small_full", 5_586_265, ("small", 3)),
    ],
)
def test_parameters_by_hand(name, parameters, squares):
    model = without_values(lambda: build_char_lm(LM_VARIANTS[name]))
    counted = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    assert counted == by_hand(*squares) == parameters == model.count_params()
    assert listed_parameters()[name] == parameters


def test_kims_ablation_has_no_highway_layer():
    model = without_values(lambda: build_char_lm(override(LM_VARIANTS["charlm_large_coupled"], highways=0)))
    assert model.count_params() == by_hand("large", 0) == 14_523_565


def test_published_start():
    model = tiny(init_range=0.05, filters=(20, 20), units=20)
    for variable in model.trainable_variables:
        values = to_numpy(variable)
        centre = -2.0 if variable.path.endswith("transform_gate/bias") else 0.0
        assert np.abs(values - centre).max() <= 0.05 + 1e-6, variable.path
        rest = values[1:] if variable.path.startswith("char_embedding") else values
        assert len(np.unique(rest)) > 0.9 * rest.size, variable.path  # drawn, the LSTM's forget bias as any other
    starts = {to_numpy(v).tobytes() for v in model.trainable_variables}
    assert len(starts) == len(model.trainable_variables)


def test_char_cnn_contract_and_meaning():
    layer = check_layer(CharCNN, {"kernels": (1, 3), "filters": (4, 5)}, (3, 6, 2), gated=False)
    x = array(3, 6, 2)
    expected = []
    for convolution, width in zip(layer.convolutions, (1, 3), strict=True):
        kernel, bias = (to_numpy(w) for w in convolution.weights)
        windows = np.lib.stride_tricks.sliding_window_view(x, width, axis=1)
        expected.append(np.tanh(np.einsum("nluk,kuf->nlf", windows, kernel) + bias).max(axis=1))
    np.testing.assert_allclose(to_numpy(layer(x)), np.concatenate(expected, axis=-1), rtol=1e-5, atol=1e-6)


def test_padding_stays_zero_in_training():
    model = tiny()
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = to_numpy(model.get_layer("char_embedding").embeddings)
    for seed in range(3):
        batch = deduplicate(text(5, seed=seed))
        model.train_on_batch(fed(batch), text(5, seed=seed + 1))
    after = to_numpy(model.get_layer("char_embedding").embeddings)
    assert (before[0] == 0).all() and (after[0] == 0).all()
    assert (after[1:] != before[1:]).all()
    layer = CharEmbedding(4, 2)
    layer(np.zeros((1, 3), "int32"))
    layer.embeddings.assign(np.ones((4, 2)))  # even where a file has other values, padding reads as zero
    assert (to_numpy(layer(np.array([[0, 1]])))[0] == [[0, 0], [1, 1]]).all()


def test_the_lstm_is_keras_own():
    layer, stock = CarriedLSTM(3, streams=2), keras.layers.LSTM(3, return_sequences=True)
    x = array(2, 7, 4)
    assert not layer.weights
    layer.build(x.shape)
    stock.build(x.shape)
    stock.set_weights([to_numpy(w) for w in layer.weights])
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(stock(x)), rtol=1e-5, atol=1e-6)
    assert (to_numpy(layer.carried[0]) != 0).all()
    layer.reset_state()
    np.testing.assert_allclose(to_numpy(layer(x)), to_numpy(stock(x)), rtol=1e-5, atol=1e-6)
    copy = CarriedLSTM.from_config(layer.get_config())
    assert (copy.units, copy.streams) == (3, 2) and copy.get_config() == layer.get_config()


def test_bad_layers_are_refused():
    with pytest.raises(ValueError, match=r"streams=2 .* input shape \(3, 7, 4\)"):
        CarriedLSTM(3, streams=2)(array(3, 7, 4))
    with pytest.raises(ValueError, match="one number per convolution"):
        CharCNN((1, 2), (3,))
    with pytest.raises(ValueError, match="length >= 5"):
        CharCNN((5,), (3,))(array(2, 4, 2))
    for changes, message in (
        ({"kernels": (1, 2, 3)}, "one number per convolution"),
        ({"input_shape": (2,)}, "length >= 3"),
        ({"dropout": 1.0}, "`dropout`: .*< 1"),
        ({"highways": -1}, "`highways`: .*>= 0"),
    ):
        with pytest.raises(ValueError, match=message):
            build_char_lm(override(TINY, **changes))


def test_two_calls_of_35_steps_are_one_of_70():
    model, words = tiny(), text(70)
    whole = to_numpy(model(fed(every(words))))
    reset_state(model)
    halves = [to_numpy(model(fed(every(words[:, i : i + 35])))) for i in (0, 35)]
    np.testing.assert_allclose(np.concatenate(halves, axis=1), whole, rtol=1e-5, atol=1e-6)
    reset_state(model)
    assert np.abs(to_numpy(model(fed(every(words[:, 35:])))) - halves[1]).max() > 1e-3  # from zero it is another


def test_compiled_steps_carry_the_state():
    model, words = tiny(), text(14)
    whole = to_numpy(model(fed(every(words))))
    reset_state(model)
    halves = [model.predict_on_batch(fed(every(words[:, i : i + 7]))) for i in (0, 7)]
    np.testing.assert_allclose(np.concatenate(halves, axis=1), whole, rtol=1e-4, atol=1e-5)
    # Training continues from the state of the last batch, too.
    reset_state(model)
    model.compile(keras.optimizers.SGD(0.0), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = [model.train_on_batch(fed(every(words[:, i : i + 7])), words[:, i : i + 7]) for i in (0, 7)]
    log_p = whole - np.log(np.exp(whole).sum(axis=-1, keepdims=True))
    expected = -np.take_along_axis(log_p, words[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(float(losses[0]), expected[:, :7].mean(), rtol=1e-4)
    second = expected[:, 7:].mean()
    assert (
        min(abs(float(losses[1]) - second), abs(float(losses[1]) - expected.mean())) < 1e-4
    )  # Keras may show the mean


def test_the_state_is_no_weight(tmp_path):
    model = tiny()
    state = [v for layer in ("lstm1", "lstm2") for v in model.get_layer(layer).carried]
    assert not {id(v) for v in state} & {id(v) for v in model.weights}
    assert {id(v) for v in state} <= {id(v) for v in model.non_trainable_variables}  # so training resumes with it
    words = every(text(4))
    weights_file.save(model, tmp_path / "a.weights.h5", TINY.name, 11)
    expected = to_numpy(model(fed(words)))
    single = tiny(streams=1)
    load_exactly(single, resolve(tmp_path / "a.weights.h5", TINY.name))
    one = to_numpy(single([SPELLING[words.words], words.positions[:1]]))
    np.testing.assert_allclose(one, expected[:1], rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "a.keras")
    again = keras.models.load_model(tmp_path / "a.keras")
    np.testing.assert_allclose(to_numpy(again(fed(words))), expected, rtol=1e-6)


def loss_and_gradients(model, batch, targets):
    def loss():
        logits = model(fed(batch), training=False)
        return ops.mean(keras.losses.sparse_categorical_crossentropy(targets, logits, from_logits=True))

    return value_and_gradients(loss, model)


@pytest.mark.parametrize("gating", ["coupled", "full"])
def test_each_word_once_has_the_same_loss_and_gradients(gating):
    model = tiny(gating=gating, init_range=1.0, gate_bias=0.0)
    words, targets = text(20), text(20, seed=1)
    batch = deduplicate(words, multiple=16)
    assert (len(np.unique(words)), len(batch.words), words.size) == (11, 16, 40)
    plain_loss, plain = loss_and_gradients(model, every(words), targets)
    loss, gradients = loss_and_gradients(model, batch, targets)
    np.testing.assert_allclose(loss, plain_loss, rtol=1e-5)
    for variable, a, b in zip(model.trainable_variables, gradients, plain, strict=True):
        assert np.abs(b).max() > 1e-5, variable.path
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * np.abs(b).max(), err_msg=variable.path)


@pytest.mark.parametrize("gating", kh.GATINGS)
def test_every_gating_learns(gating):
    model = kh.create_model(
        f"charlm_small_{gating}", **{f: getattr(TINY, f) for f in SHRUNK}, dropout=0.0, classifier_activation=None
    )
    assert model.name == f"charlm_small_{gating}"
    model.compile(keras.optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batch, targets = deduplicate(text(6)), text(6, seed=1)
    before = [to_numpy(v) for v in model.trainable_variables]
    losses = []
    for _ in range(4):
        reset_state(model)
        losses.append(float(model.train_on_batch(fed(batch), targets)))
    assert losses[-1] < losses[0]
    assert all((to_numpy(v) != old).any() for v, old in zip(model.trainable_variables, before, strict=True))


SHRUNK = ("kernels", "filters", "characters", "char_units", "units", "streams", "classes", "input_shape", "init_range")


def test_create_model_builds_language_models(tmp_path):
    shrunk = {f: getattr(TINY, f) for f in SHRUNK}
    model = kh.create_model("charlm_large_coupled", name="mine", **shrunk)
    assert model.name == "mine" and model.output_shape == (2, None, 11)
    words = every(text(3))
    y = to_numpy(model(fed(words)))
    np.testing.assert_allclose(y.sum(axis=-1), 1, rtol=1e-5)
    path = tmp_path / "a.weights.h5"
    weights_file.save(model, path, "charlm_large_coupled", 11)
    again = kh.create_model("charlm_large_coupled", weights=str(path), **shrunk)
    np.testing.assert_allclose(to_numpy(again(fed(words))), y, rtol=1e-6)
    with pytest.raises(ValueError, match="does not fit"):
        kh.create_model("charlm_large_coupled", weights=str(path), **{**shrunk, "units": 4})


def softmax_by_hand(layer, x) -> np.ndarray:
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


@pytest.mark.parametrize(("classes", "clusters", "default"), [(10, None, 4), (7, 3, 3), (1, None, 1)])
def test_probabilities_by_hand(classes, clusters, default):
    layer = HierarchicalSoftmax(classes, clusters, "random_normal", "random_normal")
    x = array(6, 4)
    log_p = to_numpy(layer(x))
    assert layer.clusters == default
    np.testing.assert_allclose(np.exp(log_p), softmax_by_hand(layer, x), atol=1e-6)
    np.testing.assert_allclose(np.exp(log_p).sum(-1), 1.0, atol=1e-6)
    targets = np.arange(6) % classes
    np.testing.assert_allclose(
        to_numpy(layer.target_log_probabilities(x, targets)), log_p[np.arange(6), targets], atol=1e-6
    )


def test_contract_and_errors():
    check_layer(HierarchicalSoftmax, {"classes": 10}, (3, 4), gated=False)
    with pytest.raises(ValueError, match=r"must not exceed.*clusters=4, classes=3"):
        HierarchicalSoftmax(3, 4)
    with pytest.raises(ValueError, match="classes"):
        HierarchicalSoftmax(0)
    with pytest.raises(ValueError, match="clusters"):
        HierarchicalSoftmax(10, clusters=0)


@pytest.mark.slow
def test_a_language_model_with_it(tmp_path):
    """Trains on, scores, saves and comes back as any other; what is trained is what is scored."""
    keras.utils.set_random_seed(2)
    lm = tiny_lm(hierarchical=True, streams=1)
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
