"""Post-training quantization of LiteRT files: weights and activations as whole numbers of 8 bits."""

import keras
import numpy as np


def int8_options(model: keras.Model, images: np.ndarray) -> dict:
    """Returns what Keras passes on to TensorFlow's converter.

    Args:
        model: The network.
        images: float32, as the network is fed; their activations give the
            scales.

    Raises:
        ValueError: If the image size is open, or the images have another
            shape than the network's input.
    """
    if None in model.input_shape[1:]:
        raise ValueError(f"int8 needs a fixed image size: pass input_shape. Received: {model.input_shape}")
    if images.shape[1:] != model.input_shape[1:] or not len(images):
        raise ValueError(f"`int8` must be images of shape {model.input_shape[1:]}. Received: shape {images.shape}")

    import tensorflow as tf

    return {
        "optimizations": [tf.lite.Optimize.DEFAULT],
        "representative_dataset": lambda: ([image[None].astype("float32")] for image in images),
        "target_spec": {"supported_ops": [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]},
    }


def agreement(quantized: np.ndarray, exact: np.ndarray, least: float) -> float:
    """Returns the share of images whose highest output is the same one in both.

    Args:
        quantized: Outputs `(n, classes)`.
        exact: The float32 network's.
        least: What is an error below.

    Raises:
        ValueError: If it is below `least`.
    """
    share = float(np.mean(quantized.argmax(-1) == exact.argmax(-1)))
    if share < least:
        raise ValueError(
            f"The int8 network puts {100 * share:.1f} % of the images into the Keras network's class, fewer than "
            f"{100 * least:.0f} %: pass more images, of those it was trained on, as the network is fed."
        )
    return share
