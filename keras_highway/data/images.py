"""Image files to arrays: any common file, any colour mode, turned upright."""

import os

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from keras_highway.transforms import Transform

_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


class ImageError(ValueError):
    """A file that is no image, or is broken; the message names it."""


def load_image(path: str | os.PathLike, transform: Transform) -> np.ndarray:
    """Reads an image file and brings it to a transform's size and channels.

    Turned upright by its EXIF orientation, 16-bit greyscale scaled to 8 bits,
    transparent parts put on white, any mode (palette, CMYK, ...) converted;
    then resized, keeping its proportions, and cropped at the centre.

    Args:
        path: File that Pillow can read (PNG, JPEG, GIF, BMP, TIFF, WebP, ...).
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
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ImageError(f"{path}: no such image file") from error
    except UnidentifiedImageError as error:
        raise ImageError(f"{path}: not an image file that Pillow can read") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError(f"{path}: broken image file ({error})") from error
    pixels = np.asarray(_resized(image, transform), np.uint8)
    return pixels.reshape(*pixels.shape[:2], transform.channels)


def _flat(image: Image.Image) -> Image.Image:
    """An opaque 8-bit image."""
    if image.mode in ("I;16", "I;16B", "I;16L", "I;16N", "I"):
        return Image.fromarray((np.asarray(image, np.float32).clip(0, 65535) / 257 + 0.5).astype(np.uint8))
    if image.mode == "F":
        return Image.fromarray(np.asarray(image).clip(0, 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, "white")
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image


def _resized(image: Image.Image, transform: Transform) -> Image.Image:
    height, width = transform.size
    if image.size == (width, height):
        return image
    scale = max(width / image.width, height / image.height) / transform.crop
    size = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    image = image.resize(size, _FILTERS[transform.interpolation])
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
