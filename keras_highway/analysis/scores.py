"""Accuracy and loss of classifiers: of one network, of many wirings of it, and on photographs."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops
from tqdm import tqdm

from keras_highway._support.numerics import rank_of
from keras_highway._support.outside_text import visible
from keras_highway.analysis.batches import batches
from keras_highway.analysis.graph import is_functional, kept_state
from keras_highway.analysis.rewire import BatchedRewiring, Wiring
from keras_highway.data.photographs import PhotographSet, read_batches, real_labels_of
from keras_highway.data.transforms import Transform

# Layers and operations of Keras behind which, in inference, the numbers are those before, in another shape or dtype.
_SAME_NUMBERS = (
    layers.Reshape,
    layers.Flatten,
    layers.Permute,
    layers.RepeatVector,
    layers.Identity,
    layers.ActivityRegularization,
    layers.Dropout,
    layers.SpatialDropout1D,
    layers.SpatialDropout2D,
    layers.SpatialDropout3D,
    layers.GaussianDropout,
    layers.GaussianNoise,
    layers.AlphaDropout,
)
_SAME_NUMBERS_OPERATIONS = ("Cast", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "GetItem")
_WRAPPERS = (layers.TimeDistributed, layers.SpectralNormalization)
_SOFTMAX = (keras.activations.softmax, keras.ops.softmax)
_SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid)
_ROWS = 64  # samples whose outputs are looked at
_ROUNDING = {"float16": 2**-8, "bfloat16": 2**-5}  # of a sum of probabilities; 1e-5 in wider dtypes


class Head(NamedTuple):
    """What a classifier ends in.

    Attributes:
        logits: Whether the outputs are logits; else they are probabilities.
        dtype: The dtype in which the softmax gives them, which a cast behind
            it does not make finer.
    """

    logits: bool
    dtype: str


def head_of(model: keras.Model) -> Head:
    """Finds whether a classifier ends in a softmax; every other end gives logits.

    The softmax is a layer, an activation or an operation, of the model or of
    a model nested at its end. Layers behind it that only reshape or cast are
    looked through.

    Args:
        model: A functional or sequential `keras.Model`.

    Raises:
        ValueError: If it has several outputs or ends in another activation.
    """
    if is_functional(model) and len(model.outputs) != 1:
        raise ValueError(f"Accuracy needs one output. Received: {model.name!r} with {len(model.outputs)} outputs")
    if not is_functional(model):
        raise ValueError(
            "What a classifier ends in is known of a functional or built sequential keras.Model. "
            f"Received: model of type {type(model).__name__}"
        )
    operation, tensor, behind = _last(model)
    activation = getattr(operation, "activation", None)
    if _is(operation, "Softmax", _SOFTMAX) or isinstance(activation, layers.Softmax):
        return Head(False, keras.backend.standardize_dtype(tensor.dtype))
    # What a reshaping layer has before it may be features of any kind: as logits they are only not what a sigmoid made.
    as_logits = (None, keras.activations.linear, keras.activations.log_softmax)  # a softmax leaves the last as it is
    other = activation not in as_logits and not behind
    if other or _is(operation, "Sigmoid", _SIGMOID):
        name = getattr(activation, "__name__", type(activation or operation).__name__.lower())
        raise ValueError(
            "Loss and accuracy are of a classifier that ends in a softmax or, built with classifier_activation=None, "
            f"in logits. Received: {model.name!r}, which ends in {name}"
        )
    return Head(True, keras.backend.standardize_dtype(tensor.dtype))


def check_head(head: Head, outputs: np.ndarray, model: keras.Model) -> None:
    """Raises a ValueError if outputs taken for logits look like probabilities, e.g. of a layer of one's own.

    Args:
        head: What `head_of` found.
        outputs: Array `(..., classes)` of some samples.
        model: Their model, for the message.
    """
    rows = outputs.reshape(-1, outputs.shape[-1])[:_ROWS].astype(np.float64)
    if not head.logits or rows.shape[1] < 2:
        return
    if (rows >= 0).all() and (np.abs(rows.sum(1) - 1) <= _ROUNDING.get(outputs.dtype.name, 1e-5)).all():
        raise ValueError(
            "The outputs are taken for logits, as no softmax is found at the end of the model, but they look like "
            "probabilities: none is negative and each sample's sum to 1. If so, measure keras.Model(model.input, "
            f"keras.ops.log(model.output)), whose outputs are logits. Received: model {model.name!r}, which ends in "
            f"{_last(model)[0].name!r}"
        )


def _last(model: keras.Model) -> tuple[Any, Any, bool]:
    """What makes a model's numbers: the layer or operation, its output, and whether another reshapes or casts that."""
    tensor, behind, outer = model.outputs[0], False, []
    operation, node, place = tensor._keras_history
    while True:
        inputs = operation._inbound_nodes[node].input_tensors
        while isinstance(operation, _WRAPPERS):  # they call another layer, which has no node of its own
            operation, behind, place = operation.layer, True, 0
        if is_functional(operation):
            outer.append((operation, inputs))
            tensor = operation.outputs[place]
        elif isinstance(operation, layers.InputLayer) and outer:
            nested, inputs = outer.pop()
            tensor = inputs[[id(known) for known in nested.inputs].index(id(tensor))]
        elif _keeps_numbers(operation):
            tensor, behind = inputs[0], True
        else:
            return operation, tensor, behind
        operation, node, place = tensor._keras_history


def _keeps_numbers(operation: Any) -> bool:
    if isinstance(operation, layers.Activation):
        return operation.activation is keras.activations.linear
    if isinstance(operation, layers.Layer):
        return isinstance(operation, _SAME_NUMBERS)
    return type(operation).__name__ in _SAME_NUMBERS_OPERATIONS


def _is(operation: Any, name: str, functions: tuple[Any, ...]) -> bool:
    """Whether it is a layer or operation of Keras of that name, or a layer with that activation."""
    if isinstance(operation, layers.Layer):
        named = isinstance(operation, layers.Softmax) and name == "Softmax"
        return named or getattr(operation, "activation", None) in functions
    return type(operation).__name__ == name


_AT_ONCE = 64  # wirings in a pass: the memory of the last block is that of as many batches


class Scores(NamedTuple):
    """How well networks classify.

    Attributes:
        accuracy: float64 `(networks,)`.
        loss: float64 `(networks,)`, mean cross-entropy in nats.
        samples: How many samples.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    samples: int


def check_images(model: keras.Model, images: np.ndarray, where: str) -> None:
    """Refuses images of another size than the network takes, before anything is computed.

    Args:
        model: A network of images; a size of its input may be open.
        images: Array `(n, height, width, channels)`.
        where: What the message calls them.

    Raises:
        ValueError: If their size or their channels are others.
    """
    wanted = model.input_shape[1:]
    if keras.config.image_data_format() == "channels_first":
        wanted = (*wanted[1:], wanted[0])
    given = images.shape[1:]
    if any(ours not in (None, theirs) for ours, theirs in zip(wanted, given, strict=True)):
        raise ValueError(
            f"The network takes images of {' x '.join(map(str, wanted))} (height, width, channels), and those of "
            f"{where} are {' x '.join(map(str, given))}. Only photographs are resized: pass a folder of them, "
            "DIR/val/CLASS/*."
        )


class Paired(NamedTuple):
    """Two classifiers on the same labels.

    Attributes:
        lost: How many labels the first has right and the second wrong; an int,
            or an int64 array of several such pairs.
        gained: How many the first has wrong and the second right.
        n: How many labels.
    """

    lost: Any
    gained: Any
    n: int

    @property
    def cost(self) -> Any:
        """Accuracy that the second loses against the first."""
        return (self.lost - self.gained) / self.n

    @property
    def standard_error(self) -> Any:
        """That of `cost`: of pairs, so that what both have wrong does not count."""
        return np.sqrt(self.lost + self.gained - (self.lost - self.gained) ** 2 / self.n) / self.n

    def highest_cost(self, confidence: float) -> Any:
        """The one-sided upper bound of `cost` on other data of the kind.

        Adjusted Wald interval of paired proportions (Agresti and Min, 2005):
        half an observation is added to each of the four cells, so that the
        bound of a network that nothing tells apart is not zero.

        Args:
            confidence: Float, e.g. `0.95`.
        """
        more = Paired(self.lost + 0.5, self.gained + 0.5, self.n + 2)
        return more.cost + NormalDist().inv_cdf(confidence) * more.standard_error


class Comparison(NamedTuple):
    """How well networks classify, each sample compared with the first network's prediction.

    Attributes:
        accuracy: float64 `(networks,)`.
        loss: float64 `(networks,)`, mean cross-entropy in nats.
        samples: How many samples.
        lost: int64 `(networks,)`, labels that the first has right and this
            one wrong.
        gained: int64 `(networks,)`, labels that the first has wrong and this
            one right.
        labels: How many labels: `samples`, or more where a sample has many.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    samples: int
    lost: np.ndarray
    gained: np.ndarray
    labels: int

    @property
    def paired(self) -> Paired:
        """Each network beside the first."""
        return Paired(self.lost, self.gained, self.labels)

    @property
    def cost(self) -> np.ndarray:
        """float64 `(networks,)`, accuracy lost against the first."""
        return self.paired.cost

    @property
    def standard_error(self) -> np.ndarray:
        """float64 `(networks,)`, see `Paired`."""
        return self.paired.standard_error

    def highest_cost(self, confidence: float) -> np.ndarray:
        """float64 `(networks,)`, the one-sided upper bound of `cost`, see `Paired`."""
        return self.paired.highest_cost(confidence)


