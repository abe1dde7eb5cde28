"""Gates over a data set: their biases, how far they open, and for which classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway.analysis.batches import Batch, batches, samples_of
from keras_highway.analysis.graph import Blocks, blocks, data_format_of, holds_blocks, walk, walk_nested
from keras_highway.analysis.kept_state import kept_state
from keras_highway.analysis.moments import Moments
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
