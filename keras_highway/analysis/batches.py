"""Data for the analyses: an array, a pair or an iterable becomes checked batches."""

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
        x: `(n, ...)`, after the transform, of the model's input shape, or
            the model's structure of them.
        labels: int64 `(n, ...)`, or `None` if none are requested.
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
    what: str = "analyse",
) -> Iterator[Batch]:
    """Yields the batches of a data set, checked against a model's input.

    Args:
        data: An array of samples; a pair (samples, labels) of arrays; or an
            iterable of batches, of pairs of them or of tuples of one, e.g. a
            `tf.data.Dataset`.
        model: The `keras.Model` they are for.
        labelled: Bool, whether labels are needed; without it they are
            ignored. Defaults to `False`.
        per_sample: Bool, whether each sample must have one label, not one
            per position: `(n,)`, or a column `(n, 1)`, which becomes that.
            Defaults to `False`.
        batch_size: Int, samples at once, where `data` are arrays. Defaults to
            `200`.
        transform: Function from a batch of samples to the model's input, e.g.
            `kh.get_transform("mnist").apply`, so that the data can stay uint8.
            Defaults to `None`: as they are.
        progress: Bool, whether to show a progress bar. Defaults to `False`.
        what: What is done with the data, for messages.

    Raises:
        ValueError: If the data are of another form or shape, have no labels
            where they are needed, or are empty.
    """
    pieces, total = _pieces(data, batch_size)
    seen = 0
    with tqdm(total=total, unit=" samples", disable=not progress, leave=False) as bar:
        for piece in pieces:
            samples, labels = _parts(piece)
            n = _length(samples, model)
            if n:
                x = samples if transform is None else transform(samples)
                check_batch(x, model.inputs, what)
                yield Batch(x, _labels(labels, n, per_sample) if labelled else None)
            seen += n
            bar.update(n)
    if not seen:
        raise ValueError(f"The data are empty: there is nothing to {what}. Received: {_shape_of(data)}")


def _parts(piece: Any) -> tuple[Any, Any]:
    """Samples and labels of a batch, `None` where it has no labels."""
    if isinstance(piece, tuple) and len(piece) == 3:
        raise ValueError(
            "Batches are samples, or pairs (samples, labels); sample weights are not taken: drop them, e.g. by "
            "dataset.map(lambda x, y, weight: (x, y)). Received: a batch of three parts"
        )
    if isinstance(piece, (tuple, list)) and len(piece) == 2:
        return piece[0], piece[1]
    if isinstance(piece, tuple) and len(piece) == 1:  # as of tf.data.Dataset.from_tensor_slices((x,))
        return piece[0], None
    return piece, None


def check_batch(x: Any, inputs: Sequence[Any], what: str = "trace") -> None:
    """Raises a ValueError if a batch does not fit a model's inputs, or is empty.

    Args:
        x: A batch, or the model's structure of batches.
        inputs: The model's input tensors.
        what: What is done with the batch, for the message.
    """
    tensors = keras.tree.flatten(x)
    if len(inputs) != len(tensors):  # e.g. a list of images: Keras's own message is good
        tensors = [np.asarray(x)] if len(inputs) == 1 else []
    for tensor, known in zip(tensors, inputs, strict=False):
        shape, expected = tuple(np.shape(tensor)), tuple(known.shape)
        if len(shape) == len(expected) - 1 and expected[-1] == 1 and _fits(shape, expected[:-1]):
            expected = expected[:-1]  # Keras adds the channel axis of grey images
        if not _fits(shape, expected):
            one = " One image needs a batch axis: x[None]." if _fits(shape, expected[1:]) else ""
            raise ValueError(
                f"The data does not fit the model's input.{one} Expected shape {expected} (None: any size). "
                f"Received: x.shape={shape}"
            )
        if shape[0] == 0:
            raise ValueError(f"The batch is empty: there is nothing to {what}. Received: x.shape={shape}")


def _pieces(data: Any, batch_size: Any) -> tuple[Iterable[Any], int | None]:
    """The data in pieces, and their number of samples where it is known."""
    if not is_count(batch_size):
        raise ValueError(f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}")
    batch_size = int(batch_size)  # 200 + np.uint8(100) is 44
    if hasattr(data, "shape") and len(data.shape):
        return _slices(data, batch_size), len(data)
    if isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "shape") for part in data):
        samples, labels = data
        if len(samples) != len(labels):
            raise ValueError(
                f"Samples and labels must be of one length. Received: {len(samples)} samples and {len(labels)} labels"
            )
        return zip(_slices(samples, batch_size), _slices(labels, batch_size), strict=True), len(samples)
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict, tuple)):
        return data, None
    raise ValueError(
        "`data` must be an array of samples, a pair (samples, labels) of arrays, or an iterable of batches or of "
        f"pairs of them. Received: {_shape_of(data)}"
    )


def _slices(array: Any, size: int) -> Iterator[Any]:
    return (array[start : start + size] for start in range(0, len(array), size))


def samples_of(x: Any, model: keras.Model) -> int:
    """Number of samples of a batch, which may be a structure of arrays, as a model with several inputs has it."""
    return len(_first(x, model))


def _first(x: Any, model: keras.Model) -> Any:
    """The array of the first input: of a batch in the model's structure, or the batch itself."""
    if not isinstance(x, (tuple, list, dict)):
        return x
    arrays = keras.tree.flatten(x)
    whole = len(model.inputs) > 1 or (len(arrays) == 1 and np.ndim(arrays[0]) > 0)  # else lists of numbers
    return arrays[0] if whole else x


def _length(samples: Any, model: keras.Model) -> int:
    shape = np.shape(_first(samples, model))
    if not shape:
        raise ValueError(
            "Every batch must be an array of samples, or a pair (samples, labels) of arrays. "
            f"Received: {_shape_of(samples)}"
        )
    return shape[0]


def _labels(labels: Any, n: int, per_sample: bool) -> np.ndarray:
    if labels is None:
        raise ValueError("This needs labels: data=(samples, labels), or batches of such pairs. Received: samples alone")
    labels = np.asarray(labels)
    if per_sample and labels.shape == (n, 1):
        labels = labels[:, 0]
    wrong_shape = labels.shape != (n,) if per_sample else labels.shape[:1] != (n,)
    if wrong_shape or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        raise ValueError(
            "Labels must be class numbers: integers from 0, one per sample (of one-hot labels, the argmax). "
            f"Received: labels of dtype {labels.dtype}, shape {labels.shape}, for {n} samples"
        )
    return labels.astype(np.int64)


def _shape_of(data: Any) -> str:
    if isinstance(data, (tuple, list)):
        return f"{type(data).__name__} of {len(data)}: " + ", ".join(_shape_of(part) for part in data[:3])
    shape = getattr(data, "shape", None)
    return type(data).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _fits(shape: Shape, expected: Shape) -> bool:
    return len(shape) == len(expected) and all(w in (None, s) for s, w in zip(shape, expected, strict=True))
