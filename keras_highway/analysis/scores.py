"""Accuracy and loss of classifiers: of one network, of many wirings of it, and on photographs."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import keras
import numpy as np
from keras import layers, ops
from tqdm import tqdm

from keras_highway._support.numerics import rank_of
from keras_highway._support.terminal import visible
from keras_highway.analysis.rewire import BatchedRewiring, Wiring
from keras_highway.analysis.trace import batches, is_functional, kept_state
from keras_highway.data.transforms import Transform

if TYPE_CHECKING:
    from keras_highway.data.photographs import PhotographSet

# Layers and operations of Keras that, in inference, keep the numbers and change only shape or dtype.
_LAYERS_OF_SAME_NUMBERS = """
    Reshape Flatten Permute RepeatVector Identity ActivityRegularization Dropout SpatialDropout1D SpatialDropout2D
    SpatialDropout3D GaussianDropout GaussianNoise AlphaDropout
"""
_SAME_NUMBERS = tuple(getattr(layers, name) for name in _LAYERS_OF_SAME_NUMBERS.split())
_SAME_NUMBERS_OPERATIONS = ("Cast", "Reshape", "Squeeze", "ExpandDims", "StopGradient", "GetItem")
_WRAPPERS = (layers.TimeDistributed, layers.SpectralNormalization)
_SOFTMAX = (keras.activations.softmax, keras.ops.softmax)
_SIGMOID = (keras.activations.sigmoid, keras.ops.sigmoid)
_ROWS = 64  # samples that `check_head` reads
_ROUNDING = {"float16": 2**-8, "bfloat16": 2**-5}  # of a sum of probabilities; 1e-5 in wider dtypes


class Head(NamedTuple):
    """End of a classifier."""

    logits: bool  # whether the outputs are logits; else they are probabilities
    dtype: str  # dtype of the softmax; a cast behind it adds no precision


def head_of(model: keras.Model) -> Head:
    """Return whether a functional classifier ends in a softmax; other ends give logits, and a sigmoid is refused.

    The softmax is a layer, an activation or an operation, in the model or in a model nested at its end. Layers behind
    it that only reshape or cast are skipped.
    """
    if not is_functional(model) or len(model.outputs) != 1:
        raise ValueError(
            "`model` must be a functional or built sequential keras.Model with one output. "
            f"Received: {model.name!r} of type {type(model).__name__}"
        )
    operation, tensor, behind = _last(model)
    activation = getattr(operation, "activation", None)
    if _is(operation, "Softmax", _SOFTMAX) or isinstance(activation, layers.Softmax):
        return Head(False, keras.backend.standardize_dtype(tensor.dtype))
    # A reshaping layer may follow features of any kind: they count as logits, unless a sigmoid made them.
    as_logits = (None, keras.activations.linear, keras.activations.log_softmax)  # a softmax leaves the last as it is
    other = activation not in as_logits and not behind
    if other or _is(operation, "Sigmoid", _SIGMOID):
        name = getattr(activation, "__name__", type(activation or operation).__name__.lower())
        raise ValueError(
            "`model` must end in a softmax or in logits (classifier_activation=None). "
            f"Received: {model.name!r}, which ends in {name}"
        )
    return Head(True, keras.backend.standardize_dtype(tensor.dtype))


def check_head(head: Head, outputs: np.ndarray, model: keras.Model) -> None:
    """Raise a ValueError if outputs taken for logits look like probabilities, e.g. of your own layer."""
    rows = outputs.reshape(-1, outputs.shape[-1])[:_ROWS].astype(np.float64)
    if not head.logits or rows.shape[1] < 2:
        return
    if (rows >= 0).all() and (np.abs(rows.sum(1) - 1) <= _ROUNDING.get(outputs.dtype.name, 1e-5)).all():
        raise ValueError(
            "`model` must end in a softmax or in logits, but its outputs look like probabilities: "
            "measure keras.Model(model.input, keras.ops.log(model.output)). "
            f"Received: {model.name!r}, which ends in {_last(model)[0].name!r}"
        )


def _last(model: keras.Model) -> tuple[Any, Any, bool]:
    """Return the layer or operation that computes the output, its tensor, and whether another reshapes or casts it."""
    tensor, behind, outer = model.outputs[0], False, []
    operation, node, place = tensor._keras_history
    while True:
        inputs = operation._inbound_nodes[node].input_tensors
        while isinstance(operation, _WRAPPERS):  # they call another layer, which has no node
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
    """Return whether it is a Keras layer or operation of that name, or a layer with that activation."""
    if isinstance(operation, layers.Layer):
        named = isinstance(operation, layers.Softmax) and name == "Softmax"
        return named or getattr(operation, "activation", None) in functions
    return type(operation).__name__ == name


_AT_ONCE = 64  # wirings in a pass: the last block needs the memory of as many batches


class Scores(NamedTuple):
    """Accuracy and loss of networks.

    Attributes:
        accuracy: float64 `(networks,)`.
        loss: float64 `(networks,)`, mean cross-entropy in nats.
        samples: Number of samples.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    samples: int


