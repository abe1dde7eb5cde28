"""Disable, permute or remove blocks, and measure the accuracy on a data set."""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import scale_losses_as
from keras_highway._support.schema import check_choice, refuse
from keras_highway.analysis.gates import check_learned, gate_activity
from keras_highway.analysis.rewire import Lesion, check_lesionable, removable, rewire
from keras_highway.analysis.scores import Comparison, Scorer, compare, score
from keras_highway.analysis.trace import Blocks, block_names, check_batch, check_names, kept_state, stages
from keras_highway.analysis.trace import blocks as blocks_of
from keras_highway.gating import get_gating
from keras_highway.layers import GatedBlock
from keras_highway.models.transfer import without_updates
from keras_highway.weights.info import info_of, note_info


class LesionCurve(NamedTuple):
    """Performance with one block lesioned [TVDN, Figure 4].

    Attributes:
        blocks: Names of the lesioned blocks, in the order of the network.
        accuracy: float64 `(blocks,)`, with that block lesioned.
        loss: float64 `(blocks,)`, mean cross-entropy in nats.
        intact_accuracy: Float, of the intact network.
        intact_loss: Float, of the intact network.
        samples: Number of samples.
        transitions: Names of the blocks left out because they change the
            shape.
        numbers: Position of each block in the network, from 1. Empty if
            unknown.
    """

    blocks: tuple[str, ...]
    accuracy: np.ndarray
    loss: np.ndarray
    intact_accuracy: float
    intact_loss: float
    samples: int
    transitions: tuple[str, ...]
    numbers: tuple[int, ...] = ()


class ReshuffleCurve(NamedTuple):
    """Performance with the blocks of a stage in another order.

    Attributes:
        stage: Name of the stage.
        blocks: Names of its interchangeable blocks, in the order of the
            network.
        orders: int64 `(orders, blocks)`: which of `blocks` is at each
            position.
        swaps: int64 `(orders,)`, number of random swaps.
        seeds: int64 `(orders,)`.
        tau: float64 `(orders,)`, Kendall's rank correlation with the order of
            the network: 1 for the same, -1 for the reverse.
        accuracy: float64 `(orders,)`.
        loss: float64 `(orders,)`, mean cross-entropy in nats.
        intact_accuracy: Float, of the intact network.
        intact_loss: Float, of the intact network.
        samples: Number of samples.
    """

    stage: str
    blocks: tuple[str, ...]
    orders: np.ndarray
    swaps: np.ndarray
    seeds: np.ndarray
    tau: np.ndarray
    accuracy: np.ndarray
    loss: np.ndarray
    intact_accuracy: float
    intact_loss: float
    samples: int


class DropCurve(NamedTuple):
    """Performance with `k` random blocks lesioned.

    Attributes:
        k: int64 `(ks,)`.
        seeds: int64 `(seeds,)`.
        dropped: For each seed, the names in the order of removal: the first
            `k` are lesioned.
        accuracy: float64 `(ks, seeds)`.
        loss: float64 `(ks, seeds)`, mean cross-entropy in nats.
        intact_accuracy: Float, of the intact network.
        intact_loss: Float, of the intact network.
        samples: Number of samples.
    """

    k: np.ndarray
    seeds: np.ndarray
    dropped: tuple[tuple[str, ...], ...]
    accuracy: np.ndarray
    loss: np.ndarray
    intact_accuracy: float
    intact_loss: float
    samples: int


def lesion_curve(model: keras.Model, data: Iterable[Any], blocks: Blocks | None = None, **options: Any) -> LesionCurve:
    """Lesion each block in turn and measure the network [TVDN, 4.2 and Figure 4].

    A lesioned block has `t = 0`: a highway block copies its input, a residual
    block loses its branch, a plain block passes its input on. The part before
    the lesion is computed once for all lesions behind it.

    ```python
    curve = lesion_curve(model, (images, labels), transform=kh.get_transform("mnist").apply)
    curve.blocks[curve.accuracy.argmin()]      # the block that matters most
    ```

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        data: A pair (samples, labels), or an iterable of pairs. Labels are
            class numbers.
        blocks: Names or blocks. Defaults to `None`: all but the transitions.
        **options: `batch_size` (Int, defaults to `100`; late blocks process
            as many samples per lesion), `transform` (function from a batch of
            samples to the input of the model) and `progress` (Bool).

    Returns:
        A `LesionCurve`.

    Raises:
        ValueError: If the model has no blocks, a block is unknown or a
            transition, or the data are empty, unlabelled or do not fit.
    """
    known = blocks_of(model)
    chosen = _chosen(known, blocks)
    plans = [{}, *({name: Lesion(name)} for name in chosen)]
    accuracy, loss, samples = score(model, plans, data, **options)
    transitions = tuple(name for name, block in known.items() if block.is_transition)
    places = {name: place for place, name in enumerate(known, start=1)}
    return LesionCurve(
        blocks=tuple(chosen),
        accuracy=accuracy[1:],
        loss=loss[1:],
        intact_accuracy=float(accuracy[0]),
        intact_loss=float(loss[0]),
        samples=samples,
        transitions=transitions,
        numbers=tuple(places[name] for name in chosen),
    )


