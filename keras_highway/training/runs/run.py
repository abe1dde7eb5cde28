"""A run under way: epochs of steps, the log, the states saved; a step is a function of (state, seed, epoch, step)."""

import sys
import time
from typing import Any

import numpy as np
from tqdm import tqdm

from keras_highway._support.event_file import EventFile
from keras_highway.tasks import IMAGES
from keras_highway.training.distributed.stopping import Stopped
from keras_highway.training.optimizers import plateau_rate
from keras_highway.training.runs import checkpoint
from keras_highway.training.runs.checkpoint import Progress
from keras_highway.training.runs.meter import Meter, means

TEST_BATCH = 500
_TEST_BATCH_OF_PHOTOGRAPHS = 100  # a replica's; 500 at 224 pixels take more memory than many a training step
_AGREE_EVERY = 20  # steps; one where a step takes longer than this many seconds:
_SLOW = 1.0
_SLOW_ONE = 2**15  # counts slow processes above those that were asked to stop, in one sum of 32 bits


class Run:
    """A run under way.

    Args:
        program: Its variables and functions.
        source: Its data.
        strategy: Its devices.
        folder: Its files.
        save_steps: See `train`.
        save_seconds: See `train`.
        log_steps: See `train`.
    """

    def __init__(self, program, source, strategy, folder, save_steps=None, save_seconds=float("inf"), log_steps=False):
        self.program, self.source, self.strategy, self.folder = program, source, strategy, folder
        self.unit = program.recipe.task.unit  # counted per second of training
        self.engine = strategy.engine(program)
        self.progress = Progress(0, 0, np.zeros(len(self.program.sums)), 0.0, 0.0)
        self.rows: list[dict] = []
        self._save_steps, self._save_seconds, self._log_steps = save_steps, save_seconds, log_steps
        self._saved = time.perf_counter()
        self._agree_every, self._agreed = 1, (0, self._saved)  # at which step, and when
        self._sums: Any = ()  # of the last step, perhaps still on its way

    def restore(self) -> None:
        """Restores the last state saved.

        Raises:
            ValueError: If it is not of this run, if it is gone and others of
                the run's files are there, or if other processes read another
                one.
        """
        self.folder.check_shared(self.strategy)
        # Before a variable is set: on several processes of JAX that is a meeting of all.
        epoch, step = checkpoint.position_of(self.folder.checkpoint)
        mine = epoch * self.program.steps_per_epoch + step
        if self.strategy.total(mine) != mine * self.strategy.replicas:
            raise ValueError(
                f"The processes of this run read different states from {self.folder.path}: it must be on a file "
                "system that all of them share."
            )
        if self.folder.checkpoint.exists():
            self.progress = checkpoint.restore(self.folder.checkpoint, self.program.state)
            self.rows = self.folder.rows()[: self.progress.epoch]
            if len(self.rows) < self.progress.epoch:
                raise ValueError(
                    f"{self.folder.log} has {len(self.rows)} epochs and {self.folder.checkpoint} was "
                    f"saved after {self.progress.epoch}: restore the log, or remove the folder."
                )
        else:
            self.folder.check_state_is_there()
        if self._log_steps:
            self.folder.cut_step_losses(mine)

    def known_result(self) -> dict | None:
        """Return the result that is in the folder, if it is of the epochs trained so far; on every process or none."""
        result = self.folder.known_result()
        known = result is not None and result.get("epochs") == self.progress.epoch and not self.progress.step
        return result if self.strategy.total(int(known)) == self.strategy.replicas else None

    def begin_session(self) -> None:
        """Note from which step the run goes on.

        A result that is there stays with the weights that it is of until
        `finish` replaces both.
        """
        self.folder.drop_later_result(self.progress.epoch)
        self.folder.begin_session(self.progress.epoch * self.program.steps_per_epoch + self.progress.step)

    def epoch(self, stop) -> None:
        """Trains the rest of the current epoch, tests, and saves."""
        self._prepare_epoch()
        program = self.program
        epochs, steps, units = program.recipe.epochs, program.steps_per_epoch, program.batch_units
        meter = Meter(self.progress, epochs, steps, units, self.unit, program.sums, self._format_metrics)
        try:
            self._steps(meter, stop)
            meter.close()
            self._end_epoch(meter)
        except FloatingPointError as error:
            saved = self.folder.checkpoint.exists()
            last = f"The last good state is in {self.folder.checkpoint}" if saved else "No state was saved"
            raise FloatingPointError(f"{error} {last}; a smaller learning rate, or clip_norm, may help.") from None
        finally:
            meter.close()
        if self._should_stop(stop):
            raise Stopped

    def _prepare_epoch(self) -> None:
        recipe = self.program.recipe
        self.program.begin_epoch(self.progress.epoch)
        if recipe.schedule == "plateau":
            self.program.set_rate(plateau_rate(recipe, [float(row["train_loss"]) for row in self.rows]))

    def _end_epoch(self, meter) -> None:
        self.engine.sync()
        self.rows.append(self._row(means(meter.sums, self.program.sums), self._test(), meter))
        # The log first: a line ahead of its checkpoint is dropped on resume, a missing line could not be made up.
        self.folder.write_rows(self.rows)
        self._write_losses(meter)
        if self.strategy.is_chief:
            self._write_events(self.rows[-1])
        self._save(Progress(self.progress.epoch + 1, 0, np.zeros(len(self.program.sums)), 0.0, 0.0))
        if self.strategy.is_chief:
            print(self.line(self.rows[-1]), flush=True)

    def _steps(self, meter, stop) -> None:
        epoch = self.progress.epoch
        batches = self.source.batches(epoch, meter.step, self.strategy.shard)
        # An epoch's first step decides anew: what is asked at the end of one is after a test.
        self._agree_every, self._agreed = 1, (meter.step, time.perf_counter())
        while (batch := meter.wait_for(batches)) is not None:
            self._sums = self.engine.train(batch)
            meter.add(self._sums)
            stopping = self._should_stop(stop, meter.step)
            if stopping or self._is_due(meter.step):
                meter.pause()
                self._write_losses(meter)
                self._save(Progress(epoch, meter.step, meter.sums, meter.seconds, meter.waited))
                if stopping:
                    raise Stopped
                meter.resume()
        meter.read()

    def _should_stop(self, stop, step=0) -> bool:
        """Whether to stop; several processes agree on it, at the same step, or one would wait for another forever."""
        if self.strategy.shard.count == 1:
            return stop.made
        if step % self._agree_every:
            return False
        np.asarray(self._sums)  # waits for the step, or the time would be that of dispatching it
        (last, then), now = self._agreed, time.perf_counter()
        slow = now - then > _SLOW * max(1, step - last)
        slow_ones, asked = divmod(self.strategy.total(int(stop.made) + _SLOW_ONE * slow), _SLOW_ONE)
        # Who asks may wait for a minute: see the supervisor's --grace.
        self._agree_every, self._agreed = 1 if slow_ones else _AGREE_EVERY, (step, now)
        return asked > 0

    def _is_due(self, step) -> bool:
        if self._save_steps and step % self._save_steps == 0:
            return True
        return abs(time.perf_counter() - self._saved) > self._save_seconds  # a clock that was set back is not a reason

    def _save(self, progress) -> None:
        self.engine.sync()
        self.progress, self._saved = progress, time.perf_counter()
        try:  # on every process: one that stopped alone would leave the others waiting
            values = checkpoint.finite_values(self.program.state, self.strategy.to_numpy)
        except FloatingPointError as error:
            step = progress.epoch * self.program.steps_per_epoch + progress.step
            raise FloatingPointError(f"After step {step} of the run {error}") from None
        if self.strategy.is_chief:
            checkpoint.save(self.folder.checkpoint, values, progress)

    def _test(self) -> dict[str, float]:
        replicas = self.strategy.replicas
        most = TEST_BATCH if self.program.data else _TEST_BATCH_OF_PHOTOGRAPHS * replicas
        size = -(-min(most, self.source.test_images) // replicas) * replicas
        with self.program.averages_in_place(self.strategy.to_numpy):
            batches = self.source.test_batches(size, self.strategy.shard)
            bar = tqdm(
                batches, "testing", -(-self.source.test_images // size), leave=False, disable=not sys.stderr.isatty()
            )
            sums = np.sum([np.asarray(self.engine.test(batch), np.float64) for batch in bar], axis=0)
        return means(sums, self.program.sums)

    def _write_events(self, row) -> None:
        """Write an epoch's numbers for TensorBoard to a file of its own: a killed and resumed run loses none."""
        scalars = {name: value for name, value in row.items() if name not in ("epoch", "step")}
        # The step is where lines of a resumed run meet those it had written before it was killed.
        EventFile(self.folder.path / "tensorboard", f".epoch{row['epoch']}").write(row["step"], scalars)

    def _write_losses(self, meter) -> None:
        if self._log_steps:
            self.folder.add_step_losses(meter.losses)
        meter.losses.clear()

    def _row(self, trained, tested, meter) -> dict:
        """Return a line of the log: where it is, what was measured, how fast it went."""
        epoch = self.progress.epoch + 1
        return {
            "epoch": epoch,
            "step": epoch * self.program.steps_per_epoch,
            "learning_rate": self.program.rate(epoch * self.program.steps_per_epoch - 1),
            **self._measures(trained, tested),
            "seconds": round(meter.seconds, 2),
            f"{self.unit}_per_second": round(meter.step * self.program.batch_units / meter.seconds, 1),
            "waiting": round(meter.waited / meter.seconds, 4),
        }

    def _measures(self, trained, tested) -> dict[str, float]:
        """Return the log's columns of what was measured in training and in the test after it."""
        top5 = {"test_top5": tested["top5"]} if self.program.classes >= 100 else {}
        return {
            "train_loss": trained["loss"],
            "train_accuracy": trained["accuracy"],
            "test_loss": tested["loss"],
            "test_accuracy": tested["accuracy"],
            **top5,
        }

    def line(self, row: dict) -> str:
        """Return a summary of an epoch, in one line."""
        epochs = self.program.recipe.epochs
        left = row["seconds"] * (epochs - row["epoch"]) / 60
        return (
            f"epoch {row['epoch']:3d}/{epochs}  loss {row['train_loss']:.4f}  {self._measures_line(row)}  "
            f"rate {row['learning_rate']:.2g}  {row[f'{self.unit}_per_second']:.0f} {self.unit}/s  "
            f"waiting for data {100 * row['waiting']:.1f} %  {left:.0f} min left"
        )

    def _format_metrics(self, metrics: dict[str, float]) -> dict[str, str]:
        """Return the means so far, as the progress bar of an epoch shows them."""
        return {"loss": f"{metrics['loss']:.4f}", "accuracy": IMAGES.metric.format(metrics["accuracy"])}

    def _measures_line(self, row) -> str:
        train, test = (IMAGES.metric.format(row[f"{split}_accuracy"]) for split in ("train", "test"))
        return f"train {train}  test {row['test_loss']:.4f} {test}"
