"""The training loop over any recipe."""

import contextlib
import json

from keras_highway._support.files import may_pass
from keras_highway._support.keras_models import channels_last
from keras_highway.training.data.samples import fingerprint_of
from keras_highway.training.distributed.stopping import stop_requests
from keras_highway.training.distributed.strategy import Strategy, make_strategy
from keras_highway.training.language_recipe import LanguageRecipe
from keras_highway.training.memory import check_memory, explained_memory
from keras_highway.training.recipe import Recipe
from keras_highway.training.runs.run import Run
from keras_highway.training.runs.run_folder import FINGERPRINT, RunFolder, accelerators, defaults_of
from keras_highway.training.tasks import training_of


def train(
    recipe: Recipe | LanguageRecipe,
    data_dir,
    out,
    strategy: str | Strategy = "none",
    save_steps: int | None = None,
    save_seconds: float = 300.0,
    until: int | None = None,
    log_steps: bool = False,
    finish: bool = False,
) -> dict | None:
    """Trains a recipe, resuming the run in `out` if there is one.

    Meanwhile Keras's data format is `"channels_last"`, in the whole process.

    Args:
        recipe: What to train.
        data_dir: Folder of data sets, see `load_dataset`.
        out: The run's folder; with several machines, on a file system that
            they share.
        strategy: A name, see `make_strategy`, or a strategy.
        save_steps: Number of steps of an epoch after which the state is saved,
            too.
        save_seconds: Number of seconds after which it is saved, too.
        until: Do not go beyond this epoch now; a later call does.
        log_steps: Write the loss of every step to steps.csv, too; from the
            first step of a run on, or not at all.
        finish: At the end of this call write weights and result although
            epochs are left; the result states how many were trained of how
            many. A later call resumes from there; both stay until it replaces
            them.

    Returns:
        The result, as written to result.json; None if the run is not at its
        end and `finish` is not set.

    Raises:
        FloatingPointError: If the loss or a weight is not finite.
        MemoryError: If a step does not fit into a GPU's memory.
        Stopped: A `SystemExit`, if SIGTERM stopped the run, or came while its
            result was written, which is whole then.
        OSError: If a file cannot be written, or a file system is away.
        ValueError: If the recipe, the data or the folder do not fit, or a step
            is far from fitting into the machine's memory.
    """
    recipe.check()
    with stop_requests() as stop, stop.honoured(), channels_last():
        strategy = make_strategy(strategy) if isinstance(strategy, str) else strategy
        stop.install()  # what connects several processes takes SIGTERM for itself
        strategy.check(recipe)
        parts = training_of(recipe.task)
        source = parts.open_source(recipe, data_dir)
        names = list(getattr(source, "class_names", ()))
        same = fingerprint_of(source.fingerprint, json.dumps(names))
        strategy.check_same(same, f"data={recipe.data!r}, or names of its classes, or another order of it")
        with contextlib.closing(RunFolder(out, recipe.to_dict(), strategy, defaults_of(recipe))) as folder:
            with strategy.data_scope():
                data = source.on_device()
            try:
                with strategy.scope():
                    program = parts.program(recipe, source, data)
            except (ValueError, OSError) as error:  # `HubError` is an OSError
                if not getattr(recipe, "init", None) or not folder.checkpoint.exists():
                    raise
                if result := folder.final_result(recipe.epochs):
                    return result  # the run is over: its start may be gone
                if may_pass(error):
                    raise  # and a supervisor begins again
                raise _start_is_gone(folder, recipe, error) from error
            facts = {"steps_per_epoch": program.steps_per_epoch, "class_names": names, FINGERPRINT: source.fingerprint}
            folder.check_data(facts)
            strategy.prepare(program)
            check_memory(program, strategy.shard.count, accelerators(), resumed=folder.checkpoint.exists())
            run = parts.run(program, source, strategy, folder, save_steps, save_seconds, log_steps)
            run.restore()
            last = min(recipe.epochs if until is None else until, recipe.epochs)
            if run.progress.epoch >= last and (result := run.known_result()):
                return result  # of the weights beside it: nothing is left to do
            run.begin_session()
            with explained_memory(recipe):
                while run.progress.epoch < last:
                    run.epoch(stop)
            if run.progress.epoch < recipe.epochs and not finish:
                return None
            _check_whole(run)
            return parts.finish(program, strategy, folder, run.rows)


def _start_is_gone(folder: RunFolder, recipe: Recipe | LanguageRecipe, error: Exception) -> ValueError:
    """Return the error of a run that resumes, and whose start cannot be read any more: it is this that is missing."""
    return ValueError(
        f"{folder.path} holds a run that was begun from {getattr(recipe, 'init', '')!r}: its net is built as that is "
        f"also where it resumes; put it back, or start this where the path or name leads to it. {error}"
    )


def _check_whole(run: Run) -> None:
    if run.progress.step or not run.rows:
        raise ValueError(
            f"A result is of whole epochs, and the run is after step {run.progress.step} of epoch "
            f"{run.progress.epoch + 1}: train on, to --until {run.progress.epoch + 1} at least."
        )
