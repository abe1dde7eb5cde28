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
from contracts import to_numpy

import keras_highway as kh
from keras_highway.cli import main
from keras_highway.data.transforms import Transform
from keras_highway.weights import files as weights_file
from keras_highway.weights import registry
from keras_highway.weights.card import described, model_card
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


@pytest.mark.parametrize("argument", ["dataset", "license"])
def test_a_text_that_no_card_may_have_is_refused_by_the_arguments_name(argument):
    with pytest.raises(ValueError, match=f"^`{argument}` is malformed"):
        publish("mnist10_w16.tvdn", "org/name", dry_run=True, **{argument: "x\ny"})


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


def test_keras_loads_the_repository_by_itself(hub):
    publish(NAME, REPO)
    model = keras.saving.load_model(URL)
    np.testing.assert_array_equal(np.asarray(model(X)), np.asarray(kh.load(NAME)(X)))
    assert [layer.name for layer in model.layers][1:] == [layer.name for layer in kh.load(NAME).layers][1:]


def test_publishing_twice_changes_nothing(hub):
    first = publish(NAME, REPO)
    before = len(writes(hub))
    second = publish(NAME, REPO)
    assert second == first._replace(changed=(), unchanged=second.unchanged) and set(second.unchanged) == set(
        first.changed
    )
    assert {r[1] for r in writes(hub)[before:]} == {"/api/repos/create"}  # which answers that it is there
    assert len(hub.repositories[REPO].commits) == 2


def test_only_what_differs_is_uploaded_and_released(hub):
    first = publish(NAME, REPO)
    hub.add(REPO, {"README.md": b"# altered by hand\n", "NOTES.md": b"a user's\n"})
    second = publish(NAME, REPO)
    assert second.changed == ("README.md",)
    assert hub.repositories[REPO].tags == {"v1": first.commit, "v2": second.commit}
    assert hub.files(REPO)["NOTES.md"] == b"a user's\n"


@pytest.mark.slow
def test_what_was_measured_of_other_weights_does_not_stay_beside_new_ones(hub, tmp_path, capsys):
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


@pytest.mark.more
def test_files_that_no_run_was_published_with_are_not_the_packages(hub, tmp_path):
    folder = kh.save(kh.load(NAME), tmp_path / "mine", name="mine")
    for repo, own in ((REPO, ("log.csv", "curve.png")), ("org/two", ("result.json", "recipe.json", "log.csv"))):
        publish(str(folder), repo)
        hub.add(repo, dict.fromkeys(own, b"a user's"))
        assert publish(str(folder), repo).removed == ()
        assert all(hub.files(repo)[name] == b"a user's" for name in own)


def test_check_and_curve_of_the_same_weights_stay(hub):
    """Another processor computes other last bits, another matplotlib draws other pixels."""
    publish(NAME, REPO)
    hub.add(REPO, {"check.npz": b"another processor's", "curve.png": b"another matplotlib's"})
    assert publish(NAME, REPO).changed == ()


def test_a_removal_alone_is_a_commit_and_a_release(hub, capsys):
    publish(NAME, REPO)
    hub.add(REPO, {"log_seed2.csv": b"epoch\n1\n"})
    assert main(["publish", NAME, "--repo", REPO]) == 0
    assert capsys.readouterr().out.startswith(f"{REPO}: removed log_seed2.csv; v2, commit ")
    assert set(hub.files(REPO)) == FILES


def test_dry_run_writes_nothing(hub, hub_table, capsys):
    assert main(["publish", NAME, "--repo", REPO, "--dry-run"]) == 0
    assert "would upload README.md, check.npz" in capsys.readouterr().out
    assert writes(hub) == [] and hub.repositories == {} and hub_table.read_text() == "{}\n"