def check_images(model: keras.Model, images: np.ndarray, where: str) -> None:
    """Refuse images of another size than the network takes, before anything is computed; `where` names them."""
    wanted = model.input_shape[1:]
    if keras.config.image_data_format() == "channels_first":
        wanted = (*wanted[1:], wanted[0])
    given = images.shape[1:]
    if any(ours not in (None, theirs) for ours, theirs in zip(wanted, given, strict=True)):
        raise ValueError(
            f"Images must be {' x '.join(map(str, wanted))} (height, width, channels); only photographs in "
            f"DIR/val/CLASS/* are resized. Received: {where} with images of {' x '.join(map(str, given))}"
        )


class Paired(NamedTuple):
    """Two classifiers on the same labels.

    Attributes:
        lost: Number of labels that only the first has right: an int, or an
            int64 array of several pairs.
        gained: Number of labels that only the second has right.
        n: Number of labels.
    """

    lost: Any
    gained: Any
    n: int

    @property
    def cost(self) -> Any:
        """Return the accuracy that the second loses against the first."""
        return (self.lost - self.gained) / self.n

    @property
    def standard_error(self) -> Any:
        """Return the standard error of `cost` for paired predictions."""
        return np.sqrt(self.lost + self.gained - (self.lost - self.gained) ** 2 / self.n) / self.n

    def highest_cost(self, confidence: float) -> Any:
        """Return a one-sided upper confidence bound of `cost`.

        Adjusted Wald interval of paired proportions (Agresti and Min, 2005):
        half an observation is added to each of the four cells, so that the
        bound is not zero for equal predictions.

        Args:
            confidence: Float, e.g. `0.95`.
        """
        more = Paired(self.lost + 0.5, self.gained + 0.5, self.n + 2)
        return more.cost + NormalDist().inv_cdf(confidence) * more.standard_error


class Comparison(NamedTuple):
    """Accuracy and loss of networks, each compared with the first sample by sample.

    Attributes:
        accuracy: float64 `(networks,)`.
        loss: float64 `(networks,)`, mean cross-entropy in nats.
        samples: Number of samples.
        lost: int64 `(networks,)`, number of labels that the first has right
            and this one wrong.
        gained: int64 `(networks,)`, number of labels that the first has wrong
            and this one right.
        labels: Number of labels: `samples`, or more with several per sample.
    """

    accuracy: np.ndarray
    loss: np.ndarray
    samples: int
    lost: np.ndarray
    gained: np.ndarray
    labels: int

    @property
    def paired(self) -> Paired:
        """Return each network paired with the first."""
        return Paired(self.lost, self.gained, self.labels)


def measure(model: keras.Model, data: Iterable[Any], *, batch_size: int = 500, **options: Any) -> tuple[float, float]:
    """Return accuracy and mean cross-entropy of any classifier, gated or not."""
    head, hits, loss, count = head_of(model), 0, 0.0, 0
    feed = batches(data, model, labelled=True, batch_size=batch_size, **options)
    with kept_state(model):
        for x, labels in feed:
            outputs = np.asarray(model.predict_on_batch(x))
            if not count:
                check_head(head, outputs, model)
            right, losses = _compare(outputs[None], labels, head)
            hits, loss, count = hits + int(right.sum()), loss + float(losses[0]), count + labels.size
    return hits / count, loss / count


def score(model: keras.Model, plans: Sequence[Wiring], data: Iterable[Any], **options: Any) -> Scores:
    """Measure `rewire(model, plan)` for each plan, in one pass over the data.

    Args:
        model: A functional `keras.Model` with gated blocks that ends in a
            softmax or in logits.
        plans: As in `BatchedRewiring`; `{}` is the model itself.
        data: A pair (samples, labels), or an iterable of pairs. Labels are
            class numbers `(n,)` or `(n, 1)`; `(n, ...)` if the model
            classifies each position.
        **options: `batch_size`, `transform` and `progress`, as in
            `lesion_curve`.

    Returns:
        `Scores`, in the order of the plans.

    Raises:
        ValueError: If the plans do not fit the model, or the data are empty,
            unlabelled or do not fit.
    """
    comparison = compare(model, plans, data, **options)
    return Scores(comparison.accuracy, comparison.loss, comparison.samples)


def compare(model: keras.Model, plans: Sequence[Wiring], data: Iterable[Any], **options: Any) -> Comparison:
    """Measure `rewire(model, plan)` for each plan and compare it with the first, in one pass over the data.

    See `score` for the arguments; there must be at least one plan.

    Returns:
        A `Comparison`, in the order of the plans.
    """
    return Scorer(model, plans)(data, **options)


class Scorer:
    """Run `compare` several times: compiled once, and blocks in `switches` can be removed between the passes."""

    def __init__(self, model: keras.Model, plans: Sequence[Wiring], switches: Sequence[str] = ()):
        self._model, self._count, self._head = model, len(plans), head_of(model)
        self._rewirings = [
            BatchedRewiring(model, plans[i : i + _AT_ONCE], switches) for i in range(0, len(plans), _AT_ONCE)
        ]

    def switch_off(self, name: str) -> None:
        """Remove one of the `switches` from every plan."""
        for rewiring in self._rewirings:
            rewiring.switch_off(name)

    def __call__(self, data: Iterable[Any], *, batch_size: int = 100, **options: Any) -> Comparison:
        """Compare the plans with the first on some data."""
        lost, gained = np.zeros((2, self._count), np.int64)
        hits, loss, count, samples = np.zeros(self._count), np.zeros(self._count), 0, 0
        with kept_state(self._model):
            for x, labels in batches(data, self._model, labelled=True, batch_size=batch_size, **options):
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
        """Return the outputs of every plan for a batch. All start from one state; the last one moves it on."""
        *others, last = self._rewirings
        outputs: list[np.ndarray] = []
        for rewiring in others:
            with kept_state(self._model):
                outputs.append(rewiring(x))
        return np.concatenate([*outputs, last(x)])


def _compare(outputs: np.ndarray, labels: np.ndarray, head: Head) -> tuple[np.ndarray, np.ndarray]:
    """Return which of `(networks, n, ..., classes)` are right, `(networks, labels)`, and the summed cross-entropy."""
    classes = outputs.shape[-1]
    if outputs.ndim == 3 and labels.shape == (len(labels), 1):
        labels = labels[:, 0]
    if outputs.shape[1:-1] != labels.shape or labels.max() >= classes:
        raise ValueError(
            f"Labels must have shape {outputs.shape[1:-1]} and be below {classes}. "
            f"Received: labels of shape {labels.shape}, up to {labels.max()}"
        )
    over = tuple(range(1, labels.ndim + 1))
    labels = np.broadcast_to(labels, outputs.shape[:-1])
    right = (ops.convert_to_numpy(rank_of(labels, outputs)) < 1).reshape(len(outputs), -1)
    return right, cross_entropy(outputs, labels, head.logits, head.dtype).sum(over)


def cross_entropy(outputs: np.ndarray, labels: np.ndarray, logits: bool = True, dtype: str | None = None) -> np.ndarray:
    """Return the cross-entropy of each label in nats, float64 `(...)`; NaN where logits are not finite.

    `outputs` are `(..., classes)`, labels `(...)`. `dtype` is the dtype of the softmax, by default of `outputs`: a
    probability that it rounded to 0 counts as its smallest number.
    """
    scores = outputs.astype(np.float64)
    true = np.take_along_axis(scores, labels[..., None], -1)[..., 0]
    if not logits:
        return -np.log(np.maximum(true, _smallest(dtype or outputs.dtype.name)))
    top = scores.max(-1)
    with np.errstate(invalid="ignore"):  # logits that overflowed have no cross-entropy: NaN
        return np.log(np.exp(scores - top[..., None]).sum(-1)) - (true - top)


def _smallest(dtype: str) -> float:
    """Return the smallest probability of a softmax."""
    if dtype == "float16":  # its smallest normal number, 6e-5, is a common probability
        return float(np.finfo(np.float16).smallest_subnormal)
    return float(np.finfo(np.float64 if dtype == "float64" else np.float32).tiny)  # bfloat16 has float32's exponents


@dataclass
class PhotographScores:
    """Sums over photographs."""

    images: int = 0  # number of measured images
    top1: int = 0  # images with the label as the likeliest class
    top5: int = 0  # images with the label among the five likeliest classes
    loss: float = 0.0  # sum of the cross-entropies
    real_images: int = 0  # images that have ReaL labels
    real: int = 0  # images with a ReaL label as the likeliest class
    broken: int = 0  # unreadable files, in no other sum
    per_label: float = 0.0  # of a sigmoid: share of the right labels of each image; `top1` counts images without error

    def add(self, logits: np.ndarray, labels: np.ndarray) -> None:
        """Add a batch of logits `(n, classes)` and labels `(n,)`, or for a sigmoid targets `(n, classes)`."""
        if labels.ndim == 2:
            right = ((logits > 0) == (labels > 0)) & np.isfinite(logits)
            losses = np.logaddexp(0.0, np.where(labels > 0, -1.0, 1.0) * logits.astype(np.float64))
            self.loss += float(losses.mean(1).sum())
            self.images += len(labels)
            self.top1 += int(right.all(1).sum())
            self.per_label += float(right.mean(1).sum())
            return
        wrong = (labels < 0) | (labels >= logits.shape[1])
        if wrong.any():
            raise ValueError(
                f"Labels must be from 0 to {logits.shape[1] - 1}. The split may have no labels. "
                f"Received: {labels[wrong][0]}"
            )
        rank = ops.convert_to_numpy(rank_of(labels, logits))
        self.loss += float(cross_entropy(logits, labels).sum())
        self.images += len(labels)
        self.top1 += int((rank < 1).sum())
        self.top5 += int((rank < 5).sum())

    def add_real(self, logits: np.ndarray, names: list[str], real: list[list[int]]) -> None:
        """Add a batch of ImageNet's validation images by their ReaL labels; images without these do not count."""
        from keras_highway.data.photographs import real_labels_of  # Pillow: `import keras_highway` does without

        likeliest = logits.argmax(axis=1)
        right = ops.convert_to_numpy(rank_of(likeliest, logits)) < 1  # not where a score is NaN
        for best, sound, name in zip(likeliest, right, names, strict=True):
            labels = real_labels_of(name, real)
            self.real_images += bool(labels)
            self.real += bool(sound) and int(best) in labels


def measure_photographs(
    model: keras.Model,
    transform: Transform,
    test_set: "PhotographSet",
    batch_size: int,
    real: list[list[int]] | None = None,
) -> PhotographScores:
    """Measure a network that gives logits on photographs; show progress and name each unreadable file on stderr.

    `real` are ReaL labels, see `read_real_labels`; then all images must be of ImageNet's validation set.
    """
    from keras_highway.data.photographs import read_batches

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
    """Return the logits of a batch, padded with black images: another size would be compiled again."""
    full = np.zeros((size, *pixels.shape[1:]), np.uint8)
    full[: len(pixels)] = pixels
    return np.asarray(model.predict_on_batch(transform.apply(full)))[: len(pixels)]
