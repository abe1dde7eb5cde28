"""A run's folder: it refuses other recipes, data and states, and a refused start loses nothing."""

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest

from keras_highway._support import files
from keras_highway.training import checkpoint, train
from keras_highway.training.data.samples import fingerprint_of
from keras_highway.training.data.source import open_source
from keras_highway.training.data.synthetic import synthetic_dataset
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import task_code
from keras_highway.training.loop import train as train_recipe
from keras_highway.training.program import ImageProgram
from keras_highway.training.recipe import changed, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder, defaults_of, same_recipe
from keras_highway.training.train import errors_in_a_line

W16 = tiny(RECIPES["mnist10_w16"])
NET = tiny(RECIPES["highway_fc10"])
MNIST = changed(NET, data="mnist")
TEXT = dataclasses.replace(
    tiny(RECIPES["charlm_small_coupled"]), data="ptb", precision="float32", train_tokens=None, test_tokens=None
)


def folder_of(path, recipe=NET) -> RunFolder:
    return RunFolder(path, recipe, Strategy())


def mnist_in(folder: Path, order=slice(None), pixels: int = 0) -> Path:
    """Made-up images in an order; `pixels` is added to them."""
    data = synthetic_dataset("synthetic_mnist")
    folder.mkdir()
    train_set = {"x_train": data.x_train[order] + np.uint8(pixels), "y_train": data.y_train[order]}
    np.savez(folder / "mnist.npz", **train_set, x_test=data.x_test, y_test=data.y_test)
    return folder


def files_in(folder) -> dict:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_folders_of_other_runs_and_broken_states_are_refused(tmp_path):
    folder_of(tmp_path, W16)
    (tmp_path / "log.csv").write_text("epoch,train_loss\n1,2.0\n")
    with pytest.raises(ValueError, match="another recipe"):
        train_recipe(dataclasses.replace(W16, seed=9), None, tmp_path)
    (tmp_path / "checkpoint.npz").write_bytes(b"PK nothing")
    with pytest.raises(ValueError, match="not a checkpoint of a run"):
        train_recipe(W16, None, tmp_path)
    source = open_source(NET, None)
    other = ImageProgram(NET, source, source.on_device())
    values = checkpoint.finite_values(other.state, np.asarray)
    checkpoint.save(tmp_path / "checkpoint.npz", values, checkpoint.Progress(0, 0, np.zeros(4), 0, 0))
    with pytest.raises(ValueError, match="of another network or version"):
        train_recipe(W16, None, tmp_path)


def test_recipes_of_earlier_versions_and_in_another_order_are_the_same():
    one, two = (
        with_settings(W16, list(settings))
        for settings in (("net.gate_bias=-3", "net.remat=true"), ("net.remat=true", "net.gate_bias=-3"))
    )
    assert one.overrides != two.overrides and same_recipe(one.to_dict(), two.to_dict(), defaults_of(one))
    old = {**one.to_dict(), "rate_multipliers": [], "plateau_delta": 0.0}
    del old["train_sizes"]
    assert same_recipe(old, one.to_dict(), defaults_of(one))
    assert not same_recipe({**old, "rate_multipliers": [["head/*", 2.0]]}, one.to_dict(), defaults_of(one))


@pytest.mark.parametrize("epochs", [0, 1])
def test_a_finished_run_without_its_state_is_not_trained_again(tmp_path, epochs):
    train_recipe(NET, None, tmp_path)
    (tmp_path / "checkpoint.npz").unlink()
    before = files_in(tmp_path)
    with pytest.raises(ValueError, match=r"a run of 2 epochs and no checkpoint\.npz"):
        train_recipe(NET, None, tmp_path, until=epochs or None)
    assert files_in(tmp_path) == before


def test_a_run_killed_between_its_first_line_and_its_first_state_begins_again(tmp_path):
    train_recipe(NET, None, tmp_path, until=1)
    (tmp_path / "checkpoint.npz").unlink()
    assert train_recipe(NET, None, tmp_path)["epochs"] == 2


