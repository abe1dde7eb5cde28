"""From encoded images to batches: decoded, cropped, resized and normalized by tf.data, in parallel."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway.data.images import MOST_PIXELS, NAMELESS, EncodedImage, decode_image
from keras_highway.data.transforms import Transform


def decoded(encoded, channels: int):
    """Return an image's pixels as `load_image` reads them: JPEG in colour by TensorFlow, everything else by Pillow.

    TensorFlow drops transparency, which shows the colour below it, knows
    neither WebP nor palettes of BMP, and cannot make CMYK grey.

    Args:
        encoded: Scalar tf.string, the content of a file.
        channels: 3 (RGB) or 1 (greyscale).

    Returns:
        uint8 tensor of shape `(height, width, channels)`.
    """
    tf = tensorflow()
    if channels == 1:
        return decoded_by_pillow(encoded, channels)
    return tf.cond(
        tf.io.is_jpeg(encoded),
        lambda: _decoded_jpeg(encoded, channels),
        lambda: decoded_by_pillow(encoded, channels),
    )


def jpeg_shape(encoded):
    """Return height, width and channels of a JPEG, which may be no larger than `load_image` reads.

    A larger one is an `InvalidArgumentError`: a run would be trained on images
    that `evaluate` calls broken.
    """
    tf = tensorflow()
    shape = tf.io.extract_jpeg_shape(encoded)
    pixels = tf.cast(shape[0], tf.int64) * tf.cast(shape[1], tf.int64)
    message = f"too large: images of at most {MOST_PIXELS:,} pixels are read"
    with tf.control_dependencies([tf.debugging.assert_less_equal(pixels, np.int64(MOST_PIXELS), message)]):
        return tf.identity(shape)


def _decoded_jpeg(encoded, channels: int):
    tf = tensorflow()
    with tf.control_dependencies([jpeg_shape(encoded)]):
        # By default TensorFlow takes the fast inverse transform, Pillow the accurate one.
        return tf.io.decode_jpeg(encoded, channels, dct_method="INTEGER_ACCURATE")


def decoded_by_pillow(encoded, channels: int):
    """Return the pixels of any other image; arguments as above.

    A broken one is an `ImageError`, in a tf.data pipeline an
    `InvalidArgumentError`.
    """
    tf = tensorflow()
    # As a tensor: of Python's bytes NumPy would cut the zeros at the end.
    encoded = tf.convert_to_tensor(encoded)
    image = tf.numpy_function(functools.partial(_pillow_pixels, channels), [encoded], tf.uint8)
    return tf.ensure_shape(image, (None, None, channels))


def _pillow_pixels(channels: int, encoded: bytes | np.ndarray) -> np.ndarray:
    content = encoded.item() if isinstance(encoded, np.ndarray) else encoded  # an array outside of a pipeline
    return decode_image(EncodedImage(content, NAMELESS), channels)


class CentralCrop:
    """The transform's resizing and central crop, as `load_image(..., upright=False)`; the seed is not used.

    Args:
        transform: Size and normalization.
    """

    def __init__(self, transform: Transform):
        self._transform = transform

    def __call__(self, encoded, seed):
        """Return a float32 image of the transform's size."""
        tf = tensorflow()
        image = decoded(encoded, self._transform.channels)
        shape = tf.shape(image)
        image = self._cropped(image, *self._transform.window(shape[0], shape[1], tf.minimum))
        shape = tf.shape(image)
        size = self._transform.resized(shape[0], shape[1], tf.maximum)
        image = tf.image.resize(image, size, method=self._transform.interpolation, antialias=True)
        image = self._cropped(image, *self._transform.size)
        return self._normalized(tf.round(image))  # to whole pixels, which is what an image is when a user resizes it

    def _cropped(self, image, height, width):
        shape = tensorflow().shape(image)
        top, left = (self._transform.margin(shape[i], kept) for i, kept in enumerate((height, width)))
        return image[top : top + height, left : left + width]

    def _normalized(self, image):
        tf = tensorflow()
        image = tf.clip_by_value(image, 0.0, 255.0) * self._transform.scale
        return (image - self._transform.mean) / self._transform.std


def batches(data, decode: Callable, size: int, several: bool = False) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield batches of decoded images.

    Args:
        data: tf.data.Dataset of (encoded image, label, seed of shape (2,)).
        decode: Function (encoded image, seed) to an image.
        size: Images per batch.
        several: Whether `decode` makes several images of one, for labels and
            seeds with one more axis.

    Yields:
        Images as `decode` makes them, int32 labels, float32 weights of 1.
    """
    tf = tensorflow()
    data = data.map(lambda encoded, label, seed: (decode(encoded, seed), label), num_parallel_calls=tf.data.AUTOTUNE)
    if several:
        data = data.unbatch()
    for images, labels in data.batch(size).prefetch(tf.data.AUTOTUNE).as_numpy_iterator():
        yield images, labels.astype(np.int32), np.ones(len(labels), np.float32)
