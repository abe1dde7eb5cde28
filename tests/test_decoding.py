"""The training's test path and the user's `load_image` see the same pixels."""

import io
import sys

import numpy as np
import pytest
from PIL import Image, ImageFilter

from keras_highway._support.backend import tensorflow
from keras_highway.data import load_image
from keras_highway.data.images import decode_image
from keras_highway.data.photographs import Photograph, read_batches
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.data.augment import Augment, decoded
from keras_highway.training.data.folders import CentralCrop, FolderSource
from keras_highway.training.data.samples import Shard
from keras_highway.training.recipe import changed
from keras_highway.training.recipes import RECIPES

SIZES = [(500, 375), (375, 500), (224, 224), (640, 427), (333, 1000), (50, 40), (256, 256), (2000, 100), (237, 1023)]
SIZES.append((301, 299))


def encoded(size, kind) -> bytes:
    """Noise as PNG, where a single pixel's shift shows most, or smoothed as JPEG, as photographs are."""
    draw = np.random.default_rng(size[0])
    image = Image.fromarray(draw.integers(0, 256, (size[1], size[0], 3), np.uint8))
    file = io.BytesIO()
    (image.filter(ImageFilter.GaussianBlur(2)) if kind == "jpeg" else image).save(file, kind)
    return file.getvalue()


def test_photographs_without_tensorflow_name_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match=r"reads photographs.*keras-highway\[tensorflow\]"):
        tensorflow.__wrapped__()


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("name", ["imagenet", "imagenet_875"])
def test_both_paths_give_the_same_input(name, kind, tmp_path):
    """TensorFlow resizes in floating point, Pillow in two passes of whole numbers: they round differently."""
    transform = TRANSFORMS[name]
    crop = CentralCrop(transform)
    for size in SIZES:
        data = encoded(size, kind)
        (tmp_path / "image").write_bytes(data)
        user = transform.apply(load_image(tmp_path / "image", transform))
        training = crop(tensorflow().constant(data), None).numpy()
        assert training.shape == user.shape == (224, 224, 3)
        assert np.abs(training - user).mean() < 0.01, size  # of the network's input, whose deviation is about 1


def test_every_reader_turns_photographs_upright(tmp_path):
    transform, path = TRANSFORMS["imagenet_64"], tmp_path / "image.jpeg"
    pixels = np.zeros((90, 120, 3), np.uint8)
    pixels[:, :60, 0] = pixels[:45, :, 1] = 255  # each corner has its colour
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(path, exif=exif, quality=95)
    turned = Image.fromarray(np.rot90(pixels, {3: 2, 6: -1}[6]))
    buffer = io.BytesIO()
    turned.save(buffer, "png")
    expected = load_image(buffer, transform)
    content = tensorflow().constant(path.read_bytes())
    tested = CentralCrop(transform)(content, None).numpy()
    (batch,) = read_batches([Photograph(path, 0)], transform, 1)
    assert np.abs(tested - transform.apply(expected)).mean() < 0.05
    assert np.abs(batch.pixels[0].astype(int) - expected).mean() < 3
    whole = Augment((64, 64), crop_scale=1.0)  # its corners tell what is up
    crop = whole._crop(content, tensorflow().constant([0, 0, 0])).numpy()
    assert crop.shape[0] >= crop.shape[1]
    corners = [[np.rot90(pixels, {3: 2, 6: -1}[6])[y, x] for x in (0, -1)] for y in (0, -1)]
    np.testing.assert_allclose([[crop[y, x] for x in (0, -1)] for y in (0, -1)], corners, atol=12)


@pytest.mark.parametrize(
    ("name", "image", "size"),
    [
        ("imagenet", (375, 500), (235, 313)),
        ("imagenet_875", (375, 500), (256, 341)),
        ("imagenet_875", (40, 30), (341, 256)),
    ],
)
def test_sizes_before_the_crop(name, image, size):
    """By torchvision's rule: the shorter side gets the size, the longer int(size * long / short)."""
    assert TRANSFORMS[name].resized(*image) == size
    tf = tensorflow()
    assert tuple(int(n) for n in TRANSFORMS[name].resized(*map(tf.constant, image), tf.maximum)) == size


def test_he_et_als_schedule_is_tested_with_their_crop():
    assert {RECIPES[name].transform for name in ("highway50_uie", "resnet50_uie_nobn", "highway50")} == {"imagenet_875"}
    assert RECIPES["highway50_a2"].transform == "imagenet" and TRANSFORMS["imagenet"].crop == 0.95
    assert TRANSFORMS["imagenet_875"].crop == 0.875


def _cut_out(colour: tuple[int, int, int]) -> Image.Image:
    """A coloured square on transparent black."""
    image = Image.new("RGBA", (80, 80), (0, 0, 0, 0))
    image.paste((*colour, 255), (20, 20, 60, 60))
    return image


FILES = {
    "cut-out.png": _cut_out((200, 30, 60)),
    "cut-out.webp": _cut_out((20, 130, 60)),
    "palette.png": _cut_out((20, 30, 160)).quantize(8),
    "deep.png": Image.fromarray((np.arange(6400).reshape(80, 80) * 10).astype(np.uint16)),
}


@pytest.mark.parametrize("name", FILES)
def test_all_kinds_of_files_have_the_same_pixels_in_training_and_use(name, tmp_path):
    """Transparent parts are white, whatever colour lies below; palettes are looked up; WebP is read."""
    transform, path = TRANSFORMS["imagenet_64"], tmp_path / name
    FILES[name].save(path, **({"lossless": True} if name.endswith("webp") else {}))
    tf, user = tensorflow(), load_image(path, TRANSFORMS["imagenet_64"])
    tested = CentralCrop(transform)(tf.constant(path.read_bytes()), None).numpy()
    assert np.abs(tested - transform.apply(user)).mean() < 0.02
    if name.startswith("cut-out"):
        assert (user[0, 0] == 255).all()
    # Pixel by pixel before any resizing, also of one channel, in a pipeline as outside of it.
    for channels, mode in ((3, "RGB"), (1, "L")):
        whole = decode_image(path, channels)
        assert whole.shape == (*FILES[name].size[::-1], channels) and whole.dtype == np.uint8
        data = tf.data.Dataset.from_tensors(path.read_bytes()).map(lambda x, c=channels: decoded(x, c))
        (piped,) = data.as_numpy_iterator()
        np.testing.assert_array_equal(piped, whole)
        np.testing.assert_array_equal(decoded(path.read_bytes(), channels).numpy(), whole)
        if FILES[name].mode in ("L", "RGB"):
            np.testing.assert_array_equal(whole.squeeze(), np.asarray(FILES[name].convert(mode)))


@pytest.mark.parametrize("content", [b"no image", encoded((40, 30), "png")[:500]])
def test_broken_files_are_named(content, tmp_path):
    for split in ("train", "val"):
        for name in "ab":
            (tmp_path / split / name).mkdir(parents=True)
            (tmp_path / split / name / "1.webp").write_bytes(content)
    recipe = RECIPES["highway50_imagenette"]
    source = FolderSource(changed(recipe, holdout_images=None), tmp_path)
    with pytest.raises(
        ValueError, match=rf"{tmp_path}/val/a/1.webp cannot be read: (not an|broken) image file.*\. Replace"
    ):
        next(source.test_batches(2, Shard()))
