"""`kh.CharLM` as sessions use it: calls that fail half-way, copies, texts and arguments of any kind, folders in use."""

import copy
import json
import pickle
from fractions import Fraction

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway import language
from keras_highway.data.ptb import load_corpus
from keras_highway.models.char_lm import reset_state
from keras_highway.training.language.source import open_source
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry
from keras_highway.weights.file import UncheckedWeights, WeightFileError

WORDS = kh.Vocabulary.of(["the", "cat", "sat", "on", "the", "mat", "dog", "ate", "unbelievable", "things"])
SMALL = {"kernels": (1, 2), "filters": (3, 4), "units": 6, "streams": 2, "char_units": 3, "init_range": 0.7}


def tiny(vocabulary=WORDS, **changes):
    return kh.CharLM(None, "charlm_small_coupled", vocabulary, **{**SMALL, **changes})


@pytest.fixture(scope="module")
def lm():
    keras.utils.set_random_seed(1)
    return tiny()


# --- The table of words -------------------------------------------------------


def test_a_call_that_was_broken_off_changes_nothing(lm, monkeypatch):
    used, fresh = tiny(), tiny()
    for one in (used, fresh):
        one.network.set_weights(lm.network.get_weights())
    used.encode("the")
    with monkeypatch.context() as broken:
        broken.setattr(used.table, "_encode", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            used.score("the zebra")
    with pytest.raises(ValueError, match=r"`words` must be words, each a string\. Received: 5 among them"):
        used.encode(["the", 5])
    np.testing.assert_array_equal(used.encode("zebra yak"), fresh.encode("zebra yak"))
    assert used.score("the zebra").perplexity == fresh.score("the zebra").perplexity


def test_the_table_keeps_the_last_unseen_words_alone(lm, monkeypatch):
    monkeypatch.setattr(language, "_MOST_OTHERS", 3)
    table = language.WordTable(lm.network, WORDS)
    words = ["ab", "the", "cd", "ef", "cat", "gh", "ab", "ij"]
    together = table.vectors(words)
    assert list(table._others) == ["ef", "gh", "ij"]
    assert all(row.base is None for rows in table._others.values() for row in rows)  # no views
    alone = np.concatenate([table.vectors([word]) for word in words])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    np.testing.assert_allclose(table.projections(["ab", "the"])[1], table.projections_of(np.array([2]))[0])


def test_another_thread_may_drop_words_meanwhile(lm, monkeypatch):
    table = language.WordTable(lm.network, WORDS)
    expected, compute = table.vectors(["ab", "cd"]), table._computed

    def computed(spelled):
        table._others = {}
        return compute(spelled)

    table._others.pop("cd")
    monkeypatch.setattr(table, "_computed", computed)
    np.testing.assert_allclose(table.vectors(["ab", "cd"]), expected, rtol=1e-6)


def test_a_used_model_can_be_copied(lm):
    expected = lm.score("the cat").perplexity
    assert copy.deepcopy(lm).score("the cat").perplexity == pytest.approx(expected)
    assert pickle.loads(pickle.dumps(lm)).score("the cat").perplexity == pytest.approx(expected)


def test_the_state_of_a_net_within_a_net_is_set_to_zero():
    inner = keras.Sequential([keras.Input((3, 4), batch_size=2), kh.layers.CarriedLSTM(5, 2)])
    outer = keras.Sequential([keras.Input((3, 4), batch_size=2), inner])
    x = np.ones((2, 3, 4), "float32")
    first, second = to_numpy(outer(x)), to_numpy(outer(x))
    reset_state(outer)
    np.testing.assert_allclose(to_numpy(outer(x)), first, rtol=1e-6)
    assert not np.allclose(first, second)
    reset_state(keras.Sequential([kh.layers.CarriedLSTM(5, 2)]))  # not built: there is no state yet


# --- Vocabularies -------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kh.Vocabulary.of(["a" * 1200, "b"], longest=1202), "at most 1,000 in all. Received: word_length=1202"),
        (lambda: kh.Vocabulary(WORDS.words, (*WORDS.characters, "xy"), 9), "single ones that a text can have.*'xy'"),
        (lambda: kh.Vocabulary.of(["a\ud800b"]), "single ones that a text can have"),
        (lambda: kh.Vocabulary((*WORDS.words, "\udfff"), WORDS.characters, 9), "characters that no text can hold"),
    ],
)
def test_a_vocabulary_that_could_not_be_loaded_again_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_corpus_of_short_words_is_read_and_trained_on(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a b c d\n" * 400)
    lm = kh.CharLM(None, "charlm_large_coupled", load_corpus(tmp_path).vocabulary, **{**SMALL, "kernels": (1, 7)})
    np.testing.assert_array_equal(lm.vocabulary.spell(["a"]), [[1, 5, 2, 0, 0, 0, 0]])
    lm.save(tmp_path / "lm")
    assert kh.CharLM(tmp_path / "lm").score("a b").tokens == 3
    recipe = RECIPES["charlm_small_coupled"]
    words, positions, targets = next(open_source(recipe, tmp_path).batches(1, 0, None))
    assert words.shape[1:] == (6,) and positions.shape == targets.shape == (20, 35)


# --- Arguments ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda lm: lm.perplexity("the cat"), "`tokens` must be numbers of this model's 11 words.*`lm.score` takes a"),
        (lambda lm: lm.perplexity(["the", "cat"]), "`lm.vocabulary.ids.words.`.*Received: <U3, shape .2,."),
        (lambda lm: lm.perplexity(np.array([1.0, 2.0])), "Received: float64"),
        (lambda lm: lm.perplexity(np.array([1, 2]), texts="2"), "`texts` must be a whole number. Received: texts='2'"),
        (lambda lm: lm.perplexity(np.array([1, 2]), steps=1.5), "`steps` must be a whole number. Received: steps=1.5"),
        (lambda lm: lm.generate("the", temperature=None), "`temperature` must be a positive number. Received: temp"),
        (
            lambda lm: lm.generate("the", temperature=[0.5]),
            "`temperature` must be.*Received: temperature=.0.5",
        ),
        (lambda lm: lm.generate("the", temperature=1j), "`temperature` must be a positive number. Received: temp"),
        (lambda lm: lm.neighbours(" the "), "one word, without spaces. Received: word=' the '"),
        (lambda lm: lm.log_probabilities(["the"] * 130, ["cat"] * 129), "Received: 130 words, 129 targets"),
        (lambda lm: lm.log_probabilities(["the", "cat"], ["cat"]), "Received: 2 words, 1 targets"),
        (lambda lm: lm.log_probabilities([], []), "at least one. Received: 0 words"),
        (lambda lm: lm.log_probabilities("the cat", "cat sat"), r"a_text\.split\(\)\. Received: words='the cat'"),
        (lambda lm: lm.neighbours("the", -1), "`count` must be a positive number, a whole one. Received: count=-1"),
        (lambda lm: lm.neighbours(["the"]), "one word, without spaces. Received: word=.'the'."),
        (lambda lm: lm.score(None), "`text` must be a text, one string. Received: text=None"),
        (lambda lm: lm.generate(["the"]), "`prompt` must be a text, one string"),
        (lambda lm: lm.generate("the", 2.5), "`words` must be a positive number, a whole one. Received: words=2.5"),
        (lambda _: tiny(classes=3), "`classes` of a CharLM follows from the vocabulary: leave it out"),
        (lambda _: tiny(classifier_activation="softmax"), "`classifier_activation` of a CharLM is None, for logits"),
        (lambda _: tiny(["a", "b"]), r"`vocabulary` must be a keras_highway\.Vocabulary"),
        (lambda _: kh.CharLM(3), "`weights` must be a name or a path. Received: weights=3"),
    ],
)
def test_what_cannot_be_asked(lm, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(lm)


@pytest.mark.parametrize(
    "half", [Fraction(1, 2), np.float16(0.5), np.longdouble(0.5), np.array(0.5), keras.ops.convert_to_tensor(0.5)]
)
def test_any_kind_of_number_is_a_temperature(lm, half):
    assert lm.generate("the", 3, temperature=half, seed=0) == lm.generate("the", 3, temperature=0.5, seed=0)


@pytest.mark.parametrize(
    "none", [10**400, Fraction(1, 10**400), np.timedelta64(5), True, "0.5", np.array([0.5]), np.array("a"), np.inf]
)
def test_what_is_no_temperature(lm, none):
    with pytest.raises(ValueError, match=r"`temperature` must be a positive number. Received: temperature="):
        lm.generate("the", temperature=none)


def test_near_a_temperature_of_0_the_likeliest_word_is_taken(lm):
    expected = lm.generate("the", 5, temperature=1e-6)
    assert lm.generate("the", 5, temperature=1e-308) == lm.generate("the", 5, temperature=5e-324) == expected


# --- Names and folders --------------------------------------------------------


def test_the_default_is_found_where_a_folder_has_its_name(tmp_path, monkeypatch):
    (tmp_path / "ptb").mkdir()
    monkeypatch.chdir(tmp_path)
    assert kh.CharLM().variant == "charlm_large_coupled"


def test_a_model_of_another_name_comes_back(tmp_path):
    lm = tiny(name="mine")
    lm.save(tmp_path)
    assert lm.network.name == "mine"
    assert kh.CharLM(tmp_path).score("the cat") == lm.score("the cat")
    for name in ("charlm_small_coupled", "mnist10_w16"):
        with pytest.raises(ValueError, match=r"by which its weights are loaded again. Leave net\.name out"):
            with_settings(RECIPES[name], ["net.name=abc"])


@pytest.mark.parametrize("changes", [{}, {"gating": "residual", "highways": 3, "lstms": 1}, {"highways": 0}])
def test_load_takes_what_save_wrote(tmp_path, changes):
    lm = tiny(**changes)
    lm.save(tmp_path)
    for net in (kh.load(tmp_path), kh.create_model("charlm_small_coupled", weights=tmp_path)):
        assert net.count_params() == lm.network.count_params()
        for ours, theirs in zip(net.get_weights(), lm.network.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="do not fit the requested model: it overrides units=7"):
        kh.load(tmp_path, units=7)


def test_what_a_file_states_counts_whatever_sizes_are_passed(tmp_path):
    lm = tiny(gating="full")
    lm.save(tmp_path)
    for sizes in ({}, {"classes": 11}, lm.vocabulary.sizes):
        net = kh.create_model("charlm_small_coupled", weights=tmp_path, **sizes)
        np.testing.assert_array_equal(net.get_weights()[-1], lm.network.get_weights()[-1])


def test_a_vocabulary_that_the_file_does_not_name_is_not_read(tmp_path):
    lm = tiny()
    lm.network.save_weights(tmp_path / "model.weights.h5")
    (tmp_path / "vocabulary.json").write_text("{}")
    with pytest.warns(UncheckedWeights):
        net = kh.create_model(
            "charlm_small_coupled", weights=tmp_path / "model.weights.h5", **SMALL, **lm.vocabulary.sizes
        )
    np.testing.assert_array_equal(net.get_weights()[0], lm.network.get_weights()[0])


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"kernels": [200], "filters": [500], "char_units": 1000, "input_shape": [1000]},
            "which has 100,634,980: the file has 940",
        ),
        ({"highways": 1000}, "of 1,004 highway layers, LSTMs and convolutions: the file has"),
        ({"units": 1000}, "does not hold weights of the requested model, which has .*: the file has"),
        ({"colour": 3}, "that make no network: unknown field 'colour'"),
        ({"dtype": "float16"}, "unknown field 'dtype'"),
        ({"highways": "two"}, "that make no network"),
    ],
)
def test_a_file_that_states_a_network_that_it_does_not_hold(lm, tmp_path, stated, message):
    weights_file.save(lm.network, tmp_path / "model.weights.h5", lm.variant, 11, overrides={**SMALL, **stated})
    (tmp_path / "vocabulary.json").write_text(WORDS.to_json())
    for load in (kh.load, kh.CharLM):
        if load is kh.CharLM and "input_shape" in stated:
            continue  # the vocabulary states it
        with pytest.raises(WeightFileError, match=message):
            load(tmp_path)