def test_a_log_that_lacks_epochs_is_refused(tmp_path):
    train_recipe(changed(NET, epochs=3), None, tmp_path, until=2)
    lines = (tmp_path / "log.csv").read_text().splitlines()
    (tmp_path / "log.csv").write_text("\n".join(lines[:-1]) + "\n")
    with pytest.raises(ValueError, match=r"has 1 epochs and .* was saved after 2"):
        train_recipe(changed(NET, epochs=3), None, tmp_path)


@pytest.mark.parametrize(("epoch", "stays"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_stale_result_is_deleted_when_a_run_resumes(epoch, stays, tmp_path):
    """Otherwise it would be taken for the result of the resumed run once that has as many epochs."""
    folder = folder_of(tmp_path)
    folder.result.write_text(json.dumps({"epochs": 2}))
    (tmp_path / "model.weights.h5").touch()
    folder.begin_session(epoch, 0)
    assert folder.result.exists() == stays


def test_a_second_process_in_the_same_folder_is_refused(tmp_path):
    first = folder_of(tmp_path)
    with pytest.raises(ValueError, match="Another process is training in"):
        folder_of(tmp_path)
    del first
    assert folder_of(tmp_path).rows() == []


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX locks")
@pytest.mark.parametrize(
    ("number", "refused", "message"),
    [
        (errno.EIO, OSError, "Input/output error"),
        (errno.EACCES, ValueError, "Another process is training in"),
        (errno.ENOLCK, None, "without locks"),
    ],
)
def test_only_a_file_system_without_locks_trains_without_one(number, refused, message, tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", fails)
    if refused:
        with pytest.raises(refused, match=message):
            folder_of(tmp_path)
    else:
        folder_of(tmp_path).close()
        assert message in capsys.readouterr().err and (tmp_path / "recipe.json").exists()


def test_a_state_or_data_set_on_a_file_system_that_is_away_is_not_called_damaged(tmp_path, monkeypatch, capsys):
    folder, run = mnist_in(tmp_path / "a"), tmp_path / "run"
    train_recipe(MNIST, folder, run, until=1)
    open_ = files.open_regular

    def away(path, *args, **kwargs):
        if not isinstance(path, Path) or path.name == "checkpoint.npz":
            raise OSError(errno.ESTALE, "Stale file handle", str(path))
        return open_(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(files, "open_regular", away)
        with pytest.raises(SystemExit) as ended, errors_in_a_line():
            train_recipe(MNIST, folder, run)
    said = capsys.readouterr().err
    assert ended.value.code == 1 and "Stale file handle" in said and "not a checkpoint" not in said
    monkeypatch.setattr("zipfile.ZipFile.open", away)
    with pytest.raises(OSError, match="Stale file handle"):
        open_source(MNIST, folder)


@pytest.mark.parametrize(("number", "code"), [(errno.ESTALE, 1), (errno.ENOSPC, 2)])
def test_errors_that_may_pass_have_their_own_exit_code(number, code, monkeypatch, tmp_path, capsys):
    def fails(*args, **kwargs):
        raise OSError(number, "the disk says no")

    monkeypatch.setattr(train, "_train", lambda: fails)
    with pytest.raises(SystemExit) as ended:
        train.main(["mnist10_w16", "--tiny", "--out", str(tmp_path)])
    assert ended.value.code == code and "the disk says no" in capsys.readouterr().err


@pytest.mark.parametrize("other", [{"order": slice(None, None, -1)}, {"pixels": 1}])
def test_a_run_does_not_resume_with_other_images_or_another_order(tmp_path, other):
    """Other images would be held out, and the run has been trained on some of them."""
    recipe = changed(MNIST, holdout_images=50)
    folder, run = mnist_in(tmp_path / "a"), tmp_path / "run"
    assert train_recipe(recipe, folder, run, until=1) is None
    with pytest.raises(ValueError, match=r"began with other data: fingerprint \w{12}, now \w{12}\. Its order counts"):
        train_recipe(recipe, mnist_in(tmp_path / "b", **other), run)
    assert train_recipe(recipe, mnist_in(tmp_path / "copy"), run)["epochs"] == 2


def test_other_facts_of_the_data_are_named_once_something_is_trained(tmp_path):
    facts = {"class_names": ["a"], "fingerprint": 64 * "a", "steps_per_epoch": 10}
    with contextlib.closing(folder_of(tmp_path)) as folder:
        folder.check_data({**facts, "steps_per_epoch": 9})
        folder.check_data(facts)  # nothing was trained
        folder.log.write_text("epoch,train_loss\n1,2.0\n")
        folder.check_data(facts)
        with pytest.raises(ValueError, match=r"other data: steps_per_epoch 10, now 12\."):
            folder.check_data({**facts, "fingerprint": 64 * "b", "steps_per_epoch": 12})
        with pytest.raises(ValueError, match=r"other data: class_names \['a'\], now \['b'\]"):
            folder.check_data({**facts, "class_names": ["b"]})


def test_fingerprints_stay_the_same(tmp_path):
    """Every run that has begun is refused if they change."""
    arrays = np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.array([0, 1, 2], np.int64)
    ours = hashlib.sha256()
    for array, text in zip(arrays, ("|u1(3, 2, 2)", "<i8(3,)"), strict=True):
        ours.update(text.encode() + array.tobytes())
    assert fingerprint_of(*arrays) == ours.hexdigest()
    assert fingerprint_of("a", "b") == hashlib.sha256(b"ab").hexdigest()
    images, labels = (np.arange(40 * 784) % 251).reshape(40, 28, 28).astype(np.uint8), np.arange(40) % 10
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    assert open_source(changed(MNIST, train_images=30), tmp_path).fingerprint.startswith("66d55aaf580580464602bd9e")
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(200 * "one two three four\n")
    assert task_code(TEXT.task)[0](TEXT, tmp_path).fingerprint.startswith("8390e60f057ddc31f1c6497a")


def test_a_transform_of_other_images_is_refused_before_training(tmp_path):
    images, labels = np.zeros((20, 32, 32, 3), "uint8"), np.arange(20) % 10
    np.savez(tmp_path / "cifar10.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    with pytest.raises(ValueError, match=r"`transform` needs images of shape .*Received: transform='mnist'"):
        train_recipe(changed(RECIPES["highway20"], transform="mnist", batch_size=4), tmp_path, tmp_path / "run")


def test_a_run_with_nothing_left_to_train_is_refused(tmp_path):
    settings = ["init='mnist10_w16.tvdn'", "freeze=head", "data=synthetic_mnist", "decay_multipliers=()", "epochs=1"]
    with pytest.raises(ValueError, match="`freeze` leaves nothing to train"):
        train_recipe(with_settings(RECIPES["mnist10_w16"], settings), None, tmp_path)
    assert not (tmp_path / "log.csv").exists()


def test_a_run_whose_start_is_gone_says_so(tmp_path):
    start, out = tmp_path / "start", tmp_path / "run"
    train_recipe(NET, None, start)
    recipe = with_settings(NET, [f"init={str(start)!r}"])
    assert train_recipe(recipe, None, out, until=1) is None
    start.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"starts from .*start', which is also needed to resume.*Names of weights"):
        train_recipe(recipe, None, out)
    (tmp_path / "moved").rename(start)
    result = train_recipe(recipe, None, out)
    assert result is not None and result["epochs"] == 2


@pytest.mark.parametrize(
    ("name", "text"), [("data.json", "{}"), ("recipe.json", '{"name": "Pancakes"}'), ("weights.json", "{}")]
)
def test_training_does_not_overwrite_files_of_the_users(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=name):
        folder_of(tmp_path)
    assert (tmp_path / name).read_text() == text and list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_run_begins_next_to_files_that_it_does_not_write(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    folder_of(tmp_path)
    folder_of(tmp_path)  # again, before anything was trained
    assert (tmp_path / "notes.txt").read_text() == "mine"
