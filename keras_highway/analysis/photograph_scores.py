"""Top-1 and top-5 accuracy and loss of an image net on photographs that are read while it is measured."""

import sys
from dataclasses import dataclass

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from keras_highway._support.numerics import rank_of
from keras_highway._support.terminal import visible
from keras_highway.analysis.scores import cross_entropy
from keras_highway.data.photographs import PhotographSet, read_batches, real_labels_of
from keras_highway.data.transforms import Transform


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
