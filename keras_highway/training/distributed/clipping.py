"""Gradient clipping."""

from keras import ops


def clipped(gradients, norm):
    """Scales gradients down to a norm over all of them, see `Recipe.clip_norm`.

    Args:
        gradients: Sequence of tensors.
        norm: Float, or `None` to leave them.

    Returns:
        A list of tensors.
    """
    if norm is None:
        return list(gradients)
    total = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
    scale = norm / ops.maximum(total, norm)
    return [g * scale for g in gradients]
