"""Training from consoles, searches and schedulers: ends, starts that are gone, numbers that JSON does not have."""

import json
import os
import signal

import pytest

from keras_highway.training.experiments import search
from keras_highway.training.experiments.rungs import Rung
from keras_highway.training.loop import train
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES
from keras_highway.training.runs import results
from keras_highway.training.runs.run import Run
from keras_highway.training.tiny import tiny

NET = tiny(RECIPES["highway_fc10"])
LM = tiny(RECIPES["charlm_small_full"])


@pytest.mark.parametrize(
    ("recipe", "setting", "message"),
    [
        (LM, "plateau_delta=1e999", "`plateau_delta` must be a finite number. Received: plateau_delta=inf"),
        (LM, "clip_norm=1e999", "`clip_norm` must be a finite number"),
        (LM, "learning_rate=1e999", "`learning_rate` must be a finite number"),
        (LM, "plateau_delta=-1", "`plateau_delta` must not be negative. Received: plateau_delta=-1"),
        (LM, "name=", "`name`.* a name without '/'"),
        (NET, "rate_multipliers=(('*kernel', 1e999),)", "`rate_multipliers` must be a finite number"),
        (NET, "decay_multipliers=(('*', -1),)", "`decay_multipliers` must not be negative"),
        (NET, "name=", "`name`.* a name without '/'"),
        (NET, "name=../x", "`name`.* a name without '/'"),
    ],
)
def test_settings_that_a_run_could_not_be_resumed_with(recipe, setting, message):
    """Infinity is not of JSON: the recipe.json of such a run was refused when it was read again."""
    with pytest.raises(ValueError, match=message):
        with_settings(recipe, [setting])


@pytest.mark.parametrize("error", [KeyboardInterrupt, FloatingPointError])
def test_a_run_that_was_broken_off_is_resumed_in_the_same_process(tmp_path, monkeypatch, error):
    """A console keeps the last traceback, and with it every object of the call."""

    def breaks(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_prepare_epoch", breaks)
        with pytest.raises(error) as kept:
            train(NET, None, tmp_path)
    result = train(NET, None, tmp_path)
    assert result is not None and result["epochs"] == NET.epochs and kept.tb is not None


def test_sigterm_while_a_result_is_written_ends_a_search(tmp_path, monkeypatch):
    save, started = results.weights_file.save, []

    def saves(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return save(*args, **kwargs)

    def begins(self):
        started.append(self.folder.path.name)

    monkeypatch.setattr(results.weights_file, "save", saves)
    monkeypatch.setattr(Run, "_prepare_epoch", begins)
    with pytest.raises(SystemExit) as ended:
        search.run_search(search.SEARCHES["figure1"], (Rung(2, 1),), None, tmp_path, True, ["highway_fc10"])
    assert ended.value.code == 75 and started == ["0"]
    assert json.loads((tmp_path / "highway_fc10" / "0" / "result.json").read_text())["epochs"] == 1  # whole


def test_a_run_whose_start_is_gone_says_so(tmp_path):
    start, out = tmp_path / "start", tmp_path / "run"
    train(NET, None, start)
    recipe = with_settings(NET, [f"init={str(start)!r}"])
    assert train(recipe, None, out, until=1) is None
    start.rename(tmp_path / "moved")
    with pytest.raises(ValueError, match=r"holds a run that was begun from .*start': .* put it back.*Names of weights"):
        train(recipe, None, out)
    (tmp_path / "moved").rename(start)
    result = train(recipe, None, out)
    assert result is not None and result["epochs"] == 2
