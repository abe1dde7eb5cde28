"""The transform between an image file's pixels and what a network was trained on.

A transform is part of a trained weight, as the parameters are: the same
weights under another scaling are another, worse network.
"""

import dataclasses
import functools
import json
import math
import reprlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from keras_highway._support.schema import check_choice, plain, refuse, reworded
from keras_highway._support.terminal import Notice

_IMAGE = (-3, -2, -1)


@dataclass(frozen=True)
class Library:
    """Whose tensor it is, and how that library does what a transform needs."""

    float32: Callable[[Any], Any]  # function tensor -> the same in float32
    constant: Callable[[np.ndarray, Any], Any]  # function (array, tensor) -> the array as a tensor where the tensor is
    mean: Callable[[Any], Any]  # function tensor -> the mean of every image, `(..., 1, 1, 1)`
    at_least_one: Callable[[Any], Any]  # function tensor -> larger of it and 1, element by element
    values: Callable[[Any], np.ndarray]  # function tensor -> NumPy array of its values; raises where it has none yet


def library_of(x: Any) -> Library | None:
    """Return the library of a tensor; None for what NumPy makes an array of."""
    row = _LIBRARIES.get(type(x).__module__.partition(".")[0])
    return row() if row and hasattr(x, "shape") and hasattr(x, "dtype") else None


def known_shape(x: Any) -> tuple[int | None, ...] | None:
    """Return the shape of a tensor, `None` where a size is open, or for the whole where not even the rank is known."""
    shape = x.shape
    if getattr(shape, "rank", 0) is None:
        return None
    return tuple(shape)


def values_of(x: Any, library: Library | None) -> np.ndarray | None:
    """Return the values of a tensor; None where it has none yet, as inside of a graph or of a compiled function."""
    if library is None:
        return np.asarray(x)
    try:
        return library.values(x)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None  # each library has an error of its own for a symbol's values


def _tensorflow() -> Library:
    tf: Any = sys.modules["tensorflow"]
    return Library(
        float32=lambda x: tf.cast(x, tf.float32),
        constant=lambda array, x: tf.constant(array),
        mean=lambda x: tf.reduce_mean(x, _IMAGE, keepdims=True),
        at_least_one=lambda x: tf.maximum(x, 1.0),
        values=lambda x: x.numpy(),
    )


def _jax() -> Library:
    jnp: Any = sys.modules["jax.numpy"]
    return Library(
        float32=lambda x: x.astype(jnp.float32),
        constant=lambda array, x: jnp.asarray(array),
        mean=lambda x: jnp.mean(x, _IMAGE, keepdims=True),
        at_least_one=lambda x: jnp.maximum(x, 1.0),
        values=np.asarray,
    )


def _torch() -> Library:
    torch: Any = sys.modules["torch"]
    return Library(
        float32=lambda x: x.to(torch.float32),
        constant=lambda array, x: torch.as_tensor(array.copy(), device=x.device),
        mean=lambda x: torch.mean(x, _IMAGE, keepdim=True),
        at_least_one=lambda x: torch.clamp(x, min=1.0),
        values=lambda x: x.detach().cpu().numpy(),
    )


def _keras() -> Library:
    keras: Any = sys.modules["keras"]

    def values(x: Any) -> np.ndarray:
        if keras.utils.is_keras_tensor(x):
            raise TypeError("A symbolic tensor has no values.")
        return keras.ops.convert_to_numpy(x)

    return Library(
        float32=lambda x: keras.ops.cast(x, "float32"),
        constant=lambda array, x: array,
        mean=lambda x: keras.ops.mean(x, _IMAGE, keepdims=True),
        at_least_one=lambda x: keras.ops.maximum(x, 1.0),
        values=values,
    )


_LIBRARIES = {"tensorflow": _tensorflow, "jax": _jax, "jaxlib": _jax, "torch": _torch, "keras": _keras}


_Side = Annotated[int, Meta(ge=1)]
_Number = Annotated[float, Meta(ge=-1e9, le=1e9)]
_Positive = Annotated[float, Meta(ge=1e-9, le=1e9)]
_LONGEST = 2048  # pixels of a side to which an image is resized
_MAX_RATIO = 16  # of the longer side to the shorter: beyond it, what the central crop cuts away is not resized at all


