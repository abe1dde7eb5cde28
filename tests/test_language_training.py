"""Training of language models: it learns, resumes exactly, reports measured values, refuses bad settings."""

import contextlib
import dataclasses
import math
import re

import numpy as np
import pytest
from requests_to_stop import Asked

import keras_highway as kh
from keras_highway.training.data.samples import Shard
from keras_highway.training.data.synthetic import synthetic_corpus
from keras_highway.training.distributed.strategy import Strategy
from keras_highway.training.language import LanguageProgram, open_source, rate_after
from keras_highway.training.loop import Run, train
from keras_highway.training.recipe import LanguageRecipe, changed, with_settings
from keras_highway.training.recipes import RECIPES, tiny
from keras_highway.training.run_folder import RunFolder
from tests.checkpoints import arrays

TINY = dataclasses.replace(tiny(RECIPES["charlm_small_coupled"]), precision="float32")


# Published nets break the symmetry of a small start over hundreds of steps; here there are thirty an epoch.
LEARNS = (*TINY.overrides, ("dropout", 0.0), ("init_range", 0.5))


def run_of(recipe, out):
    source = open_source(recipe, None)
    program = LanguageProgram(recipe, source)
    return Run(program, source, Strategy(), RunFolder(out, recipe, Strategy()))


def test_rows_are_the_published_set_up():
    for name in ("charlm_large_coupled", "charlm_small_full", "charlm_large_residual"):
        recipe = RECIPES[name]
        assert isinstance(recipe, LanguageRecipe) and recipe.variant == name and recipe.weights == f"{name}.ptb"
        assert (recipe.epochs, recipe.steps, recipe.learning_rate, recipe.clip_norm) == (25, 35, 1.0, 5.0)
        assert (recipe.decay, recipe.plateau_delta, recipe.overrides) == (0.5, 1.0, ())


def test_plateau_by_hand():
    """Halved after epochs 3 (fell by 0.5) and 5 (rose), not after 2 (too early) nor 4 (fell by 3)."""
    recipe = RECIPES["charlm_small_coupled"]
    perplexities = [100.0, 100.0, 99.5, 96.5, 97.0]
    rates = [rate_after(recipe, perplexities[:n]) for n in range(6)]
    assert rates == [1.0, 1.0, 1.0, 0.5, 0.5, 0.25]
    assert rate_after(recipe, [100.0, 99.0, 98.0]) == 1.0  # by 1 exactly
    patient = changed(recipe, plateau_delta=-1.0)  # falls only after a rise by more than 1
    assert [rate_after(patient, [9.0, 9.0, last]) for last in (9.5, 10.5)] == [1.0, 0.5]


def test_a_perplexity_that_is_no_number_ends_the_run(tmp_path, monkeypatch):
    run = run_of(TINY, tmp_path)
    for wrong in (math.inf, math.nan, 1e13):  # a result may hold 1e12
        monkeypatch.setattr(kh.CharLM, "perplexity", lambda *_, wrong=wrong, **__: wrong)
        with pytest.raises(FloatingPointError, match=re.escape(f"The validation perplexity became {wrong:g}.")):
            run.program.evaluate(run.engine, run.strategy)
    run.rows = [{"valid_perplexity": 2.0, "train_perplexity": 2.0, "tokens_per_second": 1.0, "waiting": 0.0}]
    with pytest.raises(FloatingPointError, match="The test perplexity became"):
        run.finish()
    assert not run.folder.result.exists()
    assert rate_after(TINY, [math.inf, math.inf, math.inf]) == TINY.decay * TINY.learning_rate


@pytest.mark.parametrize("field", ["input_shape=[30]", "characters=20"])
def test_fields_that_follow_from_the_vocabulary_are_refused(field):
    with pytest.raises(ValueError, match="follow from the vocabulary"):
        with_settings(TINY, [f"net.{field}"])


def test_it_learns_and_its_numbers_are_those_of_the_model_it_saves(tmp_path):
    recipe = dataclasses.replace(TINY, epochs=10, decay=1.0, learning_rate=0.5, overrides=LEARNS)
    result = train(recipe, None, tmp_path)
    rows = RunFolder(tmp_path, recipe, Strategy()).rows()
    words = len(synthetic_corpus().vocabulary.words)
    # Every word has two successors: a perplexity of about 3 is possible, a guess has 42.
    assert float(rows[0]["valid_perplexity"]) < words and float(rows[-1]["valid_perplexity"]) < 12
    assert float(rows[-1]["train_perplexity"]) == pytest.approx(math.exp(float(rows[-1]["train_loss"])))
    model = kh.CharLM(weights=tmp_path)
    source = open_source(recipe, None)
    assert model.perplexity(source.test) == pytest.approx(result["mean"], rel=1e-5)
    assert model.perplexity(source.valid, 4, 20) == pytest.approx(result["valid_perplexity"], rel=1e-5)
    assert (result["metric"], result["n"], result["precision"]) == ("test_perplexity", 1, "float32")


@pytest.mark.more
@pytest.mark.parametrize("precision", ["float32", pytest.param("mixed_bfloat16", marks=pytest.mark.slow)])
def test_resume_is_exact_in_an_epoch_and_between_two(tmp_path, precision):
    """The carried state, the dropout and the text resume where they were."""
    recipe = dataclasses.replace(TINY, precision=precision)
    whole = train(recipe, None, tmp_path / "whole")
    run = run_of(recipe, tmp_path / "cut")
    with contextlib.closing(run.folder), pytest.raises(SystemExit):
        run.epoch(Asked(7))
    assert run.progress.step == 8
    train(recipe, None, tmp_path / "cut", until=1)
    resumed = train(recipe, None, tmp_path / "cut")
    a, b = (arrays(tmp_path / name / "checkpoint.npz") for name in ("whole", "cut"))
    assert list(a) == list(b) and any(name.endswith("carried_c") for name in a)
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    assert resumed["values"] == whole["values"]


def test_the_state_continues_in_the_next_epoch(tmp_path):
    """As in Kim et al.'s program; the validation perplexity in between has a state of its own."""
    whole, once = (
        run_of(dataclasses.replace(TINY, steps=3, train_tokens=12), tmp_path / name) for name in ("whole", "once")
    )
    assert whole.source.batches_per_epoch == 1
    states = [[v for name, v in run.program.state.items() if "carried" in name] for run in (whole, once)]
    assert len(states[0]) == 4 and all((np.asarray(v) == 0).all() for v in states[0])
    for epoch in range(2):
        whole.epoch(Asked(10**9))
        for batch in once.source.batches(epoch, 0, Shard()):
            once.engine.train(batch)
    once.engine.sync()
    assert whole.progress.epoch == 2
    for a, b in zip(*states, strict=True):
        assert np.abs(np.asarray(a)).max() > 0
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_a_corpus_too_short_or_missing_and_several_devices_are_refused(tmp_path):
    strategy = Strategy()
    strategy.replicas = 2
    with pytest.raises(ValueError, match="trains on one device"):
        strategy.check(TINY)
    with pytest.raises(ValueError, match="too short for one batch"):
        open_source(dataclasses.replace(TINY, test_tokens=30), None)
    with pytest.raises(FileNotFoundError, match=r"No file .*train\.txt"):
        train(dataclasses.replace(TINY, data="ptb"), tmp_path, tmp_path / "run")
