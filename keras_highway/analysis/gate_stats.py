"""Gates while a network learns: a few numbers per block, to a CSV file and to TensorBoard."""

import csv
import io
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_highway._support.event_file import EventFile
from keras_highway._support.files import append, atomic_write
from keras_highway._support.schema import is_count
from keras_highway.analysis.batches import check_batch
from keras_highway.analysis.gates import check_learned
from keras_highway.analysis.graph import Blocks
from keras_highway.analysis.kept_state import kept_state
from keras_highway.analysis.trace import Tracer

SHUT, OPEN = 0.01, 0.99  # beyond these a gate's sigmoid has next to no gradient: at most a 25th of its steepest


class GateRow(NamedTuple):
    """A block's gates at one time; also the columns of the CSV file.

    Attributes:
        epoch: Epochs finished; after some steps of epoch 0 it is still 0.
        step: Optimizer steps taken.
        block: The block's name (with `:2` where it stands a second time).
        mean: Mean over the batch and the block's gates.
        variance: Population variance over the same.
        saturated: Share of them below 0.01 or above 0.99.
        shut: Share of them below 0.01.
    """

    epoch: int
    step: int
    block: str
    mean: float
    variance: float
    saturated: float
    shut: float


class GateStats(keras.callbacks.Callback):
    """Records mean, variance and share of saturated gates of every block during training.

    ```python
    stats = kh.analysis.GateStats(x_train[:64], "runs/one")
    model.fit(x_train, y_train, epochs=10, callbacks=[stats])
    [row.mean for row in stats.rows if row.block == "stage1_block3"]
    ```

    Writes `gates.csv` (the columns are `GateRow`'s) and an event file for
    TensorBoard (`gates_mean/<block>` and so on, against the step) into a
    folder; neither needs TensorFlow. A record is one compiled forward pass of
    the batch, up to the last gate, which returns four numbers per block. By
    default there is one before the first step (where another `fit` ended
    there, its last) and one after each epoch, so
    that it costs one forward pass per epoch: less than 2 % of the time where
    an epoch has 50 steps on batches of that size. Between records, a step
    costs one comparison.

    Works with `fit` on every backend, under `tf.distribute` in one process
    (the batch is then not split) and, with several processes, in one of them.
    In a loop of your own: `stats.set_model(model)`, then `stats.record(epoch,
    step)` for each record.

    Args:
        x: A small fixed batch of the model's input, e.g. 64 samples. It need
            not come from the training data.
        folder: Where the files go; made where there is none.
        every: `"epoch"`, or an int, the number of steps between records.
            Defaults to `"epoch"`.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        blocks: Which blocks: names or blocks. Defaults to all that learn the
            gate.
        tensorboard: Bool, whether to write an event file. Defaults to `True`.
        append: Bool, whether to continue the CSV file of a run that was
            stopped; else it is replaced. Its rows of steps beyond the
            optimizer's count are dropped, since those steps are taken again.
            Defaults to `False`.

    Raises:
        ValueError: If `every` is neither; and, when training begins, if the
            model has no blocks that learn the gate, for an unknown block, or
            a batch of another shape than the model's input.

    Attributes:
        rows: List of `GateRow`, all that was recorded.
    """

    def __init__(
        self,
        x: Any,
        folder: str | os.PathLike[str],
        *,
        every: str | int = "epoch",
        gate: str = "t",
        blocks: Blocks | None = None,
        tensorboard: bool = True,
        append: bool = False,
    ):
        super().__init__()
        if every != "epoch" and not is_count(every):
            raise ValueError(f"`every` must be 'epoch' or a positive number of steps. Received: every={every!r}")
        self.x, self.folder, self.gate = x, Path(folder), gate
        self.every = every if every == "epoch" else int(every)
        self.rows: list[GateRow] = []
        self._blocks, self._append = blocks, append
        self._events = None if tensorboard else False  # made with the first record
        self._measured: keras.Model | None = None
        self._names: list[str] = []
        self._seen = self._last = self._batches = self._next = 0
        self._first = self._begins = True

    def set_model(self, model: keras.Model) -> None:
        if self._measured is None or model is not self._model:
            self._names, self._measured = _measuring(model, self.gate, self._blocks, self.x)
        super().set_model(model)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._begins = True

    def _begin(self) -> None:
        """Looks at what there is already: in the first epoch, when every callback has restored what it restores."""
        self._begins = False
        self._last = self._steps()
        resumes = self._append and self._csv.exists()
        recorded = bool(self.rows) and self.rows[-1].step == self._last  # by the `fit` before this one
        self._first = not resumes and not recorded
        if resumes and not self.rows:
            _drop_after(self._csv, self._last)

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self._begins:
            self._begin()
        self._epoch, self._seen, self._next = epoch, self._steps(), 0
        self._last = min(self._last, self._seen)
        if self.model.optimizer.gradient_accumulation_steps:
            self._batches = int(ops.convert_to_numpy(self.model.optimizer._iterations))  # a step is some of them
        if self._first:  # only here is known how many epochs there were before this `fit`
            self._first = False
            self.record(epoch, self._seen)

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        # Before a step, not after the one before it: Keras may run what comes after a step in another thread.
        if self.every == "epoch":
            return
        self._record_if_due(self._epoch, self._steps_before(batch))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        if self.every == "epoch":
            self.record(epoch + 1, self._steps())
        else:
            self._record_if_due(epoch + 1, self._steps())

    def record(self, epoch: int, step: int) -> list[GateRow]:
        """Measures the gates now, and writes them.

        Args:
            epoch: Int, epochs finished.
            step: Int, steps taken.

        Returns:
            A list of `GateRow`, one per block; they are also added to `rows`.

        Raises:
            ValueError: If no model is set.
        """
        if self._measured is None:
            raise ValueError("There is no model to measure: call stats.set_model(model) first, or pass stats to fit.")
        self._sync()
        # Under a strategy of several replicas each of them gives the same rows.
        with kept_state(self._measured):  # training goes on from the state
            table = self._measured.predict_on_batch(self.x)[: len(self._names)]
        rows = [GateRow(epoch, step, name, *map(float, line)) for name, line in zip(self._names, table, strict=True)]
        self._write(rows)
        self.rows += rows
        return rows

    def _steps_before(self, batch: int) -> int:
        """Steps taken before a batch of the epoch."""
        optimizer = self.model.optimizer
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):  # it leaves steps out: only it knows how many
            most = self._seen + batch
            if most < self._next:
                return self._last
            done = self._steps()
            self._next = most + self.every - done % self.every
            return done
        summed = optimizer.gradient_accumulation_steps
        return (self._batches + batch) // summed if summed else self._seen + batch

    def _record_if_due(self, epoch: int, done: int) -> None:
        if done // self.every > self._last // self.every:
            self._last = done
            self.record(epoch, done)

    @property
    def _csv(self) -> Path:
        return self.folder / "gates.csv"

    def _sync(self) -> None:
        sync = getattr(self.model, "jax_state_sync", None)
        if sync is not None:
            sync()  # during fit, Keras on JAX holds the weights outside of the model

    def _steps(self) -> int:
        self._sync()
        return int(ops.convert_to_numpy(self.model.optimizer.iterations))

    def _write(self, rows: Sequence[GateRow]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        new = not self.rows and not (self._append and self._csv.exists())
        text = io.StringIO()
        csv.writer(text).writerows([*([GateRow._fields] if new else []), *rows])
        if new:
            self._csv.unlink(missing_ok=True)
        append(self._csv, text.getvalue().encode())
        if self._events is None:
            self._events = EventFile(self.folder, ".gates")
        if self._events:
            measures = ("mean", "variance", "saturated", "shut")
            scalars = {f"gates_{name}/{row.block}": getattr(row, name) for name in measures for row in rows}
            self._events.write(rows[0].step, scalars)


def _drop_after(path: Path, step: int) -> None:
    """Drops the rows of later steps from a CSV file, and a line that was cut.

    If no row is left, since no step was taken yet, the file is kept under
    another name: perhaps only the optimizer's count was lost.
    """
    header, *rows = path.read_bytes().decode().splitlines(keepends=True) or [""]
    if header.strip() and header.strip() != ",".join(GateRow._fields):
        raise ValueError(f"{path} is not a file of GateStats: remove it, or choose another folder.")
    if step == 0 and rows:
        number = next(i for i in itertools.count(1) if not path.with_name(f"gates.{i}.csv").exists())
        atomic_write(path.with_name(f"gates.{number}.csv"), lambda p: p.write_bytes(path.read_bytes()))
    header = ",".join(GateRow._fields) + "\r\n"
    kept = [row for row in rows if row.endswith("\n") and int(row.split(",")[1]) <= step]
    atomic_write(path, lambda p: p.write_bytes("".join([header, *kept]).encode()))


class _Summary(keras.layers.Layer):
    """Mean, variance, saturated and shut share of each of several gates: `(gates, 4)`."""

    def call(self, gates: Any) -> Any:
        return ops.stack([self._row(ops.cast(t, "float32")) for t in gates])

    def compute_output_spec(self, gates: Any) -> Any:
        return keras.KerasTensor((len(gates), 4), dtype="float32")

    def _row(self, t: Any) -> Any:
        shut, opened = (ops.mean(ops.cast(side, "float32")) for side in (t < SHUT, t > OPEN))
        return ops.stack([ops.mean(t), ops.var(t), shut + opened, shut])


def _measuring(model: keras.Model, gate: str, chosen: Blocks | None, x: Any) -> tuple[list[str], keras.Model]:
    """Names of positions with a learned gate, and a model from a batch to their `_Summary`."""
    check_batch(x, model.inputs, "measure")
    tracer = Tracer(model, chosen)
    check_learned(tracer.blocks, gate)
    gates = tracer.only(gate)
    summary = _Summary(name="gate_summary", dtype="float32")(list(gates.output.values()))
    measured = keras.Model(gates.input, summary, name=f"{model.name}_gate_stats")
    if keras.backend.backend() == "tensorflow":
        measured.jit_compile = False  # XLA would compile for longer than many records take
    return list(gates.output), measured