def test_the_vocabulary_that_was_padded_in_training_belongs_to_the_weights(tmp_path):
    short = kh.Vocabulary.of(["a", "b"])
    lm = tiny(short, kernels=(1, 5))
    lm.save(tmp_path)
    again = kh.CharLM(tmp_path, vocabulary=short)
    assert again.vocabulary == lm.vocabulary != short
    assert again.score("a b") == lm.score("a b")
    tiny(short, kernels=(1, 30)).save(tmp_path)  # wider than the Treebank's spellings
    assert kh.CharLM(tmp_path, vocabulary=short).vocabulary.word_length == kh.load(tmp_path).input_shape[0][1] == 30


def test_a_name_without_a_dot_is_of_its_own_variant(lm, tmp_path, monkeypatch):
    (tmp_path / "mylm").mkdir()
    row = registry.language_row("mylm", "charlm_small_coupled", "mine")
    monkeypatch.setattr(registry, "WEIGHTS", {**registry.WEIGHTS, "mylm": row})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:  # found by its name, and not there
        kh.CharLM("mylm")
    assert "charlm_large_coupled" not in str(error.value)


def test_save_leaves_others_weights_and_results_alone(lm, tmp_path):
    images = kh.create_model("mnist10_w16")
    kh.save(images, tmp_path / "images", [str(i) for i in range(10)], "mnist")
    before = (tmp_path / "images" / "model.weights.h5").read_bytes()
    with pytest.raises(
        ValueError,
        match=r"described there \(weights\.json\), which would not be true of other",
    ):
        lm.save(tmp_path / "images")
    assert (tmp_path / "images" / "model.weights.h5").read_bytes() == before
    lm.save(tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps({"mean": 50.0}))
    before = (tmp_path / "run" / "model.weights.h5").read_bytes()
    with pytest.raises(ValueError, match=r"run holds a run or weights of the zoo \(result\.json\)"):
        tiny().save(tmp_path / "run")
    assert (tmp_path / "run" / "model.weights.h5").read_bytes() == before
    kh.create_model("mnist10_w16").save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=r"weights of a model without words \(model\.weights\.h5\)"):
        lm.save(tmp_path)
    (tmp_path / "under_way").mkdir()
    (tmp_path / "under_way" / "recipe.json").write_text("{}")
    lm.save(tmp_path / "under_way")  # as a run does at its end
    lm.save(tmp_path / "under_way")


