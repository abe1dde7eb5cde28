"""Accuracy and loss of an image net on a test set."""

import keras
import numpy as np
from tqdm import tqdm

from keras_highway.data.transforms import Transform


def measure(
    model: keras.Model, transform: Transform, images: np.ndarray, labels: np.ndarray, batch_size: int = 500
) -> tuple[float, float]:
    """Returns accuracy and mean cross-entropy; a progress bar on a terminal.

    Args:
        model: A network that gives logits.
        transform: What the pixels go through.
        images: Pixels of the test set.
        labels: Their classes.
        batch_size: Images at once. Defaults to `500`.
    """
    hits, loss = 0, 0.0
    with tqdm(total=len(images), unit=" images", disable=None, leave=False) as bar:
        for start in range(0, len(images), batch_size):
            batch, truth = images[start : start + batch_size], labels[start : start + batch_size]
            logits = model.predict_on_batch(transform.apply(batch)).astype(np.float64)
            logits -= logits.max(axis=1, keepdims=True)
            log_likelihood = logits[np.arange(len(truth)), truth] - np.log(np.exp(logits).sum(axis=1))
            hits += int((logits.argmax(axis=1) == truth).sum())
            loss -= float(log_likelihood.sum())
            bar.update(len(truth))
    return hits / len(images), loss / len(images)
