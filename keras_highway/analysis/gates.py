"""Gates over a data set: their biases, how far they open, and for which classes."""

import csv
import io
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway._support.event_file import EventFile
from keras_highway._support.files import append, atomic_write
from keras_highway._support.whole_numbers import is_count
from keras_highway.analysis.batches import Batch, Moments, batches, check_batch, samples_of
from keras_highway.analysis.graph import Blocks, blocks, data_format_of, holds_blocks, kept_state, walk, walk_nested
from keras_highway.analysis.trace import Tracer
from keras_highway.gating import GATINGS, get_gating
from keras_highway.layers import Branch, ChannelGate, GatedBlock, LowRankDense


class GateActivity(NamedTuple):
    """What the gates did over a data set; a dict from block name to float64 array for each measure.

    The arrays have the shape of one sample's gate: `(units,)`, `(height,
    width, channels)`, or `(1, 1, channels)` where the gate is one number per
    channel. The mean over positions is `mean[name].mean((0, 1))`, the map over
    the image `mean[name].mean(-1)`.

    Attributes:
        samples: How many samples.
        mean: Mean over the samples [TVDN, Figure 2, column 2].
        variance: Population variance over the samples.
        open_share: Share of the samples for which the gate is above
            `threshold`. Its mean over units is how much of a block opens for
            one sample.
        highest: The highest value over the samples: a unit with `highest >
            threshold` is used by some sample.
        threshold: The value above which a gate counts as open.
        data_format: Dict from block name to `"channels_last"` or
            `"channels_first"`; `None` for Keras's own.
        numbers: The place of each block among all blocks of the network, from
            1, by which pictures count; empty where blocks stand in several
            places: as many as there are.
    """

    samples: int
    mean: dict[str, np.ndarray]
    variance: dict[str, np.ndarray]
    open_share: dict[str, np.ndarray]
    highest: dict[str, np.ndarray]
    threshold: float
    data_format: dict[str, str] | None = None
    numbers: tuple[int, ...] = ()


class SampleGates(NamedTuple):
    """What the gates did for each sample.

    Attributes:
        blocks: Names of the blocks, in the order of the network.
        mean: float64 `(samples, blocks)`, mean over a block's units.
        open_share: float64 `(samples, blocks)`, share of its units above the
            threshold.
    """

    blocks: tuple[str, ...]
    mean: np.ndarray
    open_share: np.ndarray


class Routing(NamedTuple):
    """How the gates differ between classes [TVDN, Figure 3].

    Attributes:
        classes: int64 `(k,)`, the classes in the data, ascending.
        samples: int64 `(k,)`, samples of each.
        mean: Dict from block name to float64 array in the shape of one
            sample's gate: the mean over all samples.
        difference: Dict from block name to float64 array `(k, ...)`: the mean
            over a class minus `mean`.
        data_format: As in `GateActivity`.
        numbers: As in `GateActivity`.
    """

    classes: np.ndarray
    samples: np.ndarray
    mean: dict[str, np.ndarray]
    difference: dict[str, np.ndarray]
    data_format: dict[str, str] | None = None
    numbers: tuple[int, ...] = ()


