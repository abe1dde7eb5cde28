"""Remove the blocks that a network does not need."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import scale_losses_as
from keras_highway.analysis.batches import check_batch
from keras_highway.analysis.gates import check_learned, gate_activity
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.analysis.graph import check_names, kept_state
from keras_highway.analysis.rewire import check_lesionable, removable, rewire
from keras_highway.analysis.scores import Comparison, Scorer, compare, score
from keras_highway.gating import get_gating
from keras_highway.models.lora import without_updates
from keras_highway.weights.info import info_of, note_info

ORDERS = ("lesion", "gates", "greedy")


class TrimCurve(NamedTuple):
    """Performance against depth, from the whole network down.

    Attributes:
        removed: Names in the order of removal; row `i` of the arrays is the
            network without the first `i` of them.
        depth: int64 `(rows,)`, number of blocks left.
        accuracy: float64 `(rows,)`.
        loss: float64 `(rows,)`, mean cross-entropy in nats.
        parameters: int64 `(rows,)`, `count_params` of the remaining network.
            Tied gates and shared kernels stay.
        samples: Number of samples.
    """

    removed: tuple[str, ...]
    depth: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    parameters: np.ndarray
    samples: int


class Trimmed(NamedTuple):
    """A shorter network.

    Attributes:
        model: A functional `keras.Model` with its own layers and weights.
        removed: Names of the removed blocks, in the order of the network.
        curve: The `TrimCurve` it was chosen from.
    """

    model: keras.Model
    removed: tuple[str, ...]
    curve: TrimCurve


class Latency(NamedTuple):
    """Time of a forward pass against depth.

    Attributes:
        depth: int64 `(rows,)`, number of blocks left.
        seconds: float64 `(rows, repeats)`, of one batch; the depths took
            turns.
        batch_size: Number of samples in the batch.
    """

    depth: np.ndarray
    seconds: np.ndarray
    batch_size: int

    @property
    def speed_up(self) -> np.ndarray:
        """Return float64 `(rows, 3)`: quartiles of the speed-up over the first row, turn by turn."""
        return np.percentile(self.seconds[0] / self.seconds, (25, 50, 75), axis=1).T


def trim(
    model: keras.Model,
    data: Iterable[Any],
    budget: float = 0.001,
    *,
    order: str = "lesion",
    choose_on: Iterable[Any] | None = None,
    confidence: float | None = None,
    **options: Any,
) -> Trimmed:
    """Remove the blocks that a network does not need and return a smaller network.

    Blocks go one after another, the least important first, and every depth is
    measured. The result is the smallest network within the budget. It is an
    ordinary Keras model that shares nothing with the original.

    ```python
    small = trim(model, (images, labels), budget=0.001)      # at most 0.1 point less on these images
    small.model.save("small.keras")
    ```

    Do not choose on the test images. An order looks better on the images it
    was chosen on: `choose_on` names other images that determine how many
    blocks go, and `confidence` compares an upper bound of their cost with the
    budget.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        data: A pair (samples, labels), or a list or data set of pairs
            that can be read several times.
        budget: Float, the accuracy that may be lost: `0.001` is 0.1 point.
            Defaults to `0.001`.
        order: Which block goes next: `"lesion"` (the block whose removal alone
            costs the least loss), `"gates"` (the block with the lowest mean
            gate) or `"greedy"` (the block whose removal costs least after the
            earlier removals; one pass over the data for every block). Defaults
            to `"lesion"`.
        choose_on: Other data of the same form to measure every depth on; then
            `data` only determine the order. Defaults to `None`, the same data.
        confidence: Float below 1, e.g. `0.95`: compare the one-sided upper
            bound of the cost (`Comparison.highest_cost`) with the budget, and
            stop at the first depth beyond it. Needs `choose_on`. Defaults to
            `None`: compare the measured cost.
        **options: `batch_size`, `transform` and `progress`, as in
            `lesion_curve`.

    Returns:
        A `Trimmed`; its curve is measured on `choose_on`.

    Raises:
        ValueError: If every block is a transition, an argument is out of
            range, no block learns a gate (`order="gates"`), or the data are
            empty, unlabelled or do not fit.
    """
    _check_choice(budget, confidence, choose_on)
    model = without_updates(model)  # like the result, so that the curve counts its parameters
    removed = _order(model, data, order, options)
    curve, comparison = _measured(model, removed, data if choose_on is None else choose_on, options)
    most = _most(comparison, budget, confidence)
    known = list(blocks_of(model))
    removed = tuple(sorted(curve.removed[:most], key=known.index))
    return Trimmed(without(model, removed), removed, curve)


def _check_choice(budget: float, confidence: float | None, choose_on: Iterable[Any] | None) -> None:
    if not 0 <= budget <= 1:
        raise ValueError(f"`budget` must be from 0 to 1: 0.001 is 0.1 point. Received: budget={budget!r}")
    if confidence is not None and (choose_on is None or not 0 < confidence < 1):
        raise ValueError(
            "`confidence` must be between 0 and 1, together with `choose_on`. "
            f"Received: confidence={confidence!r}, choose_on={choose_on!r}"
        )


def _most(comparison: Comparison, budget: float, confidence: float | None) -> int:
    """Return how many blocks may go."""
    if confidence is None:
        return int(np.flatnonzero(comparison.cost <= budget + 1e-12).max())
    beyond = comparison.highest_cost(confidence)[1:] > budget
    return int(np.argmax([*beyond, True]))


def trim_curve(model: keras.Model, data: Iterable[Any], *, order: str = "lesion", **options: Any) -> TrimCurve:
    """Measure a network at every depth while its blocks go one after another.

    Args:
        model: As in `trim`.
        data: As in `trim`.
        order: As in `trim`.
        **options: As in `trim`.

    Returns:
        A `TrimCurve`.
    """
    return _measured(model, _order(model, data, order, options), data, options)[0]


def without(model: keras.Model, blocks: Sequence[str]) -> keras.Model:
    """Return a copy of a network without some of its blocks.

    Unlike `rewire(model, {name: None})`, the copy has its own layers and
    weights. Low-rank updates (`kh.enable_lora`) are merged into its kernels.

    Args:
        model: A functional `keras.Model` with gated blocks.
        blocks: Names of blocks.

    Returns:
        A functional `keras.Model` of the same name; it is not compiled.

    Raises:
        ValueError: If a block is unknown or a transition.
    """
    model = without_updates(model)
    known = blocks_of(model)
    check_names(blocks, known)
    for name in blocks:
        check_lesionable(known[name])
    shared = rewire(model, dict.fromkeys(blocks))
    copy = keras.models.clone_model(shared)
    scale_losses_as(copy, model)
    copy.set_weights(shared.get_weights())
    info = info_of(model)
    note_info(copy, info and info.derived(removed=(*info.removed, *blocks)))
    return copy


def latency_curve(
    model: keras.Model,
    removed: Sequence[str],
    x: Any,
    *,
    depths: Iterable[int] | None = None,
    repeats: int = 20,
    clock: Callable[[], float] = time.perf_counter,
) -> Latency:
    """Time the forward pass of a network at several depths, in turns.

    Args:
        model: The whole network.
        removed: Names of blocks in the order of removal: `TrimCurve.removed`.
        x: A batch of the model's input.
        depths: Ints, numbers of blocks left. Defaults to at most six, evenly
            from all blocks to none of `removed`.
        repeats: Int, passes at each depth, after one that compiles. Defaults to
            `20`.
        clock: Function that returns seconds, e.g. `time.process_time` on a busy
            machine. Defaults to `time.perf_counter`.

    Returns:
        A `Latency`.

    Raises:
        ValueError: If a depth cannot be reached, or the batch does not fit.
    """
    known = blocks_of(model)
    check_names(removed, known)
    check_batch(x, model.inputs)
    depths = None if depths is None else list(depths)
    if depths is None:
        steps = np.linspace(0, len(removed), min(6, len(removed) + 1))
        depths = [len(known) - round(float(step)) for step in steps]
    low = len(known) - len(removed)
    if repeats < 1 or not all(low <= depth <= len(known) for depth in depths):
        raise ValueError(
            f"`depths` must be from {low} to {len(known)}, and `repeats` positive. "
            f"Received: depths={depths}, repeats={repeats}"
        )
    nets = [rewire(model, dict.fromkeys(removed[: len(known) - depth])) for depth in depths]
    with kept_state(model):
        for net in nets:
            net.predict_on_batch(x)
        seconds = [[_time(net, x, clock) for net in nets] for _ in range(repeats)]
    return Latency(np.array(depths, np.int64), np.array(seconds).T, len(x))


def _order(model: keras.Model, data: Iterable[Any], order: str, options: Mapping[str, Any]) -> list[str]:
    """Return the names of all blocks that can go, in the order of removal."""
    if order not in ORDERS:
        raise ValueError(f"`order` must be one of {ORDERS}. Received: order={order!r}")
    known = blocks_of(model)
    names = removable(known)
    if order == "gates":
        check_learned({name: known[name] for name in names}, "t")
        return _by_gates(model, data, names, options)
    if order == "lesion":
        loss = score(model, [{name: None} for name in names], data, **options).loss
        return [names[i] for i in np.argsort(loss, kind="stable")]
    return _greedily(model, data, names, options)


def _measured(
    model: keras.Model, removed: Sequence[str], data: Iterable[Any], options: Mapping[str, Any]
) -> tuple[TrimCurve, Comparison]:
    """Measure every depth on some data, and compare it with the whole network."""
    known = blocks_of(model)
    plans = [dict.fromkeys(removed[:count]) for count in range(len(removed) + 1)]
    comparison = compare(model, plans, data, **options)
    sizes = [sum(int(np.prod(w.shape)) for w in known[name].weights) for name in removed]
    curve = TrimCurve(
        removed=tuple(removed),
        depth=len(known) - np.arange(len(plans)),
        accuracy=comparison.accuracy,
        loss=comparison.loss,
        parameters=model.count_params() - np.cumsum([0, *sizes]),
        samples=comparison.samples,
    )
    return curve, comparison


def _time(net: keras.Model, x: Any, clock: Callable[[], float]) -> float:
    start = clock()
    net.predict_on_batch(x)
    return clock() - start


def _by_gates(model: keras.Model, data: Iterable[Any], names: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    """Sort the blocks by their mean gate; a block with a constant gate, 1, goes last."""
    learned = [
        name
        for name, block in blocks_of(model).items()
        if name in names and "t" in get_gating(block.gating).learned_gates
    ]
    mean = gate_activity(model, data, blocks=learned, **options).mean
    return sorted(names, key=lambda name: float(mean[name].mean()) if name in mean else 1.0)


def _greedily(model: keras.Model, data: Iterable[Any], names: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    scorer = Scorer(model, [{name: None} for name in names], switches=names)
    removed: list[str] = []
    while len(removed) < len(names):
        loss = np.nan_to_num(scorer(data, **options).loss, nan=np.finfo(float).max)  # worse than any number
        loss[[names.index(name) for name in removed]] = np.inf
        removed.append(names[int(loss.argmin())])
        scorer.switch_off(removed[-1])
    return removed
