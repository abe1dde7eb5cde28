"""Pixels become a network's input on the device: a quarter of the bytes of floats go there."""

import keras
import numpy as np
from keras import ops

from keras_highway.data.transforms import Transform


def normalized(images, transform: Transform):
    """Returns a batch as the network's input.

    Args:
        images: uint8 `(batch, height, width, channels)`; floats are taken as
            normalized already.
        transform: Its `scale`, `mean` and `std` count.

    Returns:
        float32 of the same shape.
    """
    if keras.backend.standardize_dtype(images.dtype) != "uint8":
        return images
    x = ops.cast(images, "float32") * transform.scale
    return (x - np.asarray(transform.mean, "float32")) / np.asarray(transform.std, "float32")
