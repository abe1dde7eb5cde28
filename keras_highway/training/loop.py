"""The training loop: data, step, metrics, checkpoint, log."""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from keras_highway._support.event_file import EventFile
from keras_highway._support.files import atomic_write_json, may_pass
from keras_highway._support.keras_models import channels_last
from keras_highway.tasks import LANGUAGE, Task
from keras_highway.training import checkpoint
from keras_highway.training.checkpoint import Progress
from keras_highway.training.data.samples import fingerprint_of
from keras_highway.training.distributed.stopping import Stopped, stop_requests
from keras_highway.training.distributed.strategy import Strategy, make_strategy
from keras_highway.training.meter import Meter
from keras_highway.training.program import check_memory, explained_memory, means
from keras_highway.training.recipe import LanguageRecipe, Recipe
from keras_highway.training.run_folder import FINGERPRINT, RunFolder, accelerators

_AGREE_EVERY = 20  # steps; 1 if a step takes longer than this many seconds:
_SLOW = 1.0
_SLOW_ONE = 2**15  # counts slow processes above those asked to stop, in one sum of 32 bits


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
    hooks: tuple[Callable[["Run"], None], ...] = (),
) -> dict | None:
    """Train a recipe, or resume the run in `out`; Keras's data format is `"channels_last"` meanwhile."""
    recipe.check()
    with stop_requests() as stop, stop.honoured(), channels_last():
        strategy = make_strategy(strategy) if isinstance(strategy, str) else strategy
        stop.install()  # connecting several processes replaces the handler of SIGTERM
        strategy.check(recipe)
        open_source, make_program = task_code(recipe.task)
        source = open_source(recipe, data_dir)
        names = list(getattr(source, "class_names", ()))
        strategy.check_same(fingerprint_of(source.fingerprint, json.dumps(names)), f"data={recipe.data!r} or classes")
        with contextlib.closing(RunFolder(out, recipe, strategy)) as folder:
            try:
                with strategy.data_scope():
                    data = source.on_device()
                with strategy.scope():
                    program = make_program(recipe, source, data)
            except (ValueError, OSError) as error:
                return _result_without_start(folder, recipe, error)
            facts = {"steps_per_epoch": program.steps_per_epoch, "class_names": names, FINGERPRINT: source.fingerprint}
            folder.check_data(facts)
            strategy.prepare(program)
            check_memory(program, strategy.shard.count, accelerators(), resumed=folder.checkpoint.exists())
            run = Run(program, source, strategy, folder, save_steps, save_seconds, log_steps)
            run.restore()
            last = min(recipe.epochs if until is None else until, recipe.epochs)
            if run.progress.epoch >= last and (result := run.known_result()):
                return result
            folder.begin_session(run.progress.epoch, run.step)
            with explained_memory(recipe):
                while run.progress.epoch < last:
                    run.epoch(stop, hooks)
            if run.progress.epoch < recipe.epochs and not finish:
                return None
            return run.finish()


def task_code(task: Task) -> tuple[Callable, Callable]:
    """Return a task's function (recipe, data_dir) -> source, and its class of programs."""
    if task is LANGUAGE:
        from keras_highway.training import language

        return language.open_source, language.LanguageProgram
    from keras_highway.training.data.source import open_source
    from keras_highway.training.program import ImageProgram

    return open_source, ImageProgram


def _result_without_start(folder: RunFolder, recipe, error: Exception) -> dict:
    """Return the result of a finished run whose weights to start from are gone; raise for all others."""
    needed = recipe.init and folder.checkpoint.exists()
    if needed and (result := folder.final_result(recipe.epochs)):
        return result
    if not needed or may_pass(error):
        raise error
    raise ValueError(
        f"The run in {folder.path} starts from {recipe.init!r}, which is also needed to resume: restore it. {error}"
    ) from error


