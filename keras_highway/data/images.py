"""Image files to arrays: any common file, any colour mode."""

import contextlib
import io
import os
import struct
import zlib
from collections.abc import Generator

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from keras_highway._support.files import read_bounded
from keras_highway.data.transforms import Transform

# A file of kilobytes may declare any number; beyond these it is refused before memory is taken.
MOST_PIXELS = 2**26  # 8192 x 8192
LONGEST_SIDE = 2**16
MOST_BYTES = 2**29  # of a file: so many pixels of four channels of 16 bits
_FILTERS = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
# EXIF's orientation -> the transposition that makes the image upright.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# Errors of Pillow's decoders on damaged files: all that 20,000 files damaged at random raised.
_BROKEN = (
    *(OSError, SyntaxError, ValueError, TypeError, LookupError, EOFError, OverflowError),
    *(NotImplementedError, struct.error, zlib.error),
)
NAMELESS = "an image"  # in messages about content without a file
_TOO_LARGE = f"too large: images of at most {MOST_PIXELS:,} pixels and {LONGEST_SIDE:,} per side are read"
_REASONS = (
    (FileNotFoundError, "no such image file"),
    (IsADirectoryError, "a folder, not an image file"),
    (PermissionError, "may not be read (permission denied)"),
    (UnidentifiedImageError, "not an image file that Pillow can read"),
    ((Image.DecompressionBombError, Image.DecompressionBombWarning), _TOO_LARGE),
    (MemoryError, "there is not enough memory for this image: make it smaller"),
)


class ImageError(ValueError):
    """A file that is not an image, or is broken; the message names it."""


class EncodedImage(io.BytesIO):
    """An encoded image in memory that knows its name."""

    def __init__(self, content: bytes, name: str):
        super().__init__(content)
        self.name = name

    def __str__(self):
        return self.name


def load_image(path: str | os.PathLike[str] | io.BytesIO | bytes, transform: Transform) -> np.ndarray:
    """Read an image file and bring it to a transform's size and channels.

    The image is turned upright by its EXIF orientation and converted from any
    mode (palette, CMYK, ...). 16-bit greyscale is scaled to 8 bits;
    floating-point values stay as they are or, where all are in [0, 1], are
    multiplied by 255; transparent parts become white; of an animation the
    first frame is read. Then it is resized, keeping its proportions, and
    cropped at the centre, both rounded as in torchvision and timm.

    Args:
        path: File that Pillow can read (PNG, JPEG, GIF, BMP, TIFF, WebP, ...),
            or its content, bytes or `io.BytesIO`. At most `MOST_PIXELS`
            pixels, 67 million, and 65,536 per side.
        transform: The transform of the weights that it is for, a `Transform`.

    Returns:
        uint8 array `(height, width, channels)`; `transform.apply` scales it.

    Raises:
        ImageError: If the file is missing, not an image, truncated, or too
            large.
        TypeError: If `transform` is not a `Transform`, or `path` neither a
            path nor a content.
    """
    if not isinstance(transform, Transform) or not isinstance(path, str | os.PathLike | io.BytesIO | bytes):
        raise TypeError(
            "`path` must be a path, bytes or io.BytesIO, and `transform` a Transform: kh.get_transform('mnist'). "
            f"Received: path of type {type(path).__name__}, transform={transform!r}"
        )
    path = EncodedImage(path, NAMELESS) if isinstance(path, bytes) else path
    with _explained(path):
        image = _opened(path, transform.channels)
        return _as_array(_resized(image, transform), transform.channels)


def decode_image(path: str | os.PathLike[str] | io.BytesIO, channels: int) -> np.ndarray:
    """Read an image file in its own size, upright; modes and errors as in `load_image`."""
    with _explained(path):
        return _as_array(_opened(path, channels), channels)


def is_upright(content: bytes) -> bool:
    """Whether an image file has no EXIF orientation that turns or mirrors it."""
    if b"Exif" not in content:
        return True
    try:
        with Image.open(io.BytesIO(content)) as file:
            return _turn(file) is None
    except Exception:  # broken: the decoder explains it
        return True


def _turn(file: Image.Image) -> Image.Transpose | None:
    """Return the transposition that makes an image upright, None if it is; `exif_transpose` fails on odd tags."""
    return _TURNS.get(file.getexif().get(ExifTags.Base.Orientation))


def _opened(path: str | os.PathLike[str] | io.BytesIO, channels: int) -> Image.Image:
    content = path if isinstance(path, io.BytesIO) else io.BytesIO(read_bounded(path, MOST_BYTES))
    with Image.open(content) as file:
        if file.width * file.height > MOST_PIXELS or max(file.size) > LONGEST_SIDE:
            raise ImageError(f"{path}: {_TOO_LARGE}; it has {file.width:,} x {file.height:,}")
        file.load()
        turn = _turn(file)
        return _flat(file if turn is None else file.transpose(turn)).convert("L" if channels == 1 else "RGB")


def _as_array(image: Image.Image, channels: int) -> np.ndarray:
    pixels = np.asarray(image, np.uint8)
    return pixels.reshape(*pixels.shape[:2], channels)


@contextlib.contextmanager
def _explained(path: str | os.PathLike[str] | io.BytesIO) -> Generator[None]:
    """Turn errors of Pillow and the file system into an `ImageError` that names the file."""
    try:
        yield
    except ImageError:
        raise
    except (*_BROKEN, MemoryError, Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        reason = next((text for kind, text in _REASONS if isinstance(error, kind)), f"broken image file ({error})")
        text = str(error)
        raise ImageError(text if text.startswith(f"{path} ") else f"{path}: {reason}") from error


def _flat(image: Image.Image) -> Image.Image:
    """Return an opaque 8-bit image, greyscale or RGB in any of their forms."""
    if image.mode.startswith("I"):  # 16 bits; Pillow scales the 16-bit files it opens as "I" to the same range
        values = np.asarray(image)
        grey = (values.astype(np.float32).clip(0, 65535) / 257 + 0.5).astype(np.uint8)
        return Image.fromarray(np.where(values == image.info.get("transparency", -1), np.uint8(255), grey))
    if image.mode == "F":
        values = np.nan_to_num(np.asarray(image))
        unit = values.min() >= 0 and values.max() <= 1  # in [0, 255] it would be black
        return Image.fromarray((values * 255 + 0.5 if unit else values.clip(0, 255)).astype(np.uint8))
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