def reshuffle_curve(
    model: keras.Model,
    data: Iterable[Any],
    stage: str | None = None,
    *,
    swaps: Iterable[int] | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    **options: Any,
) -> ReshuffleCurve:
    """Measure the accuracy with the blocks of a stage in random orders [UIE, 4.4, "Shuffling"].

    For each seed, random pairs of blocks swap positions, one pair after
    another. The network is measured after 1, 2, 4, ... swaps (Veit et al.
    2016). Transitions keep their position. In a stage with tied gates, the
    first block keeps its position, too, because it has its own gate.

    Args:
        model: As in `lesion_curve`.
        data: As in `lesion_curve`.
        stage: Name of the stage, e.g. `"stage2"`. Defaults to the only one.
        swaps: Ints, numbers of swaps to measure after. Defaults to the powers
            of 2 up to the number of blocks.
        seeds: Ints, each for one series of swaps. Defaults to `(0, 1, 2)`.
        **options: As in `lesion_curve`.

    Returns:
        A `ReshuffleCurve`.

    Raises:
        ValueError: If the stage is unknown or has fewer than two blocks that
            can swap positions, and as in `lesion_curve`.
    """
    stage, names = _interchangeable(blocks_of(model), stage)
    counts = _checked_counts("swaps", _powers(len(names)) if swaps is None else swaps)
    orders, plans = [], [{}]
    for seed in seeds:
        for order in _paths(len(names), counts, seed):
            orders.append(order)
            plans.append({names[place]: names[who] for place, who in enumerate(order) if place != who})
    accuracy, loss, samples = score(model, plans, data, **options)
    return ReshuffleCurve(
        stage=stage,
        blocks=tuple(names),
        orders=np.array(orders, np.int64),
        swaps=np.tile(np.array(counts, np.int64), len(seeds)),
        seeds=np.repeat(np.array(seeds, np.int64), len(counts)),
        tau=np.array([kendall_tau(order) for order in orders]),
        accuracy=accuracy[1:],
        loss=loss[1:],
        intact_accuracy=float(accuracy[0]),
        intact_loss=float(loss[0]),
        samples=samples,
    )


def drop_k_curve(
    model: keras.Model,
    data: Iterable[Any],
    ks: Iterable[int] | None = None,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    **options: Any,
) -> DropCurve:
    """Lesion `k` random blocks at once and measure the network.

    Each seed draws one order of the blocks. The first `k` are lesioned.

    Args:
        model: As in `lesion_curve`.
        data: As in `lesion_curve`.
        ks: Ints, numbers of blocks. Defaults to the powers of 2 up to the
            number of blocks that are not transitions.
        seeds: Ints. Defaults to `(0, 1, 2)`.
        **options: As in `lesion_curve`.

    Returns:
        A `DropCurve`.

    Raises:
        ValueError: If there are fewer blocks, and as in `lesion_curve`.
    """
    names = _chosen(blocks_of(model), None)
    counts = _checked_counts("ks", _powers(len(names)) if ks is None else ks, most=len(names))
    dropped = tuple(tuple(np.random.default_rng(seed).permutation(names).tolist()) for seed in seeds)
    plans = [{}, *({name: Lesion(name) for name in order[:k]} for k in counts for order in dropped)]
    accuracy, loss, samples = score(model, plans, data, **options)
    shape = (len(counts), len(dropped))
    return DropCurve(
        k=np.array(counts, np.int64),
        seeds=np.array(seeds, np.int64),
        dropped=dropped,
        accuracy=accuracy[1:].reshape(shape),
        loss=loss[1:].reshape(shape),
        intact_accuracy=float(accuracy[0]),
        intact_loss=float(loss[0]),
        samples=samples,
    )


