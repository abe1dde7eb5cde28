"""The training loop: a step is a function of the run's state and (seed, epoch, step), so a run resumes exactly."""

import time

import numpy as np

from training import checkpoint
from training.checkpoint import Place
from training.meter import Meter, means
from training.optimizers import plateau_rate
from training.program import SUMS, Program
from training.recipe import Recipe, check
from training.results import finish
from training.run_folder import RunFolder
from training.sources import open_source
from training.stopping import Stopped, stop_requests
from training.strategy import Strategy, make_strategy
from training.tensorboard import write_scalars

TEST_BATCH = 500
_AGREE_EVERY = 20  # steps


def train(
    recipe: Recipe,
    data_dir,
    out,
    strategy: str | Strategy = "none",
    save_steps: int | None = None,
    save_seconds: float = 300.0,
    until: int | None = None,
) -> dict | None:
    """Trains a recipe, resuming the run in `out` if there is one.

    Args:
        recipe: What to train.
        data_dir: Folder of data sets, see `load_dataset`.
        out: The run's folder; with several machines, on a file system that
            they share.
        strategy: A name, see `make_strategy`, or a strategy.
        save_steps: Save the state every so many steps of an epoch, too.
        save_seconds: And when so many seconds have passed since it was saved.
        until: Do not go beyond this epoch now; a later call does.

    Returns:
        The result, as written to result.json; None if the run is not at its
        end.

    Raises:
        FloatingPointError: If the loss or a weight is not finite.
        Stopped: A `SystemExit`, if SIGTERM asked the run to stop.
        ValueError: If the recipe, the data or the folder do not fit.
    """
    check(recipe)
    with stop_requests() as stop:
        strategy = make_strategy(strategy) if isinstance(strategy, str) else strategy
        strategy.check(recipe)
        source = open_source(recipe, data_dir)
        folder = RunFolder(out, recipe.to_dict(), strategy)
        with strategy.data_scope():
            data = source.on_device()
        with strategy.scope():
            program = Program(recipe, source, data)
        strategy.prepare(program)
        run = Run(program, source, strategy, folder, save_steps, save_seconds)
        run.restore()
        while run.place.epoch < min(recipe.epochs if until is None else until, recipe.epochs):
            run.epoch(stop)
        if run.place.epoch < recipe.epochs:
            return None
        return finish(program, strategy, folder, run.rows)


