"""Weights from the Hub over its real client: what is found where, and that only right files are ever loaded."""

import dataclasses
import itertools
import json
import os
import pickle
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import fake_hub as fake
import huggingface_hub
import numpy as np
import pytest
from huggingface_hub import constants
from miniatures import numpy

import keras_highway as kh
from keras_highway.data.vocabulary import Vocabulary
from keras_highway.weights import files as weights_file
from keras_highway.weights import hub, registry
from keras_highway.weights.hub import HubError, HubName, parse
from keras_highway.weights.info import to_json
from keras_highway.weights.sources import resolve

VARIANT = "mnist10_w16"
NAME = "org/small"
FILE = registry.FILE
X = np.random.default_rng(0).random((2, 28, 28, 1), "float32")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A network with weights of its own, and its file's content."""
    model = kh.create_model(VARIANT)
    model.get_layer("head").bias.assign(np.arange(10.0))
    path = tmp_path_factory.mktemp("trained") / FILE
    weights_file.save(model, path, VARIANT, 10)
    return numpy(model(X)), path.read_bytes()


@pytest.fixture
def published(fake_hub, trained):
    """The network in a repository; returns its commit."""
    return fake_hub.add(NAME, {FILE: trained[1]})


def row(sha256, revision="main", **changes):
    shipped = registry.WEIGHTS["mnist10_w16.tvdn"]
    return dataclasses.replace(
        shipped, name=f"{VARIANT}.test", sha256=sha256, repository=NAME, revision=revision, **changes
    )


@pytest.fixture
def as_row(trained, published, monkeypatch, tmp_path):
    """The repository as a row of the table, pinned; the zoo folder is elsewhere and empty."""
    test_row = row(fake.sha256(trained[1]), published)
    monkeypatch.setattr(registry, "WEIGHTS", {test_row.name: test_row})
    monkeypatch.setenv("KERAS_HIGHWAY_ZOO", str(tmp_path / "zoo"))
    return test_row


def cached(tmp_path):
    """The contents in the cache, without locks and links."""
    return sorted(p.name for p in (tmp_path / "home").rglob("blobs/*"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://org/name", ("org/name", "main")),
        ("hf://o-r.g/n_a.m-e@v1", ("o-r.g/n_a.m-e", "v1")),
        ("hf://org/name@refs/pr/1", ("org/name", "refs/pr/1")),
    ],
)
def test_names(text, expected):
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["hf://", "hf://a/b/c", "hf://a/..", "hf://a/b@../../x", "hf://a/b@/etc", "hf://a--b/c"],
)
def test_malformed_names_are_refused(text):
    check_no_name(text)


def check_no_name(text):
    with pytest.raises(ValueError, match=r"hf://org/name"):
        parse(text)


def test_load_from_the_hub_and_then_from_its_cache(fake_hub, published, trained):
    for _ in range(2):
        np.testing.assert_array_equal(numpy(kh.load(f"hf://{NAME}")(X)), trained[0])
    assert fake_hub.count("GET", "/content/") == 1
    model = kh.create_model(VARIANT, weights=f"hf://{NAME}@{published}")
    np.testing.assert_array_equal(numpy(model(X)), trained[0])


def test_revisions_are_what_is_loaded(fake_hub, published, trained):
    fake_hub.repositories[NAME].tags["v1"] = published
    fake_hub.add(NAME, {FILE: b"something else"})
    np.testing.assert_array_equal(numpy(kh.load(f"hf://{NAME}@v1")(X)), trained[0])
    with pytest.raises(HubError, match="no such revision"):
        kh.load(f"hf://{NAME}@v9")


def test_a_row_is_downloaded_once_and_then_needs_no_hub(fake_hub, as_row, trained):
    np.testing.assert_array_equal(numpy(kh.load(as_row.name)(X)), trained[0])
    count = len(fake_hub.requests)
    np.testing.assert_array_equal(numpy(kh.create_model(VARIANT, weights="test")(X)), trained[0])
    assert len(fake_hub.requests) == count  # a pinned commit never changes