def kendall_tau(order: Sequence[int] | np.ndarray) -> float:
    """Return Kendall's rank correlation of a permutation with the sorted order.

    Args:
        order: Ints, a permutation of `0, 1, ...`, at least two.
    """
    order = np.asarray(order)
    later, earlier = np.triu_indices(len(order), 1)
    return float(np.sign(order[earlier] - order[later]).mean())


def _chosen(known: Mapping[str, GatedBlock], chosen: Blocks | None) -> list[str]:
    """Return the names of the blocks to lesion, in the order of the network."""
    if chosen is None:
        return removable(known)
    names = block_names(chosen, known)
    for name in names:
        check_lesionable(known[name])
    return names


def _interchangeable(known: Mapping[str, GatedBlock], stage: str | None) -> tuple[str, list[str]]:
    groups = stages(known)
    if stage is None and len(groups) == 1:
        stage = next(iter(groups))
    names = [name for name in groups.get(str(stage), ()) if not known[name].is_transition]
    names = [name for name in names if known[name].gate == "tied"] or names
    if stage is None or len(names) < 2:
        raise ValueError(
            f"`stage` must be one of {', '.join(groups)}, with at least two blocks that are not transitions. "
            f"Received: stage={stage!r}"
        )
    return stage, names


def _paths(size: int, counts: Sequence[int], seed: int) -> list[np.ndarray]:
    """Return the orders after these numbers of random swaps, on one path from the identity."""
    rng, order, orders = np.random.default_rng(seed), np.arange(size), {}
    for done in range(1, max(counts) + 1):
        a, b = rng.choice(size, 2, replace=False)
        order[[a, b]] = order[[b, a]]
        orders[done] = order.copy()
    return [orders[count] for count in counts]


def _powers(top: int) -> list[int]:
    return [2**i for i in range(top.bit_length())]


def _checked_counts(name: str, counts: Iterable[int], most: float = math.inf) -> list[int]:
    values = [int(count) for count in counts]
    if not values or min(values) < 1 or max(values) > most:
        raise ValueError(f"`{name}` must be one or more integers from 1 to {most}. Received: {name}={values}")
    return values


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

    Do not choose on the test images. The cost is underestimated on the images
    that determine the order, so pass other images as `choose_on`. With
    `confidence`, an upper bound of the cost must be within the budget.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        data: A pair (samples, labels), or a list or data set of pairs
            that can be read several times.
        budget: Float, the accuracy that may be lost: `0.001` is 0.1 point.
            Defaults to `0.001`.
        order: Rule for the next block: `"lesion"` (the block whose removal alone
            costs the least loss), `"gates"` (the block with the lowest mean
            gate) or `"greedy"` (the block whose removal costs least after the
            earlier removals; one pass over the data for every block). Defaults
            to `"lesion"`.
        choose_on: Other data, to measure every depth on. `data` then only
            determine the order. Defaults to `None`: `data`.
        confidence: Float below 1, e.g. `0.95`: stop at the first depth whose
            one-sided upper bound of the cost (`Paired.highest_cost`) exceeds
            the budget. Needs `choose_on`. Defaults to `None`: use the measured
            cost.
        **options: `batch_size`, `transform` and `progress`, as in
            `lesion_curve`.

    Returns:
        A `Trimmed`; its curve is measured on `choose_on`.

    Raises:
        ValueError: If every block is a transition, an argument is invalid,
            no block learns a gate (`order="gates"`), or the data are empty,
            unlabelled or do not fit.
    """
    refuse(
        (not 0 <= budget <= 1, f"`budget` must be from 0 to 1: 0.001 is 0.1 point. Received: budget={budget!r}"),
        (
            confidence is not None and (choose_on is None or not 0 < confidence < 1),
            f"`confidence` must be between 0 and 1, together with `choose_on`. Received: confidence={confidence!r}",
        ),
    )
    model = without_updates(model)  # like the result, so that the curve counts its parameters
    removed = _order(model, data, order, options)
    curve, comparison = _measured(model, removed, data if choose_on is None else choose_on, options)
    if confidence is None:
        most = int(np.flatnonzero(comparison.paired.cost <= budget + 1e-12).max())
    else:
        beyond = comparison.paired.highest_cost(confidence)[1:] > budget
        most = int(np.argmax([*beyond, True]))
    known = list(blocks_of(model))
    removed = tuple(sorted(curve.removed[:most], key=known.index))
    return Trimmed(without(model, removed), removed, curve)


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
    check_batch(x, model)
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
    check_choice("order", order, ORDERS)
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
