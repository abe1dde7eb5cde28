"""Which blocks matter, and whether their order does: lesions, permutations and random removals over a data set."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.terminal import did_you_mean
from keras_highway.analysis.graph import Blocks, block_name, check_names, stages
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.analysis.rewire import Lesion, check_lesionable
from keras_highway.analysis.scores import score
from keras_highway.layers import GatedBlock


class LesionCurve(NamedTuple):
    """Performance with one block lesioned [TVDN, Figure 4].

    Attributes:
        blocks: Names of the lesioned blocks, in the order of the network.
        accuracy: float64 `(blocks,)`, with that block lesioned.
        loss: float64 `(blocks,)`, mean cross-entropy in nats.
        intact_accuracy: Float, of the network as it is.
        intact_loss: Float, of the network as it is.
        samples: How many samples.
        transitions: Names of the blocks left out because they change the
            shape.
        numbers: The place of each of `blocks` among all blocks of the
            network, the first is 1. Empty where it is not known.
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
        stage: The stage's name.
        blocks: Names of its interchangeable blocks, in the order of the
            network.
        orders: int64 `(orders, blocks)`: which of `blocks` stands at each
            position.
        swaps: int64 `(orders,)`, how many random swaps made it.
        seeds: int64 `(orders,)`.
        tau: float64 `(orders,)`, Kendall's rank correlation with the order of
            the network: 1 for the same, -1 for the reverse.
        accuracy: float64 `(orders,)`.
        loss: float64 `(orders,)`, mean cross-entropy in nats.
        intact_accuracy: Float, of the network as it is.
        intact_loss: Float, of the network as it is.
        samples: How many samples.
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
        dropped: For each seed, the names in the order in which they go: the
            first `k` of them are lesioned.
        accuracy: float64 `(ks, seeds)`.
        loss: float64 `(ks, seeds)`, mean cross-entropy in nats.
        intact_accuracy: Float, of the network as it is.
        intact_loss: Float, of the network as it is.
        samples: How many samples.
    """

    k: np.ndarray
    seeds: np.ndarray
    dropped: tuple[tuple[str, ...], ...]
    accuracy: np.ndarray
    loss: np.ndarray
    intact_accuracy: float
    intact_loss: float
    samples: int


def lesion_curve(
    model: keras.Model, data: Iterable[Any], blocks: Blocks | None = None, *, take_out: bool = False, **options: Any
) -> LesionCurve:
    """Lesions each block in turn and measures what is left [TVDN, 4.2 and Figure 4].

    A lesioned block has `t = 0`: a highway block copies its input, a residual
    block loses its branch, a plain block lets its input through. The part
    before the lesion is computed once for all lesions behind it.

    ```python
    curve = lesion_curve(model, (images, labels), transform=kh.get_transform("mnist").apply)
    curve.blocks[curve.accuracy.argmin()]      # the block that matters most
    ```

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        data: A pair (samples, labels), or an iterable of such pairs; labels
            are class numbers.
        blocks: Which blocks: names or blocks. Defaults to `None`: all but the
            transitions.
        take_out: Bool, take the block out altogether: `y = x` also where a
            learned carry gate would scale it. Defaults to `False`.
        **options: `batch_size` (Int, samples at once, defaults to `100`;
            behind the last block there are that many for each lesion),
            `transform` (function from a batch of samples to the model's
            input) and `progress` (Bool).

    Returns:
        A `LesionCurve`.

    Raises:
        ValueError: If the model has no blocks, for an unknown block or a
            transition, whose lesion would measure its projection, or for data
            that are empty, unlabelled or of another shape.
    """
    known = blocks_of(model)
    chosen = _chosen(known, blocks)
    plans = [{}, *({name: None if take_out else Lesion(name)} for name in chosen)]
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
    """Permutes the blocks of a stage and measures the error against the disorder [UIE, 4.4, "Shuffling"].

    For each seed, random pairs of blocks swap positions, one pair after
    another, and the network is measured after 1, 2, 4, ... swaps (Veit et al.
    2016). Transitions stay where they are; so does, where the gates of a stage
    are tied, its first block, whose gate is its own.

    Args:
        model: As in `lesion_curve`.
        data: As in `lesion_curve`.
        stage: The stage's name, e.g. `"stage2"`. Defaults to the only one.
        swaps: Ints, after how many swaps to measure. Defaults to the powers
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
    """Lesions `k` random blocks at once and measures what is left.

    Each seed draws one order of the blocks; `k` takes the first `k` of it.

    Args:
        model: As in `lesion_curve`.
        data: As in `lesion_curve`.
        ks: Ints, how many blocks. Defaults to the powers of 2 up to the number
            of blocks that are not transitions.
        seeds: Ints. Defaults to `(0, 1, 2)`.
        **options: As in `lesion_curve`.

    Returns:
        A `DropCurve`.

    Raises:
        ValueError: If there are fewer blocks, and as in `lesion_curve`.
    """
    names = _chosen(blocks_of(model), None)
    counts = _checked_counts("ks", _powers(len(names)) if ks is None else ks)
    if max(counts) > len(names):
        raise ValueError(
            f"Only {len(names)} blocks can be lesioned (transitions cannot). Received: ks up to {max(counts)}"
        )
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
    """Kendall's rank correlation of a permutation of `0, 1, ...` with that order itself.

    Args:
        order: Ints, a permutation of at least two.
    """
    order = np.asarray(order)
    later, earlier = np.triu_indices(len(order), 1)
    return float(np.sign(order[earlier] - order[later]).mean())