class Run:
    """A run under way.

    Args:
        program: Its variables and functions.
        source: Its data.
        strategy: Its devices.
        folder: Its files.
        save_steps: See `train`.
        save_seconds: See `train`.
    """

    def __init__(self, program, source, strategy, folder, save_steps=None, save_seconds=float("inf")):
        self.program, self.source, self.strategy, self.folder = program, source, strategy, folder
        self.engine = strategy.engine(program)
        self.place = Place(0, 0, np.zeros(len(SUMS)), 0.0, 0.0)
        self.rows: list[dict] = []
        self._save_steps, self._save_seconds = save_steps, save_seconds
        self._saved = time.perf_counter()

    def restore(self) -> None:
        """Goes back to the last state saved.

        Raises:
            ValueError: If it is not of this run, or other processes found
                another one.
        """
        if self.folder.checkpoint.exists():
            self.place = checkpoint.restore(self.folder.checkpoint, self.program.state)
            self.rows = self.folder.rows()[: self.place.epoch]
            if len(self.rows) < self.place.epoch:
                raise ValueError(
                    f"{self.folder.log} has {len(self.rows)} epochs, {self.folder.checkpoint} is after "
                    f"{self.place.epoch}: bring the log back, or remove the folder."
                )
        mine = self.place.epoch * self.program.steps_per_epoch + self.place.step
        if self.strategy.total(mine) != mine * self.strategy.replicas:
            raise ValueError(
                f"The processes of this run found different states in {self.folder.path}: it must be on a file "
                "system that all of them share."
            )
        self.folder.begin_session(mine)

    def epoch(self, stop) -> None:
        """Trains the rest of the current epoch, tests, and saves."""
        recipe, place = self.program.recipe, self.place
        if recipe.schedule == "plateau":
            self.program.set_rate(plateau_rate(recipe, [float(row["train_loss"]) for row in self.rows]))
        meter = Meter(place, recipe.epochs, self.program.steps_per_epoch)
        try:
            self._steps(meter, stop)
            self._end_epoch(meter)
        except FloatingPointError as error:
            saved = self.folder.checkpoint.exists()
            last = f"The last good state is in {self.folder.checkpoint}" if saved else "No state was saved"
            raise FloatingPointError(f"{error} {last}; a smaller learning rate, or clip_norm, may help.") from None
        finally:
            meter.close()
        if self._is_asked_to(stop):
            raise Stopped

    def _end_epoch(self, meter) -> None:
        self.rows.append(self._row(means(meter.sums), means(self._test()), meter))
        # The log first: a line ahead of its checkpoint is dropped on resume, a missing line could not be made up.
        self.folder.write_rows(self.rows)
        if self.strategy.is_chief:
            write_scalars(self.folder.path / "tensorboard", self.rows[-1])
        self._save(Place(self.place.epoch + 1, 0, np.zeros(len(SUMS)), 0.0, 0.0))
        if self.strategy.is_chief:
            print(line(self.rows[-1], self.program.recipe.epochs), flush=True)

    def _steps(self, meter, stop) -> None:
        epoch = self.place.epoch
        batches = self.source.batches(epoch, meter.step, self.strategy.shard)
        while (batch := meter.wait_for(batches)) is not None:
            meter.add(self.engine.train(batch))
            stopping = self._is_asked_to(stop, meter.step)
            if stopping or self._is_due(meter.step):
                meter.pause()
                self._save(Place(epoch, meter.step, meter.sums, meter.seconds, meter.waited))
                if stopping:
                    raise Stopped
                meter.resume()
        meter.read()

    def _is_asked_to(self, stop, step=0) -> bool:
        """Whether to stop; several processes agree on it, at the same step, or one would wait for another for ever."""
        if self.strategy.shard.count == 1:
            return stop.made
        return step % _AGREE_EVERY == 0 and self.strategy.total(int(stop.made)) > 0

    def _is_due(self, step) -> bool:
        if self._save_steps and step % self._save_steps == 0:
            return True
        return time.perf_counter() - self._saved > self._save_seconds

    def _save(self, place) -> None:
        self.engine.sync()
        self.place, self._saved = place, time.perf_counter()
        try:  # on every process: one that stopped alone would leave the others waiting
            values = checkpoint.finite_values(self.program.state, self.strategy.to_numpy)
        except FloatingPointError as error:
            step = place.epoch * self.program.steps_per_epoch + place.step
            raise FloatingPointError(f"After step {step} of the run {error}") from None
        if self.strategy.is_chief:
            checkpoint.save(self.folder.checkpoint, values, place)

    def _test(self) -> np.ndarray:
        self.engine.sync()
        replicas = self.strategy.replicas
        size = -(-min(TEST_BATCH, self.source.test_images) // replicas) * replicas
        with self.program.averages_in_place(self.strategy.to_numpy):
            batches = self.source.test_batches(size, self.strategy.shard)
            return np.sum([np.asarray(self.engine.test(batch), np.float64) for batch in batches], axis=0)

    def _row(self, trained, tested, meter) -> dict:
        epoch = self.place.epoch + 1
        images = meter.step * self.program.recipe.batch_size
        row = {
            "epoch": epoch,
            "step": epoch * self.program.steps_per_epoch,
            "learning_rate": self.program.rate(epoch * self.program.steps_per_epoch - 1),
            "train_loss": trained["loss"],
            "train_accuracy": trained["accuracy"],
            "test_loss": tested["loss"],
            "test_accuracy": tested["accuracy"],
            "seconds": round(meter.seconds, 2),
            "images_per_second": round(images / meter.seconds, 1),
            "waiting": round(meter.waited / meter.seconds, 4),
        }
        if self.program.classes >= 100:
            row["test_top5"] = tested["top5"]
        return row


def line(row: dict, epochs: int) -> str:
    """Returns what a person wants to know of an epoch, in one line."""
    left = row["seconds"] * (epochs - row["epoch"]) / 60
    return (
        f"epoch {row['epoch']:3d}/{epochs}  loss {row['train_loss']:.4f}  train {100 * row['train_accuracy']:.2f} %  "
        f"test {row['test_loss']:.4f} {100 * row['test_accuracy']:.2f} %  rate {row['learning_rate']:.2g}  "
        f"{row['images_per_second']:.0f} images/s  waiting {100 * row['waiting']:.1f} %  {left:.0f} min left"
    )