@pytest.mark.slow
def test_a_run_is_published_with_its_own_result(hub, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(registry.folders(NAME)[-1], run)
    result = {**registry.result(NAME), "mean": 0.5, "weights": "mnist10_w16.mine"}
    (run / "result.json").write_text(json.dumps(result))
    publish(str(run), "org/mine", private=True)
    assert hub.repositories["org/mine"].private
    row = describe_weights("hf://org/mine")
    assert (row.name, row.metrics["mean"], row.classes) == ("mnist10_w16.mine", 0.5, tuple("0123456789"))
    assert verify("org/mine").row == row


@pytest.mark.more
def test_the_card_of_a_run_lists_what_was_set(hub, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(find_publishable(NAME).folder, run)
    for name, changes in (
        ("result.json", {"weights": "other.mine"}),
        ("recipe.json", {"epochs": 4, "learning_rate": 0.5, "train_images": 600}),
    ):
        (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | changes))
    publish(str(run), "org/other")
    (line,) = [x for x in hub.files("org/other")["README.md"].decode().splitlines() if x.startswith("| recipe |")]
    assert "keras_highway train mnist10_w16 --data DIR" in line
    assert line.endswith(
        "here with epochs 4, batch_size 100, learning_rate 0.5, precision mixed_bfloat16, train_images 600: "
        "all settings are in `recipe.json` |"
    )
    publish(NAME, REPO)
    assert "here with" not in hub.files(REPO)["README.md"].decode()


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
        (["publish", NAME, "--all", "--repo", "a"], "RUN or NAME"),
        (["publish", NAME, "--repo", "org"], "--repo ORG/NAME"),
        (["publish", "--all", "--repo", "a/b"], "--repo ORG"),
        (["publish", "--all", "--repo", "a", "--dataset", "digits"], "without --dataset"),
        (["publish", "--all", "--repo", "a", "--license", "mit"], "--license"),
        (["publish", "mnist10_w61.tvdn", "--repo", "a/b"], "Did you mean"),
        (["publish", "resnet50.a1", "--repo", "a/b"], "No file of weights"),
        (["verify", "nothing"], "hf://org/name"),
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


@pytest.mark.slow
def test_the_same_weights_make_the_same_files(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
        write_bundle(find_publishable(NAME), REPO, folder)
    first, second = ({p.name: p.read_bytes() for p in folder.iterdir()} for folder in folders)
    assert first == second and set(first) == FILES - {".gitattributes"}


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


@pytest.mark.parametrize("moment", [*(pytest.param(m, marks=pytest.mark.slow) for m in ("/lfs/", "/tag/")), "/commit/"])
@pytest.mark.more
def test_killed_while_publishing(hub, bundles, moment, tmp_path):
    """Killed in the middle of an upload, of the commit, of the release: publish once more, and all is right."""
    bundles(find_publishable(NAME), REPO, tmp_path / "bundle")
    hub.fault = lambda method, path: fake.Fault(wait=0.5) if moment in path and method in ("PUT", "POST") else None
    process = pushing(hub, tmp_path / "bundle")
    deadline = time.monotonic() + 120
    while not any(moment in path for _, path, _ in hub.requests) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    time.sleep(0.7)  # the server does what it was asked before it sees that the client is gone
    hub.fault = lambda method, path: None
    pushed = publish(NAME, REPO)
    repository = hub.repositories[REPO]
    assert set(hub.files(REPO)) == FILES and list(repository.tags.values()) == [pushed.commit] == [repository.head]
    assert verify(REPO).row.name == NAME


PETS = "org/pets"
SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
SAVED = FILES - {".gitattributes", "curve.png", "log.csv", "recipe.json", "result.json"}
OF_KERAS = "epoch,accuracy,loss\n0,0.5,1.2\n1,0.75,0.8\n"  # CSVLogger's
OF_A_RUN = "epoch,train_loss,train_accuracy,test_accuracy\n1,1.2,0.5,0.4\n2,0.8,0.75,0.7\n"


@pytest.fixture
def saved(tmp_path):
    """A folder that `kh.save` wrote."""
    return kh.save(kh.create_model("highway20", weights=None, **SMALL), tmp_path / "pets", transform="cifar10")


def header_of(card):
    return yaml.safe_load(card.split("---\n")[1])


def test_a_language_model_of_ones_own_has_no_licence_that_nobody_stated():
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
        ("CC-BY-NC-SA-4.0", {"license": "cc-by-nc-sa-4.0"}),
        ("openrail++", {"license": "openrail++"}),
        ("Other", {"license": "other"}),
        ("Apache 2.0", {"license": "other", "license_name": "Apache 2.0"}),
        ("gpl-2.0-or-later", {"license": "other", "license_name": "gpl-2.0-or-later"}),
        ('Ours: "no use" # of any kind', {"license": "other", "license_name": 'Ours: "no use" # of any kind'}),
        ("1.0", {"license": "other", "license_name": "1.0"}),
        ("für alle " * 20 + "frei", {"license": "other", "license_name": "für alle " * 20 + "frei"}),
        ("", {}),
    ],
)
def test_a_licence_that_the_hub_does_not_know_is_stated_by_its_name(text, expected):
    """The Hub refuses a card with an identifier that is not on its list, and so the whole repository."""
    row = dataclasses.replace(kh.describe_weights(NAME), licence=text)
    header = header_of(model_card(row, PETS, {}, torch_names=False))
    assert {key: value for key, value in header.items() if key.startswith("license")} == expected
    assert header["model-index"][0]["name"] == row.name


