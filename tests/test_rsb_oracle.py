"""The procedures of "ResNet strikes back" against timm and torchvision.

`oracles/make_rsb_goldens.py` ran those once and stored what they did. No PyTorch here.
"""

import dataclasses
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import ops
from PIL import Image

from keras_highway.training.data.augment import OPERATIONS, Augment, Context, argument, random_crop
from keras_highway.training.data.samples import cut_box, epoch_samples, mixed, partners, repeated
from keras_highway.training.optimizers import DecayedLamb, make_schedule
from keras_highway.training.program import clipped, make_loss
from keras_highway.training.recipes import RECIPES
from tests.miniatures import numpy

FILL = (124, 116, 104)
BASE = RECIPES["highway50_a2"]


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parent / "oracles" / "goldens" / "rsb.npz") as file:
        return dict(file)


def tensor(value, dtype="float32"):
    return ops.convert_to_tensor(np.asarray(value, dtype))


def operated(name, image, magnitude, negative, resample=Image.Resampling.BICUBIC):
    value = argument(name, magnitude, negative)
    return np.asarray(OPERATIONS[name].apply(Image.fromarray(image), value, Context(FILL, resample))).astype(int)


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_timms_within_one_level(golden, name):
    image, timms = golden["image"], golden[f"op_{name}"].astype(int)
    magnitudes = np.minimum(golden["magnitudes"][: timms.shape[1]], 9.9 if name == "Posterize" else 10.0)
    actual = np.array([[operated(name, image, m, negative) for m in magnitudes] for negative in (False, True)])
    assert timms.shape[:2] == (2, 1 if name in ("AutoContrast", "Equalize", "Invert") else 10)
    assert np.abs(actual - timms).max() <= 1
    assert np.abs(actual[:, -1] - image.astype(int)).max() > 10  # and it does something


def test_bilinear_operations_are_timms(golden):
    actual = operated("Rotate", golden["image"], 6.5, False, Image.Resampling.BILINEAR)
    assert np.abs(actual - golden["bilinear_Rotate"]).max() <= 1


def test_lamb_is_timms_over_ten_steps(golden):
    names = ("kernel", "zeros", "bias")
    variables = [keras.Variable(golden[f"lamb_start_{name}"].astype("float32"), name=name) for name in names]
    optimizer = DecayedLamb(0.0, decay=0.02)
    optimizer.build(variables)
    norms = []
    for step, rate in enumerate(golden["lamb_rates"]):
        gradients = [golden[f"lamb_gradients_{name}"][step] for name in names]
        norms.append(np.sqrt(sum((g**2).sum() for g in gradients)))
        optimizer.learning_rate = rate
        optimizer.apply(clipped([tensor(g) for g in gradients], BASE.clip_norm))
        for name, variable in zip(names, variables, strict=True):
            for oracle in (golden[f"lamb32_{name}"], golden[f"lamb64_{name}"]):
                np.testing.assert_allclose(numpy(variable), oracle[step], rtol=0, atol=1e-6, err_msg=name)
    assert min(norms) < BASE.clip_norm == 1 < max(norms)  # some were clipped


def test_cut_boxes_and_their_shares_are_timms(golden):
    for height, width, share, row, column, *box, corrected in golden["boxes"]:
        top, bottom, left, right = actual = cut_box(int(height), int(width), share, int(row), int(column))
        assert actual == tuple(box)
        assert 1 - (bottom - top) * (right - left) / (height * width) == pytest.approx(corrected)


# timm mixes sample i with the one at n - 1 - i; in this order these are neighbours here.
PAIRED = [0, 7, 1, 6, 2, 5, 3, 4]


def mixing_row(kind):
    """The draws of the golden file: a centre (2, 5) in images of 6 x 7."""
    if kind == "mixup":
        return [0.3, 0.3, 0, 0, 0, 0]
    top, bottom, left, right = cut_box(6, 7, 0.6, 2, 5)
    return [1 - (bottom - top) * (right - left) / 42, 1.0, top, bottom, left, right]


@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_mixed_images_are_timms(golden, kind):
    rows = np.tile(mixing_row(kind), (8, 1))
    actual = numpy(mixed(tensor(golden["mix_images"][PAIRED]), tensor(rows), 1))
    np.testing.assert_allclose(actual, golden[f"mix_{kind}"][PAIRED], atol=1e-6)


@pytest.mark.parametrize("threshold", [None, 0.2])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["mixup", "cutmix"])
def test_losses_of_mixed_targets_are_timms(golden, kind, smoothing, threshold):
    recipe = dataclasses.replace(BASE, label_smoothing=smoothing, target_threshold=threshold)
    labels = tensor(golden["mix_labels"][PAIRED], "int32")
    mix = partners(labels, 1), tensor([mixing_row(kind)[0]] * 8)
    actual = numpy(make_loss(recipe, 5)(labels, tensor(golden["mix_logits"][PAIRED]), mix))
    expected = golden[f"mix_{kind}_loss{smoothing}_{threshold}"]
    assert actual.mean() == pytest.approx(float(expected), rel=1e-5)
    # The targets themselves: the losses of logits -1 and 1 in one class differ by (2 * target - 1) / classes.
    one_hot = np.eye(5, dtype=np.float32)
    targets = [
        numpy(make_loss(recipe, 5)(labels, tensor(np.tile(-unit, (8, 1))), mix))
        - numpy(make_loss(recipe, 5)(labels, tensor(np.tile(unit, (8, 1))), mix))
        for unit in one_hot
    ]
    soft = golden[f"mix_{kind}_targets{smoothing}"][PAIRED]
    soft = soft if threshold is None else soft > threshold
    np.testing.assert_allclose(np.stack(targets, 1) * 5 / 2 + 0.5, soft, atol=1e-5)


