"""Image files of every kind -> the right pixels, or an error that names the file."""

import io
import struct
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from keras_highway.data import ImageError, load_image, sample_digits
from keras_highway.data.transforms import CIFAR, IMAGENET, MNIST

GREY = replace(MNIST, size=(8, 8))
RGB = replace(CIFAR, size=(8, 8))
RED, WHITE, BLACK = (255, 0, 0), (255, 255, 255), (0, 0, 0)


def ramp(width=8, height=8) -> np.ndarray:
    """Grey values that grow from left to right and from top to bottom, all different."""
    return np.arange(width * height, dtype=np.uint8).reshape(height, width) * (255 // (width * height))


def save(image, path, **kwargs):
    image.save(path, **kwargs)
    return path


def test_greyscale_is_returned_as_it_is(tmp_path):
    path = save(Image.fromarray(ramp()), tmp_path / "l.png")
    pixels = load_image(path, GREY)
    assert pixels.shape == (8, 8, 1) and pixels.dtype == np.uint8
    np.testing.assert_array_equal(pixels[..., 0], ramp())


def test_rgb_becomes_luma(tmp_path):
    pixels = load_image(save(Image.new("RGB", (8, 8), RED), tmp_path / "red.png"), GREY)
    assert (pixels == 76).all()  # ITU-R 601: 0.299 * 255


@pytest.mark.parametrize(
    "image",
    [
        Image.new("RGBA", (8, 8), (255, 0, 0, 0)),
        Image.new("LA", (8, 8), (0, 0)),
        Image.new("PA", (8, 8), (0, 0)),
    ],
    ids=lambda image: image.mode,
)
def test_transparent_parts_are_white(tmp_path, image):
    path = save(image, tmp_path / "transparent.tif" if image.mode == "PA" else tmp_path / "transparent.png")
    assert (load_image(path, RGB) == 255).all()


def test_16_bit_is_scaled_to_8(tmp_path):
    values = np.array([[0, 257, 128 * 257, 65535]] * 8, np.uint16).repeat(2, axis=1)
    path = save(Image.fromarray(values), tmp_path / "i16.png")
    np.testing.assert_array_equal(load_image(path, GREY)[0, ::2, 0], [0, 1, 128, 255])
    np.testing.assert_array_equal(load_image(path, RGB)[0, ::2, 1], [0, 1, 128, 255])


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path, orientation):
    """The stored pixels are those a camera held that way writes; the picture is always the same."""
    upright = ramp(8, 8)
    stored = {
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.T,
        6: np.rot90(upright),
        7: upright[::-1, ::-1].T,
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(Image.fromarray(np.ascontiguousarray(stored)), tmp_path / "turned.png", exif=exif)
    np.testing.assert_array_equal(load_image(path, GREY)[..., 0], upright)


def test_a_wide_image_is_cropped_at_the_centre(tmp_path):
    image = Image.new("RGB", (24, 8), BLACK)
    image.paste(RED, (8, 0, 16, 8))
    assert (load_image(save(image, tmp_path / "wide.png"), RGB) == RED).all()


@pytest.mark.parametrize("size", [(1, 60_000)])
def test_a_huge_aspect_ratio_shows_its_centre_in_little_memory(tmp_path, size):
    """Resized as a whole, the first two would take 9 GB."""
    values = np.zeros(max(size), np.uint8)
    values[len(values) * 45 // 100 : len(values) * 55 // 100] = 255
    image = Image.fromarray(np.broadcast_to(values[:, None] if size[1] > size[0] else values, size[::-1]).copy())
    pixels = load_image(save(image, tmp_path / "long.png"), IMAGENET)
    assert pixels.shape == (224, 224, 3)
    assert (pixels == 255).all()


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (333, 1000)])
def test_resize_and_crop_are_torchvisions(tmp_path, size):
    """As timm's and torchvision's Resize(floor(224 / 0.95)) and CenterCrop(224) round, on the same Pillow filter."""
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    image = Image.fromarray(noise)
    short, long = 235, int(235 * max(size) / min(size))
    resized = image.resize((short, long) if size[0] < size[1] else (long, short), Image.Resampling.BICUBIC)
    left, top = round((resized.width - 224) / 2), round((resized.height - 224) / 2)
    expected = np.asarray(resized)[top : top + 224, left : left + 224]
    np.testing.assert_array_equal(load_image(save(image, tmp_path / "noise.png"), IMAGENET), expected)


def test_files_that_are_no_images(tmp_path):
    text, empty = tmp_path / "text.png", tmp_path / "empty.jpg"
    text.write_text("not an image")
    empty.touch()
    for path, message in (
        (text, "text.png: not an image file"),
        (empty, "empty.jpg: not an image file"),
        (tmp_path / "absent.png", "absent.png: no such image file"),
        (tmp_path, "a folder, not an image file"),
    ):
        with pytest.raises(ImageError, match=message):
            load_image(path, RGB)


@pytest.mark.parametrize("suffix", ["png", "jpg", "gif"])
@pytest.mark.filterwarnings("ignore")  # Pillow warns of odd metadata
def test_damaged_files_give_an_image_or_an_image_error(tmp_path, suffix):
    """Flipped bytes and cuts anywhere: no other exception, and never an image of a wrong shape."""
    rng = np.random.default_rng(0)
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = io.BytesIO()
    image = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
    Image.init()
    image.save(
        buffer, Image.EXTENSION[f".{suffix}"], **({"exif": exif} if suffix in ("png", "jpg", "tif", "webp") else {})
    )
    whole = np.frombuffer(buffer.getvalue(), np.uint8)
    path, outcomes = tmp_path / f"damaged.{suffix}", set()
    for turn in range(150):
        damaged = whole.copy()[: None if turn % 2 else rng.integers(1, len(whole))]
        spots = rng.integers(0, len(damaged), rng.integers(0, 4))
        damaged[spots] = rng.integers(0, 256, len(spots))
        path.write_bytes(damaged.tobytes())
        try:
            assert load_image(path, RGB).shape == (8, 8, 3)
            outcomes.add("read")
        except ImageError as error:
            assert f"damaged.{suffix}" in str(error)
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize("shape", [(80_000_000, 1), (8193, 8192), (2**31 - 1, 9)])
def test_too_many_pixels_are_refused_before_memory_is_taken(tmp_path, shape):
    path = tmp_path / "large.png"
    path.write_bytes(png_header(*shape))
    start = time.process_time()
    with pytest.raises(
        ImageError, match=r"large.png: too large: images of at most 67,108,864 pixels and 65,536 per side are read"
    ):
        load_image(path, GREY)
    assert time.process_time() - start < 0.5


def png_header(width, height) -> bytes:
    """A PNG that declares a size and holds nothing."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    data = b"IDAT" + zlib.compress(b"")
    chunks = (struct.pack(">I", len(c) - 4) + c + struct.pack(">I", zlib.crc32(c)) for c in (body, data))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_sample_digits_are_ten_images_of_mnist():
    paths = sample_digits()
    assert [path.name for path in paths] == [f"digit_{k}.png" for k in range(10)]
    assert {load_image(path, MNIST).shape for path in paths} == {(28, 28, 1)}