@pytest.mark.slow
@pytest.mark.parametrize("log", [OF_KERAS, OF_A_RUN])
def test_a_users_files_beside_a_saved_model_are_not_taken_for_a_runs(saved, tmp_path, log):
    own = {"log.csv": log, "log_seed2.csv": log, "recipe.json": '{"name": "mine", "source": "my head", "epochs": 90}'}
    for name, text in own.items():
        (saved / name).write_text(text)
    (tmp_path / "bundle").mkdir()
    write_bundle(find_publishable(str(saved)), PETS, tmp_path / "bundle")
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == SAVED
    card = (tmp_path / "bundle" / "README.md").read_text("utf-8")
    assert not any(word in card for word in ("recipe", "my head", "log.csv", "curve"))


def test_what_is_not_published_of_a_saved_folder_may_be_a_link_or_a_pipe(saved, tmp_path):
    (tmp_path / "elsewhere.csv").write_text(OF_KERAS)
    (saved / "log.csv").symlink_to(tmp_path / "elsewhere.csv")
    os.mkfifo(saved / "recipe.json")
    (tmp_path / "bundle").mkdir()
    write_bundle(find_publishable(str(saved)), PETS, tmp_path / "bundle")
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == SAVED


def test_a_dry_run_refuses_a_public_repository_as_the_real_call_does(hub):
    hub.add(PETS, {"NOTES.md": b"a user's\n"})
    messages = []
    for dry_run in (True, False):
        with pytest.raises(HubError, match=r"is public: make it private.*Received: private=True") as caught:
            publish(NAME, PETS, private=True, dry_run=dry_run)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and set(hub.files(PETS)) == {"NOTES.md"}
    assert "README.md" in publish(NAME, PETS, dry_run=True).changed


def test_a_dry_run_of_a_private_or_a_new_repository_reports(hub):
    assert "README.md" in publish(NAME, "org/new", private=True, dry_run=True).changed
    pushed = publish(NAME, PETS, private=True)
    again = publish(NAME, PETS, private=True, dry_run=True)
    assert hub.repositories[PETS].private and (again.changed, again.commit) == ((), pushed.commit)


DIGITS = [f"digit {i}" for i in range(10)]


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    """A model of a user's own in a zoo of the user's own, by a name without a dot."""
    keras.utils.set_random_seed(0)
    model = kh.create_model("highway_fc10", depth=2, units=8)
    return kh.save(model, tmp_path_factory.mktemp("zoo") / "digits", DIGITS, transform="mnist")


def use_zoo(folder, names, monkeypatch):
    """Let a folder be the user's zoo, and let the table hold some of its names and some of the checkout's."""
    monkeypatch.setenv(registry.ZOO_VARIABLE, str(folder))
    registry.reread()
    monkeypatch.setattr(registry, "WEIGHTS", {name: registry.WEIGHTS[name] for name in names})


def test_a_saved_model_is_published_by_its_name_as_by_its_folder(digits, monkeypatch):
    use_zoo(digits.parent, ["digits"], monkeypatch)
    assert find_publishable("digits") == find_publishable(str(digits))


