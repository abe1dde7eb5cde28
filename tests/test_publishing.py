"""Publishing to a Hub on 127.0.0.1 and back: the round trip, what a repository holds, interruptions."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import fake_hub as fake
import keras
import numpy as np
import pytest
import yaml

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.card import model_card
from keras_highway.weights.describe import describe_weights
from keras_highway.weights.hub import HubError
from keras_highway.weights.info import FILE, ROW, read_row
from keras_highway.weights.publish import find_publishable, publish, publish_all, verify, write_bundle
from keras_highway.weights.trained import CHECK, LanguageModel, compare_check, weights_class

NAME = "mnist10_w16.tvdn"
REPO = "org/w16"
URL = f"hf://{REPO}"
X = np.random.default_rng(0).random((2, 28, 28, 1), "float32")
FILES = {
    ".gitattributes",
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
    "weights.json",
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """`write_bundle` that makes every bundle once."""
    known = {}

    def write(source, repository, folder):
        key = (source.row.name, source.row.sha256, str(source.row.metrics), repository)
        if key not in known:
            made = tmp_path_factory.mktemp("bundle")
            known[key] = (made, write_bundle(source, repository, made))
        shutil.copytree(known[key][0], folder, dirs_exist_ok=True)
        return known[key][1]

    return write


@pytest.fixture
def hub(fake_hub, hub_table, bundles, monkeypatch):
    """A Hub on which we may write."""
    monkeypatch.setenv("HF_TOKEN", fake.TOKEN)
    monkeypatch.setattr(sys.modules[publish.__module__], "write_bundle", bundles)
    return fake_hub


def writes(hub):
    """Requests that change something on the Hub."""
    return [r for r in hub.requests if r[0] in ("POST", "PUT") and "preupload" not in r[1]]


def test_round_trip(hub, hub_table, tmp_path):
    pushed = publish(NAME, REPO)
    assert set(hub.files(REPO)) == FILES and set(pushed.changed) == FILES - {".gitattributes"}
    assert hub.repositories[REPO].tags == {"v1": pushed.commit}
    assert json.loads(hub_table.read_text()) == {NAME: {"repository": REPO, "revision": pushed.commit}}
    net = kh.load(NAME)
    np.testing.assert_array_equal(np.asarray(kh.load(URL)(X)), np.asarray(net(X)))
    pixels = np.random.default_rng(0).integers(0, 256, (1, 28, 28, 1), np.uint8)
    np.testing.assert_array_equal(kh.preprocess_input(pixels, URL), kh.preprocess_input(pixels, NAME))
    assert kh.decode_predictions(np.eye(10)[[3]], 1, URL) == [[("3", "3", 1.0)]]
    row = describe_weights(URL)
    described = registry.described(registry.find(NAME))
    assert (described.repository, described.revision) == (REPO, pushed.commit)
    assert dataclasses.replace(row, repository=REPO, revision=pushed.commit) == described
    assert row.metrics == registry.result(NAME) and row.sha256 == fake.sha256(hub.files(REPO)["model.weights.h5"])
    assert verify(f"{REPO}@v1").difference <= 1e-6


def test_publishing_twice_changes_nothing(hub):
    first = publish(NAME, REPO)
    before = len(writes(hub))
    second = publish(NAME, REPO)
    assert second == first._replace(changed=(), unchanged=second.unchanged) and set(second.unchanged) == set(
        first.changed
    )
    assert {r[1] for r in writes(hub)[before:]} == {"/api/repos/create"}  # which answers that it is there
    assert len(hub.repositories[REPO].commits) == 2


@pytest.mark.slow
def test_results_of_other_weights_are_removed(hub, tmp_path, capsys):
    first = publish(NAME, REPO)
    hub.add(REPO, {"NOTES.md": b"a user's\n", "log_seed2.csv": b"epoch\n1\n", "log_seeds.md": b"a user's\n"})
    old = {"curve.png", "log.csv", "log_seed2.csv", "recipe.json", "result.json"}
    folder = kh.save(kh.load(NAME), tmp_path / "mine", name="mine")
    before = dict(hub.files(REPO))
    assert main(["publish", str(folder), "--repo", REPO, "--dry-run"]) == 0
    assert f", would remove {', '.join(sorted(old))}; no release" in capsys.readouterr().out
    assert hub.files(REPO) == before
    second = publish(str(folder), REPO)
    assert set(second.removed) == old and "README.md" in second.changed
    assert set(hub.files(REPO)) == FILES - old | {"NOTES.md", "log_seeds.md"}
    assert hub.repositories[REPO].tags == {"v1": first.commit, "v2": second.commit}
    assert describe_weights(URL).metrics == {} and verify(REPO).row.name == "mine"
    assert publish(str(folder), REPO)._replace(unchanged=()) == second._replace(changed=(), removed=(), unchanged=())


def test_dry_run_writes_nothing(hub, hub_table, capsys):
    assert main(["publish", NAME, "--repo", REPO, "--dry-run"]) == 0
    assert "would upload README.md, check.npz" in capsys.readouterr().out
    assert writes(hub) == [] and hub.repositories == {} and hub_table.read_text() == "{}\n"


def test_card(hub):
    publish(NAME, REPO)
    header, _, text = hub.files(REPO)["README.md"].decode().removeprefix("---\n").partition("\n---\n")
    data = yaml.safe_load(header)
    assert (data["library_name"], data["license"], data["datasets"]) == ("keras", "apache-2.0", ["ylecun/mnist"])
    assert "keras-highway" in data["tags"] and data["metrics"] == ["accuracy"]
    (index,) = data["model-index"]
    (result,) = index["results"]
    assert index["name"] == NAME and result["metrics"][0]["value"] == registry.result(NAME)["mean"]
    assert result["dataset"] == {"name": "ylecun/mnist", "type": "ylecun/mnist", "split": "test"}
    assert (result["metrics"][0]["type"], result["metrics"][0]["name"]) == ("accuracy", "test accuracy")
    address = f"https://huggingface.co/{REPO}/blob/main/result.json"
    assert result["source"] == {"name": "result.json", "url": address} and "result.json" in hub.files(REPO)
    assert "@inproceedings{srivastava2015training" in text and "hf://org/w16" in text
    assert (
        f"`{registry.WEIGHTS[NAME].sha256}`" in text
        and "CC BY-SA 3.0" in text
        and "{" not in text.split("```bibtex")[0]
    )


def test_publish_keeps_what_a_person_wrote_into_the_card(hub, tmp_path):
    publish(NAME, REPO)
    generated = hub.files(REPO)["README.md"].decode()
    written = (
        generated.replace("tags:", "thumbnail: a.png\ntags:").replace("# mnist", "# other") + "\n## Limits\n\nDigits.\n"
    )
    hub.add(REPO, {"README.md": written.encode()})
    assert publish(NAME, REPO).changed == ("README.md",)
    card = hub.files(REPO)["README.md"].decode()
    assert card.endswith("\n\n## Limits\n\nDigits.\n") and f"# {NAME}" in card and "# other" not in card
    assert header_of(card) == header_of(generated) | {"thumbnail": "a.png"}
    assert publish(NAME, REPO).changed == ()
    hub.add(REPO, {"README.md": b"# Mine alone\n"})
    publish(NAME, REPO)
    assert hub.files(REPO)["README.md"].decode() == f"{generated}\n# Mine alone\n"


def test_publish_keeps_the_card_in_the_folder(hub, tmp_path):
    folder = kh.save(kh.load(NAME), tmp_path / "mine")
    (folder / "README.md").write_text("# Mine\n")
    publish(str(folder), REPO)
    card = hub.files(REPO)["README.md"].decode()
    assert card.startswith("---\n") and card.endswith("# Mine\n") and "kh.load" in card
    (folder / "README.md").write_text(card)
    assert publish(str(folder), REPO).changed == ()
    kh.save(kh.load(NAME), folder)
    assert (folder / "README.md").read_text() == card


@pytest.mark.more
def test_publish_all_brings_every_folder_up_to_date(hub, monkeypatch, capsys):
    rows = {name: registry.WEIGHTS[name] for name in (NAME, "resnet50.a1")}  # the second has no folder here
    monkeypatch.setattr(registry, "WEIGHTS", rows)
    assert main(["publish", "--all", "--repo", "org"]) == 0
    assert main(["publish", "--all", "--repo", "org"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "uploaded README.md" in first and f"org/{NAME}: up to date; v1" in second
    assert list(hub.repositories) == [f"org/{NAME}"]
    assert publish_all("org")[0].changed == ()


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["publish", "--repo", "a/b"], "RUN or NAME"),
        (["publish", NAME, "--repo", "org"], "--repo ORG/NAME"),
        (["publish", "--all", "--repo", "a", "--dataset", "digits"], "without --dataset"),
        (["publish", "mnist10_w61.tvdn", "--repo", "a/b"], "Did you mean"),
        (["verify", "org/nothing"], "no such repository"),
    ],
)
def test_wrong_requests(hub, arguments, match, capsys):
    assert main(arguments) == 2
    assert match in capsys.readouterr().err


def test_without_a_token(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(HubError, match="HF_TOKEN"):
        publish(NAME, REPO)
    assert hub.repositories == {}


def test_fetch_and_evaluate_over_the_hub(hub, capsys, tmp_path):
    publish(NAME, REPO)
    assert main(["fetch", URL]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == hub.files(REPO)["model.weights.h5"]
    data = {"x_test": np.zeros((4, 28, 28), np.uint8), "y_test": np.zeros(4, np.uint8)}
    np.savez(tmp_path / "mnist.npz", x_train=data["x_test"], y_train=data["y_test"], **data)
    assert main(["evaluate", URL, "--data", str(tmp_path)]) == 0
    assert "on the 4 test images of mnist: accuracy" in capsys.readouterr().out
    assert main(["verify", REPO, "--data", str(tmp_path)]) == 1  # not the accuracy that was recorded
    assert "DIFFERENT" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["weights", "copy", "check", "row"])
def test_verify_finds_what_is_wrong(hub, what, tmp_path):
    publish(NAME, REPO)
    files = hub.files(REPO)
    other = tmp_path / "model.weights.h5"
    weights_file.save(kh.create_model("mnist10_w16"), other, "mnist10_w16", 10)
    row = json.loads(files["weights.json"])
    wrong = {
        "weights": {"model.weights.h5": other.read_bytes()},
        "copy": {"model.safetensors": files["model.safetensors"][:-4] + b"\0\0\0\0"},
        "check": {"check.npz": files["check.npz"][:-50]},
        "row": {"weights.json": json.dumps({**row, "transform": {**row["transform"], "scale": 1.0}}).encode()},
    }[what]
    hub.add(REPO, wrong)
    with pytest.raises(
        ValueError,
        match={"weights": "damaged", "copy": "safetensors", "check": "not a check", "row": "differs"}[what],
    ):
        verify(REPO)


PUSH = """
import sys
from pathlib import Path
from keras_highway.weights.hub import push
push(Path(sys.argv[1]), sys.argv[2])
"""


def pushing(hub, folder):
    """A process of its own that uploads what `publish` uploads."""
    own = {"PYTHONPATH": str(Path(kh.__file__).parents[1]), "KERAS_BACKEND": "numpy", "HF_HUB_DISABLE_XET": "1"}
    env = {**os.environ, **own, "HF_ENDPOINT": hub.url, "HF_TOKEN": fake.TOKEN}
    command = [sys.executable, "-c", PUSH, str(folder), REPO]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.more
def test_killed_while_publishing(hub, bundles, tmp_path):
    """Killed in the middle of an upload, of the commit, of the release: publish once more, and all is right."""
    bundles(find_publishable(NAME), REPO, tmp_path / "bundle")
    hub.fault = lambda method, path: fake.Fault(wait=0.5) if "/commit/" in path and method in ("PUT", "POST") else None
    process = pushing(hub, tmp_path / "bundle")
    deadline = time.monotonic() + 120
    while not any("/commit/" in path for _, path, _ in hub.requests) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    time.sleep(0.7)  # the server finishes the request before it sees that the client is gone
    hub.fault = lambda method, path: None
    pushed = publish(NAME, REPO)
    repository = hub.repositories[REPO]
    assert set(hub.files(REPO)) == FILES and list(repository.tags.values()) == [pushed.commit] == [repository.head]
    assert verify(REPO).row.name == NAME


PETS = "org/pets"
SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}


def header_of(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_a_users_language_model_has_no_licence_by_default():
    """It was published as Apache-2.0, whose grant of rights is its owner's alone to make."""
    result = {"weights": "charlm_small_coupled.mine", "variant": "charlm_small_coupled", "data": "/home/me/letters"}
    row = LanguageModel.new_row(result, {})
    assert row.licence == ""
    card = model_card(row, PETS, {}, torch_names=False)
    assert "license" not in header_of(card) and "Apache" not in card and "licence of the weights" not in card
    stated = model_card(dataclasses.replace(row, licence="MIT"), PETS, {}, torch_names=False)
    assert header_of(stated)["license"] == "mit"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Apache-2.0", {"license": "apache-2.0"}),
        ("Apache 2.0", {"license": "other", "license_name": "Apache 2.0"}),
        ('Ours: "no use" # of any kind', {"license": "other", "license_name": 'Ours: "no use" # of any kind'}),
        ("", {}),
    ],
)
def test_a_licence_that_the_hub_does_not_know_is_stated_by_its_name(text, expected):
    """The Hub refuses a card with an identifier that is not on its list, and so the whole repository."""
    row = dataclasses.replace(kh.describe_weights(NAME), licence=text)
    header = header_of(model_card(row, PETS, {}, torch_names=False))
    assert {key: value for key, value in header.items() if key.startswith("license")} == expected
    assert header["model-index"][0]["name"] == row.name


def net(**changes):
    return kh.create_model("highway20", weights=None, **{**SMALL, **changes})


def bundle_of(folder, place):
    """The files of a repository, made of a folder."""
    place.mkdir()
    write_bundle(find_publishable(str(folder)), "", place)
    return place


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float16", "float64"])
def test_a_model_saved_under_a_policy_computes_the_same_without_it(policy, tmp_path):
    if policy == "float64" and keras.backend.backend() == "jax":
        pytest.skip("JAX has no float64 by default")
    model = net(dtype="float32")
    kh.save(model, tmp_path / "a" / "net", transform="cifar10")
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        kh.save(model, tmp_path / "b" / "net", transform="cifar10")
        bundle = bundle_of(kh.save(net(), tmp_path / "c", transform="cifar10"), tmp_path / "bundle")
    finally:
        keras.config.set_dtype_policy(before)
    assert (tmp_path / "a/net" / FILE).read_bytes() == (tmp_path / "b/net" / FILE).read_bytes()
    row = read_row(bundle / ROW)
    assert compare_check(weights_class(row.variant).open(row, bundle / FILE), bundle / CHECK) < 1e-5
