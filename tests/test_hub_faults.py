"""Downloads through a Hub that fails in every way it can: right weights or a clear error, and never a broken file."""

import itertools
import random
from collections import Counter

import fake_hub as fake
import numpy as np
import pytest
from huggingface_hub import constants

import keras_highway as kh
from keras_highway.weights import files as weights_file
from keras_highway.weights import hub, registry
from keras_highway.weights.load import load_exactly
from keras_highway.weights.sources import resolve

VARIANT, NAME, FILE = "mnist10_w16", "org/small", registry.FILE
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
    model = kh.create_model(VARIANT)
    expected, outcomes = None, Counter()
    for seed in range(downloads):
        rng = random.Random(seed)
        kind = KINDS[seed % len(KINDS)]
        name = hub.HubName(NAME, rng.choice(("main", pinned)))
        sha256 = rng.choice(("", fake.sha256(contents[0])))  # known in advance, or only from the Hub
        cache = tmp_path / str(seed)
        fake_hub.fault = plan(rng, kind, contents)
        try:
            path = hub.fetch(name, FILE, sha256, weights_file.read, cache)
            assert path.read_bytes() == contents[0], f"seed {seed}, {kind}: wrong content was accepted"
            outcomes[kind, "loaded"] += 1
        except (hub.HubError, ValueError) as error:
            assert NAME in str(error) and any(w in str(error) for w in ("try again", "HF_TOKEN", "removed"))
            assert not list(cache.rglob("blobs/*")), f"seed {seed}, {kind}: something was kept"
            outcomes[kind, "refused"] += 1
        monkeypatch.setattr(fake_hub, "fault", lambda method, path: None)
        path = hub.fetch(name, FILE, sha256, weights_file.read, cache)  # the next call, the Hub is well again
        model.get_layer("head").bias.assign(np.full(10, 7.0))
        load_exactly(model, resolve(path, VARIANT))
        now = model.get_weights()
        expected = now if expected is None else expected
        assert all(np.array_equal(a, b) for a, b in zip(expected, now, strict=True))
    with capsys.disabled():
        print(f"\nfaulty downloads: {downloads}; " + _table(outcomes))
    assert sum(outcomes.values()) == downloads
    assert {kind for kind, how in outcomes if how == "loaded"} == {*KINDS}  # passing faults
    assert {kind for kind, how in outcomes if how == "refused"} >= {*KINDS} - {"slow", "cut"}  # lasting ones
    assert fake_hub.resumed


def _table(outcomes) -> str:
    return ", ".join(f"{kind}: {outcomes[kind, 'loaded']} right, {outcomes[kind, 'refused']} errors" for kind in KINDS)
