"""The training's test path and the user's `load_image` see the same pixels."""

import io
import sys
import types

import numpy as np
import pytest
from PIL import Image, ImageFilter

from keras_highway._support.backend import tensorflow
from keras_highway.data import load_image, photographs
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


@pytest.mark.parametrize("used_before", [False, True])
def test_tensorflow_datasets_are_opened_after_the_gpus_are_hidden(used_before, monkeypatch):
    """TensorFlow takes all GPUs that it sees with the first thing that it reads: JAX or PyTorch has them."""
    calls = []

    def set_visible_devices(devices, kind):
        calls.append((devices, kind))
        if used_before:
            raise RuntimeError("Visible devices cannot be modified after being initialized")

    library = types.SimpleNamespace(
        core=types.SimpleNamespace(registered=types.SimpleNamespace(DatasetNotFoundError=LookupError)),
        builder=lambda name, data_dir: calls.append(name) or types.SimpleNamespace(is_prepared=lambda: True),
    )
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", library)
    monkeypatch.setattr("tensorflow.config.set_visible_devices", set_visible_devices)
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setattr(photographs, "tensorflow", tensorflow.__wrapped__)
    photographs.tfds_builder("striped", None, "--tfds")
    assert calls == [([], "GPU"), "striped"]


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


@pytest.mark.parametrize("orientation", [3, 6])
def test_every_reader_turns_photographs_upright(tmp_path, orientation):
    transform, path = TRANSFORMS["imagenet_64"], tmp_path / "image.jpeg"
    pixels = np.zeros((90, 120, 3), np.uint8)
    pixels[:, :60, 0] = pixels[:45, :, 1] = 255  # each corner has its colour
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif, quality=95)
    turned = Image.fromarray(np.rot90(pixels, {3: 2, 6: -1}[orientation]))
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
    assert crop.shape[0] >= crop.shape[1] if orientation == 6 else crop.shape[1] >= crop.shape[0]
    corners = [[np.rot90(pixels, {3: 2, 6: -1}[orientation])[y, x] for x in (0, -1)] for y in (0, -1)]
    np.testing.assert_allclose([[crop[y, x] for x in (0, -1)] for y in (0, -1)], corners, atol=12)


@pytest.mark.parametrize(
    ("name", "image", "size"),
    [
        ("imagenet", (375, 500), (235, 313)),  # floor(224 / 0.95) = 235; 235 * 500 / 375 = 313.3
        ("imagenet", (500, 375), (313, 235)),
        ("imagenet", (300, 300), (235, 235)),
        ("imagenet_875", (375, 500), (256, 341)),  # 224 / 0.875 = 256; 256 * 500 / 375 = 341.3
        ("imagenet_875", (40, 30), (341, 256)),
    ],
)
def test_sizes_before_the_crop(name, image, size):
    """By torchvision's rule: the shorter side gets the size, the longer int(size * long / short)."""
    assert TRANSFORMS[name].resized(*image) == size
    tf = tensorflow()
    assert tuple(int(n) for n in TRANSFORMS[name].resized(*map(tf.constant, image), tf.maximum)) == size


def test_margins_round_as_python_does():
    for side in range(224, 240):
        assert TRANSFORMS["imagenet"].margin(side, 224) == round((side - 224) / 2)


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
    "palette.png": _cut_out((20, 30, 160)).quantize(8),  # with a transparent entry
    "palette.bmp": _cut_out((9, 99, 199)).convert("RGB").quantize(16),
    "first.gif": _cut_out((90, 200, 10)),
    "grey.bmp": Image.linear_gradient("L"),  # ends with zeros, which belong to it
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


def test_training_crops_are_of_the_same_pixels(tmp_path):
    """A whole-image crop of a cut-out has white corners, in one copy and in several."""
    path = tmp_path / "cut-out.png"
    FILES["cut-out.png"].save(path)
    augment, tf = Augment((64, 64), crop_scale=1.0), tensorflow()
    seeds = tf.constant([[1, 2], [1, 3]], tf.int64)
    copies = augment.copies(tf.constant(path.read_bytes()), seeds).numpy()
    assert (copies[:, 0, 0] == 255).all()
    np.testing.assert_array_equal(copies[0], augment(tf.constant(path.read_bytes()), seeds[0]).numpy())


@pytest.mark.parametrize("content", [b"", b"no image", encoded((40, 30), "png")[:500]])
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