class Run:
    """A run: its program, data, devices, files, position and log.

    A step is a function of (state, seed, epoch, step), so that a resumed run
    ends like one that was never stopped.
    """

    def __init__(self, program, source, strategy, folder, save_steps=None, save_seconds=float("inf"), log_steps=False):
        self.program, self.source, self.strategy, self.folder = program, source, strategy, folder
        self.engine = strategy.engine(program)
        self.progress = self._at_epoch(0)
        self.rows: list[dict] = []
        self._save_steps, self._save_seconds, self._log_steps = save_steps, save_seconds, log_steps
        self._saved = time.perf_counter()
        self._agree_every, self._agreed = 1, (0, self._saved)  # step and time of the last agreement
        self._sums: Any = ()  # of the last step, which may not be finished

    @property
    def step(self) -> int:
        """Steps taken of the whole run."""
        return self.progress.epoch * self.program.steps_per_epoch + self.progress.step

    def _at_epoch(self, epoch: int) -> Progress:
        return Progress(epoch, 0, np.zeros(len(self.program.sums)), 0.0, 0.0)

    def restore(self) -> None:
        """Restore the last saved state."""
        folder = self.folder
        folder.check_shared(self.strategy)
        # Before a variable is set: on several processes of JAX that is a meeting of all.
        epoch, step = checkpoint.position_of(folder.checkpoint)
        mine = epoch * self.program.steps_per_epoch + step
        if self.strategy.total(mine) != mine * self.strategy.replicas:
            raise ValueError(
                f"The processes read different states from {folder.path}. It must be on a file system that all of them "
                "share."
            )
        if folder.checkpoint.exists():
            self.progress = checkpoint.restore(folder.checkpoint, self.program.state, self.program.steps_per_epoch)
        self.rows = folder.rows_until(self.progress.epoch)
        if self._log_steps:
            folder.cut_step_losses(mine)

    def known_result(self) -> dict | None:
        """Return the folder's result if it belongs to the epochs trained so far; on every process or none."""
        result = self.folder.known_result()
        known = result is not None and result.get("epochs") == self.progress.epoch and not self.progress.step
        return result if self.strategy.total(int(known)) == self.strategy.replicas else None

    def epoch(self, stop, hooks=()) -> None:
        """Train the rest of the current epoch, test, log and save."""
        program, strategy, epoch = self.program, self.strategy, self.progress.epoch
        program.begin_epoch(epoch, self.rows)
        meter = Meter(self.progress, program)
        # The first step decides again how often to agree: the last agreement was before a test.
        self._agree_every, self._agreed = 1, (meter.step, time.perf_counter())
        try:
            for batch in meter.timed(self.source.batches(epoch, meter.step, strategy.shard)):
                self._sums = self.engine.train(batch)
                meter.add(self._sums)
                stopping = self._should_stop(stop, meter.step)
                if stopping or self._is_due(meter.step):
                    meter.read()
                    write_step_losses(self, meter)
                    self.save(Progress(epoch, meter.step, meter.sums, meter.seconds, meter.waited))
                    if stopping:
                        raise Stopped
                    meter.resume()
            meter.read()
            meter.close()
            self.engine.sync()
            tested = program.evaluate(self.engine, strategy)
            self._end_epoch(meter, tested, hooks)
        except FloatingPointError as error:
            saved = self.folder.checkpoint.exists()
            last = f"The last good state is in {self.folder.checkpoint}" if saved else "No state was saved"
            raise FloatingPointError(f"{error} {last}; a smaller learning rate, or clip_norm, may help.") from None
        finally:
            meter.close()
        if self._should_stop(stop):
            raise Stopped

    def _end_epoch(self, meter: Meter, tested: dict[str, float], hooks) -> None:
        self.rows.append(self._row(meter, tested))
        # The log first: resuming drops a line ahead of its checkpoint, but could not make up a missing one.
        self.folder.write_rows(self.rows)
        write_step_losses(self, meter)
        for hook in (write_events, *hooks):
            hook(self)
        self.save(self._at_epoch(self.progress.epoch + 1))
        if self.strategy.is_chief:
            print(self.line(self.rows[-1]), flush=True)

    def _row(self, meter: Meter, tested: dict[str, float]) -> dict:
        """Return a line of the log: position, metrics, speed."""
        program, step = self.program, (self.progress.epoch + 1) * self.program.steps_per_epoch
        return {
            "epoch": self.progress.epoch + 1,
            "step": step,
            "learning_rate": program.rate(step - 1),
            **program.columns(means(meter.sums, program.sums), tested),
            "seconds": round(meter.seconds, 2),
            f"{program.recipe.task.unit}_per_second": round(meter.step * program.batch_units / meter.seconds, 1),
            "waiting": round(meter.waited / meter.seconds, 4),
        }

    def line(self, row: dict) -> str:
        """Return a summary of an epoch in one line."""
        epochs, unit = self.program.recipe.epochs, self.program.recipe.task.unit
        left = row["seconds"] * (epochs - row["epoch"]) / 60
        return (
            f"epoch {row['epoch']:3d}/{epochs}  loss {row['train_loss']:.4f}  {self.program.line(row)}  "
            f"rate {row['learning_rate']:.2g}  {row[f'{unit}_per_second']:.0f} {unit}/s  "
            f"waiting for data {100 * row['waiting']:.1f} %  {left:.0f} min left"
        )

    def save(self, progress: Progress) -> None:
        """Save the state at a position, if all of it is finite."""
        self.engine.sync()
        self.progress, self._saved = progress, time.perf_counter()
        try:  # on every process: one that stopped alone would leave the others waiting
            values = checkpoint.finite_values(self.program.state, self.strategy.to_numpy)
        except FloatingPointError as error:
            raise FloatingPointError(f"After step {self.step} of the run {error}") from None
        if self.strategy.is_chief:
            checkpoint.save(self.folder.checkpoint, values, progress)

    def _is_due(self, step: int) -> bool:
        if self._save_steps and step % self._save_steps == 0:
            return True
        return abs(time.perf_counter() - self._saved) > self._save_seconds  # a clock may be set back

    def _should_stop(self, stop, step: int = 0) -> bool:
        """Whether to stop; several processes agree on it at the same step, or one would wait for another forever."""
        if self.strategy.shard.count == 1:
            return stop.made
        if step % self._agree_every:
            return False
        np.asarray(self._sums)  # waits for the step; otherwise this would time its dispatch
        (last, then), now = self._agreed, time.perf_counter()
        slow = now - then > _SLOW * max(1, step - last)
        slow_ones, asked = divmod(self.strategy.total(int(stop.made) + _SLOW_ONE * slow), _SLOW_ONE)
        # The supervisor kills a process that does not stop within its --grace.
        self._agree_every, self._agreed = 1 if slow_ones else _AGREE_EVERY, (step, now)
        return asked > 0

    def finish(self) -> dict:
        """Write the weights and result.json; return the result."""
        program, recipe, folder = self.program, self.program.recipe, self.folder
        epoch = self.progress.epoch
        if self.progress.step or not self.rows:
            raise ValueError(
                f"A result needs whole epochs; the run is after step {self.progress.step} of epoch {epoch + 1}. Train "
                f"to --until {epoch + 1} at least."
            )
        last = {key: float(value) for key, value in self.rows[-1].items()}
        with program.averages_in_place(self.strategy.to_numpy):
            self.strategy.finish(program.net)
            data, value, facts = program.result(last)
            early = {"of_epochs": recipe.epochs} if epoch < recipe.epochs else {}
            result = {
                "weights": recipe.weights,
                "variant": recipe.variant,
                "data": data,
                "metric": program.metric,
                "n": 1,
                "mean": value,
                "std": None,
                "seeds": [recipe.seed],
                "values": [value],
                "epochs": len(self.rows),
                **early,
                "epoch_reported": "last",
                "precision": recipe.precision,
                **facts,
                "waiting": last["waiting"],
                **folder.environment(),
            }
            if self.strategy.is_chief:
                folder.drop_result()  # written last: a result belongs to the weights next to it
                program.save(folder.path)
                atomic_write_json(folder.result, result)
        return result


def write_step_losses(run: Run, meter: Meter) -> None:
    """Add the losses since the last call to steps.csv, if requested."""
    if run._log_steps:
        run.folder.add_step_losses(meter.losses)
    meter.losses.clear()


def write_events(run: Run) -> None:
    """Write an epoch's numbers for TensorBoard."""
    if run.strategy.is_chief:
        row = run.rows[-1]
        scalars = {name: value for name, value in row.items() if name not in ("epoch", "step")}
        # Lines of a resumed run meet at the step those written before it was killed.
        EventFile(run.folder.path / "tensorboard").write(row["step"], scalars)