def test_nothing_recorded_is_no_difference(hub, digits, monkeypatch, capsys, tmp_path):
    assert main(["publish", str(digits), "--repo", "me/digits", "--dataset", "mnist"]) == 0
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 256, (20, 28, 28), np.uint8), np.arange(20) % 10
    np.savez(tmp_path / "mnist.npz", x_train=x, y_train=y, x_test=x, y_test=y, classes=np.array(DIGITS))
    assert main(["verify", "me/digits", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("%; the record has no result to compare with")


def test_what_was_published_is_told_although_a_later_one_fails(hub, digits, monkeypatch):
    use_zoo(digits.parent, ["digits", NAME], monkeypatch)
    real = hub.add

    def add(name, *args, **kwargs):
        if name.endswith(NAME):
            raise OSError("the disk is full")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(hub, "add", add)
    told = []
    with pytest.raises(HubError, match=f"Could not publish to hf://org/{NAME}"):
        publish_all("org", on_pushed=told.append)
    assert [pushed.repository for pushed in told] == ["org/digits"]


@pytest.mark.parametrize("broken", ["digits", NAME])
def test_nothing_is_published_where_one_cannot_be(broken, hub, tmp_path, digits, monkeypatch):
    """The copies of the user's zoo come before those of the checkout."""
    shutil.copytree(digits, tmp_path / "own" / "digits")
    shutil.copytree(registry.file_of(registry.find(NAME)).parent, tmp_path / "own" / NAME)
    use_zoo(tmp_path / "own", ["digits", NAME], monkeypatch)
    file = tmp_path / "own" / broken / "model.weights.h5"
    file.write_bytes(file.read_bytes() + b"more")
    with pytest.raises(ValueError, match=r"sha256|damaged"):
        publish_all("org")
    assert not hub.repositories


def test_a_name_that_is_none_on_the_hub_is_found_first(hub, digits, tmp_path, monkeypatch):
    for name in ("digits", "my digits"):
        shutil.copytree(digits, tmp_path / "own" / name)
        row = json.loads((tmp_path / "own" / name / "weights.json").read_text())
        (tmp_path / "own" / name / "weights.json").write_text(json.dumps({**row, "name": name}))
    use_zoo(tmp_path / "own", ["digits", "my digits"], monkeypatch)
    with pytest.raises(ValueError, match="A name on the Hub"):
        publish_all("org")
    assert not hub.repositories


def test_private_is_not_taken_for_public(hub, digits):
    hub.add("me/digits", {"README.md": b"old"})
    with pytest.raises(HubError, match="me/digits is public"):
        kh.push_to_hub(kh.load(digits), "me/digits", private=True)
    assert set(hub.repositories["me/digits"].commits[-1][1]) == {"README.md"}


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


@pytest.mark.usefixtures("computes_channels_first")
def test_a_folder_that_was_saved_channels_first_is_published_channels_last(tmp_path):
    model = net()
    last = bundle_of(kh.save(model, tmp_path / "a" / "net", transform="cifar10"), tmp_path / "last")
    keras.config.set_image_data_format("channels_first")
    try:
        first = net(input_shape=(3, 32, 32))
        first.set_weights(model.get_weights())
        first = bundle_of(kh.save(first, tmp_path / "b" / "net", transform="cifar10"), tmp_path / "first")
    finally:
        keras.config.set_image_data_format("channels_last")
    assert (last / "config.json").read_bytes() == (first / "config.json").read_bytes()
    x = np.random.default_rng(0).random((2, 32, 32, 3), "float32")
    np.testing.assert_allclose(to_numpy(keras.saving.load_model(first)(x)), to_numpy(model(x)), atol=1e-5)


def test_a_folder_with_a_name_of_the_zoo_is_not_taken_for_the_zoo(tmp_path, monkeypatch, capsys):
    kh.save(net(), tmp_path / "highway20.blog", transform="cifar10")
    monkeypatch.chdir(tmp_path)
    assert main(["publish", "highway20.blog", "--repo", "org/own", "--dry-run"]) == 2
    assert "is a name in the zoo, and a folder of other weights here" in capsys.readouterr().err
    assert find_publishable("./highway20.blog").row.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"scale": 1 / 127.5, "mean": (1.0,)}, "times 1/127.5, minus (1.0,), over (1.0,)"),
        ({"scale": 1 / 255, "std": (0.5,)}, "times 1/255, minus (0.0,), over (0.5,)"),
        ({"scale": 1 / 255}, "times 1/255"),
        ({"scale": 2.0}, "times 2"),
    ],
)
def test_cards_state_what_pixels_go_through(fields, text):
    assert described(Transform(size=(8, 8), channels=3, **fields)).endswith(f"RGB, {text}")


def test_operations_that_would_be_lost_are_refused(tmp_path):
    body, images = net(), keras.Input((32, 32, 3))
    x = keras.ops.clip(images, -3, 3)
    for layer in body.layers[1:]:
        x = layer(x)
    with pytest.raises(ValueError, match="it has an operation 'clip"):
        kh.save(keras.Model(images, x, name="highway20"), tmp_path / "net", transform="cifar10")
    assert not (tmp_path / "net").exists()


def test_a_card_of_a_folder_names_no_other_place(tmp_path):
    folder = kh.save(net(), tmp_path / "runs dir" / "pets", name="resnet20.blog", transform="cifar10")
    card = (bundle_of(folder, tmp_path / "bundle") / "README.md").read_text("utf-8")
    assert 'weights = "path/of/this/folder"' in card and 'load_model("path/of/this/folder")' in card
    assert 'load("resnet20.blog")' not in card
