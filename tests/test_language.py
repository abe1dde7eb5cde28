"""`kh.CharLM` and `python -m keras_highway lm`: text in, perplexities, vectors, text and neighbours out."""

import io
import json

import keras
import numpy as np
import pytest
from contracts import to_numpy

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data.ptb import every
from keras_highway.data.vocabulary import words_of
from keras_highway.models.char_lm import reset_state
from keras_highway.weights import files as weights_file
from keras_highway.weights.info import WeightFileError

TEXT = "the cat sat on the mat\na <unk> cat\n"
WORDS = kh.Vocabulary.of([w for line in words_of(TEXT) for w in line])
SMALL = {"kernels": (1, 2), "filters": (4, 5), "char_units": 3, "units": 4, "streams": 1, "init_range": 0.7}


def tiny(**changes):
    """A language model of a few hundred parameters, with random weights."""
    return kh.CharLM(None, "charlm_small_coupled", **{"vocabulary": WORDS, **SMALL, **changes})


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


def test_vectors_depend_on_the_spelling_alone(model):
    vectors = model.encode("cat kitten cat <unk>")
    assert vectors.shape == (4, 9) and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors[0], vectors[2])
    inner = keras.Model(model.network.inputs[0], model.network.get_layer("stage1_block1").output)
    np.testing.assert_allclose(vectors, to_numpy(inner(WORDS.spell(["cat", "kitten", "cat", "<unk>"]))), atol=1e-6)
    before = keras.Model(model.network.inputs[0], model.network.get_layer("char_cnn").output)
    np.testing.assert_allclose(model.encode(["cat"], "before"), to_numpy(before(WORDS.spell(["cat"]))), atol=1e-6)
    with pytest.raises(ValueError, match="one of 'before', 'after'"):
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


def test_generated_text_follows_the_network(model):
    text = model.generate("the dog", words=12, temperature=1e-4, seed=1)
    words = [w for line in words_of(text + "\n") for w in line][:-1]
    assert len(words) == 14
    assert words[:2] == ["the", "dog"] and "<unk>" not in words
    log_p = direct(model, ["<eos>", *words[:-1]])
    log_p[:, 0] = -np.inf
    assert [WORDS.words[i] for i in log_p.argmax(axis=1)[2:]] == words[2:]


def test_temperature_0_takes_the_likeliest_word(model):
    greedy = model.generate("the dog", words=12, temperature=0)
    assert greedy == model.generate("the dog", words=12, temperature=1e-4, seed=1)


def test_draws_follow_seed_and_temperature(model):
    assert model.generate(words=20, seed=3) == model.generate(words=20, seed=3) != model.generate(words=20, seed=4)
    assert "<unk>" in model.generate(words=60, temperature=50.0, seed=1, unknown=True)
    for arguments in ({"temperature": -0.1}, {"temperature": float("nan")}, {"words": 0}):
        with pytest.raises(ValueError, match="must be a"):
            model.generate(**arguments)


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
    with pytest.raises(ValueError, match=r"vocabulary\.json does not exist"):
        kh.CharLM(weights=tmp_path)
    (tmp_path / "vocabulary.json").write_text("{}")
    with pytest.raises(ValueError, match=r"vocabulary\.json is malformed"):
        kh.CharLM(weights=tmp_path)
    (tmp_path / "vocabulary.json").write_text(other.to_json())
    with pytest.raises(ValueError, match=r"vocabulary\.json does not match the weights"):
        kh.CharLM(weights=tmp_path)


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
    code, _, err = lm(capsys, "generate", "--temperature", -1, "--weights", folder)
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
    for arguments in (["summary", "charlm_small_full"], ["classify", __file__, "--weights", str(folder)]):
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


