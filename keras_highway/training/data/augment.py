"""Training images of photographs: decoded, cropped, resized, mirrored and augmented on the host's cores.

TensorFlow reads a colour JPEG's size, Python draws the crop, TensorFlow decodes
only this part, and Pillow does the rest, as in torchvision and timm, to the
pixel. An image with several copies in an
epoch is decoded once, whole.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from keras_highway._support.backend import tensorflow
from keras_highway._support.schema import check_choice
from keras_highway.data.images import MOST_PIXELS, NAMELESS, EncodedImage, decode_image, is_upright
from keras_highway.data.transforms import Transform
from keras_highway.training.recipe import LARGEST, Recipe, parse_policy

SMALLEST = 0.08
_STREAM = 3  # of random numbers: others of (seed, ...) are for order and mixing


def augment_of(recipe: Recipe, transform: Transform, epoch: int) -> "Augment":
    """Return a recipe's augmentation of training images."""
    return Augment(
        recipe.training_size(transform.size, epoch),
        recipe.rand_augment,
        transform.mean,
        channels=transform.channels,
        crop_scale=recipe.crop_scale,
    )


class Augment:
    """A random resized crop, a mirroring and a policy of RandAugment, all by the sample's seed."""

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
        """Return an image."""
        tf = tensorflow()
        crop = self._crop(encoded, seed)
        image = tf.numpy_function(self.finished, [crop, seed], tf.uint8)
        return tf.ensure_shape(image, (*self.size, self._channels))

    def copies(self, encoded, seeds):
        """Return several images of one."""
        tf = tensorflow()
        image = decoded(encoded, self._channels)
        images = tf.numpy_function(self._finished_copies, [image, seeds], tf.uint8)
        return tf.ensure_shape(images, (None, *self.size, self._channels))

    def _finished_copies(self, image, seeds):
        windows = [self._drawn_window(np.array(image.shape), seed) for seed in seeds]
        crops = [image[top : top + height, left : left + width] for top, left, height, width in windows]
        return np.stack([self.finished(crop, seed) for crop, seed in zip(crops, seeds, strict=True)])

    def _crop(self, encoded, seed):
        """Decode only the window where TensorFlow does, see `decoded`."""
        if self._channels == 1:
            return self._other_crop(encoded, seed)
        jpeg = _is_upright_jpeg(encoded)
        return tensorflow().cond(jpeg, lambda: self._jpeg_crop(encoded, seed), lambda: self._other_crop(encoded, seed))

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
        """Return a decoded crop resized, mirrored and augmented."""
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
    """Draw a crop as torchvision's `RandomResizedCrop.get_params` and timm's do.

    Its share of the area is uniform in [`smallest`, 1], the logarithm of its aspect
    (width / height) uniform between 3/4 and 4/3, its position uniform. A crop
    that does not fit is drawn again, at most ten times; then the largest
    central crop of an aspect in that range is taken.
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


def decoded(encoded, channels: int):
    """Return an image's pixels as `load_image` reads them: JPEG in colour by TensorFlow, everything else by Pillow.

    TensorFlow drops transparency, which shows the colour below it, knows
    neither WebP, palettes of BMP nor EXIF orientations, and cannot make CMYK
    grey.
    """
    if channels == 1:
        return decoded_by_pillow(encoded, channels)
    jpeg = _is_upright_jpeg(encoded)
    return tensorflow().cond(
        jpeg, lambda: _decoded_jpeg(encoded, channels), lambda: decoded_by_pillow(encoded, channels)
    )


def _is_upright_jpeg(encoded):
    tf = tensorflow()
    encoded = tf.convert_to_tensor(encoded)  # of Python's bytes NumPy would cut the zeros at the end
    upright = tf.numpy_function(lambda content: is_upright(_bytes(content)), [encoded], tf.bool)
    return tf.io.is_jpeg(encoded) & tf.ensure_shape(upright, ())


def jpeg_shape(encoded):
    """Return height, width and channels of a JPEG, which may be no larger than `load_image` reads.

    A larger one is an `InvalidArgumentError`: `evaluate` would call it broken.
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
    """Return the pixels of an image by Pillow; a broken one is an `ImageError`."""
    tf = tensorflow()
    # As a tensor: of Python's bytes NumPy would cut the zeros at the end.
    encoded = tf.convert_to_tensor(encoded)
    image = tf.numpy_function(functools.partial(_pillow_pixels, channels), [encoded], tf.uint8)
    return tf.ensure_shape(image, (None, None, channels))


def _pillow_pixels(channels: int, encoded: bytes | np.ndarray) -> np.ndarray:
    return decode_image(EncodedImage(_bytes(encoded), NAMELESS), channels)


def _bytes(encoded: bytes | np.ndarray) -> bytes:
    return encoded.item() if isinstance(encoded, np.ndarray) else encoded  # an array outside of a pipeline


