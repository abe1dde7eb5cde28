"""Language models to a Hub on 127.0.0.1 and back: the round trip, the network that Keras loads, what `verify` finds."""

import json
import shutil
import sys
from pathlib import Path

import fake_hub as fake
import keras
import numpy as np
import pytest
import yaml
from contracts import to_numpy

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data.vocabulary import words_of
from keras_highway.models.char_lm import reset_state
from keras_highway.weights.card import model_card
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.publish import find_publishable, publish, verify, write_bundle
from keras_highway.weights.trained import compare_check

REPO = "org/lm"
URL = f"hf://{REPO}"
NAME = "charlm_small_coupled.mine"
TEXT = "the cat sat on the mat\na <unk> cat on a dog\n" * 4
WORDS = kh.Vocabulary.of([w for line in words_of(TEXT) for w in line])
SMALL = {"kernels": (1, 2), "filters": (4, 5), "char_units": 3, "units": 4, "streams": 2, "init_range": 0.7}
FILES = {
    "README.md",
    "check.npz",
    "config.json",
    "curve.png",
    "log.csv",
    "metadata.json",
    "model.safetensors",
    "model.weights.h5",
    "recipe.json",
    "result.json",
    "vocabulary.json",
    "weights.json",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """The folder of a corpus whose words are the model's."""
    folder = tmp_path_factory.mktemp("data") / "ptb"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, corpus):
    """The folder of a run: a model with random weights, measured."""
    keras.utils.set_random_seed(1)
    folder = tmp_path_factory.mktemp("run")
    lm = kh.CharLM(None, "charlm_small_coupled", WORDS, **SMALL)
    lm.save(folder)
    perplexity = lm.perplexity(WORDS.ids([w for line in words_of(TEXT) for w in line]))
    result = {
        "weights": NAME,
        "variant": "charlm_small_coupled",
        "data": "ptb",
        "metric": "test_perplexity",
        "n": 1,
        "mean": perplexity,
        "std": None,
        "seeds": [7],
        "values": [perplexity],
        "epochs": 2,
        "epoch_reported": "last",
        "valid_perplexity": 20.5,
        "precision": "mixed_bfloat16",
    }
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "recipe.json").write_text(json.dumps({"source": "made up"}))
    log = "epoch,train_loss,train_perplexity,valid_perplexity\n1,3.1,22.2,21.5\n2,3.0,20.1,20.5\n"
    (folder / "log.csv").write_text(log)
    return folder


@pytest.fixture(scope="module")
def bundle(run, tmp_path_factory):
    """Files of the run's repository, and the weights that wrote them."""
    folder = tmp_path_factory.mktemp("bundle")
    return folder, write_bundle(find_publishable(str(run)), REPO, folder)


@pytest.fixture
def hub(fake_hub, hub_table, bundle, monkeypatch):
    """A Hub on which we may write; the bundle is made once."""

    def write(source, repository, folder):
        assert source.row == bundle[1].row
        shutil.copytree(bundle[0], folder, dirs_exist_ok=True)
        return bundle[1]

    monkeypatch.setenv("HF_TOKEN", fake.TOKEN)
    monkeypatch.setattr(sys.modules[publish.__module__], "write_bundle", write)
    return fake_hub


@pytest.fixture
def published(fake_hub, bundle):
    """A Hub with the repository."""
    fake_hub.add(REPO, {path.name: path.read_bytes() for path in bundle[0].iterdir()})
    return fake_hub


def test_round_trip(hub, run, corpus, capsys):
    pushed = publish(str(run), REPO)
    assert set(pushed.changed) == FILES and hub.repositories[REPO].tags == {"v1": pushed.commit}
    result = json.loads((run / "result.json").read_text())
    row = describe_weights(URL)
    assert (row.name, row.data, row.metrics, row.transform) == (NAME, "ptb", result, None)
    assert "LDC99T42" in row.data_licence and row.sha256 == fake.sha256(hub.files(REPO)["model.weights.h5"])
    assert main(["fetch", URL]) == 0
    fetched = Path(capsys.readouterr().out.strip())
    assert fetched.with_name("vocabulary.json").read_text() == (run / "vocabulary.json").read_text()
    lm = kh.CharLM(f"{URL}@v1")
    assert lm.vocabulary == WORDS
    tokens = WORDS.ids([w for line in words_of(TEXT) for w in line])
    assert lm.perplexity(tokens) == pytest.approx(result["mean"], rel=1e-6)
    assert main(["verify", f"{REPO}@v1", "--data", str(corpus.parent)]) == 0
    output = capsys.readouterr().out
    assert f"perplexity on the {len(tokens)} test words of ptb: {result['mean']:.2f}, recorded" in output
    assert publish(str(run), REPO).changed == ()


def test_keras_loads_the_network_by_itself(published, run):
    """The same probabilities, in the same calls: the state starts at zero and is carried."""
    loaded, network = keras.saving.load_model(URL), kh.CharLM(run).network
    assert [layer.name for layer in loaded.layers] == [layer.name for layer in network.layers]
    assert [v.path for v in loaded.weights] == [v.path for v in network.weights]
    inputs = [WORDS.spell(["the", "cat", "looooook"]), np.array([[0, 1, 2], [2, 2, 1]], np.int32)]
    calls = [[to_numpy(f([*inputs], training=False)) for _ in range(2)] for f in (loaded, network)]
    for probabilities, logits in zip(*calls, strict=True):
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        np.testing.assert_allclose(probabilities, odds / odds.sum(axis=-1, keepdims=True), rtol=1e-5)
    assert np.abs(calls[0][0] - calls[0][1]).max() > 1e-3
    reset_state(loaded)
    np.testing.assert_array_equal(to_numpy(loaded(inputs, training=False)), calls[0][0])


def test_the_check_knows_the_carried_state_and_leaves_none(bundle, tmp_path):
    folder, weights = bundle
    assert compare_check(weights, folder / "check.npz") == 0.0
    carried = [v for layer in weights.network.layers for v in getattr(layer, "carried", ())]
    assert len(carried) == 4 and all((to_numpy(v) == 0).all() for v in carried)
    with np.load(folder / "check.npz") as file:
        arrays = dict(file)
    assert arrays["logits"].shape == (2, len(WORDS.words)) and arrays["gate/stage1_block1/t"].shape == (9,)
    assert arrays["words"][0] == "<eos>" and arrays["words"][-1] not in WORDS.words
    np.testing.assert_array_equal(arrays["characters"], WORDS.spell(arrays["words"].tolist()))
    wrong = {
        "logits": ("logits differs", arrays["logits"] + 0.01),
        "gate/stage1_block1/t": ("gate/stage1_block1/t differs", arrays["gate/stage1_block1/t"] + 0.01),
        "characters": ("characters differs", arrays["characters"] + 1),
        "positions": ("not a check.npz.*not of its words", arrays["positions"] + 1),
        "words": ("logits differs|characters differs", arrays["words"][::-1]),
    }
    for name, (match, value) in wrong.items():
        np.savez(tmp_path / "check.npz", **{**arrays, name: value})
        with pytest.raises(ValueError, match=match):
            compare_check(weights, tmp_path / "check.npz")


def altered(what, files, tmp_path):
    """Files of the repository that are wrong, as a user could have uploaded them."""
    if what == "weights":
        other = tmp_path / "model.weights.h5"
        keras.utils.set_random_seed(2)
        kh.CharLM(None, "charlm_small_coupled", WORDS, **SMALL).save(tmp_path)
        return {other.name: other.read_bytes()}
    if what == "vocabulary":
        words = {"words": ["<unk>", "<eos>", *WORDS.words[:1:-1]], "characters": WORDS.characters}
        return {"vocabulary.json": json.dumps({**words, "word_length": WORDS.word_length}).encode()}
    return {"check.npz": files["check.npz"][:-50]}


@pytest.mark.parametrize(
    ("what", "match"),
    [("weights", "damaged"), ("vocabulary", r"vocabulary\.json does not match the weights")],
)
def test_verify_finds_what_is_wrong(published, what, match, tmp_path):
    published.add(REPO, altered(what, published.files(REPO), tmp_path))
    with pytest.raises(ValueError, match=match):
        verify(REPO)


def test_card(bundle):
    header, _, text = (bundle[0] / "README.md").read_text("utf-8").removeprefix("---\n").partition("\n---\n")
    data = yaml.safe_load(header)
    assert (data["pipeline_tag"], data["metrics"], data["language"]) == ("text-generation", ["perplexity"], "en")
    assert data["datasets"] == ["ptb-text-only/ptb_text_only"]
    result, validation = data["model-index"][0]["results"]
    assert validation["metrics"][0]["value"] == bundle[1].row.metrics["valid_perplexity"]
    perplexity = bundle[1].row.metrics["mean"]
    assert result["task"] == {"type": "text-generation", "name": "Language modelling"}
    assert (result["dataset"]["name"], result["metrics"][0]["value"]) == ("Penn Treebank", perplexity)
    conditions = {"n": 1, "seeds": [7], "precision": "mixed_bfloat16", "published": "about 93"}
    assert result["metrics"][0]["args"] == conditions
    assert f"test perplexity of the last epoch: **{perplexity:.2f} (n = 1)**; seeds 7" in text
    for part in ("about 93", "products in bfloat16", f'CharLM("{URL}")', "predicted as `<unk>`", "LDC99T42", "20.50"):
        assert part in text
    assert "{" not in text.split("```bibtex")[0] and "kim2016character" in text


def test_a_card_claims_the_published_number_of_its_own_net_and_text_alone(run, bundle):
    row = bundle[1].row
    for recipe, published in (
        ({"name": "charlm_small_coupled", "source": "Kim et al."}, True),
        ({"overrides": [["units", 50]]}, False),
        ({"test_tokens": 14000}, False),
    ):
        text = model_card(row, REPO, recipe, torch_names=False)
        assert ("about 93" in text) == published
    text = model_card(row, REPO, {"overrides": [["units", 50]], "test_tokens": 14000, "steps": 10}, torch_names=False)
    assert "here with steps 10, test_tokens 14000, units 50: all settings are in `recipe.json`" in text
