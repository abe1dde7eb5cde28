"""`kh.CharLM` and `python -m keras_highway lm`: text in, perplexities, vectors, text and neighbours out."""

import copy
import io
import json
import pickle
import shutil
from fractions import Fraction

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway import language
from keras_highway.cli import main
from keras_highway.data.ptb import every, load_corpus, load_split
from keras_highway.data.vocabulary import words_of
from keras_highway.models.char_lm import reset_state
from keras_highway.training.language import open_source
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.info import UncheckedWeights, WeightFileError

TEXT = "the cat sat on the mat\na <unk> cat\n"
WORDS = kh.Vocabulary.of([w for line in words_of(TEXT) for w in line])
SMALL = {"kernels": (1, 2), "filters": (4, 5), "char_units": 3, "units": 4, "streams": 1, "init_range": 0.7}


def tiny(**changes):
    """A language model of a few hundred parameters, with random weights."""
    return kh.CharLM(weights=None, vocabulary=WORDS, variant="charlm_small_coupled", **{**SMALL, **changes})


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return tiny()


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("zoo") / "mine"
    model.save(path)
    return path


def direct(model, words) -> np.ndarray:
    """Log-probabilities of all words after each of some words, by the network as it is trained."""
    reset_state(model.network)
    batch = every(np.arange(len(words))[None])
    logits = to_numpy(model.network([WORDS.spell(words)[batch.words], batch.positions], training=False))[0]
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


# --- Scores -------------------------------------------------------------------


def test_scores_are_the_networks_own(model):
    text = "the dog sat\n\non a maximal mat"  # dog and maximal were never seen
    tokens = [w for line in words_of(text) for w in line]
    log_p = direct(model, ["<eos>", *tokens[:-1]])[np.arange(len(tokens)), WORDS.ids(tokens)]
    score = model.score(text)
    assert [line.text for line in score.lines] == ["the dog sat", "", "on a maximal mat"]
    assert [line.tokens for line in score.lines] == [4, 1, 5]
    sums = [log_p[:4].sum(), log_p[4], log_p[5:].sum()]
    np.testing.assert_allclose([line.log_probability for line in score.lines], sums, rtol=1e-4)
    np.testing.assert_allclose(
        [line.perplexity for line in score.lines], np.exp(-np.array(sums) / [4, 1, 5]), rtol=1e-4
    )
    assert score.tokens == 10
    assert score.perplexity == pytest.approx(np.exp(-log_p.mean()), rel=1e-4)
    assert score.strange == (2, 5, 1)  # d, g and x, i, l are not characters of its text; maximal does not fit


def test_the_published_perplexity_is_of_one_sequence(model):
    words = ["the", "cat", "<eos>"] * 60  # more than one call
    targets = [*words[1:], words[0]]
    expected = direct(model, words)[np.arange(len(words)), WORDS.ids(targets)]
    assert model.perplexity(WORDS.ids(words)) == pytest.approx(np.exp(-expected.mean()), rel=1e-4)


def test_nothing_to_score_is_refused(model):
    for text in ("", " \n\n"):
        with pytest.raises(ValueError, match="at least one word"):
            model.score(text)


# --- Vectors ------------------------------------------------------------------


def test_vectors_depend_on_the_spelling_alone(model):
    vectors = model.encode("cat kitten cat <unk>")
    assert vectors.shape == (4, 9) and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[0], vectors[2])
    inner = keras.Model(model.network.inputs[0], model.network.get_layer("stage1_block1").output)
    np.testing.assert_allclose(vectors, to_numpy(inner(WORDS.spell(["cat", "kitten", "cat", "<unk>"]))), atol=1e-6)
    before = keras.Model(model.network.inputs[0], model.network.get_layer("char_cnn").output)
    np.testing.assert_allclose(model.encode(["cat"], "before"), to_numpy(before(WORDS.spell(["cat"]))), atol=1e-6)
    with pytest.raises(ValueError, match="'before' or 'after'"):
        model.encode("cat", "between")


def test_neighbours_are_nearest_by_angle(model):
    neighbours = model.neighbours("caat", count=3)  # a word that does not exist
    vector, table = model.encode("caat")[0], model.encode(WORDS.words)
    cosines = table @ vector / np.linalg.norm(table, axis=1) / np.linalg.norm(vector)
    assert [n.word for n in neighbours] == [WORDS.words[i] for i in np.argsort(-cosines)[:3]]
    assert neighbours[0].cosine == pytest.approx(np.sort(cosines)[-1], abs=1e-5)
    assert "cat" not in [n.word for n in model.neighbours("cat", count=20)]
    with pytest.raises(ValueError, match="one word, without spaces"):
        model.neighbours("two words")