# --- Networks that change, and that are of other numbers ------------------------


def test_a_network_that_is_set_is_used_at_once(tmp_path):
    model = tiny()
    before = model.score("the cat sat").perplexity
    kh.enable_lora(model.network, 2)
    model.network = kh.merge_lora(model.network)
    assert abs(model.score("the cat sat").perplexity - before) < 1e-3 * before
    for name in ("lstm1", "head"):
        layer = model.network.get_layer(name)
        layer.set_weights([2 * w + 0.3 for w in layer.get_weights()])
    model.forget()
    model.save(tmp_path)
    assert model.score("the cat sat").perplexity == kh.CharLM(tmp_path).score("the cat sat").perplexity != before


def test_a_network_of_another_kind_is_not_set():
    model = tiny()
    for other in (None, "x", tiny(units=9).network, tiny(lstms=1).network):
        with pytest.raises(ValueError, match=r"`network` must be (a keras\.Model|of this CharLM's sizes)\b.*Received"):
            model.network = other
    model.network = tiny().network


@pytest.mark.slow
def test_copies_of_before_the_network_could_be_set():
    """They have it among the attributes, under this name."""
    model = tiny()
    state = model.__getstate__()
    assert state["network"] is model.network
    copied = kh.CharLM.__new__(kh.CharLM)
    copied.__dict__.update(state)
    assert copied.score("the cat").perplexity == model.score("the cat").perplexity