# RandAugment as timm defines it [Cubuk et al. 2019; RSB]. Pillow makes every operation, as for timm: both give the
# same pixels. It releases Python's lock while it resizes, transforms and filters.
_FILTERS = {"bilinear": (Image.Resampling.BILINEAR,), "bicubic": (Image.Resampling.BICUBIC,)}
_FILTERS["random"] = _FILTERS["bilinear"] + _FILTERS["bicubic"]


class Context(NamedTuple):
    """Parameters of geometric operations."""

    fill: tuple[int, int, int]  # colour outside of the image
    resample: Image.Resampling  # filter


class Operation(NamedTuple):
    """One operation."""

    apply: Callable[[Image.Image, float, Context], Image.Image]  # function (image, argument, context) to an image
    argument: Callable[[float], float]  # function from a magnitude, in [0, 10], to the argument
    signed: bool = False  # draw the argument's sign too, or for colours the side of 1 of the factor


def _nothing(magnitude: float) -> float:
    return 0.0


def _up_to(largest: float) -> Callable[[float], float]:
    return lambda magnitude: magnitude / LARGEST * largest


def _enhanced(enhancer) -> Operation:
    """Blend an image with its degenerate form, by a factor up to 0.9 away from 1."""
    return Operation(lambda image, shift, _: enhancer(image).enhance(max(0.1, 1.0 + shift)), _up_to(0.9), signed=True)


def _affine(image, matrix, context):
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=context.resample, fillcolor=context.fill
    )


def _rotate(image, degrees, context):
    return image.rotate(degrees, resample=context.resample, fillcolor=context.fill)


def _posterize(image, bits, _):
    # By a table: Pillow's own refuses 0 bits, which magnitude 10 requires: black.
    return image.point([i & -(1 << (8 - int(bits))) for i in range(256)] * 3)


def _solarize_add(image, add, _):
    return image.point([min(255, i + int(add)) if i < 128 else i for i in range(256)] * 3)


# In timm's order, in which they are drawn.
OPERATIONS: dict[str, Operation] = {
    "AutoContrast": Operation(lambda image, *_: ImageOps.autocontrast(image), _nothing),
    "Equalize": Operation(lambda image, *_: ImageOps.equalize(image), _nothing),
    "Invert": Operation(lambda image, *_: ImageOps.invert(image), _nothing),
    "Rotate": Operation(_rotate, _up_to(30.0), signed=True),
    "Posterize": Operation(_posterize, lambda m: 4 - int(m / 10 * 4)),
    "Solarize": Operation(lambda image, at, _: ImageOps.solarize(image, int(at)), lambda m: 256 - int(m / 10 * 256)),
    "SolarizeAdd": Operation(_solarize_add, lambda m: int(m / 10 * 110)),
    "Color": _enhanced(ImageEnhance.Color),
    "Contrast": _enhanced(ImageEnhance.Contrast),
    "Brightness": _enhanced(ImageEnhance.Brightness),
    "Sharpness": _enhanced(ImageEnhance.Sharpness),
    "ShearX": Operation(lambda i, shear, c: _affine(i, (1, shear, 0, 0, 1, 0), c), _up_to(0.3), signed=True),
    "ShearY": Operation(lambda i, shear, c: _affine(i, (1, 0, 0, shear, 1, 0), c), _up_to(0.3), signed=True),
    "TranslateXRel": Operation(
        lambda i, share, c: _affine(i, (1, 0, share * i.width, 0, 1, 0), c), _up_to(0.45), signed=True
    ),
    "TranslateYRel": Operation(
        lambda i, share, c: _affine(i, (1, 0, 0, 0, 1, share * i.height), c), _up_to(0.45), signed=True
    ),
}


class RandAugment:
    """A policy with its colours and filter."""

    def __init__(self, policy: str, fill=(124, 116, 104), interpolation: str = "bicubic"):
        check_choice("interpolation", interpolation, _FILTERS)
        self.policy, self.fill, self._filters = parse_policy(policy), fill, _FILTERS[interpolation]

    def __call__(self, image: Image.Image, draw: np.random.Generator) -> Image.Image:
        """Return the image after the operations drawn for it."""
        for name, argument, resample in self.drawn(draw):
            image = OPERATIONS[name].apply(image, argument, Context(self.fill, resample))
        return image

    def drawn(self, draw: np.random.Generator) -> list[tuple[str, float, Image.Resampling]]:
        """Return the operations to do, in order: names, arguments and filters."""
        policy, names, drawn = self.policy, tuple(OPERATIONS), []
        for _ in range(policy.operations):
            # Draw all of them, needed or not: one operation must not move the next one's numbers.
            name = names[draw.integers(len(names))]
            done, negative = draw.random() < policy.probability, draw.random() < 0.5
            magnitude = min(max(draw.normal(policy.magnitude, policy.deviation), 0.0), LARGEST)
            resample = self._filters[draw.integers(len(self._filters))]
            if done:
                drawn.append((name, argument(name, magnitude, negative), resample))
        return drawn


def argument(name: str, magnitude: float, negative: bool) -> float:
    """Return an operation's argument."""
    operation = OPERATIONS[name]
    value = operation.argument(magnitude)
    return -value if negative and operation.signed else value