def test_files_at_hand_come_before_the_hub(fake_hub, as_row, trained, tmp_path):
    (tmp_path / "zoo" / as_row.name).mkdir(parents=True)
    (tmp_path / "zoo" / as_row.name / FILE).write_bytes(trained[1])
    np.testing.assert_array_equal(numpy(kh.load(as_row.name)(X)), trained[0])
    np.testing.assert_array_equal(numpy(kh.load(str(tmp_path / "zoo" / as_row.name))(X)), trained[0])
    assert fake_hub.requests == []


def flipped(content: bytes) -> bytes:
    return content[:100] + bytes([content[100] ^ 1]) + content[101:]


@pytest.mark.parametrize("what", ["content", "pinned hash"])
def test_wrong_content_is_refused_removed_and_loaded_again(fake_hub, as_row, trained, monkeypatch, tmp_path, what):
    good = fake_hub.files(NAME)
    if what == "content":  # on its way: other bytes than the Hub announces
        fake_hub.fault = lambda method, path: fake.Fault(alter=flipped) if "/content/" in path else None
    else:  # in the repository: it has another file than the row pins
        fake_hub.repositories[NAME].commits[-1] = (as_row.revision, {FILE: flipped(trained[1])})
    with pytest.raises(ValueError, match=r"damaged or altered.*removed from the cache: the next call"):
        kh.load(as_row.name)
    assert cached(tmp_path) == []
    fake_hub.fault = lambda method, path: None
    fake_hub.repositories[NAME].commits[-1] = (as_row.revision, good)
    np.testing.assert_array_equal(numpy(kh.load(as_row.name)(X)), trained[0])


def test_a_file_altered_in_the_cache_is_not_trusted(fake_hub, as_row, trained, tmp_path):
    kh.load(as_row.name)
    (blob,) = (tmp_path / "home").rglob("blobs/*")
    blob.write_bytes(flipped(trained[1]))
    with pytest.raises(ValueError, match="damaged or altered"):
        kh.load(as_row.name)
    np.testing.assert_array_equal(numpy(kh.load(as_row.name)(X)), trained[0])


def described(trained, **changes):
    """A repository's files with a `weights.json`."""
    text = json.dumps({**to_json(row(fake.sha256(trained[1]))), "name": "small", **changes})
    return {FILE: trained[1], "weights.json": text.encode()}


def test_the_repositorys_own_description_is_compared_with_the_file(fake_hub, trained, tmp_path):
    fake_hub.add("org/right", described(trained))
    file = resolve("hf://org/right")
    assert file.info.classes == tuple("0123456789") and file.info.transform == kh.get_transform("mnist")
    fake_hub.add("org/hash", described(trained, sha256="0" * 64))
    with pytest.raises(ValueError, match=r"its sha256 is .*org/hash.* states 0{64}\. It was removed"):
        kh.load("hf://org/hash")
    fake_hub.add("org/variant", described(trained, variant="mnist10_w32"))
    with pytest.raises(ValueError, match=r"of variant 'mnist10_w16', but .*names 'mnist10_w32'"):
        kh.load("hf://org/variant")
    fake_hub.add("org/names", described(trained, classes=["a", "b"]))
    with pytest.raises(ValueError, match=r"of 10 classes, but .*names 2"):
        kh.load("hf://org/names")
    fake_hub.add("org/broken", {**described(trained), "weights.json": b"["})
    with pytest.raises(ValueError, match=r"weights\.json is malformed"):
        kh.load("hf://org/broken")


def test_offline_and_not_in_the_cache(fake_hub, published, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE is set"):
        kh.load(f"hf://{NAME}")
    assert fake_hub.requests == []


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (fake.Fault(status=401), "HF_TOKEN"),
        (fake.Fault(status=429), "try again later"),
        (fake.Fault(status=500), "try again later"),
    ],
)
def test_errors_say_what_to_do(fake_hub, published, fault, match, tmp_path):
    fake_hub.fault = lambda method, path: fault
    with pytest.raises(HubError, match=match):
        kh.load(f"hf://{NAME}")
    assert cached(tmp_path) == []


def test_the_cache_works_without_a_hub(fake_hub, published, trained):
    kh.load(f"hf://{NAME}")
    fake_hub.close()
    huggingface_hub.utils.close_session()
    np.testing.assert_array_equal(numpy(kh.load(f"hf://{NAME}")(X)), trained[0])  # the cache knows main
    with pytest.raises(HubError, match="try again later"):
        kh.load("hf://org/other")


FETCH = """
import sys
from keras_highway.weights.hub import fetch, parse
print(fetch(parse(sys.argv[1]), "model.weights.h5"))
"""


def fetching(server, home, name=NAME, **env):
    """A process of its own that downloads a repository's file; huggingface_hub reads its environment there."""
    own = {"PYTHONPATH": str(Path(kh.__file__).parents[1]), "KERAS_BACKEND": "numpy", "HF_HUB_DISABLE_XET": "1"}
    env = {**os.environ, **own, "HF_ENDPOINT": server.url, "HF_HOME": str(home), **env}
    command = [sys.executable, "-c", FETCH, name]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_the_environment_is_honoured(fake_hub, trained, tmp_path):
    fake_hub.add("org/private", {FILE: trained[1]}, private=True)
    home = tmp_path / "other_home"
    refused = fetching(fake_hub, home, "org/private")
    assert "HF_TOKEN" in refused.communicate()[1] and refused.returncode != 0
    out, err = fetching(fake_hub, home, "org/private", HF_TOKEN=fake.TOKEN, TQDM_POSITION="-1").communicate()
    assert Path(out.strip()).is_relative_to(home) and Path(out.strip()).read_bytes() == trained[1]
    assert "100%|" in err  # progress
    count = len(fake_hub.requests)
    offline, _ = fetching(fake_hub, home, "org/private", HF_HUB_OFFLINE="1").communicate()
    assert offline == out and len(fake_hub.requests) == count


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A small language model and the folder it was saved in."""
    small = {"kernels": (1, 2), "filters": (3, 4), "char_units": 2, "units": 5}
    words = Vocabulary.of(["the", "cat", "sat", "on", "the", "mat"])
    model = kh.CharLM(weights=None, variant="charlm_small_coupled", vocabulary=words, **small)
    folder = tmp_path_factory.mktemp("language")
    model.save(folder)
    return model, folder


def test_a_language_model_comes_with_its_words(fake_hub, language_model):
    model, folder = language_model
    fake_hub.add("org/lm", {path.name: path.read_bytes() for path in folder.iterdir()})
    text = "the cat sat on a mat"
    loaded = kh.CharLM("hf://org/lm")
    assert loaded.vocabulary == model.vocabulary
    assert loaded.score(text).perplexity == pytest.approx(model.score(text).perplexity, rel=1e-6)


def test_a_language_model_without_its_words_or_with_others_is_refused(fake_hub, language_model):
    _, folder = language_model
    weights_only = {FILE: (folder / FILE).read_bytes()}
    fake_hub.add("org/wordless", weights_only)
    with pytest.raises(HubError, match=r"vocabulary\.json"):
        kh.CharLM("hf://org/wordless")
    others = Vocabulary.of(["one", "two", "three", "four", "five"]).to_json().encode()
    fake_hub.add("org/others", {**weights_only, "vocabulary.json": others})
    with pytest.raises(ValueError, match="does not match the weights"):
        kh.CharLM("hf://org/others")


KINDS = ("status", "cut", "altered", "wrong length", "slow", "foreign")


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The right file, and one of another architecture."""
    files = []
    for variant in (VARIANT, "highway_fc10"):
        path = tmp_path_factory.mktemp(variant) / FILE
        weights_file.save(kh.create_model(variant), path, variant, 10)
        files.append(path.read_bytes())
    return files


def plan(rng, kind, contents):
    """Returns the `fault` of one download: which requests fail, in which way, and for how long."""
    right, other = contents
    if kind == "status":
        fault = fake.Fault(status=rng.choice((401, 404, 429, 500)))
    elif kind == "cut":
        fault = fake.Fault(cut=rng.randrange(len(right)))
    elif kind == "altered":
        fault = fake.Fault(alter=_altered(rng))
    elif kind == "wrong length":
        fault = fake.Fault(announce=rng.choice((-1, 1)) * rng.randrange(1, len(right)))
        if rng.random() < 0.5:
            fault = fake.Fault(alter=_shortened_or_lengthened(rng))
    elif kind == "slow":
        fault = fake.Fault(delay=rng.choice((0.002, 0.15)))  # the client waits for 0.1 s
    else:
        fault = fake.Fault(alter=lambda body: other)
    part = rng.choice(("/content/", "/resolve/")) if kind == "status" else "/content/"
    first, times = rng.randrange(2), rng.choice((1, 2, 1000))
    count = itertools.count()

    def fault_of(method, path):
        return fault if part in path and first <= next(count) < first + times else None

    return fault_of


def _altered(rng):
    seed = rng.random()

    def alter(body):
        own = random.Random(seed)
        body = bytearray(body)
        for _ in range(own.choice((1, 100))):
            body[own.randrange(len(body))] ^= 1 << own.randrange(8)
        return bytes(body)

    return alter


def _shortened_or_lengthened(rng):
    cut, extra = rng.random(), rng.randrange(1, 5000)
    return (lambda body: body[: int(cut * len(body))]) if rng.random() < 0.5 else (lambda body: body + bytes(extra))


@pytest.mark.parametrize(
    "downloads", [pytest.param(36, marks=pytest.mark.more), pytest.param(216, marks=pytest.mark.slow)]
)
def test_faulty_downloads_end_in_right_weights_or_a_clear_error(
    downloads, fake_hub, contents, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 4096)  # of 10 MB, a small file would never be resumed
    pinned = fake_hub.add(NAME, {FILE: contents[0]})
    outcomes = Counter()
    for seed in range(downloads):
        rng = random.Random(seed)
        kind = KINDS[seed % len(KINDS)]
        name = str(HubName(NAME, rng.choice(("main", pinned))))
        cache = tmp_path / str(seed)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
        fake_hub.fault = plan(rng, kind, contents)
        try:
            file = resolve(name)
            assert file.path.read_bytes() == contents[0], f"seed {seed}, {kind}: wrong content was accepted"
            outcomes[kind, "loaded"] += 1
        except (HubError, ValueError) as error:
            assert NAME in str(error) and any(w in str(error) for w in ("try again", "HF_TOKEN", "removed"))
            assert not list(cache.rglob("blobs/*")), f"seed {seed}, {kind}: something was kept"
            outcomes[kind, "refused"] += 1
        monkeypatch.setattr(fake_hub, "fault", lambda method, path: None)
        assert resolve(name).path.read_bytes() == contents[0]  # the next call, the Hub is well again
    assert sum(outcomes.values()) == downloads
    assert {kind for kind, how in outcomes if how == "loaded"} == {*KINDS}  # passing faults
    assert {kind for kind, how in outcomes if how == "refused"} >= {*KINDS} - {"slow", "cut"}  # lasting ones
    assert fake_hub.resumed


@pytest.fixture
def offline(monkeypatch):
    """Turns huggingface_hub's offline mode on, from the call on."""
    return lambda: monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


@pytest.mark.parametrize("content", [b"no weights", pickle.dumps(FILE)])
def test_a_file_that_was_published_so_is_downloaded_once(fake_hub, trained, content):
    fake_hub.add("org/wrong", {FILE: content})
    for _ in range(2):
        with pytest.raises(ValueError, match=r"not a weight file"):
            kh.load("hf://org/wrong")
    assert fake_hub.count("GET", "/content/") == 1
    fake_hub.add("org/wrong", {FILE: trained[1]})
    np.testing.assert_array_equal(numpy(kh.load("hf://org/wrong")(X)), trained[0])


def test_a_damaged_cache_is_one_error(fake_hub, offline):
    refs = hub.cache_folder() / "models--org--name" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_bytes(b"\xff\xfe")
    offline()
    with pytest.raises(hub.HubError, match="UnicodeDecodeError"):
        kh.load("hf://org/name")


def test_a_malformed_description_is_never_passed_over(fake_hub, trained, offline):
    fake_hub.add("org/later", {FILE: trained[1], "weights.json": b'{"of": "a later version"}'})
    for ask in (kh.load, kh.describe_weights, kh.load):
        with pytest.raises(ValueError, match=r"weights\.json is"):
            ask("hf://org/later")
        offline()
