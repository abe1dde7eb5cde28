"""Image files to arrays: any common file, any colour mode, turned upright."""

import io
import os
import struct
import zlib

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from keras_highway.data.transforms import Transform

_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
# What Pillow's decoders raise on damaged files; 20,000 files damaged at random raised nothing else.
_BROKEN = (OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError, MemoryError)
_BROKEN += (NotImplementedError, struct.error, zlib.error, Image.DecompressionBombError)


class ImageError(ValueError):
    """A file that is no image, or is broken; the message names it."""


def load_image(path: str | os.PathLike | io.BytesIO, transform: Transform) -> np.ndarray:
    """Reads an image file and brings it to a transform's size and channels.

    Turned upright by its EXIF orientation, 16-bit greyscale scaled to 8 bits,
    transparent parts put on white, any mode (palette, CMYK, ...) converted, of
    an animation the first frame; then resized, keeping its proportions, and
    cropped at the centre, both rounded as torchvision and timm do.

    Args:
        path: File that Pillow can read (PNG, JPEG, GIF, BMP, TIFF, WebP, ...),
            or its content.
        transform: The transform of the weights that will look at it.

    Returns:
        uint8 array `(height, width, channels)`; `transform.apply` scales it.

    Raises:
        ImageError: If the file is missing, no image, or truncated.
    """
    try:
        with Image.open(path) as file:
            file.load()
            image = ImageOps.exif_transpose(file)
            image = _flat(image).convert("L" if transform.channels == 1 else "RGB")
    except FileNotFoundError as error:
        raise ImageError(f"{path}: no such image file") from error
    except IsADirectoryError as error:
        raise ImageError(f"{path}: a folder, not an image file") from error
    except PermissionError as error:
        raise ImageError(f"{path}: may not be read (permission denied)") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path}: not an image file that Pillow can read") from error
    except _BROKEN as error:
        raise ImageError(f"{path}: broken image file ({error})") from error
    pixels = np.asarray(_resized(image, transform), np.uint8)
    return pixels.reshape(*pixels.shape[:2], transform.channels)


def _flat(image: Image.Image) -> Image.Image:
    """An opaque 8-bit image, greyscale or RGB in any of their forms."""
    if image.mode.startswith("I"):  # 16 bits; Pillow scales the 16-bit files it opens as "I" to the same range
        return Image.fromarray((np.asarray(image, np.float32).clip(0, 65535) / 257 + 0.5).astype(np.uint8))
    if image.mode == "F":
        return Image.fromarray(np.nan_to_num(np.asarray(image)).clip(0, 255).astype(np.uint8))
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image if image.mode in ("1", "L", "RGB") else image.convert("RGB")


def _resized(image: Image.Image, transform: Transform) -> Image.Image:
    height, width = transform.size
    if image.size == (width, height) and transform.crop == 1.0:
        return image
    image = _cropped(image, *transform.window(image.height, image.width))
    high, wide = transform.resized(image.height, image.width)
    return _cropped(image.resize((wide, high), _FILTERS[transform.interpolation]), height, width)


def _cropped(image: Image.Image, height: int, width: int) -> Image.Image:
    left, top = Transform.margin(image.width, width), Transform.margin(image.height, height)
    return image.crop((left, top, left + width, top + height))