@pytest.mark.slow
def test_numpys_numbers_are_saved(tmp_path):
    changes = {
        "units": np.int64(7),
        "dropout": np.float32(0.5),
        "gate_bias": np.float64(-1),
    }
    model = tiny(**changes)
    model.save(tmp_path)
    assert kh.CharLM(tmp_path).score("the cat").perplexity == model.score("the cat").perplexity


def test_two_convolutions_of_a_width_are_two(tmp_path):
    from keras_highway._support.keras_models import by_path

    model = tiny(kernels=(2, 2), filters=(3, 4)).network
    assert len({w.path for w in model.weights}) == len(model.weights) == len(by_path(model.weights))
    twice = [model.weights[0], model.weights[1], model.weights[0]]
    assert list(by_path(twice)) == [twice[0].path, twice[1].path, f"{twice[0].path}:2"]


def test_a_text_is_no_list_of_words():
    for read in (kh.Vocabulary.of, WORDS.ids, WORDS.spell, WORDS.strange):
        with pytest.raises(
            ValueError, match=r"must be a list of words, e\.g\. a_text\.split\(\)\. Received: .*'the cat'"
        ):
            read("the cat")
        with pytest.raises(ValueError, match=r"must be words, each a string\. Received: 1 among them"):
            read(["the", 1])
    assert WORDS.strange(word for word in ["the", "zebra"]).unseen == 1


def test_values_that_are_not_finite_predict_no_word():
    model = tiny()
    head = model.network.get_layer("head")
    head.set_weights([np.full(w.shape, np.nan, "float32") for w in head.get_weights()])
    with pytest.raises(ValueError, match="not finite: it predicts no word"):
        model.generate(words=3, seed=0)
    assert np.isnan(model.score("the cat").perplexity)


@pytest.mark.parametrize("shape", [(0, 5), (2, -1), (2.0, 5), (True, 5)])
def test_batches_of_no_size(shape):
    from keras_highway.data.ptb import batchify

    with pytest.raises(ValueError, match=r"must be a positive number, a whole one\. Received"):
        batchify(np.arange(40), *shape)