@pytest.mark.parametrize("procedure", ["a1", "a2", "a3"])
def test_schedules_are_timms_step_by_step(golden, procedure):
    schedule = make_schedule(RECIPES[f"resnet50_{procedure}"], 7)
    expected = golden[f"rates_{procedure}"]
    actual = numpy(schedule(np.arange(7 * len(expected))))
    np.testing.assert_allclose(actual, np.repeat(expected, 7), rtol=1e-6)
    assert float(schedule(7 * len(expected))) == pytest.approx(1e-6)


def test_a_cosine_of_steps_is_timms_with_the_warm_up_before_it(golden):
    recipe = dataclasses.replace(BASE, schedule="cosine", epochs=14, warmup_epochs=2)
    schedule = make_schedule(recipe, 5)
    np.testing.assert_allclose([float(schedule(step)) for step in range(70)], golden["rates_steps"], rtol=2e-5)


@pytest.mark.parametrize("shape", ["375x500", "500x333", "100x300"])
def test_crops_are_distributed_as_torchvisions(golden, shape):
    height, width = map(int, shape.split("x"))
    draw, n = np.random.default_rng(0), 4000
    top, left, h, w = np.array([random_crop(height, width, draw) for _ in range(n)]).T
    assert (top >= 0).all() and (left >= 0).all() and (top + h <= height).all() and (left + w <= width).all()
    for i, actual in enumerate((h * w / (height * width), np.log(w / h), top, left)):
        # Rounded: where no crop fits, thousands have the same area and aspect, to a few bits.
        actual, quantiles = (np.round(values.astype(np.float64), 5) for values in (actual, golden[f"crop_{shape}"][i]))
        # Kolmogorov and Smirnov's distance; 1.95 / sqrt(n) is exceeded with a chance of 0.1 %.
        levels = np.linspace(0, 1, len(quantiles))
        own = np.sort(actual)
        above = np.searchsorted(own, quantiles, "right") / n
        below = np.searchsorted(own, quantiles, "left") / n
        assert max((levels - above).max(), (below - levels).max()) < 1.95 / np.sqrt(n) + 1 / len(quantiles)


def test_resized_crops_are_torchvisions(golden):
    augment = Augment((16, 16))
    for (top, left, height, width), expected in zip(golden["crop_boxes"], golden["crop_resized"], strict=True):
        crop = golden["crop_image"][top : top + height, left : left + width]
        seed = next(s for s in range(99) if np.random.default_rng((0, s, 3, 1)).random() >= 0.5)  # not mirrored
        np.testing.assert_array_equal(augment.finished(crop, np.array([0, seed])), expected)


@pytest.mark.parametrize("case", [(300, 1, 3), (300, 4, 3), (1000, 2, 3), (1000, 8, 3), (100, 2, 3), (517, 3, 2)])
def test_repeated_samples_are_timms(golden, case):
    """timm's replica i of r has the samples i, i + r, ... of our order."""
    images, replicas, copies = case
    actual, expected = repeated(np.arange(images), copies), golden[f"sampler_{images}_{replicas}_{copies}"]
    assert len(actual) == epoch_samples(images, copies)
    for rank in range(replicas):
        # An epoch that does not divide by the replicas loses its rest there.
        np.testing.assert_array_equal(actual[rank::replicas][: expected.shape[1]], expected[rank])
    assert 0 <= len(actual) - expected.size < replicas


@pytest.mark.parametrize(("copies", "parts", "distance"), [(1, 1, 1), (3, 1, 4), (3, 2, 2), (3, 8, 1), (1, 8, 1)])
def test_partners_are_never_copies_and_never_parted(copies, parts, distance):
    """Each replica computes a contiguous part of a batch, in it every so-many-th sample at a time."""
    recipe = dataclasses.replace(BASE, repeated_augmentation=copies, micro_batches=parts)
    assert recipe.partner_distance == distance
    batch = np.arange(64)
    whole = {}
    for replicas in (1, 2, 4):
        own = {}
        for part in batch.reshape(replicas, -1):
            for i in range(parts):
                mine = part[i::parts]
                own.update(zip(mine.tolist(), numpy(partners(tensor(mine, "int32"), distance)).tolist(), strict=True))
        whole = whole or own
        assert own == whole and sorted(own.values()) == batch.tolist()
    assert all(whole[whole[i]] == i and abs(i - whole[i]) >= copies for i in whole)
