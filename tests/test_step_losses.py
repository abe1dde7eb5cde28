"""`--log-steps` and `--finish`: the loss of every step, exact over a resumed run; results of runs ended early."""

import csv
import dataclasses

import pytest

from training.loop import Run, train
from training.program import Program
from training.recipes import RECIPES
from training.run_folder import RunFolder
from training.shown import shown_epochs
from training.sources import open_source
from training.strategy import Strategy
from training.tiny import tiny


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


def test_a_run_that_is_ended_early_says_so_and_goes_on(tmp_path):
    with pytest.raises(ValueError, match=r"after step 0 of epoch 1: train on, to --until 1 at least"):
        train(RECIPE, None, tmp_path, until=0, finish=True)
    early = train(RECIPE, None, tmp_path, until=1, finish=True)
    assert (early["epochs"], early["of_epochs"], shown_epochs(early)) == (1, 2, "1 of 2")
    assert early["mean"] == float(rows(tmp_path, "log.csv")[-1]["test_accuracy"])
    whole = train(RECIPE, None, tmp_path)
    assert "of_epochs" not in whole and shown_epochs(whole) == "2"
    assert whole["values"] == train(RECIPE, None, tmp_path / "at_once")["values"]


def test_a_result_is_of_whole_epochs(tmp_path):
    class Asked:
        made = True

    with pytest.raises(SystemExit):
        source = open_source(RECIPE, None)
        Run(Program(RECIPE, source, source.on_device()), source, Strategy(), folder_of(tmp_path, RECIPE)).epoch(Asked)
    with pytest.raises(ValueError, match=r"after step 1 of epoch 1: train on"):
        train(RECIPE, None, tmp_path, until=0, finish=True)
    assert not (tmp_path / "result.json").exists()


def test_losses_that_were_not_logged_are_not_made_up(tmp_path):
    train(RECIPE, None, tmp_path, until=1)
    assert not (tmp_path / "steps.csv").exists()
    with pytest.raises(ValueError, match=r"steps.csv has 0 steps of the \d+ that were taken.*without --log-steps"):
        train(RECIPE, None, tmp_path, log_steps=True)
    assert not (tmp_path / "steps.csv").exists()
    assert train(RECIPE, None, tmp_path)["epochs"] == 2
