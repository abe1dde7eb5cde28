"""Loss of each sample, from integer labels and logits."""

from collections.abc import Callable

import keras
from keras import ops

from keras_highway.training.recipe import Recipe


def make_loss(recipe: Recipe, classes: int) -> Callable:
    """Return the training loss of a recipe.

    Args:
        recipe: Its `loss`, `label_smoothing` and `target_threshold` count.
        classes: Number of classes.

    Returns:
        A function (labels `(batch,)` int, logits `(batch, classes)` float32,
        mix) -> `(batch,)` float32; `mix` is None, or the pair (labels of the
        samples' partners, the own labels' shares `(batch,)`) of Mixup and
        CutMix, whose targets are mixed before the threshold, as timm's. `"crossentropy"` is that of the softmax,
        `"bce"` the mean over classes of the sigmoid's [RSB]. Smoothing s makes
        targets `(1 - s) * onehot + s / classes` for both; Keras's
        `BinaryCrossentropy(label_smoothing=s)` would spread `s / 2`.

    Raises:
        ValueError: If all targets are on one side of the threshold.
    """
    kind = keras.losses.CategoricalCrossentropy if recipe.loss == "crossentropy" else keras.losses.BinaryCrossentropy
    function = kind(from_logits=True, reduction=None)
    smoothing = recipe.label_smoothing
    threshold = recipe.target_threshold if recipe.loss == "bce" else None
    least, most = smoothing / classes, 1.0 - smoothing + smoothing / classes
    if threshold is not None and not least <= threshold < most:
        raise ValueError(
            f"All targets would be {int(threshold < least)}: of {classes} classes and label_smoothing={smoothing} they "
            f"are {least:.4g} to {most:.4g}. Received: target_threshold={threshold}"
        )

    def loss(labels, logits, mix=None):
        targets = ops.one_hot(labels, classes, dtype="float32")
        if mix is not None:
            others, share = mix
            share = share[:, None]
            targets = share * targets + (1.0 - share) * ops.one_hot(others, classes, dtype="float32")
        if smoothing:
            targets = (1.0 - smoothing) * targets + smoothing / classes
        if threshold is not None:
            targets = ops.cast(targets > threshold, "float32")
        return function(targets, logits)

    return loss


def test_loss(labels, logits):
    """Returns the cross-entropy of each sample, whatever the training loss was."""
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