def gate_bias(model: keras.Model, gate: str = "t") -> dict[str, np.ndarray]:
    """Returns the bias of every learned gate before the sigmoid [TVDN, Figure 2, column 1].

    It is the offset of the gate's last layer: the bias of a dense layer or
    convolution, the beta of a batch normalization. At the start it is the
    spec's `gate_bias` everywhere, of carry gates its negative.

    Args:
        model: A functional `keras.Model` with gated blocks.
        gate: `"t"` or `"c"`. Defaults to `"t"`.

    Returns:
        A dict from block name to a float64 array `(units,)` or `(channels,)`.
        Blocks with a tied gate all have that of the shared layer.

    Raises:
        ValueError: If the model has no blocks, its gates are constant, or a
            tied gate comes from a layer unknown here.
    """
    check_learned(blocks(model), gate)
    biases: dict[str, np.ndarray] = {}

    def visit(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if holds_blocks(layer):
            return walk_nested(layer, visit, args[0])
        if isinstance(layer, GatedBlock) and gate in get_gating(layer.gating).learned_gates:
            maker = layer.transform_gate if gate == "t" else layer.carry_gate
            if layer.gate == "tied":
                logits = keras.tree.flatten(kwargs["gate"] if "gate" in kwargs else args[1])
                maker = logits[get_gating(layer.gating).learned_gates.index(gate)]._keras_history.operation
            biases.setdefault(layer.name, _offset(maker, layer.name))
        return layer(*args, **kwargs)

    walk(model, visit)
    return biases


def gate_activity(
    model: keras.Model,
    data: Iterable[Any],
    *,
    gate: str = "t",
    blocks: Blocks | None = None,
    threshold: float = 0.5,
    batch_size: int = 200,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> GateActivity:
    """Measures every gate over a data set, unit by unit, in the memory of one batch.

    ```python
    activity = gate_activity(model, images, transform=kh.get_transform("mnist").apply)
    activity.mean["stage1_block3"].mean()      # how open a block is
    ```

    Args:
        model: A functional `keras.Model` with gated blocks. Images must be of
            one size.
        data: An array of samples, or an iterable of batches (a
            `tf.data.Dataset`, a generator); labels are ignored.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        blocks: Which blocks: names or blocks. Defaults to all.
        threshold: Float, the value above which a gate counts as open. Defaults
            to `0.5`.
        batch_size: Int, samples at once. Defaults to `200`.
        transform: Function from a batch of `data` to the model's input.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `GateActivity`.

    Raises:
        ValueError: If the gates are constant (plain and residual nets), for
            an unknown block, or for data that are empty or of another shape.
    """
    moments: dict[str, tuple[Moments, Moments]] = {}
    highest: dict[str, np.ndarray] = {}
    feed = batches(data, model, batch_size=batch_size, transform=transform, progress=progress)
    for gates, _ in _passes(model, feed, gate, blocks):
        for name, values in gates.items():
            mean, share = moments.setdefault(name, (Moments(), Moments()))
            mean.add(values)
            share.add(values > threshold)
            top = values.max(0)
            highest[name] = np.maximum(highest.get(name, top), top)
    return GateActivity(
        samples=next(iter(moments.values()))[0].count,
        mean={name: pair[0].mean for name, pair in moments.items()},
        variance={name: pair[0].variance for name, pair in moments.items()},
        open_share={name: pair[1].mean for name, pair in moments.items()},
        highest={name: values.astype(np.float64) for name, values in highest.items()},
        threshold=float(threshold),
        data_format=_data_formats(model, moments),
        numbers=_numbers(model, moments),
    )


def gate_samples(
    model: keras.Model,
    data: Iterable[Any],
    *,
    gate: str = "t",
    blocks: Blocks | None = None,
    threshold: float = 0.5,
    batch_size: int = 200,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> SampleGates:
    """Measures how open every block is for each sample: two numbers per sample and block.

    (All the gates of one sample are in `trace(model, x)`.)

    Args:
        model: As in `gate_activity`.
        data: As in `gate_activity`.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        blocks: Which blocks: names or blocks. Defaults to all.
        threshold: Float, the value above which a gate counts as open. Defaults
            to `0.5`.
        batch_size: Int, samples at once. Defaults to `200`.
        transform: Function from a batch of `data` to the model's input.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `SampleGates`.

    Raises:
        ValueError: As in `gate_activity`.
    """
    means, shares, names = [], [], ()
    feed = batches(data, model, batch_size=batch_size, transform=transform, progress=progress)
    for gates, _ in _passes(model, feed, gate, blocks):
        names = tuple(gates)
        flat = [values.reshape(len(values), -1) for values in gates.values()]
        means.append(np.stack([values.mean(1, dtype=np.float64) for values in flat], 1))
        shares.append(np.stack([(values > threshold).mean(1) for values in flat], 1))
    return SampleGates(names, np.concatenate(means), np.concatenate(shares))


def gate_routing(
    model: keras.Model,
    data: Iterable[Any],
    *,
    gate: str = "t",
    blocks: Blocks | None = None,
    batch_size: int = 200,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Routing:
    """Measures how a class's gates differ from the mean over all samples [TVDN, Figure 3].

    Args:
        model: As in `gate_activity`.
        data: A pair (samples, labels), or an iterable of such pairs; labels
            are class numbers `(n,)`, or a column of them `(n, 1)`.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        blocks: Which blocks: names or blocks. Defaults to all.
        batch_size: Int, samples at once. Defaults to `200`.
        transform: Function from a batch of samples to the model's input.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `Routing`.

    Raises:
        ValueError: As in `gate_activity`, and if there are no labels or not one per
            sample.
    """
    overall: dict[str, Moments] = {}
    by_class: dict[int, dict[str, Moments]] = {}
    options = {"batch_size": batch_size, "transform": transform, "progress": progress}
    feed = batches(data, model, labelled=True, per_sample=True, **options)
    for gates, labels in _passes(model, feed, gate, blocks):
        for name, values in gates.items():
            overall.setdefault(name, Moments()).add(values)
            for label in np.unique(labels):
                moments = by_class.setdefault(int(label), {}).setdefault(name, Moments())
                moments.add(values[labels == label])
    classes = sorted(by_class)
    first = next(iter(overall))
    return Routing(
        classes=np.array(classes, np.int64),
        samples=np.array([by_class[k][first].count for k in classes], np.int64),
        mean={name: moments.mean for name, moments in overall.items()},
        difference={
            name: np.stack([by_class[k][name].mean - moments.mean for k in classes])
            for name, moments in overall.items()
        },
        data_format=_data_formats(model, overall),
        numbers=_numbers(model, overall),
    )


def check_learned(known: Mapping[str, GatedBlock], gate: str) -> None:
    """Raises a ValueError, which names the constant, if no block of a model learns a gate.

    Args:
        known: Dict from block name to `GatedBlock`.
        gate: `"t"` or `"c"`.
    """
    if gate not in ("t", "c"):
        raise ValueError(f"`gate` must be 't' or 'c'. Received: gate={gate!r}")
    gatings = {block.gating for block in known.values()}
    if any(gate in get_gating(name).learned_gates for name in gatings):
        return
    row = get_gating(next(iter(gatings)))
    what = {"one": "the constant 1", "zero": "the constant 0", "coupled": "1 − t"}[getattr(row, gate)]
    other = [g for g in row.learned_gates if g != gate]
    instead = (
        f"ask for gate={other[0]!r}"
        if other
        else "what there is to see without gates: trace, lesion_curve, drop_k_curve, reshuffle_curve, estimation_error"
    )
    with_gate = ", ".join(repr(name) for name, other_row in GATINGS.items() if gate in other_row.learned_gates)
    raise ValueError(
        f"No block learns a gate {gate}: with gating={row.name!r} (y = {row.formula}) it is {what}, for all data. "
        f"Gatings that learn it are {with_gate}; here, {instead}. Received: gate={gate!r}"
    )


def _passes(
    model: keras.Model, feed: Iterable[Batch], gate: str, chosen: Blocks | None
) -> Iterator[tuple[dict[str, np.ndarray], Any]]:
    """Yields ({position: gate (n, ...)}, labels) of every batch, from one pass each."""
    tracer = Tracer(model, chosen)
    check_learned(tracer.blocks, gate)
    gates = tracer.only(gate)
    with kept_state(gates):
        for x, labels in feed:
            signals = gates(x, training=False)
            # In the network's order, in which the model has its outputs: PyTorch's tree sorts those of a call.
            values = {name: ops.convert_to_numpy(ops.cast(signals[name], "float32")) for name in gates.output}
            n = samples_of(x, model)
            yield {name: np.broadcast_to(t, (n, *t.shape[1:])) for name, t in values.items()}, labels


def _data_formats(model: keras.Model, positions: Iterable[str]) -> dict[str, str]:
    known = blocks(model)
    return {name: data_format_of(known[name.split(":")[0]]) for name in positions}


def _numbers(model: keras.Model, positions: Iterable[str]) -> tuple[int, ...]:
    places = {name: place for place, name in enumerate(blocks(model), start=1)}
    positions = list(positions)
    return tuple(places[name] for name in positions) if places.keys() >= set(positions) else ()


def _offset(layer: Any, name: str) -> np.ndarray:
    """What a gate layer adds last."""
    if isinstance(layer, Branch):
        last = getattr(layer, f"bn{layer.depth}" if layer.batch_norm else f"conv{layer.depth}")
        weight = last.beta if layer.batch_norm else last.bias
    elif isinstance(layer, LowRankDense):
        weight = layer.up.bias
    elif isinstance(layer, ChannelGate):
        weight = layer.logit
    elif isinstance(layer, keras.layers.BatchNormalization) and layer.center:
        weight = layer.beta
    elif isinstance(layer, (keras.layers.Dense, keras.layers.Conv2D)) and layer.use_bias:
        weight = layer.bias
    else:
        raise ValueError(
            "The bias of a gate is known where a dense layer, convolution or batch normalization makes it last. "
            f"Received: block {name!r} with gate layer {layer.name!r} of type {type(layer).__name__}"
        )
    return np.asarray(ops.convert_to_numpy(weight), np.float64)


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