def test_a_new_table_after_training(model):
    mine = tiny()
    old = mine.encode("cat")
    mine.network.get_layer("stage1_block1").transform_gate.bias.assign(np.full(9, 5.0))
    np.testing.assert_array_equal(mine.encode("cat"), old)
    mine.forget()
    assert np.abs(mine.encode("cat") - old).max() > 0.01


# --- Text ---------------------------------------------------------------------


def test_generated_text_follows_the_network(model):
    text = model.generate("the dog", words=12, temperature=1e-4, seed=1)
    words = [w for line in words_of(text + "\n") for w in line][:-1]
    assert len(words) == 14
    assert words[:2] == ["the", "dog"] and "<unk>" not in words
    log_p = direct(model, ["<eos>", *words[:-1]])
    log_p[:, 0] = -np.inf
    assert [WORDS.words[i] for i in log_p.argmax(axis=1)[2:]] == words[2:]


def test_a_prompt_of_whole_lines_is_followed_by_a_new_one(model):
    text = model.generate("the dog\n", words=3, temperature=1e-4, seed=1)
    assert text.startswith("the dog\n")
    log_p = direct(model, ["<eos>", "the", "dog", "<eos>"])
    log_p[:, 0] = -np.inf
    first = WORDS.words[log_p[-1].argmax()]
    assert text == "the dog\n" + text.split("\n", 1)[1] and (text.split("\n")[1].split() or ["<eos>"])[0] == first


def test_draws_follow_seed_and_temperature(model):
    assert model.generate(words=20, seed=3) == model.generate(words=20, seed=3) != model.generate(words=20, seed=4)
    assert "<unk>" in model.generate(words=60, temperature=50.0, seed=1, unknown=True)
    for arguments in ({"temperature": 0.0}, {"temperature": float("nan")}, {"words": 0}):
        with pytest.raises(ValueError, match="must be a positive"):
            model.generate(**arguments)


# --- Files --------------------------------------------------------------------


def test_a_saved_model_comes_back(model, folder):
    again = kh.CharLM(weights=folder)
    assert (again.variant, again.vocabulary) == ("charlm_small_coupled", WORDS)
    assert again.score(TEXT).perplexity == pytest.approx(model.score(TEXT).perplexity, rel=1e-5)
    assert kh.CharLM(weights=folder / "model.weights.h5", vocabulary=WORDS).vocabulary is WORDS


