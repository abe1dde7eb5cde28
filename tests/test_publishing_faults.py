"""Publishing claims nothing that is not so: licences, files that are a user's, dry runs."""

import dataclasses
import os
import sys

import fake_hub as fake
import pytest
import yaml

import keras_highway as kh
from keras_highway.weights.card import model_card
from keras_highway.weights.hub import HubError
from keras_highway.weights.publish import find_publishable, publish, write_bundle
from keras_highway.weights.trained import LanguageModel

REPO = "org/pets"
SMALL = {"input_shape": (32, 32, 3), "blocks": (1, 1, 1), "widths": (4, 8, 8), "stem_width": 4, "classes": 3}
FILES = {"README.md", "check.npz", "config.json", "metadata.json", "model.safetensors", "model.weights.h5"}
OF_KERAS = "epoch,accuracy,loss\n0,0.5,1.2\n1,0.75,0.8\n"  # CSVLogger's
OF_A_RUN = "epoch,train_loss,train_accuracy,test_accuracy\n1,1.2,0.5,0.4\n2,0.8,0.75,0.7\n"


@pytest.fixture
def saved(tmp_path):
    """A folder that `kh.save` wrote."""
    return kh.save(kh.create_model("highway20", weights=None, **SMALL), tmp_path / "pets", transform="cifar10")


def header_of(card):
    return yaml.safe_load(card.split("---\n")[1])


# --- Licences ------------------------------------------------------------------------


def test_a_language_model_of_ones_own_has_no_licence_that_nobody_stated():
    """It was published as Apache-2.0, whose grant of rights is its owner's alone to make."""
    result = {"weights": "charlm_small_coupled.mine", "variant": "charlm_small_coupled", "data": "/home/me/letters"}
    row = LanguageModel.new_row(result, {})
    assert row.licence == ""
    card = model_card(row, REPO, {}, torch_names=False)
    assert "license" not in header_of(card) and "Apache" not in card and "licence of the weights" not in card
    stated = model_card(dataclasses.replace(row, licence="MIT"), REPO, {}, torch_names=False)
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
    row = dataclasses.replace(kh.describe_weights("mnist10_w16.tvdn"), licence=text)
    header = header_of(model_card(row, REPO, {}, torch_names=False))
    assert {key: value for key, value in header.items() if key.startswith("license")} == expected
    assert header["model-index"][0]["name"] == row.name


# --- Files beside a saved model --------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("log", [OF_KERAS, OF_A_RUN])
def test_a_users_files_beside_a_saved_model_are_not_taken_for_a_runs(saved, tmp_path, log):
    own = {"log.csv": log, "log_seed2.csv": log, "recipe.json": '{"name": "mine", "source": "my head", "epochs": 90}'}
    for name, text in own.items():
        (saved / name).write_text(text)
    (tmp_path / "bundle").mkdir()
    write_bundle(find_publishable(str(saved)), REPO, tmp_path / "bundle")
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == FILES | {"weights.json"}
    card = (tmp_path / "bundle" / "README.md").read_text("utf-8")
    assert not any(word in card for word in ("recipe", "my head", "log.csv", "curve"))


def test_what_is_not_published_of_a_saved_folder_may_be_a_link_or_a_pipe(saved, tmp_path):
    (tmp_path / "elsewhere.csv").write_text(OF_KERAS)
    (saved / "log.csv").symlink_to(tmp_path / "elsewhere.csv")
    os.mkfifo(saved / "recipe.json")
    (tmp_path / "bundle").mkdir()
    write_bundle(find_publishable(str(saved)), REPO, tmp_path / "bundle")
    assert {path.name for path in (tmp_path / "bundle").iterdir()} == FILES | {"weights.json"}


# --- Dry runs --------------------------------------------------------------------------


@pytest.fixture
def hub(fake_hub, hub_table, monkeypatch):
    """A Hub on which we may write; a bundle is a card."""

    def write(source, repository, folder):
        (folder / "README.md").write_text("---\nlibrary_name: keras\n---\n")

    monkeypatch.setenv("HF_TOKEN", fake.TOKEN)
    monkeypatch.setattr(sys.modules[publish.__module__], "write_bundle", write)
    return fake_hub


def test_a_dry_run_refuses_a_public_repository_as_the_real_call_does(hub):
    hub.add(REPO, {"NOTES.md": b"a user's\n"})
    messages = []
    for dry_run in (True, False):
        with pytest.raises(HubError, match=r"is there and public: make it private .* Received: private=True") as caught:
            publish("mnist10_w16.tvdn", REPO, private=True, dry_run=dry_run)
        messages.append(str(caught.value))
    assert messages[0] == messages[1] and set(hub.files(REPO)) == {"NOTES.md"}
    assert publish("mnist10_w16.tvdn", REPO, dry_run=True).changed == ("README.md",)


def test_a_dry_run_of_a_private_or_a_new_repository_reports(hub):
    assert publish("mnist10_w16.tvdn", "org/new", private=True, dry_run=True).changed == ("README.md",)
    pushed = publish("mnist10_w16.tvdn", REPO, private=True)
    again = publish("mnist10_w16.tvdn", REPO, private=True, dry_run=True)
    assert hub.repositories[REPO].private and (again.changed, again.commit) == ((), pushed.commit)
