"""`kh.CharLM` and `python -m keras_highway lm`: text in, perplexities, vectors, text and neighbours out."""

import io
import json
import shutil

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data.ptb import every, load_split
from keras_highway.data.vocabulary import words_of
from keras_highway.models.char_lm import reset_state

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
        with pytest.raises(ValueError, match="nothing to score"):
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
        with pytest.raises(ValueError, match="must be a positive number"):
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
    with pytest.raises(ValueError, match=r"no vocabulary\.json beside"):
        kh.CharLM(weights=tmp_path)
    (tmp_path / "vocabulary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"vocabulary\.json is broken"):
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
        assert "images" in capsys.readouterr().err


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