def test_what_does_not_belong_together_is_refused(folder, tmp_path):
    other = kh.Vocabulary(WORDS.words, WORDS.characters, 6)
    with pytest.raises(ValueError, match="vocabulary that was passed does not match the weights"):
        kh.CharLM(weights=folder, vocabulary=other)
    (tmp_path / "model.weights.h5").write_bytes((folder / "model.weights.h5").read_bytes())
    with pytest.raises(ValueError, match=r"There is no .*vocabulary\.json"):
        kh.CharLM(weights=tmp_path)
    (tmp_path / "vocabulary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"vocabulary\.json is malformed"):
        kh.CharLM(weights=tmp_path)
    (tmp_path / "vocabulary.json").write_text(other.to_json())
    with pytest.raises(ValueError, match=r"vocabulary\.json does not match the weights"):
        kh.CharLM(weights=tmp_path)
    with pytest.raises(ValueError, match="weights of variant 'charlm_small_coupled', not of 'charlm_small_full'"):
        kh.CharLM(weights=folder, variant="charlm_small_full")
    with pytest.raises(ValueError, match="CharLM has words"):
        kh.CharLM(weights=None)
    with pytest.raises(ValueError, match="is for language models"):
        kh.CharLM(weights=None, vocabulary=WORDS, variant="highway110")
    with pytest.raises(ValueError, match="published yet"):
        kh.CharLM(variant="charlm_small_full", vocabulary=WORDS)


# --- The command line ---------------------------------------------------------


def lm(capsys, *arguments):
    code = main(["lm", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_lm_score(capsys, model, folder, tmp_path, monkeypatch):
    path = tmp_path / "text.txt"
    path.write_text("the cat\nthe dog sat\n")
    score = model.score(path.read_text())
    code, out, err = lm(capsys, "score", path, "--weights", folder)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].split() == [f"{score.lines[0].perplexity:.2f}", "the", "cat"]
    assert lines[1].split() == [f"{score.lines[1].perplexity:.2f}", "the", "dog", "sat"]
    assert lines[2] == f"total: perplexity {score.perplexity:.2f} of 7 tokens in 2 lines"
    assert "1 word never seen" in err and "2 characters never seen" in err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    code, out, _ = lm(capsys, "score", "-", "--weights", folder, "--json")
    report = json.loads(out)
    assert code == 0 and report["perplexity"] == pytest.approx(score.perplexity)
    assert [line["text"] for line in report["lines"]] == ["the cat", "the dog sat"]
    assert (report["unseen"], report["unreadable"], report["cut"]) == (1, 2, 0)


def test_lm_generate(capsys, model, folder):
    arguments = ("--prompt", "the dog", "--words", 6, "--temperature", 0.5, "--seed", 2, "--weights", folder)
    code, out, _ = lm(capsys, "generate", *arguments)
    assert (code, out) == (0, model.generate("the dog", words=6, temperature=0.5, seed=2) + "\n")
    code, _, err = lm(capsys, "generate", "--temperature", 0, "--weights", folder)
    assert code == 2 and "`temperature` must be" in err


def test_lm_neighbours(capsys, model, folder):
    code, out, _ = lm(capsys, "neighbours", "caaat", "--weights", folder, "--top", 2, "--json")
    actual = json.loads(out)
    for stage in ("before", "after"):
        assert [n["word"] for n in actual[stage]] == [n.word for n in model.neighbours("caaat", 2, stage)]
    code, out, _ = lm(capsys, "neighbours", "caaat", "--weights", folder, "--top", 2)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 4 and lines[0].split()[:3] == ["before", "highway", "layers"]
    assert actual["before"][0]["word"] in lines[2] and actual["after"][0]["word"] in lines[2]


@pytest.mark.more
def test_lm_on_the_shipped_weights(capsys):
    """Without --weights the large model; a made-up word has those it is made of as neighbours, as in Kim et al."""
    code, out, _ = lm(capsys, "neighbours", "looooook", "--top", 3, "--json")
    assert code == 0
    assert {n["word"] for n in json.loads(out)["after"]} == {"look", "looked", "looks"}
    large, small = kh.CharLM("ptb"), kh.CharLM("charlm_small_coupled.ptb")
    assert (large.variant, large.network.count_params()) == ("charlm_large_coupled", 19_367_965)
    text = "the company said it expects growth\n"
    assert 10 < large.score(text).perplexity < small.score(text).perplexity < 1000


def test_lm_errors(capsys, folder, tmp_path):
    (tmp_path / "bad.txt").write_bytes(b"the \xff")
    (tmp_path / "empty.txt").write_text("\n")
    for arguments, message in (
        (("score", tmp_path / "none.txt", "--weights", folder), "none.txt"),
        (("score", tmp_path / "bad.txt", "--weights", folder), "bad.txt is not UTF-8: byte 4, in line 1, is 0xff"),
        (("score", tmp_path / "empty.txt", "--weights", folder), "holds no words"),
        (("neighbours", "two words", "--weights", folder), "one word"),
        (("neighbours", "cat", "--weights", "nothing"), "Unknown weights"),
        (("neighbours", "cat", "--weights", "mnist10_w16.tvdn"), "is for language models"),
    ):
        code, out, err = lm(capsys, *arguments)
        assert (code, out) == (2, "") and message in err and "Traceback" not in err


def test_commands_for_images_refuse_language_models(capsys, folder):
    assert main(["list", "charlm_small_c*", "--json"]) == 0
    listed = {v["name"]: v["parameters"] for v in json.loads(capsys.readouterr().out)["variants"]}
    assert listed == {"charlm_small_c_only": 5_310_115, "charlm_small_coupled": 5_310_115}
    for arguments in (["summary", "charlm_small_full"], ["classify", "a.png", "--weights", str(folder)]):
        assert main(arguments) == 2
        assert "reads words" in capsys.readouterr().err


def evaluated(capsys, *arguments) -> tuple[int, str, str]:
    code = main(["evaluate", *map(str, arguments)])
    return (code, *capsys.readouterr())


def test_evaluate_measures_a_corpus_as_training_does(capsys, model, folder, tmp_path):
    """The perplexity by definition over the numbers of the words, the target of the last being the first."""
    (tmp_path / "test.txt").write_text("the cat sat\nthe zebra\n")
    words = ["the", "cat", "sat", "<eos>", "the", "<unk>", "<eos>"]
    targets = WORDS.ids([*words[1:], words[0]])
    expected = np.exp(-direct(model, words)[np.arange(7), targets].mean())
    code, out, err = evaluated(capsys, folder, "--data", tmp_path, "--json")
    report = json.loads(out)
    assert (code, report["tokens"], report["unseen"], report["recorded"]) == (0, 7, 1, None)
    assert report["perplexity"] == pytest.approx(expected, rel=1e-5)
    (tmp_path / "ptb").mkdir()
    (tmp_path / "test.txt").rename(tmp_path / "ptb" / "test.txt")
    code, out, err = evaluated(capsys, folder, "--data", tmp_path)
    assert code == 0 and out == f"{folder} on the 7 test tokens: perplexity {expected:.2f}\n"
    assert "1 tokens are not in the vocabulary" in err


@pytest.mark.slow
def test_evaluate_shows_what_was_recorded_of_the_same_corpus(capsys, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "test.txt").write_text("the cat sat\n")
    recorded = {"metric": "test_perplexity", "mean": 5.0, "std": None, "n": 1, "test_tokens": 4}
    (tmp_path / "run" / "result.json").write_text(json.dumps(recorded))
    code, out, _ = evaluated(capsys, tmp_path / "run", "--data", tmp_path)
    line, beside = out.splitlines()
    assert code == 0
    assert beside == f"recorded: 5.00 (n = 1); here {float(line.split()[-1]) - 5:+z.2f}"
    exact = kh.CharLM(tmp_path / "run").perplexity(WORDS.ids(["the", "cat", "sat", "<eos>"]))
    (tmp_path / "run" / "result.json").write_text(json.dumps({**recorded, "mean": exact + 1e-4}))
    assert evaluated(capsys, tmp_path / "run", "--data", tmp_path)[1].endswith("; here +0.00\n")  # without a minus
    several = {**recorded, "std": 1.0, "n": 2, "seeds": [1, 2], "values": [4.0, 6.0]}
    (tmp_path / "run" / "result.json").write_text(json.dumps(several))
    _, out, _ = evaluated(capsys, tmp_path / "run", "--data", tmp_path)  # the first of the runs gave the file
    assert out.splitlines()[1] == (
        f"recorded: 5.00 ± 1.00 (n = 2), this file 4.00; here {float(line.split()[-1]) - 4:+z.2f}"
    )
    _, out, _ = evaluated(capsys, tmp_path / "run", "--data", tmp_path, "--json")
    assert json.loads(out)["recorded"] == {
        "metric": "test_perplexity",
        "mean": 5.0,
        "std": 1.0,
        "n": 2,
        "this_file": 4.0,
    }
    (tmp_path / "test.txt").write_text("the cat\n")  # of another length: not what was recorded
    assert "recorded" not in evaluated(capsys, tmp_path / "run", "--data", tmp_path)[1]


def test_evaluate_of_a_language_model_refuses_what_is_for_images(capsys, folder, tmp_path):
    (tmp_path / "test.txt").write_text("the cat\n")
    for arguments, message in (
        ((folder, "--data", tmp_path, "--batch-size", 4), "--batch-size is for images"),
        ((folder, "--data", tmp_path, "--data-set", "mnist"), "--data-set is for images"),
        (("charlm_small_coupled.ptb", "--data", tmp_path, "--data-set", "mnist"), "--data-set is for images"),
        ((folder, "--data", tmp_path / "nowhere"), "test.txt"),
    ):
        code, out, err = evaluated(capsys, *arguments)
        assert (code, out) == (2, "") and message in err and "Traceback" not in err


def test_one_split_of_a_corpus_needs_no_other(tmp_path):
    (tmp_path / "ptb.valid.txt").write_text("a b\n\nc\n")
    assert load_split("valid", tmp_path) == ["a", "b", "<eos>", "<eos>", "c", "<eos>"]
    with pytest.raises(ValueError, match=r"`split` must be one of train, valid, test\. Received: split='dev'"):
        load_split("dev", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["charlm_small_coupled.ptb", "charlm_large_full.ptb"])
def test_evaluate_reproduces_the_recorded_perplexity(capsys, data_dir, name):
    code, out, _ = evaluated(capsys, name, "--data", data_dir, "--json")
    report = json.loads(out)
    assert (code, report["tokens"], report["unseen"]) == (0, 82_430, 0)
    recorded = report["recorded"]
    assert report["perplexity"] == pytest.approx(recorded.get("this_file", recorded["mean"]), abs=0.01)


def test_overrides_under_which_trained_numbers_would_mean_something_else(tmp_path):
    """t_only has the shapes of coupled gates; dropout and streams matter in training alone."""
    lm = tiny()
    lm.save(tmp_path)
    kh.CharLM(tmp_path, dropout=0.1, streams=3)
    with pytest.raises(ValueError, match=r"do not fit the requested model: it overrides gating='t_only'"):
        kh.CharLM(tmp_path, gating="t_only")


def test_a_model_that_cannot_be_saved_leaves_the_one_that_is_there(model, tmp_path):
    model.save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = kh.CharLM(
        weights=None, vocabulary=kh.Vocabulary.of(["other", "words"]), variant="charlm_small_coupled", **SMALL
    )
    weight = other.network.get_layer("head").weights[0]
    weight.assign(np.full(weight.shape, np.nan, "float32"))
    with pytest.raises(kh.WeightFileError):
        other.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert kh.CharLM(weights=tmp_path).score(TEXT).perplexity == pytest.approx(model.score(TEXT).perplexity, rel=1e-6)


def test_scores_do_not_depend_on_the_global_policy(folder):
    before = keras.config.dtype_policy()
    scores = []
    try:
        for policy in ("float32", "mixed_bfloat16", "bfloat16"):
            keras.config.set_dtype_policy(policy)
            scores.append(kh.CharLM(weights=folder, dtype="float32").score(TEXT * 20).perplexity)
    finally:
        keras.config.set_dtype_policy(before)
    np.testing.assert_allclose(scores, scores[0], rtol=1e-6)


VOCABULARY = kh.Vocabulary.of(["the", "cat", "sat", "on", "the", "mat", "dog", "ate", "unbelievable", "things"])
SIZES = {"kernels": (1, 2), "filters": (3, 4), "units": 6, "streams": 2, "char_units": 3, "init_range": 0.7}


def tiny_lm(vocabulary=VOCABULARY, **changes):
    return kh.CharLM(None, "charlm_small_coupled", vocabulary, **{**SIZES, **changes})


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(1)
    return tiny_lm()


# --- The table of words -------------------------------------------------------


def test_a_call_that_was_broken_off_changes_nothing(small, monkeypatch):
    used, fresh = tiny_lm(), tiny_lm()
    for one in (used, fresh):
        one.network.set_weights(small.network.get_weights())
    used.encode("the")
    with monkeypatch.context() as broken:
        broken.setattr(used.table, "_encode", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            used.score("the zebra")
    with pytest.raises(ValueError, match=r"`words` must be words, each a string\. Received: 5 among them"):
        used.encode(["the", 5])
    np.testing.assert_array_equal(used.encode("zebra yak"), fresh.encode("zebra yak"))
    assert used.score("the zebra").perplexity == fresh.score("the zebra").perplexity


def test_the_table_keeps_the_last_unseen_words_alone(small, monkeypatch):
    monkeypatch.setattr(language, "_MOST_OTHERS", 3)
    table = language.WordTable(small.network, VOCABULARY)
    words = ["ab", "the", "cd", "ef", "cat", "gh", "ab", "ij"]
    together = table.vectors(words)
    assert list(table._others) == ["ef", "gh", "ij"]
    assert all(row.base is None for rows in table._others.values() for row in rows)  # no views
    alone = np.concatenate([table.vectors([word]) for word in words])
    np.testing.assert_allclose(together, alone, rtol=1e-6)
    np.testing.assert_allclose(table.projections(["ab", "the"])[1], table.projections_of(np.array([2]))[0])


def test_another_thread_may_drop_words_meanwhile(small, monkeypatch):
    table = language.WordTable(small.network, VOCABULARY)
    expected, compute = table.vectors(["ab", "cd"]), table._computed

    def computed(spelled):
        table._others = {}
        return compute(spelled)

    table._others.pop("cd")
    monkeypatch.setattr(table, "_computed", computed)
    np.testing.assert_allclose(table.vectors(["ab", "cd"]), expected, rtol=1e-6)


def test_a_used_model_can_be_copied(small):
    expected = small.score("the cat").perplexity
    assert copy.deepcopy(small).score("the cat").perplexity == pytest.approx(expected)
    assert pickle.loads(pickle.dumps(small)).score("the cat").perplexity == pytest.approx(expected)


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
        (lambda: kh.Vocabulary.of(["a" * 1200, "b"], longest=1202), "from 3 to 1,000.*word_length=1202"),
        (lambda: kh.Vocabulary(VOCABULARY.words, (*VOCABULARY.characters, "xy"), 9), "must be single ones"),
        (lambda: kh.Vocabulary.of(["a\ud800b"]), "text that a file can contain"),
        (
            lambda: kh.Vocabulary((*VOCABULARY.words, "\udfff"), VOCABULARY.characters, 9),
            "text that a file can contain",
        ),
    ],
)
def test_a_vocabulary_that_could_not_be_loaded_again_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_corpus_of_short_words_is_read_and_trained_on(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a b c d\n" * 400)
    small = kh.CharLM(None, "charlm_large_coupled", load_corpus(tmp_path).vocabulary, **{**SIZES, "kernels": (1, 7)})
    np.testing.assert_array_equal(small.vocabulary.spell(["a"]), [[1, 5, 2, 0, 0, 0, 0]])
    small.save(tmp_path / "lm")
    assert kh.CharLM(tmp_path / "lm").score("a b").tokens == 3
    recipe = RECIPES["charlm_small_coupled"]
    words, positions, targets = next(open_source(recipe, tmp_path).batches(1, 0, None))
    assert words.shape[1:] == (6,) and positions.shape == targets.shape == (20, 35)


# --- Arguments ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda lm: lm.perplexity("the cat"), "`tokens` must be numbers"),
        (lambda lm: lm.perplexity(["the", "cat"]), "Received: <U3 of shape .2,."),
        (lambda lm: lm.perplexity(np.array([1.0, 2.0])), "Received: float64"),
        (lambda lm: lm.perplexity(np.array([1, 2]), texts="2"), "`texts` must be a positive integer"),
        (lambda lm: lm.perplexity(np.array([1, 2]), steps=1.5), "`steps` must be a positive integer"),
        (lambda lm: lm.generate("the", temperature=None), "`temperature` must be a positive number. Received: temp"),
        (lambda lm: lm.generate("the", temperature=[0.5]), "`temperature` must be.*Received: temperature=.0.5"),
        (lambda lm: lm.generate("the", temperature=1j), "`temperature` must be a positive number. Received: temp"),
        (lambda lm: lm.neighbours(" the "), "one word, without spaces. Received: word=' the '"),
        (lambda lm: lm.log_probabilities(["the"] * 130, ["cat"] * 129), "Received: 130 words, 129 targets"),
        (lambda lm: lm.log_probabilities(["the", "cat"], ["cat"]), "Received: 2 words, 1 targets"),
        (lambda lm: lm.log_probabilities([], []), "at least one. Received: 0 words"),
        (lambda lm: lm.log_probabilities("the cat", "cat sat"), r"a_text\.split\(\)\. Received: words='the cat'"),
        (lambda lm: lm.neighbours("the", -1), "`count` must be a positive integer"),
        (lambda lm: lm.neighbours(["the"]), "one word, without spaces. Received: word=.'the'."),
        (lambda lm: lm.score(None), "`text` must be a text, one string. Received: text=None"),
        (lambda lm: lm.generate(["the"]), "`prompt` must be a text, one string"),
        (lambda lm: lm.generate("the", 2.5), "`words` must be a positive integer"),
        (lambda _: tiny_lm(classes=3), "CharLM sets `classes` itself"),
        (lambda _: tiny_lm(classifier_activation="softmax"), "CharLM sets `classifier_activation` itself"),
        (lambda _: tiny_lm(["a", "b"]), r"`vocabulary` must be a keras_highway\.Vocabulary"),
        (lambda _: kh.CharLM(3), "`weights` must be a name or a path, or None .* Received: weights=3"),
    ],
)
def test_what_cannot_be_asked(small, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(small)


@pytest.mark.parametrize(
    "half", [Fraction(1, 2), np.float16(0.5), np.longdouble(0.5), np.array(0.5), keras.ops.convert_to_tensor(0.5)]
)
def test_any_kind_of_number_is_a_temperature(small, half):
    assert small.generate("the", 3, temperature=half, seed=0) == small.generate("the", 3, temperature=0.5, seed=0)


@pytest.mark.parametrize(
    "none", [10**400, Fraction(1, 10**400), np.timedelta64(5), True, "0.5", np.array([0.5]), np.array("a"), np.inf]
)
def test_what_is_no_temperature(small, none):
    with pytest.raises(ValueError, match=r"`temperature` must be a positive number. Received: temperature="):
        small.generate("the", temperature=none)


def test_near_a_temperature_of_0_the_likeliest_word_is_taken(small):
    expected = small.generate("the", 5, temperature=1e-6)
    assert small.generate("the", 5, temperature=1e-308) == small.generate("the", 5, temperature=5e-324) == expected


# --- Names and folders --------------------------------------------------------


def test_the_default_is_found_where_a_folder_has_its_name(tmp_path, monkeypatch):
    (tmp_path / "ptb").mkdir()
    monkeypatch.chdir(tmp_path)
    assert kh.CharLM().variant == "charlm_large_coupled"


def test_a_model_of_another_name_comes_back(tmp_path):
    small = tiny_lm(name="mine")
    small.save(tmp_path)
    assert small.network.name == "mine"
    assert kh.CharLM(tmp_path).score("the cat") == small.score("the cat")
    for name in ("charlm_small_coupled", "mnist10_w16"):
        with pytest.raises(ValueError, match=r"by which its weights are loaded. Leave net\.name out"):
            with_settings(RECIPES[name], ["net.name=abc"])


@pytest.mark.parametrize("changes", [{}, {"gating": "residual", "highways": 3, "lstms": 1}, {"highways": 0}])
def test_load_takes_what_save_wrote(tmp_path, changes):
    small = tiny_lm(**changes)
    small.save(tmp_path)
    for net in (kh.load(tmp_path), kh.create_model("charlm_small_coupled", weights=tmp_path)):
        assert net.count_params() == small.network.count_params()
        for ours, theirs in zip(net.get_weights(), small.network.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="do not fit the requested model: it overrides units=7"):
        kh.load(tmp_path, units=7)


def test_what_a_file_states_counts_whatever_sizes_are_passed(tmp_path):
    small = tiny_lm(gating="full")
    small.save(tmp_path)
    for sizes in ({}, {"classes": 11}, small.vocabulary.sizes):
        net = kh.create_model("charlm_small_coupled", weights=tmp_path, **sizes)
        np.testing.assert_array_equal(net.get_weights()[-1], small.network.get_weights()[-1])


def test_a_vocabulary_that_the_file_does_not_name_is_not_read(tmp_path):
    small = tiny_lm()
    small.network.save_weights(tmp_path / "model.weights.h5")
    (tmp_path / "vocabulary.json").write_text("{}")
    with pytest.warns(UncheckedWeights):
        net = kh.create_model(
            "charlm_small_coupled", weights=tmp_path / "model.weights.h5", **SIZES, **small.vocabulary.sizes
        )
    np.testing.assert_array_equal(net.get_weights()[0], small.network.get_weights()[0])


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"kernels": [200], "filters": [500], "char_units": 1000, "input_shape": [1000]},
            "the network is larger than the file",
        ),
        ({"highways": 1000}, "the network is larger than the file"),
        ({"units": 1000}, "the network is larger than the file"),
        ({"colour": 3}, "that make no network: unknown field 'colour'"),
        ({"dtype": "float16"}, "unknown field 'dtype'"),
        ({"highways": "two"}, "that make no network"),
    ],
)
def test_a_file_that_states_a_network_that_it_does_not_hold(small, tmp_path, stated, message):
    weights_file.save(small.network, tmp_path / "model.weights.h5", small.variant, 11, overrides={**SIZES, **stated})
    (tmp_path / "vocabulary.json").write_text(VOCABULARY.to_json())
    for load in (kh.load, kh.CharLM):
        if load is kh.CharLM and "input_shape" in stated:
            continue  # the vocabulary states it
        with pytest.raises(WeightFileError, match=message):
            load(tmp_path)


