"""Gradients of embeddings for optimizers of our own."""

from typing import Any

import keras


class DenseGradients:
    """Before a Keras optimizer among the bases: its gradients are of their variables' shapes, before they are clipped.

    TensorFlow's of an embedding is a list of rows, some of them several times:
    a square of it would be the sum of squares, not that of the sum.
    """

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Takes one step."""
        parent: Any = super()
        return parent.apply([_dense(gradient) for gradient in grads], trainable_variables)


def _dense(gradient: Any) -> Any:
    if keras.config.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient
