"""The training images of photographs: cropped, resized, mirrored and augmented on the host's cores.

TensorFlow reads a colour JPEG's size, Python draws the crop, TensorFlow decodes
that part alone, and Pillow does the rest: its resampling and its operations are
those of torchvision and timm, to the pixel. An image of which an epoch has
several copies is decoded once, whole.
"""

import math

import numpy as np
from PIL import Image

from keras_highway._support.backend import tensorflow
from keras_highway.data.transforms import Transform
from keras_highway.training.data.decoding import decoded, decoded_by_pillow, jpeg_shape
from keras_highway.training.data.rand_augment import RandAugment
from keras_highway.training.recipe import Recipe

SMALLEST = 0.08
_STREAM = 3  # of random numbers: others of (seed, ...) are for order and mixing


def augment_of(recipe: Recipe, transform: Transform, epoch: int) -> "Augment":
    """Return a recipe's augmentation of training images.

    Args:
        recipe: What to train.
        transform: What its images go through.
        epoch: Epoch, counted from 0.
    """
    return Augment(
        recipe.training_size(transform.size, epoch),
        recipe.rand_augment,
        transform.mean,
        channels=transform.channels,
        crop_scale=recipe.crop_scale,
    )


class Augment:
    """A random resized crop, a mirroring with a chance of one half, and RandAugment where there is a policy.

    All of it is a function of the sample's seed.

    Args:
        size: Height and width of the images it makes.
        policy: RandAugment's policy, e.g. `"m7-mstd0.5-inc1"`, or `""`.
            Defaults to `""`.
        mean: Of the data set's pixels, in [0, 1], one number per channel: the
            colour of what RandAugment moves in. Defaults to ImageNet's.
        interpolation: Pillow's name of the filter of resizing and of
            RandAugment's geometry. Defaults to `"bicubic"`.
        channels: 3 (RGB), or 1 (greyscale) without RandAugment. Defaults to
            `3`.
        crop_scale: Smallest share of an image's area that a crop keeps.
            Defaults to `0.08`.

    Raises:
        ValueError: For an unknown policy, and for one of greyscale images.
    """

    def __init__(
        self,
        size,
        policy: str = "",
        mean=(0.485, 0.456, 0.406),
        interpolation: str = "bicubic",
        channels: int = 3,
        crop_scale: float = SMALLEST,
    ):
        if policy and channels != 3:
            raise ValueError(f"RandAugment is for RGB images. Received: channels={channels}")
        self.size, self._channels, self._smallest = tuple(size), channels, crop_scale
        self._filter = Image.Resampling[interpolation.upper()]
        fill = tuple(min(255, round(255 * m)) for m in mean)
        self._rand_augment = RandAugment(policy, fill, interpolation) if policy else None

    def __call__(self, encoded, seed):
        """Return an image.

        Args:
            encoded: Scalar tf.string, the content of an image file.
            seed: int64 tensor of shape (2,), the sample's.

        Returns:
            uint8 tensor of shape `(height, width, channels)`.
        """
        tf = tensorflow()
        crop = self._crop(encoded, seed)
        image = tf.numpy_function(self.finished, [crop, seed], tf.uint8)
        return tf.ensure_shape(image, (*self.size, self._channels))

    def copies(self, encoded, seeds):
        """Return several images of one.

        Args:
            encoded: As above.
            seeds: int64 tensor of shape (n, 2), the samples'.

        Returns:
            uint8 tensor of shape `(n, height, width, channels)`.
        """
        tf = tensorflow()
        image = decoded(encoded, self._channels)
        images = tf.numpy_function(self._finished_copies, [image, seeds], tf.uint8)
        return tf.ensure_shape(images, (None, *self.size, self._channels))

    def _finished_copies(self, image, seeds):
        windows = [self._drawn_window(np.array(image.shape), seed) for seed in seeds]
        crops = [image[top : top + height, left : left + width] for top, left, height, width in windows]
        return np.stack([self.finished(crop, seed) for crop, seed in zip(crops, seeds, strict=True)])

    def _crop(self, encoded, seed):
        """Decode the window alone where TensorFlow does, see `decoded`."""
        tf = tensorflow()
        if self._channels == 1:
            return self._other_crop(encoded, seed)
        return tf.cond(
            tf.io.is_jpeg(encoded), lambda: self._jpeg_crop(encoded, seed), lambda: self._other_crop(encoded, seed)
        )

    def _jpeg_crop(self, encoded, seed):
        tf = tensorflow()
        window = self._window(jpeg_shape(encoded), seed)
        return tf.io.decode_and_crop_jpeg(encoded, window, self._channels, dct_method="INTEGER_ACCURATE")

    def _other_crop(self, encoded, seed):
        tf = tensorflow()
        image = decoded_by_pillow(encoded, self._channels)
        window = self._window(tf.shape(image), seed)
        return tf.slice(image, [window[0], window[1], 0], [window[2], window[3], self._channels])

    def _window(self, shape, seed):
        return tensorflow().numpy_function(self._drawn_window, [shape, seed], np.int32)

    def _drawn_window(self, shape: np.ndarray, seed: np.ndarray) -> np.ndarray:
        draw = np.random.default_rng((*map(int, seed), _STREAM))
        return np.array(random_crop(int(shape[0]), int(shape[1]), draw, self._smallest), np.int32)

    def finished(self, crop: np.ndarray, seed: np.ndarray) -> np.ndarray:
        """Return a decoded crop resized, mirrored and augmented.

        Args:
            crop: uint8 `(height, width, channels)`.
            seed: int64 `(2,)`, the sample's.
        """
        draw = np.random.default_rng((*map(int, seed), _STREAM, 1))
        image = Image.fromarray(crop if self._channels == 3 else crop[..., 0]).resize(self.size[::-1], self._filter)
        if draw.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if self._rand_augment:
            image = self._rand_augment(image, draw)
        return np.asarray(image).reshape(*self.size, self._channels)


RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10


def random_crop(
    height: int, width: int, draw: np.random.Generator, smallest: float = SMALLEST
) -> tuple[int, int, int, int]:
    """Draws a crop as torchvision's `RandomResizedCrop.get_params` and timm's do.

    Its share of the area is uniform in [`smallest`, 1], the logarithm of its aspect
    (width / height) uniform between those of 3/4 and 4/3, its position uniform;
    what does not fit is drawn again, ten times at most, and then the largest
    central crop of an aspect in that range is taken.

    Args:
        height: Of the image, pixels.
        width: The same.
        draw: Where random numbers come from.
        smallest: Smallest share of the area. Defaults to `0.08`.

    Returns:
        Top, left, height and width of the crop.
    """
    shares, log_ratios = draw.uniform(smallest, 1.0, _ATTEMPTS), draw.uniform(*np.log(RATIO), _ATTEMPTS)
    for share, log_ratio in zip(shares, log_ratios, strict=True):
        area, ratio = share * height * width, math.exp(log_ratio)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(draw.integers(0, height - h + 1)), int(draw.integers(0, width - w + 1)), h, w
    h, w = height, width
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return (height - h) // 2, (width - w) // 2, h, w
