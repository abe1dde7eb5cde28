"""Gates over a data set and during training: biases, activity, classes, records."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway._support.event_file import EventFile
from keras_highway._support.files import append
from keras_highway.analysis.trace import (
    Batch,
    Blocks,
    Moments,
    Tracer,
    batches,
    blocks,
    check_batch,
    data_format_of,
    holds_blocks,
    kept_state,
    samples_of,
    walk,
    walk_nested,
)
from keras_highway.gating import get_gating
from keras_highway.layers import Branch, ChannelGate, GatedBlock, LowRankDense

SHUT, OPEN = 0.01, 0.99  # beyond these the gradient of a sigmoid is at most a 25th of its highest


class GateActivity(NamedTuple):
    """Gate statistics over a data set: dicts from block name to float64 array.

    The arrays have the shape of the gate of one sample: `(units,)`, `(height,
    width, channels)`, or `(1, 1, channels)` for one number per channel.

    Attributes:
        samples: Number of samples.
        mean: Mean over the samples [TVDN, Figure 2, column 2].
        variance: Population variance over the samples.
        open_share: Share of the samples for which the gate is above
            `threshold`.
        highest: Highest value over the samples.
        threshold: Value above which a gate counts as open.
        data_format: Dict from block name to `"channels_last"` or
            `"channels_first"`; `None` for Keras's own.
        numbers: Position of each block in the network, from 1. Empty if a
            block is used several times.
    """

    samples: int
    mean: dict[str, np.ndarray]
    variance: dict[str, np.ndarray]
    open_share: dict[str, np.ndarray]
    highest: dict[str, np.ndarray]
    threshold: float
    data_format: dict[str, str] | None = None
    numbers: tuple[int, ...] = ()


class Routing(NamedTuple):
    """Difference of the gates between classes [TVDN, Figure 3].

    Attributes:
        classes: int64 `(k,)`, the classes in the data, ascending.
        samples: int64 `(k,)`, number of samples of each class.
        mean: Dict from block name to float64 array in the shape of the gate
            of one sample: the mean over all samples.
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
    """Return the bias of every learned gate before the sigmoid [TVDN, Figure 2, column 1].

    The bias belongs to the last layer of the gate: the bias of a dense layer
    or convolution, or the beta of a batch normalization.

    Args:
        model: A functional `keras.Model` with gated blocks.
        gate: `"t"` or `"c"`. Defaults to `"t"`.

    Returns:
        A dict from block name to a float64 array `(units,)` or `(channels,)`.

    Raises:
        ValueError: If the model has no blocks, no block learns the gate, or
            the gate ends in an unknown layer.
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
    """Measure every gate over a data set, in the memory of one batch.

    ```python
    activity = gate_activity(model, images, transform=kh.get_transform("mnist").apply)
    activity.mean["stage1_block3"].mean()      # how open a block is
    ```

    Args:
        model: A functional `keras.Model` with gated blocks. All images must
            have one size.
        data: An array of samples, or an iterable of batches (a
            `tf.data.Dataset`, a generator). Labels are ignored.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        blocks: Names or blocks. Defaults to all blocks.
        threshold: Float, the value above which a gate counts as open. Defaults
            to `0.5`.
        batch_size: Int, samples per batch. Defaults to `200`.
        transform: Function from a batch of `data` to the input of the model.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `GateActivity`.

    Raises:
        ValueError: If no block learns the gate, a block is unknown, or the
            data are empty or do not fit the model.
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
        **_places(model, moments),
    )


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
    """Measure how the gates of each class differ from the mean over all samples [TVDN, Figure 3].

    See `gate_activity` for the other arguments.

    Args:
        model: As in `gate_activity`.
        data: A pair (samples, labels), or an iterable of pairs. Labels are
            class numbers `(n,)` or `(n, 1)`.

    Returns:
        A `Routing`.

    Raises:
        ValueError: As in `gate_activity`, and if a sample has no label or
            several.
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
        **_places(model, overall),
    )


def check_learned(known: Mapping[str, GatedBlock], gate: str) -> None:
    """Raise a ValueError if no block of a dict from name to block learns a gate."""
    gatings = [get_gating(block.gating) for block in known.values()]
    learned = list(dict.fromkeys(name for gating in gatings for name in gating.learned_gates))
    if gate not in learned:
        hint = (
            f"use gate={learned[0]!r}"
            if learned
            else "use an analysis without gates, e.g. trace, lesion_curve or estimation_error"
        )
        raise ValueError(
            f"`gate` must be a learned gate. gating={gatings[0].name!r} (y = {gatings[0].formula}) learns "
            f"{' and '.join(learned) or 'none'}: {hint}. Received: gate={gate!r}"
        )


class GateRow(NamedTuple):
    """Gates of one block at one time; also the columns of `gates.csv`.

    Attributes:
        epoch: Number of finished epochs.
        step: Number of optimizer steps.
        block: Name of the block (with `:2` for its second use).
        mean: Mean over the batch and the gates of the block.
        variance: Population variance over the same.
        saturated: Share of the gates below 0.01 or above 0.99.
        shut: Share of the gates below 0.01.
    """

    epoch: int
    step: int
    block: str
    mean: float
    variance: float
    saturated: float
    shut: float


class GateStats(keras.callbacks.Callback):
    """Record the gates of every block during training.

    ```python
    stats = kh.analysis.GateStats(x_train[:64], "runs/one")
    model.fit(x_train, y_train, epochs=10, callbacks=[stats])
    [row.mean for row in stats.rows if row.block == "stage1_block3"]
    ```

    Writes `gates.csv` (its columns are the fields of `GateRow`) and an event
    file for TensorBoard (`gates_mean/<block>` and so on, by step). There is
    one record before the first step and one after each epoch. A record is one
    compiled forward pass of the batch. Works on every backend and under
    `tf.distribute`.

    In your own training loop, call `stats.set_model(model)` once and
    `stats.record(epoch, step)` for each record.

    Args:
        x: A small fixed batch of the input of the model, e.g. 64 samples.
        folder: Folder for the files; created if needed.
        gate: `"t"` or `"c"`. Defaults to `"t"`.
        blocks: Names or blocks. Defaults to all blocks that learn the gate.
        tensorboard: Bool, whether to write an event file. Defaults to `True`.
        append: Bool, whether to append to an existing CSV file, as a resumed
            run needs. Defaults to `False`: replace it.

    Raises:
        ValueError: When training begins, if no block learns the gate, a block
            is unknown, or the batch does not fit the model.

    Attributes:
        rows: List of `GateRow`, all records.
    """

    def __init__(
        self,
        x: Any,
        folder: str | os.PathLike[str],
        *,
        gate: str = "t",
        blocks: Blocks | None = None,
        tensorboard: bool = True,
        append: bool = False,
    ):
        super().__init__()
        self.x, self.folder, self.gate = x, Path(folder), gate
        self.rows: list[GateRow] = []
        self._blocks, self._append = blocks, append
        self._events = None if tensorboard else False  # made with the first record
        self._measured: keras.Model | None = None
        self._names: list[str] = []
        self._begins = True

    def set_model(self, model: keras.Model) -> None:
        if self._measured is None or model is not self._model:
            self._names, self._measured = _measuring(model, self.gate, self._blocks, self.x)
        super().set_model(model)

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        self._begins = True

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        # Not in `on_train_begin`: only here every callback has restored its state.
        resumes = self._append and self._csv.exists() and not self.rows
        recorded = bool(self.rows) and self.rows[-1].step == self._steps()  # by the `fit` before
        if self._begins and not resumes and not recorded:
            self.record(epoch, self._steps())
        self._begins = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        self.record(epoch + 1, self._steps())

    def record(self, epoch: int, step: int) -> list[GateRow]:
        """Measure the gates now and write them.

        Args:
            epoch: Int, number of finished epochs.
            step: Int, number of steps.

        Returns:
            A list of `GateRow`, one per block. They are also added to `rows`.

        Raises:
            ValueError: If no model is set.
        """
        if self._measured is None:
            raise ValueError("`model` must be set: call stats.set_model(model) first, or pass stats to fit.")
        self._sync()
        # Under a strategy of several replicas each of them gives the same rows.
        with kept_state(self._measured):  # training continues from this state
            table = self._measured.predict_on_batch(self.x)[: len(self._names)]
        rows = [GateRow(epoch, step, name, *map(float, line)) for name, line in zip(self._names, table, strict=True)]
        self._write(rows)
        self.rows += rows
        return rows

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

    def _write(self, rows: list[GateRow]) -> None:
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


class _Summary(keras.layers.Layer):
    """Mean, variance, saturated share and shut share of several gates: `(gates, 4)`."""

    def call(self, gates: Any) -> Any:
        return ops.stack([self._row(ops.cast(t, "float32")) for t in gates])

    def compute_output_spec(self, gates: Any) -> Any:
        return keras.KerasTensor((len(gates), 4), dtype="float32")

    def _row(self, t: Any) -> Any:
        shut, opened = (ops.mean(ops.cast(side, "float32")) for side in (t < SHUT, t > OPEN))
        return ops.stack([ops.mean(t), ops.var(t), shut + opened, shut])


def _measuring(model: keras.Model, gate: str, chosen: Blocks | None, x: Any) -> tuple[list[str], keras.Model]:
    """Return the names of the gates, and a model from a batch to their `_Summary`."""
    check_batch(x, model)
    gates = _gates(model, gate, chosen)
    summary = _Summary(name="gate_summary", dtype="float32")(list(gates.output.values()))
    measured = keras.Model(gates.input, summary, name=f"{model.name}_gate_stats")
    if keras.backend.backend() == "tensorflow":
        measured.jit_compile = False  # XLA would compile for longer than many records take
    return list(gates.output), measured


def _gates(model: keras.Model, gate: str, chosen: Blocks | None) -> keras.Model:
    """Return a model from a batch to the gates of each position."""
    tracer = Tracer(model, chosen)
    check_learned(tracer.blocks, gate)
    return tracer.only(gate)


def _passes(
    model: keras.Model, feed: Iterable[Batch], gate: str, chosen: Blocks | None
) -> Iterator[tuple[dict[str, np.ndarray], Any]]:
    """Yield ({position: gate (n, ...)}, labels) of every batch."""
    gates = _gates(model, gate, chosen)
    with kept_state(gates):
        for x, labels in feed:
            signals = gates(x, training=False)
            # In the order of the network: PyTorch's tree sorts the outputs of a call.
            values = {name: ops.convert_to_numpy(ops.cast(signals[name], "float32")) for name in gates.output}
            n = samples_of(x, model)
            yield {name: np.broadcast_to(t, (n, *t.shape[1:])) for name, t in values.items()}, labels


def _places(model: keras.Model, positions: Iterable[str]) -> dict[str, Any]:
    """Return data format and number in the network of each position; no numbers if a block is used several times."""
    known, positions = blocks(model), list(positions)
    number = {name: place for place, name in enumerate(known, start=1)}
    return {
        "data_format": {name: data_format_of(known[name.split(":")[0]]) for name in positions},
        "numbers": tuple(number[name] for name in positions) if number.keys() >= set(positions) else (),
    }


def _offset(layer: Any, name: str) -> np.ndarray:
    """Return what a gate layer adds last."""
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
            "A gate must end in a dense layer, convolution or batch normalization with a bias. "
            f"Received: gate layer {layer.name!r} of type {type(layer).__name__} in block {name!r}"
        )
    return np.asarray(ops.convert_to_numpy(weight), np.float64)