def test_the_vocabulary_that_was_padded_in_training_belongs_to_the_weights(tmp_path):
    short = kh.Vocabulary.of(["a", "b"])
    small = tiny_lm(short, kernels=(1, 5))
    small.save(tmp_path)
    again = kh.CharLM(tmp_path, vocabulary=short)
    assert again.vocabulary == small.vocabulary != short
    assert again.score("a b") == small.score("a b")
    tiny_lm(short, kernels=(1, 30)).save(tmp_path)  # wider than the Treebank's spellings
    assert kh.CharLM(tmp_path, vocabulary=short).vocabulary.word_length == kh.load(tmp_path).input_shape[0][1] == 30


def test_a_name_without_a_dot_is_of_its_own_variant(small, tmp_path, monkeypatch):
    (tmp_path / "mylm").mkdir()
    row = registry.language_row("mylm", "charlm_small_coupled", "mine")
    monkeypatch.setattr(registry, "WEIGHTS", {**registry.WEIGHTS, "mylm": row})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as error:  # found by its name, and not there
        kh.CharLM("mylm")
    assert "charlm_large_coupled" not in str(error.value)


def test_save_leaves_others_weights_and_results_alone(small, tmp_path):
    images = kh.create_model("mnist10_w16")
    kh.save(images, tmp_path / "images", [str(i) for i in range(10)], "mnist")
    before = (tmp_path / "images" / "model.weights.h5").read_bytes()
    with pytest.raises(ValueError, match=r"contains other weights \(weights\.json\)"):
        small.save(tmp_path / "images")
    assert (tmp_path / "images" / "model.weights.h5").read_bytes() == before
    small.save(tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps({"mean": 50.0}))
    before = (tmp_path / "run" / "model.weights.h5").read_bytes()
    with pytest.raises(ValueError, match=r"contains other weights \(result\.json\)"):
        tiny_lm().save(tmp_path / "run")
    assert (tmp_path / "run" / "model.weights.h5").read_bytes() == before
    kh.create_model("mnist10_w16").save_weights(tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=r"contains other weights \(model\.weights\.h5\)"):
        small.save(tmp_path)
    (tmp_path / "under_way").mkdir()
    (tmp_path / "under_way" / "recipe.json").write_text("{}")
    small.save(tmp_path / "under_way")  # as a run does at its end
    small.save(tmp_path / "under_way")


