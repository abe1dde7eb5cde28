"""The softmax's cross-entropy of integer targets, with its derivative."""

from keras import ops

from keras_highway._support.numerics import with_gradient


def cross_entropy(logits, targets):
    """Returns the negative log-probability of each target under the softmax of its logits.

    Of finite float32 logits, values and derivative are, up to rounding, those of
    Keras's `sparse_categorical_crossentropy(targets, logits, from_logits=True)`,
    which takes longer for many classes on TensorFlow's CPU (docs/speed.md).

    Args:
        logits: Floating point `(..., classes)`; computed with in float32.
        targets: Integers `(...)`, from 0 and below the number of classes,
            which is not checked.

    Returns:
        float32 `(...)`.

    Raises:
        ValueError: If the shapes, where they are known, do not belong together.
    """
    targets = ops.cast(targets, "int32")
    pairs = zip(logits.shape[:-1], targets.shape, strict=False)
    if len(logits.shape) != len(targets.shape) + 1 or any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise ValueError(
            "`logits` must have the shape of `targets` and an axis of classes after it. "
            f"Received: logits of shape {tuple(logits.shape)}, targets of shape {tuple(targets.shape)}"
        )
    return _cross_entropy(logits, targets)


@with_gradient
def _cross_entropy(logits, targets):
    dtype, shape = logits.dtype, ops.shape(logits)
    flat, chosen = ops.reshape(ops.cast(logits, "float32"), (-1, logits.shape[-1])), ops.reshape(targets, (-1, 1))
    # Differences to the largest logit before anything is added: sums with large logits would lose the loss's digits.
    shifted = flat - ops.max(flat, axis=-1, keepdims=True)
    exponentials = ops.exp(shifted)
    total = ops.sum(exponentials, axis=-1, keepdims=True)
    losses = ops.log(total) - ops.take_along_axis(shifted, chosen, axis=-1)

    def gradient(upstream):
        upstream = ops.reshape(upstream, (-1, 1))
        d_flat = exponentials * (upstream / total)
        of_targets = ops.take_along_axis(d_flat, chosen, axis=-1) - upstream
        rows = ops.arange(ops.shape(d_flat)[0], dtype="int32")[:, None]
        d_flat = ops.scatter_update(d_flat, ops.concatenate([rows, chosen], axis=1), of_targets[:, 0])
        return ops.reshape(ops.cast(d_flat, dtype), shape), None

    return ops.reshape(losses, ops.shape(targets)), gradient
