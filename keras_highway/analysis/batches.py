"""Checked batches of a data set, and mean and variance over them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from tqdm import tqdm

from keras_highway._support.keras_models import Shape
from keras_highway._support.schema import is_count


class Batch(NamedTuple):
    """Some samples of a data set.

    Attributes:
        x: `(n, ...)`, the input of the model after the transform, or the
            model's structure of inputs.
        labels: int64 `(n, ...)`, or `None` if not requested.
    """

    x: Any
    labels: np.ndarray | None


def batches(
    data: Iterable[Any],
    model: keras.Model,
    *,
    labelled: bool = False,
    per_sample: bool = False,
    batch_size: int = 200,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Iterator[Batch]:
    """Yield the batches of a data set, checked against the input of a model."""
    pieces, total = _pieces(data, batch_size)
    seen = 0
    with tqdm(total=total, unit=" samples", disable=not progress, leave=False) as bar:
        for piece in pieces:
            samples, labels = _parts(piece, model)
            n = samples_of(samples, model)
            if n:
                x = samples if transform is None else transform(samples)
                check_batch(x, model.inputs)
                yield Batch(x, _labels(labels, n, per_sample) if labelled else None)
            seen += n
            bar.update(n)
    if not seen:
        raise ValueError(f"`data` must not be empty. Received: {_shape_of(data)}")


def check_batch(x: Any, inputs: Sequence[Any]) -> None:
    """Raise a ValueError if a batch, or the model's structure of batches, does not fit the inputs or is empty."""
    tensors = keras.tree.flatten(x)
    if len(inputs) != len(tensors):  # e.g. a list of images: Keras's own message is good
        tensors = [np.asarray(x)] if len(inputs) == 1 else []
    for tensor, known in zip(tensors, inputs, strict=False):
        shape, expected = tuple(np.shape(tensor)), tuple(known.shape)
        if len(shape) == len(expected) - 1 and expected[-1] == 1 and _fits(shape, expected[:-1]):
            expected = expected[:-1]  # Keras adds the channel axis of grey images
        if not _fits(shape, expected) or shape[0] == 0:
            hint = " One image needs a batch axis: x[None]." if _fits(shape, expected[1:]) else ""
            raise ValueError(
                f"`x` must be a batch of shape {expected}, at least one sample.{hint} Received: x.shape={shape}"
            )


def samples_of(x: Any, model: keras.Model) -> int:
    """Return the number of samples of a batch, which may be a structure of arrays."""
    return np.shape(_first(x, model))[0]


class Moments:
    """Mean and variance over the samples of many batches, in float64 and in the memory of one sample.

    Batches are merged by the pairwise update of Chan, Golub, LeVeque (1979),
    which does not cancel where the mean is much larger than the deviation.

    Attributes:
        count: Number of samples so far.
        mean: float64 array in the shape of one sample; `0.0` before the first batch.
    """

    def __init__(self):
        self.count = 0
        self.mean = np.float64(0.0)
        self._squares = np.float64(0.0)

    @property
    def variance(self) -> np.ndarray:
        """The population variance, a float64 array in the shape of one sample."""
        return np.asarray(self._squares / max(self.count, 1))

    def add(self, values: Any) -> None:
        """Add a batch `(n, ...)` of samples of one shape."""
        values = np.asarray(values, np.float64)
        if self.count and values.shape[1:] != self.mean.shape:
            raise ValueError(
                "All samples must have one shape: resize all images to one size. "
                f"Received: a batch of shape {values.shape} after samples of shape {self.mean.shape}"
            )
        if not len(values):
            return
        mean = values.mean(0)
        delta, total = mean - self.mean, self.count + len(values)
        self._squares = self._squares + np.square(values - mean).sum(0)
        self._squares = self._squares + np.square(delta) * (self.count * len(values) / total)
        self.mean = np.asarray(self.mean + delta * (len(values) / total))
        self.count = total


def _pieces(data: Any, batch_size: Any) -> tuple[Iterable[Any], int | None]:
    """Return the data in pieces, and the number of samples if it is known."""
    if not is_count(batch_size):
        raise ValueError(f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}")
    batch_size = int(batch_size)  # 200 + np.uint8(100) is 44
    if hasattr(data, "shape") and len(data.shape):
        return _slices(data, batch_size), len(data)
    is_pair = isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "shape") for part in data)
    if is_pair and len(data[0]) == len(data[1]):
        return zip(*(_slices(part, batch_size) for part in data), strict=True), len(data[0])
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict, tuple)):
        return data, None
    raise ValueError(
        "`data` must be an array of samples, a pair (samples, labels) of equal length, or an iterable of batches. "
        f"Received: {_shape_of(data)}"
    )


def _slices(array: Any, size: int) -> Iterator[Any]:
    return (array[start : start + size] for start in range(0, len(array), size))


def _parts(piece: Any, model: keras.Model) -> tuple[Any, Any]:
    """Return samples and labels of a batch; `None` without labels."""
    samples, labels = piece, None
    if isinstance(piece, (tuple, list)) and len(piece) == 2:
        samples, labels = piece
    elif isinstance(piece, tuple) and len(piece) == 1:  # as of tf.data.Dataset.from_tensor_slices((x,))
        samples = piece[0]
    if (isinstance(piece, tuple) and len(piece) > 2) or not np.shape(_first(samples, model)):
        raise ValueError(
            "Each batch must be samples, or a pair (samples, labels) without sample weights. "
            f"Received: {_shape_of(piece)}"
        )
    return samples, labels


def _first(x: Any, model: keras.Model) -> Any:
    """Return the array of the first input: of a batch in the model's structure, or the batch itself."""
    if not isinstance(x, (tuple, list, dict)):
        return x
    arrays = keras.tree.flatten(x)
    whole = len(model.inputs) > 1 or (len(arrays) == 1 and np.ndim(arrays[0]) > 0)  # else lists of numbers
    return arrays[0] if whole else x


def _labels(labels: Any, n: int, per_sample: bool) -> np.ndarray:
    labels = np.asarray(labels)
    if per_sample and labels.shape == (n, 1):
        labels = labels[:, 0]
    wrong_shape = labels.shape != (n,) if per_sample else labels.shape[:1] != (n,)
    if wrong_shape or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        received = "no labels" if labels.dtype == object else f"labels of dtype {labels.dtype}, shape {labels.shape}"
        raise ValueError(f"Labels must be class numbers from 0, one per sample. Received: {received}, for {n} samples")
    return labels.astype(np.int64)


def _shape_of(data: Any) -> str:
    if isinstance(data, (tuple, list)):
        return f"{type(data).__name__} of {len(data)}: " + ", ".join(_shape_of(part) for part in data[:3])
    shape = getattr(data, "shape", None)
    return type(data).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _fits(shape: Shape, expected: Shape) -> bool:
    return len(shape) == len(expected) and all(w in (None, s) for s, w in zip(shape, expected, strict=True))