def measure(
    model: keras.Model,
    data: Iterable[Any],
    *,
    batch_size: int = 500,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> tuple[float, float]:
    """Returns accuracy and mean cross-entropy of any classifier, gated or not.

    Args:
        model: A functional `keras.Model` that ends in a softmax or in logits.
        data: As in `score`.
        batch_size: Int, samples at once. Defaults to `500`.
        transform: As in `score`.
        progress: As in `score`.

    Raises:
        ValueError: As in `score`.
    """
    head, hits, loss, count = head_of(model), 0, 0.0, 0
    feed = batches(
        data, model, labelled=True, batch_size=batch_size, transform=transform, progress=progress, what="score"
    )
    with kept_state(model):
        for x, labels in feed:
            outputs = np.asarray(model.predict_on_batch(x))
            if not count:
                check_head(head, outputs, model)
            right, losses = _compare(outputs[None], labels, head)
            hits, loss, count = hits + int(right.sum()), loss + float(losses[0]), count + labels.size
    return hits / count, loss / count


def score(
    model: keras.Model,
    plans: Sequence[Wiring],
    data: Iterable[Any],
    *,
    batch_size: int = 100,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Scores:
    """Measures `rewire(model, plan)` for each plan, in one pass over the data.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        plans: What `BatchedRewiring` takes; `{}` is the model itself.
        data: A pair (samples, labels), or an iterable of such pairs; labels
            are class numbers `(n,)`, or a column of them `(n, 1)`; `(n, ...)`
            where the model classifies each position.
        batch_size: Int, samples at once; behind the last block they are that
            many for each plan. Defaults to `100`.
        transform: Function from a batch of samples to the model's input.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        `Scores`, in the order of the plans.

    Raises:
        ValueError: If the plans do not fit the model, or the data are empty,
            unlabelled or of another shape.
    """
    comparison = compare(model, plans, data, batch_size=batch_size, transform=transform, progress=progress)
    return Scores(comparison.accuracy, comparison.loss, comparison.samples)


def compare(
    model: keras.Model,
    plans: Sequence[Wiring],
    data: Iterable[Any],
    *,
    batch_size: int = 100,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Comparison:
    """Measures `rewire(model, plan)` for each plan, and against the first, in one pass over the data.

    Args:
        model: As in `score`.
        plans: As in `score`; at least one.
        data: As in `score`.
        batch_size: As in `score`.
        transform: As in `score`.
        progress: As in `score`.

    Returns:
        A `Comparison`, in the order of the plans.

    Raises:
        ValueError: As in `score`.
    """
    if not plans:
        raise ValueError("`plans` needs at least one plan, which the others are compared with. Received: none")
    return Scorer(model, plans)(data, batch_size=batch_size, transform=transform, progress=progress)


class Scorer:
    """`compare` for several passes over data: compiled once, and blocks can be taken out between the passes.

    Args:
        model: As in `score`.
        plans: As in `score`.
        switches: Names of blocks that `switch_off` can take out.

    Raises:
        ValueError: If the plans do not fit the model.
    """

    def __init__(self, model: keras.Model, plans: Sequence[Wiring], switches: Sequence[str] = ()):
        self._model, self._count, self._head = model, len(plans), head_of(model)
        self._rewirings = [
            BatchedRewiring(model, plans[i : i + _AT_ONCE], switches) for i in range(0, len(plans), _AT_ONCE)
        ]

    def switch_off(self, name: str) -> None:
        """Takes one of the `switches` out of every plan."""
        for rewiring in self._rewirings:
            rewiring.switch_off(name)

    def __call__(
        self,
        data: Iterable[Any],
        *,
        batch_size: int = 100,
        transform: Callable[[Any], Any] | None = None,
        progress: bool = False,
    ) -> Comparison:
        """Compares the plans with the first, on some data."""
        lost, gained = np.zeros((2, self._count), np.int64)
        hits, loss, count, samples = np.zeros(self._count), np.zeros(self._count), 0, 0
        options = {"batch_size": batch_size, "transform": transform, "progress": progress}
        with kept_state(self._model):
            for x, labels in batches(data, self._model, labelled=True, what="score", **options):
                outputs = self._outputs(x)
                if not count:
                    check_head(self._head, outputs[0], self._model)
                right, losses = _compare(outputs, labels, self._head)
                hits += right.sum(1)
                lost += (right[:1] & ~right).sum(1)
                gained += (right & ~right[:1]).sum(1)
                loss += losses
                count += labels.size
                samples += len(labels)
        return Comparison(hits / count, loss / count, samples, lost, gained, count)

    def _outputs(self, x: Any) -> np.ndarray:
        """Of every plan for a batch: all start from one state, and the next batch from that behind this one."""
        *others, last = self._rewirings
        outputs: list[np.ndarray] = []
        for rewiring in others:
            with kept_state(self._model):
                outputs.append(rewiring(x))
        return np.concatenate([*outputs, last(x)])


def _compare(outputs: np.ndarray, labels: np.ndarray, head: Head) -> tuple[np.ndarray, np.ndarray]:
    """Of outputs `(networks, n, ..., classes)`: which are right, `(networks, labels)`, and the summed cross-entropy."""
    classes = outputs.shape[-1]
    if outputs.ndim == 3 and labels.shape == (len(labels), 1):
        labels = labels[:, 0]
    if outputs.shape[1:-1] != labels.shape or labels.max() >= classes:
        raise ValueError(
            f"The model gives {classes} classes for each of {outputs.shape[1:-1]}, so labels must have that shape and "
            f"be below {classes}. Received: labels of shape {labels.shape}, up to {labels.max()}"
        )
    over = tuple(range(1, labels.ndim + 1))
    labels = np.broadcast_to(labels, outputs.shape[:-1])
    right = (ops.convert_to_numpy(rank_of(labels, outputs)) < 1).reshape(len(outputs), -1)
    return right, cross_entropy(outputs, labels, head.logits, head.dtype).sum(over)


def cross_entropy(outputs: np.ndarray, labels: np.ndarray, logits: bool = True, dtype: str | None = None) -> np.ndarray:
    """Returns the cross-entropy of each label in nats, float64 `(...)`; NaN where logits are not finite.

    Args:
        outputs: Array `(..., classes)`.
        labels: Integers `(...)`.
        logits: Bool, whether the outputs are logits; else they are
            probabilities. Defaults to `True`.
        dtype: The dtype in which a softmax gave the probabilities: one that
            it rounded to 0 counts as the smallest it has. Defaults to
            `None`, that of `outputs`.
    """
    scores = outputs.astype(np.float64)
    true = np.take_along_axis(scores, labels[..., None], -1)[..., 0]
    if not logits:
        return -np.log(np.maximum(true, _smallest(dtype or outputs.dtype.name)))
    top = scores.max(-1)
    with np.errstate(invalid="ignore"):  # logits that overflowed have no cross-entropy: NaN
        return np.log(np.exp(scores - top[..., None]).sum(-1)) - (true - top)


def _smallest(dtype: str) -> float:
    """The smallest probability of a softmax."""
    if dtype == "float16":  # whose smallest normal number, 6e-5, is no rare probability
        return float(np.finfo(np.float16).smallest_subnormal)
    return float(np.finfo(np.float64 if dtype == "float64" else np.float32).tiny)  # bfloat16 has float32's exponents


@dataclass
class PhotographScores:
    """Sums over images.

    Attributes:
        images: How many were measured.
        top1: Images whose likeliest class is the label.
        top5: Images whose label is among the five likeliest.
        loss: Sum of the cross-entropies.
        real_images: Those that have ReaL labels.
        real: Images whose likeliest class is one of these.
        broken: Files that could not be read, in no other sum.
    """

    images: int = 0
    top1: int = 0
    top5: int = 0
    loss: float = 0.0
    real_images: int = 0
    real: int = 0
    broken: int = 0

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Adds a batch.

        Args:
            logits: `(n, classes)`.
            labels: Integers `(n,)`.
        """
        wrong = (labels < 0) | (labels >= logits.shape[1])
        if wrong.any():
            raise ValueError(
                f"Labels must be 0 to {logits.shape[1] - 1}: a split without labels cannot be measured. "
                f"Received: {labels[wrong][0]}"
            )
        rank = ops.convert_to_numpy(rank_of(labels, logits))
        self.loss += float(cross_entropy(logits, labels).sum())
        self.images += len(labels)
        self.top1 += int((rank < 1).sum())
        self.top5 += int((rank < 5).sum())

    def add_real(self, logits: np.ndarray, names: list[str], real: list[list[int]]) -> None:
        """Adds a batch of ImageNet's validation images by their ReaL labels; those that have none do not count.

        Raises:
            ValueError: If an image's name is not one of these.
        """
        likeliest = logits.argmax(axis=1)
        right = ops.convert_to_numpy(rank_of(likeliest, logits)) < 1  # not where a score is NaN
        for best, sound, name in zip(likeliest, right, names, strict=True):
            labels = real_labels_of(name, real)
            self.real_images += bool(labels)
            self.real += bool(sound) and int(best) in labels


def measure_photographs(
    model: keras.Model,
    transform: Transform,
    test_set: PhotographSet,
    batch_size: int,
    real: list[list[int]] | None = None,
) -> PhotographScores:
    """Measures a network; a progress bar on a terminal, and a line on stderr for each file that cannot be read.

    Args:
        model: A network that gives logits.
        transform: What the photographs go through.
        test_set: The photographs.
        batch_size: Images at once.
        real: ReaL labels, see `read_real_labels`, or `None`.

    Raises:
        ValueError: With ReaL labels, if an image is not of ImageNet's
            validation set.
    """
    scores, size = PhotographScores(), min(batch_size, test_set.images)
    with tqdm(total=test_set.images, unit=" images", disable=None, leave=False) as bar:
        for batch in read_batches(test_set.photographs, transform, size):
            for error in batch.errors:
                print(visible(error), file=sys.stderr)
            scores.broken += len(batch.errors)
            if len(batch.labels):
                logits = _logits(model, transform, batch.pixels, size)
                scores.add(logits, batch.labels)
                if real is not None:
                    scores.add_real(logits, batch.names, real)
            bar.update(len(batch.labels) + len(batch.errors))
    return scores


def _logits(model: keras.Model, transform: Transform, pixels: np.ndarray, size: int) -> np.ndarray:
    """Of a batch filled up with black images, as every other size would be compiled anew."""
    full = np.zeros((size, *pixels.shape[1:]), np.uint8)
    full[: len(pixels)] = pixels
    return np.asarray(model.predict_on_batch(transform.apply(full)))[: len(pixels)]
