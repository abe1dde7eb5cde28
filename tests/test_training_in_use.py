"""Training from consoles, searches and schedulers: ends, starts that are gone, numbers that JSON does not have."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from keras_highway.hub.error import HubError
from keras_highway.training import program, run_folder
from keras_highway.training.language import rate_after
from keras_highway.training.loop import Run, train
from keras_highway.training.recipe import with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.train import errors_in_a_line
from keras_highway.weights import file as weights_file
from training import search
from training.search import Rung
from training.study import STUDIES

NET = tiny(RECIPES["highway_fc10"])
LM = tiny(RECIPES["charlm_small_full"])


@pytest.mark.parametrize(
    ("recipe", "setting", "message"),
    [
        (LM, "plateau_delta=1e999", "`plateau_delta` must be a finite number. Received: plateau_delta=inf"),
        (LM, "clip_norm=1e999", "`clip_norm` must be a finite number"),
        (LM, "learning_rate=1e999", "`learning_rate` must be a finite number"),
        (LM, "net.dropout=1e999", "`dropout` must be .*Received: dropout=inf"),
        (LM, "name=", "`name`.* a name without '/'"),
        (NET, "rate_multipliers=(('*kernel', 1e999),)", "`rate_multipliers` must be a finite number"),
        (NET, "decay_multipliers=(('*', -1),)", "`decay_multipliers` must not be negative"),
        (NET, "net.gate_bias=1e999", "`gate_bias` must be a finite number or .*Received: gate_bias=inf"),
        (NET, "name=", "`name`.* a name without '/'"),
        (NET, "name=../x", "`name`.* a name without '/'"),
    ],
)
def test_settings_that_no_recipe_has(recipe, setting, message):
    """Infinity is not of JSON: the recipe.json of such a run was refused when it was read again.

    Factors below 0 would train away from the optimum; a name is that of a
    folder.
    """
    with pytest.raises(ValueError, match=message):
        with_settings(recipe, [setting])


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt, FloatingPointError])
def test_a_run_that_was_broken_off_is_resumed_in_the_same_process(tmp_path, monkeypatch, error):
    """A console keeps the last traceback, and with it every object of the call."""

    def breaks(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(Run, "epoch", breaks)
        with pytest.raises(error) as kept:
            train(NET, None, tmp_path)
    result = train(NET, None, tmp_path)
    assert result is not None and result["epochs"] == NET.epochs and kept.tb is not None


def test_a_run_that_could_not_write_what_it_begins_with_begins_anew(tmp_path, monkeypatch):
    def is_full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "atomic_write_json", is_full)
        with pytest.raises(OSError, match="No space left") as kept:
            train(NET, None, tmp_path)
    assert train(NET, None, tmp_path, until=1) is None and kept.tb is not None
    assert (tmp_path / "checkpoint.npz").exists()


def test_a_language_model_may_wait_for_a_rise():
    """A negative difference: the rate falls only where the perplexity rises by more than 1."""
    recipe = with_settings(LM, ["plateau_delta=-1", "learning_rate=1", "decay=0.5"])
    assert rate_after(recipe, [9.0, 9.0, 9.5]) == 1.0
    assert rate_after(recipe, [9.0, 9.0, 10.5]) == 0.5


@pytest.mark.slow
def test_sigterm_while_a_run_diverges_ends_a_search_and_a_study(tmp_path, monkeypatch):
    begun = []

    def diverges(self, *_):
        begun.append(self.folder.path.name)
        os.kill(os.getpid(), signal.SIGTERM)
        raise FloatingPointError("the loss is nan")

    monkeypatch.setattr(Run, "epoch", diverges)
    with pytest.raises(SystemExit) as ended:
        search.run_search(search.SEARCHES["figure1"], (Rung(2, 1),), None, tmp_path / "search", True, ["highway_fc10"])
    assert ended.value.code == 75 and begun == ["0"]
    assert "nan" in (tmp_path / "search" / "highway_fc10" / "0" / "diverged.json").read_text()
    with pytest.raises(SystemExit) as ended:
        STUDIES["block_forms"].run(["highway20"], (1,), None, tmp_path / "study", True)
    assert ended.value.code == 75 and len(begun) == 2
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.slow
def test_sigterm_while_a_result_is_written_ends_a_search(tmp_path, monkeypatch):
    save, started = program.weights_file.save, []

    def saves(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGTERM)
        return save(*args, **kwargs)

    epoch = Run.epoch

    def begins(self, *args):
        started.append(self.folder.path.name)
        epoch(self, *args)

    monkeypatch.setattr(program.weights_file, "save", saves)
    monkeypatch.setattr(Run, "epoch", begins)
    with pytest.raises(SystemExit) as ended:
        search.run_search(search.SEARCHES["figure1"], (Rung(2, 1),), None, tmp_path, True, ["highway_fc10"])
    assert ended.value.code == 75 and started == ["0"]
    assert json.loads((tmp_path / "highway_fc10" / "0" / "result.json").read_text())["epochs"] == 1  # whole


@pytest.mark.slow
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
    start.rename(tmp_path / "moved")
    assert train(recipe, None, out) == result  # it is over


def test_a_run_whose_start_cannot_be_read_just_now_says_so(tmp_path, monkeypatch, capsys):
    """An error of the Hub is an OSError. A start on a file system that is away may be there again."""
    start, out = tmp_path / "start", tmp_path / "run"
    train(NET, None, start)
    recipe = with_settings(NET, [f"init={str(start)!r}"])
    assert train(recipe, None, out, until=1) is None

    error = HubError("Could not download config.json of 'org/name'")

    def is_offline(*_, **__):
        raise error

    told = r"holds a run that was begun from .*start': .*Could not download config.json"
    with monkeypatch.context() as patched:
        patched.setattr(program, "create_model", is_offline)
        with pytest.raises(ValueError, match=told):
            train(recipe, None, out)
        error = OSError(errno.ESTALE, "Stale file handle")
        with pytest.raises(OSError, match="Stale") as raised:
            train(recipe, None, out)
        assert raised.value is error

    def away(real):
        def is_away(path, *args):
            if Path(path).is_relative_to(start):
                raise OSError(errno.ESTALE, "Stale file handle", str(path))
            return real(path, *args)

        return is_away

    for owner, name in ((Path, "exists"), (weights_file, "read_regular")):
        with monkeypatch.context() as patched, pytest.raises(SystemExit) as ended, errors_in_a_line():
            patched.setattr(owner, name, away(getattr(owner, name)))
            train(recipe, None, out)
        said = capsys.readouterr().err
        assert ended.value.code == 1, said
        assert "Stale file handle" in said and "damaged" not in said and "was begun from" not in said
