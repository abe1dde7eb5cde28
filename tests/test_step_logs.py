"""`--log-steps` and `--finish`: the loss of every step, exact over a resumed run; results of runs ended early."""

import contextlib
import csv
import dataclasses
import json

import pytest
from requests_to_stop import Asked

from keras_highway.training.data.source import open_source
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.loop import Run, train
from keras_highway.training.program import Program
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs.run_folder import RunFolder
from keras_highway.training.tiny import tiny
from keras_highway.weights.info import format_epochs

pytestmark = pytest.mark.slow


def folder_of(path, recipe) -> RunFolder:
    return RunFolder(path, recipe.to_dict(), Strategy())


RECIPE = dataclasses.replace(tiny(RECIPES["highway_fc10"]), epochs=2)


def rows(folder, file) -> list[dict]:
    with (folder / file).open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_every_step_has_its_loss_and_a_resumed_run_the_same(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(RECIPE, None, whole, log_steps=True)
    steps, epochs = rows(whole, "steps.csv"), rows(whole, "log.csv")
    assert [int(row["step"]) for row in steps] == list(range(1, int(epochs[-1]["step"]) + 1))
    losses, per_epoch = [float(row["train_loss"]) for row in steps], len(steps) // 2
    assert len(set(losses)) == len(losses)
    for epoch, row in enumerate(epochs):
        mean = sum(losses[epoch * per_epoch : (epoch + 1) * per_epoch]) / per_epoch
        assert mean == pytest.approx(float(row["train_loss"]), rel=1e-6)

    train(RECIPE, None, cut, log_steps=True, until=1)
    with (cut / "steps.csv").open("a") as file:
        file.write(f"{per_epoch + 1},99.0\n{per_epoch + 2},9")  # a process that was killed in the second epoch
    train(RECIPE, None, cut, log_steps=True)
    assert (cut / "steps.csv").read_text() == (whole / "steps.csv").read_text()


def run_of(folder, **options) -> Run:
    source = open_source(RECIPE, None)
    return Run(Program(RECIPE, source, source.on_device()), source, Strategy(), folder_of(folder, RECIPE), **options)


@pytest.mark.slow
def test_steps_are_exact_in_the_middle_of_an_epoch(tmp_path):
    """Saved every other step, told to stop after the third: the fourth and what a dead process wrote are taken anew."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(RECIPE, None, whole, log_steps=True)
    run = run_of(cut, save_steps=2, log_steps=True)
    with contextlib.closing(run.folder):
        run.restore()
        with pytest.raises(SystemExit):
            run.epoch(Asked(2))
    assert [row["step"] for row in rows(cut, "steps.csv")] == ["1", "2", "3"]
    with (cut / "steps.csv").open("a") as file:
        file.write("4,1")
    train(RECIPE, None, cut, log_steps=True)
    assert (cut / "steps.csv").read_text() == (whole / "steps.csv").read_text()


def test_a_torn_file_of_losses_is_refused(tmp_path):
    train(RECIPE, None, tmp_path, log_steps=True, until=1)
    lines = (tmp_path / "steps.csv").read_text().splitlines()
    (tmp_path / "steps.csv").write_text("\n".join([*lines[:2], *lines[3:], "junk"]))
    with pytest.raises(ValueError, match=r"has 1 steps of the"):
        train(RECIPE, None, tmp_path, log_steps=True)


def dies(self, stop):
    raise KeyboardInterrupt


@pytest.mark.slow
def test_a_run_that_is_ended_early_reports_it_and_resumes(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"after step 0 of epoch 1: train on, to --until 1 at least"):
        train(RECIPE, None, tmp_path, until=0, finish=True)
    early = train(RECIPE, None, tmp_path, until=1, finish=True)
    assert (early["epochs"], early["of_epochs"], format_epochs(early)) == (1, 2, "1 of 2")
    assert early["mean"] == float(rows(tmp_path, "log.csv")[-1]["test_accuracy"])
    assert (tmp_path / "result.json").exists()
    with monkeypatch.context() as patch:  # it resumes, and dies: the weights that the result is of are still there
        patch.setattr(Run, "epoch", dies)
        with pytest.raises(KeyboardInterrupt):
            train(RECIPE, None, tmp_path)
    assert json.loads((tmp_path / "result.json").read_text()) == early
    whole = train(RECIPE, None, tmp_path)
    assert "of_epochs" not in whole and format_epochs(whole) == "2"
    assert whole["values"] == train(RECIPE, None, tmp_path / "at_once")["values"]


def test_a_result_is_of_whole_epochs(tmp_path):
    run = run_of(tmp_path)
    with contextlib.closing(run.folder), pytest.raises(SystemExit):
        run.epoch(Asked(0))
    with pytest.raises(ValueError, match=r"after step 1 of epoch 1: train on"):
        train(RECIPE, None, tmp_path, until=0, finish=True)
    assert not (tmp_path / "result.json").exists()


@pytest.mark.slow
def test_losses_that_were_not_logged_are_not_made_up(tmp_path):
    train(RECIPE, None, tmp_path, until=1)
    assert not (tmp_path / "steps.csv").exists()
    with pytest.raises(ValueError, match=r"steps.csv has 0 steps of the \d+ that were taken.*without --log-steps"):
        train(RECIPE, None, tmp_path, log_steps=True)
    assert not (tmp_path / "steps.csv").exists()
    assert train(RECIPE, None, tmp_path)["epochs"] == 2