@pytest.mark.slow
@pytest.mark.parametrize("name", ["charlm_small_coupled.ptb", "charlm_large_full.ptb"])
def test_evaluate_reproduces_the_recorded_perplexity(capsys, data_dir, name):
    code, out, _ = evaluated(capsys, name, "--data", data_dir, "--json")
    report = json.loads(out)
    assert (code, report["tokens"], report["unseen"]) == (0, 82_430, 0)
    recorded = report["recorded"]
    assert report["perplexity"] == pytest.approx(recorded.get("this_file", recorded["mean"]), abs=0.01)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: kh.Vocabulary.of(["a" * 1200, "b"], longest=1202), "from 3 to 1,000.*word_length=1202"),
        (lambda: kh.Vocabulary.of(["a\ud800b"]), "text that a file can contain"),
    ],
)
def test_a_vocabulary_that_could_not_be_loaded_again_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda lm: lm.score(" \n\n"), "at least one word"),
        (lambda lm: lm.perplexity("the cat"), "`tokens` must be numbers"),
        (lambda lm: lm.generate("the", temperature=None), "`temperature` must be a number from 0 on. Received: temp"),
        (lambda lm: lm.neighbours(" the "), "one word, without spaces. Received: word=' the '"),
        (lambda lm: lm.log_probabilities("the cat", "cat sat"), r"a_text\.split\(\)\. Received: words='the cat'"),
        (lambda lm: lm.score(None), "`text` must be a text, one string. Received: text=None"),
        (lambda lm: lm.generate("the", 2.5), "`words` must be a positive integer"),
        (lambda _: tiny(classes=3), "CharLM sets `classes` itself"),
        (lambda _: tiny(vocabulary=["a", "b"]), r"`vocabulary` must be a keras_highway\.Vocabulary"),
    ],
)
def test_what_cannot_be_asked(model, ask, message):
    with pytest.raises(ValueError, match=message):
        ask(model)


@pytest.mark.parametrize("changes", [{}, {"gating": "residual", "highways": 3, "lstms": 1}])
def test_load_takes_what_save_wrote(tmp_path, changes):
    small = tiny(**changes)
    small.save(tmp_path)
    for net in (kh.load(tmp_path), kh.create_model("charlm_small_coupled", weights=tmp_path)):
        assert net.count_params() == small.network.count_params()
        for ours, theirs in zip(net.get_weights(), small.network.get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(ValueError, match="do not fit the requested model: it overrides units=7"):
        kh.load(tmp_path, units=7)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"kernels": [200], "filters": [500], "char_units": 1000, "input_shape": [1000]}, "larger than the file"),
        ({"units": 1000}, "larger than the file"),
        ({"colour": 3}, "that make no network: unknown field 'colour'"),
        ({"highways": "two"}, "that make no network"),
    ],
)
def test_a_file_that_states_a_network_that_it_does_not_hold(model, tmp_path, stated, message):
    weights_file.save(model.network, tmp_path / "model.weights.h5", model.variant, 11, overrides={**SMALL, **stated})
    (tmp_path / "vocabulary.json").write_text(WORDS.to_json())
    for load in (kh.load, kh.CharLM):
        if load is kh.CharLM and "input_shape" in stated:
            continue  # the vocabulary states it
        with pytest.raises(WeightFileError, match=message):
            load(tmp_path)


def test_the_vocabulary_that_was_padded_in_training_belongs_to_the_weights(tmp_path):
    short = kh.Vocabulary.of(["a", "b"])
    small = tiny(vocabulary=short, kernels=(1, 5))
    small.save(tmp_path)
    again = kh.CharLM(tmp_path, vocabulary=short)
    assert again.vocabulary == small.vocabulary != short
    assert again.score("a b") == small.score("a b")
    tiny(vocabulary=short, kernels=(1, 30)).save(tmp_path)  # wider than the Treebank's spellings
    assert kh.CharLM(tmp_path, vocabulary=short).vocabulary.word_length == kh.load(tmp_path).input_shape[0][1] == 30


def test_save_leaves_others_weights_and_results_alone(model, tmp_path):
    images = kh.create_model("mnist10_w16")
    kh.save(images, tmp_path / "images", [str(i) for i in range(10)], "mnist")
    before = (tmp_path / "images" / "model.weights.h5").read_bytes()
    with pytest.raises(ValueError, match=r"contains other weights \(weights\.json\)"):
        model.save(tmp_path / "images")
    assert (tmp_path / "images" / "model.weights.h5").read_bytes() == before
    model.save(tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps({"mean": 50.0}))
    before = (tmp_path / "run" / "model.weights.h5").read_bytes()
    with pytest.raises(ValueError, match=r"contains other weights \(result\.json\)"):
        tiny().save(tmp_path / "run")
    assert (tmp_path / "run" / "model.weights.h5").read_bytes() == before
    (tmp_path / "under_way").mkdir()
    (tmp_path / "under_way" / "recipe.json").write_text("{}")
    model.save(tmp_path / "under_way")  # as a run does at its end
    model.save(tmp_path / "under_way")


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
