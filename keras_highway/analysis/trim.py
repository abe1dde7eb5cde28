"""Depth that pays: leave out the blocks a network does without."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import scale_losses_as
from keras_highway.analysis.batches import check_batch
from keras_highway.analysis.gates import check_learned, gate_activity
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.analysis.graph import check_names
from keras_highway.analysis.kept_state import kept_state
from keras_highway.analysis.rewire import check_lesionable, rewire
from keras_highway.analysis.scores import Comparison, Scorer, compare, score
from keras_highway.gating import get_gating
from keras_highway.models.lora import without_updates
from keras_highway.models.origin import note_origin, origin_of

ORDERS = ("lesion", "gates", "greedy")


class TrimCurve(NamedTuple):
    """Performance against depth, from the whole network down.

    Attributes:
        removed: Names in the order in which they go; row `i` of the arrays is
            the network without the first `i` of them.
        depth: int64 `(rows,)`, blocks left.
        accuracy: float64 `(rows,)`.
        loss: float64 `(rows,)`, mean cross-entropy in nats.
        parameters: int64 `(rows,)`, weights left, as `count_params` counts
            them, with the statistics of batch normalization (a tied gate and
            shared kernels stay, since other blocks may use them).
        samples: How many samples.
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
        model: A functional `keras.Model` with layers and weights of its own.
        removed: Names of the blocks left out, in the order of the network.
        curve: The `TrimCurve` it was chosen from.
    """

    model: keras.Model
    removed: tuple[str, ...]
    curve: TrimCurve


class Latency(NamedTuple):
    """Time of a forward pass against depth.

    Attributes:
        depth: int64 `(rows,)`, blocks left.
        seconds: float64 `(rows, repeats)`, of one batch; the depths took
            turns.
        batch_size: Samples in the batch.
    """

    depth: np.ndarray
    seconds: np.ndarray
    batch_size: int

    @property
    def median(self) -> np.ndarray:
        """float64 `(rows,)`."""
        return np.median(self.seconds, 1)

    @property
    def speed_up(self) -> np.ndarray:
        """float64 `(rows, 3)`, how many times as fast as the first row: quartiles of the ratios, turn by turn."""
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
    """Leaves out the blocks that a network does without, and returns a smaller one.

    Blocks go one after another, least important first, and every depth is
    measured; the result is the shallowest whose accuracy is within the
    budget. It is an ordinary Keras model: it saves, loads, compiles and
    fine-tunes, and shares nothing with the one it came from.

    ```python
    small = trim(model, (images, labels), budget=0.001)      # at most 0.1 point less on these images
    small.model.save("small.keras")
    ```

    Choose with images that are not those of the test. An order looks better
    on the images it was chosen on: with `choose_on` other images determine how
    far to go, and `confidence` compares an upper bound of the cost that they
    measure with the budget.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        data: A pair (samples, labels), or a list or data set of such pairs
            that can be read more than once.
        budget: Float, how much accuracy on these data may be lost: `0.001` is
            0.1 point. Defaults to `0.001`.
        order: Which block goes next: `"lesion"` (the one whose removal alone
            costs the least loss), `"gates"` (the one whose gates open
            least, on average) or `"greedy"` (the one whose removal costs
            least now that others are gone; a pass over the data for every
            block). Defaults to `"lesion"`.
        choose_on: Other data of the same forms, on which every depth is
            measured; `data` then only give the order. Defaults to `None`: the
            same.
        confidence: Float below 1, e.g. `0.95`: a depth is within the budget
            if the one-sided upper bound of what it costs is
            (`Comparison.highest_cost`), and the first depth that is not ends
            the search, so that trying many depths does not spend the
            confidence. It is about samples like those of `choose_on`: images
            that a network was trained on tell little about others. Needs
            `choose_on`. Defaults to `None`: the shallowest depth whose
            accuracy, as measured, is within the budget.
        **options: `batch_size`, `transform` and `progress`, as in
            `lesion_curve`.

    Returns:
        A `Trimmed`; its curve is that of `choose_on`.

    Raises:
        ValueError: If the model has no blocks that can go (transitions, which
            change the shape, cannot), an argument is out of its range, the
            gates are constant (`order="gates"`), or the data are empty,
            unlabelled or of another shape.
    """
    _check_choice(budget, confidence, choose_on)
    model = without_updates(model)  # as the result, so that the curve counts its parameters
    removed = _order(model, data, order, options)
    curve, comparison = _measured(model, removed, data if choose_on is None else choose_on, options)
    most = _most(comparison, budget, confidence)
    known = list(blocks_of(model))
    removed = tuple(sorted(curve.removed[:most], key=known.index))
    return Trimmed(without(model, removed), removed, curve)


def _check_choice(budget: float, confidence: float | None, choose_on: Iterable[Any] | None) -> None:
    if not 0 <= budget <= 1:
        raise ValueError(f"`budget` is an accuracy from 0 to 1: 0.001 is 0.1 point. Received: budget={budget!r}")
    if confidence is not None and not 0 < confidence < 1:
        raise ValueError(f"`confidence` is a probability between 0 and 1: 0.95. Received: confidence={confidence!r}")
    if confidence is not None and choose_on is None:
        raise ValueError(
            "`confidence` needs `choose_on`, other data than those that give the order: an order looks better on the "
            f"data it was made for, whatever their number. Received: confidence={confidence!r}, choose_on=None"
        )


def _most(comparison: Comparison, budget: float, confidence: float | None) -> int:
    """How many blocks may go."""
    if confidence is None:
        return int(np.flatnonzero(comparison.cost <= budget + 1e-12).max())
    beyond = comparison.highest_cost(confidence)[1:] > budget
    return int(np.argmax([*beyond, True]))


def trim_curve(model: keras.Model, data: Iterable[Any], *, order: str = "lesion", **options: Any) -> TrimCurve:
    """Measures a network at every depth, its blocks going one after another.

    Args:
        model: As in `trim`.
        data: As in `trim`.
        order: As in `trim`.
        **options: As in `trim`.

    Returns:
        A `TrimCurve`.

    Raises:
        ValueError: As in `trim`.
    """
    return _measured(model, _order(model, data, order, options), data, options)[0]


def without(model: keras.Model, blocks: Sequence[str]) -> keras.Model:
    """Returns a copy of a network without some of its blocks.

    Unlike `rewire(model, {name: None})`, it has layers and weights of its
    own, so that fine-tuning it leaves the original as it is.

    Args:
        model: A functional `keras.Model` with gated blocks.
        blocks: Names of blocks.

    Returns:
        A functional `keras.Model` of the same name; it is not compiled.
        Low-rank updates (`kh.enable_lora`) are merged into its kernels.

    Raises:
        ValueError: For an unknown block or a transition, which the rest of
            the network needs for the shape.
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
    origin = origin_of(model)
    note_origin(copy, origin and origin._replace(removed=(*origin.removed, *blocks)))
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
    """Times the forward pass of a network at several depths, in turns.

    Args:
        model: The whole network.
        removed: Names of blocks in the order in which they go:
            `TrimCurve.removed`.
        x: A batch of the model's input.
        depths: Ints, numbers of blocks left. Defaults to at most six, evenly
            from all blocks to none of `removed`.
        repeats: Int, passes of each, after one that compiles. Defaults to
            `20`.
        clock: Function that gives seconds, e.g. `time.process_time` on a busy
            machine. Defaults to `time.perf_counter`.

    Returns:
        A `Latency`.

    Raises:
        ValueError: If a depth cannot be reached, or the batch is of another
            shape.
    """
    known = blocks_of(model)
    check_names(removed, known)
    check_batch(x, model.inputs, "time")
    depths = None if depths is None else list(depths)
    if depths is None:
        steps = np.linspace(0, len(removed), min(6, len(removed) + 1))
        depths = [len(known) - round(float(step)) for step in steps]
    low = len(known) - len(removed)
    if repeats < 1 or not all(low <= depth <= len(known) for depth in depths):
        raise ValueError(
            f"Depths go from {low} to {len(known)} blocks, and there must be a repeat. "
            f"Received: depths={depths}, repeats={repeats}"
        )
    nets = [rewire(model, dict.fromkeys(removed[: len(known) - depth])) for depth in depths]
    with kept_state(model):
        for net in nets:
            net.predict_on_batch(x)
        seconds = [[_time(net, x, clock) for net in nets] for _ in range(repeats)]
    return Latency(np.array(depths, np.int64), np.array(seconds).T, len(x))


def _order(model: keras.Model, data: Iterable[Any], order: str, options: Mapping[str, Any]) -> list[str]:
    """Names of all blocks that can go, in the order in which they do."""
    if order not in ORDERS:
        raise ValueError(f"`order` must be one of {', '.join(map(repr, ORDERS))}. Received: order={order!r}")
    known = blocks_of(model)
    names = [name for name, block in known.items() if not block.is_transition]
    if not names:
        raise ValueError(f"Every block is a transition, and those cannot go. Received: {', '.join(known)}")
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
    """Every depth on some data, and against the whole network."""
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
    """The blocks by how far their gates open on average; one with a constant gate, 1, goes last."""
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