# --- Networks that change, and that are of other numbers ------------------------


def test_a_network_that_is_set_is_used_at_once(tmp_path):
    model = tiny_lm()
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
    model = tiny_lm()
    for other in (None, "x", tiny_lm(units=9).network, tiny_lm(lstms=1).network):
        with pytest.raises(ValueError, match="`network` must be a keras"):
            model.network = other
    model.network = tiny_lm().network


@pytest.mark.slow
def test_copies_of_before_the_network_could_be_set():
    """They have it among the attributes, under this name."""
    model = tiny_lm()
    state = model.__getstate__()
    assert state["network"] is model.network
    copied = kh.CharLM.__new__(kh.CharLM)
    copied.__dict__.update(state)
    assert copied.score("the cat").perplexity == model.score("the cat").perplexity


@pytest.mark.slow
def test_numpys_numbers_are_saved(tmp_path):
    changes = {"units": np.int64(7), "dropout": np.float32(0.5), "gate_bias": np.float64(-1)}
    model = tiny_lm(**changes)
    model.save(tmp_path)
    assert kh.CharLM(tmp_path).score("the cat").perplexity == model.score("the cat").perplexity


def test_two_convolutions_of_a_width_are_two(tmp_path):
    from keras_highway._support.keras_models import by_path

    model = tiny_lm(kernels=(2, 2), filters=(3, 4)).network
    assert len({w.path for w in model.weights}) == len(model.weights) == len(by_path(model.weights))
    twice = [model.weights[0], model.weights[1], model.weights[0]]
    assert list(by_path(twice)) == [twice[0].path, twice[1].path, f"{twice[0].path}:2"]


def test_a_text_is_no_list_of_words():
    for read in (kh.Vocabulary.of, VOCABULARY.ids, VOCABULARY.spell, VOCABULARY.strange):
        with pytest.raises(
            ValueError, match=r"must be a list of words, e\.g\. a_text\.split\(\)\. Received: .*'the cat'"
        ):
            read("the cat")
        with pytest.raises(ValueError, match=r"must be words, each a string\. Received: 1 among them"):
            read(["the", 1])
    assert VOCABULARY.strange(word for word in ["the", "zebra"]).unseen == 1


def test_values_that_are_not_finite_predict_no_word():
    model = tiny_lm()
    head = model.network.get_layer("head")
    head.set_weights([np.full(w.shape, np.nan, "float32") for w in head.get_weights()])
    with pytest.raises(ValueError, match="not finite: it predicts no word"):
        model.generate(words=3, seed=0)
    assert np.isnan(model.score("the cat").perplexity)


@pytest.mark.parametrize("shape", [(0, 5), (2, -1), (2.0, 5), (True, 5)])
def test_batches_of_no_size(shape):
    from keras_highway.data.ptb import batchify

    with pytest.raises(ValueError, match="must be a positive integer"):
        batchify(np.arange(40), *shape)