def _chosen(known: Mapping[str, GatedBlock], chosen: Blocks | None) -> list[str]:
    """Names of the blocks to lesion, in the order of the network."""
    if chosen is None:
        names = [name for name, block in known.items() if not block.is_transition]
        if not names:
            raise ValueError(f"Every block is a transition, and those are not lesioned. Received: {', '.join(known)}")
        return names
    selected = {block_name(block) for block in ([chosen] if isinstance(chosen, (str, GatedBlock)) else chosen)}
    check_names(selected, known)
    for name in selected:
        check_lesionable(known[name])
    if not selected:
        raise ValueError("There is no block to lesion. Received: blocks=[]")
    return [name for name in known if name in selected]


def _interchangeable(known: Mapping[str, GatedBlock], stage: str | None) -> tuple[str, list[str]]:
    groups = stages(known)
    if stage is None and len(groups) == 1:
        stage = next(iter(groups))
    if stage not in groups:
        raise ValueError(
            f"Name a stage to shuffle.{did_you_mean(stage, groups)} The model has {', '.join(groups)}. "
            f"Received: stage={stage!r}"
        )
    names = [name for name in groups[stage] if not known[name].is_transition]
    tied = [name for name in names if known[name].gate == "tied"]
    names = tied or names
    if len(names) < 2:
        raise ValueError(
            "A stage needs two blocks that can swap positions; a transition, which changes the shape, cannot. "
            f"Received: stage={stage!r} with blocks {', '.join(groups[stage])}"
        )
    return stage, names


def _paths(size: int, counts: Sequence[int], seed: int) -> list[np.ndarray]:
    """The orders after some numbers of random swaps, on one path from the identity."""
    rng, order, orders = np.random.default_rng(seed), np.arange(size), {}
    for done in range(1, max(counts) + 1):
        a, b = rng.choice(size, 2, replace=False)
        order[[a, b]] = order[[b, a]]
        orders[done] = order.copy()
    return [orders[count] for count in counts]


def _powers(top: int) -> list[int]:
    return [2**i for i in range(top.bit_length())]


def _checked_counts(name: str, counts: Iterable[int]) -> list[int]:
    values = [int(count) for count in counts]
    if not values or min(values) < 1:
        raise ValueError(f"`{name}` must be one or more positive integers. Received: {name}={counts!r}")
    return values
