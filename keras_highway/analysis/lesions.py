"""Lesions, permutations and random removals of blocks over a data set."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway.analysis.graph import Blocks, block_names, stages
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.analysis.rewire import Lesion, check_lesionable, removable
from keras_highway.analysis.scores import score
from keras_highway.layers import GatedBlock


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
        **options: `batch_size` (Int, defaults to `100`; behind the last block
            there are that many samples for each lesion), `transform` (function
            from a batch of samples to the input of the model) and `progress`
            (Bool).

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
    """Permute the blocks of a stage and measure the error against the disorder [UIE, 4.4, "Shuffling"].

    For each seed, random pairs of blocks swap positions, one pair after
    another. The network is measured after 1, 2, 4, ... swaps (Veit et al.
    2016). Transitions keep their place. In a stage with tied gates so does
    the first block, which has its own gate.

    Args:
        model: As in `lesion_curve`.
        data: As in `lesion_curve`.
        stage: Name of the stage, e.g. `"stage2"`. Defaults to the only one.
        swaps: Ints, numbers of swaps to measure after. Defaults to the powers
            of 2 up to the number of blocks.
        seeds: Ints, one path of swaps each. Defaults to `(0, 1, 2)`.
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

    Each seed draws one order of the blocks; `k` takes the first `k` of it.

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
            f"`stage` must be one of {', '.join(groups)} and have two blocks that are not transitions. "
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