@dataclass(frozen=True)
class Transform:
    """Transform from pixels in [0, 255] to a network's input: `(pixels * scale - mean) / std`.

    With `contrast`, each image by its own statistics instead: `(pixels - mean
    of all its pixels) / their standard deviation`, "global contrast
    normalization" [TVDN, Table 3], then minus the data set's mean image where
    `mean_image` names one [caffe].

    Attributes:
        size: Height and width the network was evaluated at.
        channels: 1 (greyscale) or 3 (RGB).
        scale: Factor on the pixels.
        mean: One number per channel, or `(m,)` for all, subtracted after
            scaling.
        std: One number per channel, or `(s,)` for all, divided by at the end.
        crop: Share of the shorter side kept by the central crop, 1.0 for all.
        interpolation: Filter of resizing, `"bicubic"` or `"bilinear"`.
        contrast: Whether images are normalized by their own contrast.
        mean_image: Data set whose mean image, after contrast normalization,
            is subtracted (see `mean_image`), or `""`. Needs `contrast`.

    Raises:
        ValueError: If a field has another value.
    """

    size: tuple[_Side, _Side]
    channels: Literal[1, 3]
    scale: _Positive
    mean: Annotated[tuple[_Number, ...], Meta(max_length=3)] = (0.0,)
    std: Annotated[tuple[_Positive, ...], Meta(max_length=3)] = (1.0,)
    crop: Annotated[float, Meta(ge=0.01, le=1)] = 1.0
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    contrast: bool = False
    mean_image: Literal["", "cifar10", "cifar100"] = ""

    def resized(self, height: Any, width: Any, larger: Callable[..., Any] = max) -> tuple[Any, Any]:
        """Return the size to which an image is resized before the central crop, with its proportions.

        Rounded as in torchvision and timm: the crop's size over `crop` is
        rounded down and becomes one side, the other side is rounded down.

        Args:
            height: Height of the image; an int, or an integer tensor together
                with `larger`.
            width: Width of the image, likewise.
            larger: Function that returns the larger of two of these. Defaults
                to Python's `max`.

        Returns:
            Height and width, both at least as large as in `size`.
        """
        high, wide = (math.floor(side / self.crop) for side in self.size)
        return larger(high, wide * height // width), larger(wide, high * width // height)

    @staticmethod
    def window(height: Any, width: Any, smaller: Callable[..., Any] = min) -> tuple[Any, Any]:
        """Return the part at the centre of an image, at most 16 times as long as wide, that is resized at all.

        Args:
            height: Height of the image, see `resized`.
            width: Width of the image, likewise.
            smaller: Function that returns the smaller of two of these.

        Returns:
            Height and width.
        """
        most = _MAX_RATIO * smaller(height, width)
        return smaller(height, most), smaller(width, most)

    @staticmethod
    def margin(side: Any, kept: Any) -> Any:
        """Return the pixels before a central crop: half of what is cut away, a half rounded to even.

        Args:
            side: Pixels of the image; an int or an integer tensor.
            kept: Pixels of the crop, at most as many.

        Returns:
            What Python's `round((side - kept) / 2)` is.
        """
        away = side - kept
        return (away + away % 4 // 3) // 2

    def __post_init__(self):
        for field in dataclasses.fields(self):  # later a wrong one would look like a fault of the image
            value = plain(getattr(self, field.name))
            with reworded(f"`{field.name}` of a transform is {reprlib.repr(value)}", msgspec.ValidationError):
                object.__setattr__(self, field.name, msgspec.convert(value, field.type))
        fits_all = {len(self.mean), len(self.std)} <= {1, self.channels}
        fits_mean_image = not self.mean_image or (self.size, self.channels, self.contrast) == ((32, 32), 3, True)
        huge = max(self.size) > _LONGEST * self.crop
        refuse(
            (not fits_all, f"`mean` and `std` need one number, or one per channel. Received: {self}"),
            (huge, f"A transform resizes images to at most {_LONGEST} pixels a side. Received: {self}"),
            (not fits_mean_image, f"`mean_image` needs contrast=True and RGB images of 32x32. Received: {self}"),
        )

    def apply(self, pixels: Any, data_format: str = "channels_last") -> Any:
        """Scales and normalizes; the argument is not changed.

        Args:
            pixels: Array, or tensor of any library, `(..., height, width,
                channels)`, of values in [0, 255], uint8 or float.
            data_format: `"channels_last"` or `"channels_first"`, for `(...,
                channels, height, width)`. Defaults to `"channels_last"`.

        Returns:
            float32 of the same shape: NumPy's for what NumPy makes an array
            of, else of the tensor's library.

        Raises:
            ValueError: If the number of channels or the shape of the mean
                image differs.
        """
        library = library_of(pixels)
        pixels = np.asarray(pixels) if library is None else pixels
        first = data_format == "channels_first"
        self._check_channels(known_shape(pixels), first)
        x = pixels.astype(np.float32) if library is None else library.float32(pixels)
        if self.contrast:
            return self._normalize_contrast(x, pixels, library, first)
        constant = (lambda array, x: array) if library is None else library.constant
        x = x * np.float32(self.scale) if library is None else x * float(np.float32(self.scale))
        if any(self.mean):
            x = x - constant(_by_channel(self.mean, first), x)
        if any(s != 1.0 for s in self.std):
            x = x / constant(_by_channel(self.std, first), x)
        return x

    def _check_channels(self, shape: tuple[int | None, ...] | None, first: bool) -> None:
        if shape is None:
            return
        axis, needed = (-3, f"{self.channels}, height, width") if first else (-1, f"height, width, {self.channels}")
        sides = shape[-2:] if first else shape[-3:-1]
        refuse(
            (
                len(shape) < 3 or shape[axis] not in (None, self.channels),
                f"Expected images of {self.channels} channel(s), shape (..., {needed}). Received: shape {shape}",
            ),
            (
                self.mean_image and any(side not in (None, own) for side, own in zip(sides, self.size, strict=False)),
                f"Expected images of {self.size[0]}x{self.size[1]} pixels, of which a mean image is subtracted. "
                f"Received: shape {shape}",
            ),
        )

    def _normalize_contrast(self, x: Any, pixels: Any, library: Library | None, first: bool) -> Any:
        """By each image's own statistics: in NumPy summed in float64, in other libraries in float32."""
        if library is None:
            mean, std = (v[..., None, None, None] for v in self.contrast_statistics(pixels))
        else:
            mean = library.mean(x)
            std = library.at_least_one(library.mean((x - mean) * (x - mean))) ** 0.5
        x = (x - mean) / std
        if not self.mean_image:
            return x
        image = mean_image(self.mean_image)
        image = np.ascontiguousarray(image.transpose(2, 0, 1)) if first else image
        return x - (image if library is None else library.constant(image, x))

    @staticmethod
    def contrast_statistics(pixels: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation over each image's pixels and channels.

        Args:
            pixels: Array `(..., height, width, channels)`.

        Returns:
            Two float32 arrays `(...)`; the deviation is at least 1, of 255,
            so that an image of one color becomes zero.
        """
        pixels = np.asarray(pixels)
        mean = np.mean(pixels, (-3, -2, -1), dtype=np.float64)
        # einsum sums squares without a float copy of the whole data set.
        square = np.einsum("...hwc,...hwc->...", pixels, pixels, dtype=np.float64) / np.prod(pixels.shape[-3:])
        std = np.sqrt(np.maximum(square - mean**2, 1.0))
        return np.asarray(mean, np.float32), np.asarray(std, np.float32)


def _by_channel(numbers: tuple[float, ...], first: bool) -> np.ndarray:
    """One number per channel, in a shape that broadcasts to images."""
    array = np.asarray(numbers, np.float32)
    return array.reshape(-1, 1, 1) if first else array


def mean_image_of(images: np.ndarray) -> np.ndarray:
    """Return the mean of images `(n, height, width, channels)` after contrast normalization, float32."""
    total = np.zeros(images.shape[1:], np.float64)
    for start in range(0, len(images), 1000):
        part = images[start : start + 1000]
        mean, std = (v[..., None, None, None] for v in Transform.contrast_statistics(part))
        total += ((part - mean) / std).sum(axis=0, dtype=np.float64)
    return np.asarray(total / len(images), np.float32)


@functools.cache
def mean_image(data: str) -> np.ndarray:
    """Return the mean training image of a data set, `mean_image_of` stored in float16: float32, read-only."""
    check_choice("mean_image", data, MEAN_IMAGES)
    with np.load(Path(__file__).parent / "mean_images.npz", allow_pickle=False) as file:
        image = file[data].astype(np.float32)
    image.setflags(write=False)
    return image


MEAN_IMAGES = ("cifar10", "cifar100")


MNIST = Transform(size=(28, 28), channels=1, scale=1 / 256)
CIFAR = Transform(size=(32, 32), channels=3, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
CIFAR_CONTRAST = Transform(size=(32, 32), channels=3, scale=1.0, contrast=True)
CIFAR10_CONTRAST = dataclasses.replace(CIFAR_CONTRAST, mean_image="cifar10")
CIFAR100_CONTRAST = dataclasses.replace(CIFAR_CONTRAST, mean_image="cifar100")
IMAGENET = Transform(
    size=(224, 224), channels=3, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), crop=0.95
)
IMAGENET_875 = replace(IMAGENET, crop=0.875)
IMAGENET_128, IMAGENET_64 = (replace(IMAGENET_875, size=(side, side)) for side in (128, 64))
TINY_IMAGENET = replace(IMAGENET_64, crop=1.0)  # its photographs have 64 pixels, no border is left out
TRANSFORMS: Mapping[str, Transform] = MappingProxyType(
    {
        "mnist": MNIST,
        "cifar10": CIFAR,
        "cifar100": CIFAR,
        "cifar_contrast": CIFAR_CONTRAST,
        "cifar10_contrast": CIFAR10_CONTRAST,
        "cifar100_contrast": CIFAR100_CONTRAST,
        "imagenet": IMAGENET,
        "imagenet_875": IMAGENET_875,
        "imagenet_128": IMAGENET_128,
        "imagenet_64": IMAGENET_64,
        "tiny_imagenet": TINY_IMAGENET,
    }
)

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly "
    "camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup "
    "dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower "
    "leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid "
    "otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray "
    "road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar "
    "sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle "
    "wardrobe whale willow_tree wolf woman worm"
)
CLASSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "mnist": tuple("0123456789"),
        "cifar10": tuple(_CIFAR10.split()),
        "cifar100": tuple(_CIFAR100.split()),
    }
)


@functools.cache
def imagenet_classes() -> tuple[tuple[str, str], ...]:
    """Return WordNet's identifier and the name of each of the 1000 classes, in order; part of the package."""
    index = json.loads((Path(__file__).parent / "imagenet_class_index.json").read_text("utf-8"))
    return tuple((identifier, name) for identifier, name in (index[str(i)] for i in range(len(index))))


def default_names(classes: int) -> tuple[str, ...]:
    """Return numbers as names of unknown classes; a head with one output gives the probability of class 1."""
    return ("1",) if classes == 1 else tuple(map(str, range(classes)))


def in_words(names: Sequence[str]) -> list[str]:
    """Return class names; English words instead of WordNet identifiers if all are ImageNet's."""
    known = dict(imagenet_classes())
    return [known[name] for name in names] if set(names) <= set(known) else list(names)


_NORMALIZED = 128  # no transform gives more: an image over its own standard deviation has this at most


class PixelRange(Notice):
    """Values that may be pixels, and are more likely something else: scaled or normalized before, or of 16 bits."""


def check_pixels(x: Any, library: Library | None) -> None:
    """Refuse values that cannot be pixels; warn of values outside of [0, 255], and of floats that are all in [0, 1]."""
    name = _dtype_name(x)
    if not name.startswith(("int", "uint", "float", "bfloat")):
        raise ValueError(f"Pixels are whole or floating-point numbers in [0, 255]. Received: dtype {name}")
    if name == "uint8":
        return
    values = values_of(x, library)
    if values is None or not values.size:
        return
    low, high = (float(bound) for bound in (values.min(), values.max()))
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("Pixels are finite numbers in [0, 255]. Received: NaN or infinite values")
    if suspicion := _suspicion(low, high, "float" in name):
        warnings.warn(f"Pixels are in [0, 255]. {suspicion} Received: values from {low:g} to {high:g}", PixelRange, 3)


def check_normalized(x: Any, transform: Transform | None = None) -> None:
    """Warn of values that look like pixels where a network takes normalized images."""
    values, most = values_of(x, library_of(x)), _NORMALIZED
    if transform is not None and not transform.contrast:  # your own may keep pixels as they are
        most = max(most, ((255 * transform.scale - np.array(transform.mean)) / transform.std).max())
    if values is not None and values.size and values.max() > most:
        message = "The network takes normalized images, and these look like pixels: use kh.preprocess_input."
        warnings.warn(f"{message} Received: values from {values.min():g} to {values.max():g}", PixelRange, 4)


def _dtype_name(x: Any) -> str:
    """`float32` of NumPy's, TensorFlow's `<dtype: 'float32'>` and PyTorch's `torch.float32` alike."""
    return str(getattr(x.dtype, "name", x.dtype)).removeprefix("torch.")


def _suspicion(low: float, high: float, floating: bool) -> str:
    if low < 0:
        return "Negative ones look normalized before: leave one of the two normalizations out."
    if high > 255:
        return "Larger ones look like 16 bits: divide by 257."
    if floating and 0 < high <= 1:
        return "These look scaled to [0, 1] before: multiply by 255, or all images will be nearly black."
    return ""
