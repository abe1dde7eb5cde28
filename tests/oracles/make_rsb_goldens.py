"""Makes `goldens/rsb.npz` again: what timm and torchvision do in the procedures of "ResNet strikes back".

In the environment of `make_goldens.py`, from the root of the repository:

    .torchenv/bin/python tests/oracles/make_rsb_goldens.py

Keys: `image`, `op_*` (RandAugment's operations, `(sign, magnitude, ...)` of
`magnitudes`, positive first), `lamb_*` (ten steps), `boxes` and `mix_*` (Mixup, CutMix and
the loss on their targets), `rates_*` (schedules), `crop_*` (quantiles of crops,
and resized crops), `sampler_*` (repeated augmentation).
"""

import random
import sys
import types
from pathlib import Path

import numpy as np
import torch

# See make_goldens.py.
sys.modules["torchvision._meta_registrations"] = types.ModuleType("stub")

import PIL  # noqa: E402
import timm  # noqa: E402
import torchvision  # noqa: E402
from PIL import Image  # noqa: E402
from timm.data import auto_augment, mixup  # noqa: E402
from timm.data.distributed_sampler import RepeatAugSampler  # noqa: E402
from timm.loss import BinaryCrossEntropy  # noqa: E402
from timm.optim import create_optimizer_v2  # noqa: E402
from timm.scheduler import CosineLRScheduler  # noqa: E402
from torchvision.transforms import InterpolationMode, RandomResizedCrop  # noqa: E402
from torchvision.transforms import functional as vision  # noqa: E402

FILL = (124, 116, 104)
MAGNITUDES = np.array([0.0, 1.0, 2.2, 3.3, 4.5, 5.7, 6.5, 7.4, 8.8, 10.0])
MOST_OF_POSTERIZE = 9.9  # at 10 timm asks for 0 bits, which Pillow 13 refuses
PLAIN = ("AutoContrast", "Equalize", "Invert")  # without a magnitude


def photo(height, width, seed):
    """A smooth random image of a limited range of colours: one of full range would hide AutoContrast."""
    draw = np.random.default_rng(seed)
    image = np.zeros((height, width, 3))
    for cells in (3, 6, 12):
        noise = draw.normal(size=(cells, cells, 3)).astype(np.float32)
        planes = [Image.fromarray(noise[..., c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        image += np.stack([np.asarray(plane) for plane in planes], axis=-1) * 40 / cells**0.5
    return np.clip(120 + image, 12, 235).astype(np.uint8)


def rand_augment(golden):
    """Every operation at ten magnitudes, with either sign, bicubic, and the geometric ones bilinear at one."""
    image = golden["image"] = photo(16, 24, 0)
    golden["magnitudes"] = MAGNITUDES
    for name in auto_augment._RAND_INCREASING_TRANSFORMS:
        short = name.replace("Increasing", "")
        magnitudes = MAGNITUDES[:1] if name in PLAIN else MAGNITUDES
        most = MOST_OF_POSTERIZE if short == "Posterize" else MAGNITUDES[-1]
        results = [[operated(name, image, min(m, most), sign, "bicubic") for m in magnitudes] for sign in (False, True)]
        golden[f"op_{short}"] = np.stack(results)
    for name in ("Rotate", "ShearX", "TranslateYRel"):
        golden[f"bilinear_{name}"] = operated(name, image, 6.5, False, "bilinear")


def operated(name, image, magnitude, negative, interpolation):
    """One of timm's operations with its draws fixed."""
    resample = getattr(Image.Resampling, interpolation.upper())
    operation = auto_augment.AugmentOp(name, 1.0, magnitude, {"img_mean": FILL, "interpolation": resample})
    drawn, random.random = random.random, lambda: 0.9 if negative else 0.1
    try:
        return np.asarray(operation(Image.fromarray(image)))
    finally:
        random.random = drawn


def lamb(golden):
    """Ten steps of a kernel, a kernel of zeros and a bias, with rates of a warm-up; some gradients are clipped."""
    for dtype in (torch.float32, torch.float64):
        draw = np.random.default_rng(3)
        start = {"kernel": draw.normal(size=(4, 5)), "zeros": np.zeros((3, 3)), "bias": draw.normal(size=6)}
        net = torch.nn.ParameterDict({k: torch.tensor(v, dtype=dtype) for k, v in start.items()})
        optimizer = create_optimizer_v2(net, opt="lamb", lr=5e-3, weight_decay=0.02)
        gradients = {k: draw.normal(size=(10, *v.shape)) * np.logspace(-1.5, 0.5, 10).reshape(-1, *[1] * v.ndim)
                     for k, v in start.items()}  # fmt: skip
        rates = np.linspace(1e-3, 5e-3, 10)
        path = {k: [] for k in start}
        for step in range(10):
            for name, parameter in net.items():
                parameter.grad = torch.tensor(gradients[name][step], dtype=dtype)
            for group in optimizer.param_groups:
                group["lr"] = rates[step]
            optimizer.step()
            for name, parameter in net.items():
                path[name].append(parameter.detach().numpy().copy())
        bits = str(dtype)[-2:]
        golden.update({f"lamb{bits}_{k}": np.stack(v) for k, v in path.items()})
    golden.update({f"lamb_start_{k}": v for k, v in start.items()})
    golden.update({f"lamb_gradients_{k}": v for k, v in gradients.items()})
    golden["lamb_rates"] = rates


def mixing(golden):
    """Boxes from fixed draws, a mixed batch of either kind, targets and losses."""
    draw = np.random.default_rng(4)
    rows = []
    for lam in draw.beta(1.0, 1.0, 100):
        height, width = draw.choice([8, 64, 160, 224]), draw.choice([8, 64, 160, 224])
        row, column = draw.integers(height), draw.integers(width)
        rows.append((height, width, lam, row, column, *boxed(height, width, lam, row, column)))
    golden["boxes"] = np.array(rows)
    images, labels = draw.normal(size=(8, 3, 6, 7)).astype(np.float32), np.array([0, 3, 1, 4, 2, 2, 4, 1])
    logits = draw.normal(size=(8, 5)).astype(np.float32)
    golden.update(mix_images=images.transpose(0, 2, 3, 1), mix_labels=labels, mix_logits=logits)
    for kind, lam in (("mixup", 0.3), ("cutmix", 0.6)):
        for smoothing in (0.0, 0.1):
            made = mixup.Mixup(0.1, 1.0, label_smoothing=smoothing, num_classes=5)
            made._params_per_batch = lambda lam=lam, kind=kind: (lam, kind == "cutmix")
            with drawn_integers(2, 5):
                mixed, targets = made(torch.tensor(images), torch.tensor(labels))
            golden[f"mix_{kind}"] = mixed.numpy().transpose(0, 2, 3, 1)
            golden[f"mix_{kind}_targets{smoothing}"] = targets.numpy()
            for threshold in (None, 0.2):
                loss = BinaryCrossEntropy(smoothing=smoothing, target_threshold=threshold)
                golden[f"mix_{kind}_loss{smoothing}_{threshold}"] = loss(torch.tensor(logits), targets).numpy()


class drawn_integers:  # noqa: N801 (a context manager)
    """Within it timm's boxes have this centre."""

    def __init__(self, row, column):
        self._values = iter((row, column))

    def __enter__(self):
        self._own, mixup.np.random.randint = np.random.randint, lambda *_, **__: next(self._values)

    def __exit__(self, *_):
        mixup.np.random.randint = self._own


def boxed(height, width, lam, row, column):
    """timm's box and corrected lambda."""
    with drawn_integers(row, column):
        box, corrected = mixup.cutmix_bbox_and_lam((3, height, width), lam)
    return *box, corrected


def schedules(golden):
    """A1, A2 and A3 by epoch, and a schedule by step whose cosine begins after the warm-up."""
    procedures = {"a1": (600, 5e-3), "a2": (300, 5e-3), "a3": (100, 8e-3)}
    for name, (epochs, rate) in procedures.items():
        golden[f"rates_{name}"] = rates(rate, epochs, t_initial=epochs, warmup_t=5, warmup_lr_init=1e-4, lr_min=1e-6)
    golden["rates_steps"] = rates(
        5e-3, 70, t_initial=60, warmup_t=10, warmup_lr_init=1e-4, lr_min=1e-6, warmup_prefix=True
    )


def rates(rate, count, **arguments):
    """A schedule's rates."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=rate)
    schedule = CosineLRScheduler(optimizer, **arguments)
    return np.array([schedule._get_lr(t)[0] for t in range(count)])


def crops(golden):
    """Quantiles of torchvision's crops over three shapes of images, and resized crops of one image."""
    torch.manual_seed(0)
    for height, width in ((375, 500), (500, 333), (100, 300)):
        image = torch.zeros((3, height, width), dtype=torch.uint8)
        parameters = [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(40_000)]
        top, left, h, w = np.array(parameters, np.float64).T
        measures = np.stack([h * w / (height * width), np.log(w / h), top, left])
        golden[f"crop_{height}x{width}"] = np.quantile(measures, np.linspace(0, 1, 401), axis=1).T.astype(np.float32)
    image = golden["crop_image"] = photo(37, 50, 1)
    boxes = golden["crop_boxes"] = np.array([(0, 0, 37, 50), (3, 7, 30, 22), (20, 31, 9, 12), (1, 2, 5, 45)])
    golden["crop_resized"] = np.stack(
        [vision.resized_crop(Image.fromarray(image), *box, (16, 16), InterpolationMode.BICUBIC) for box in boxes]
    )


def sampler(golden):
    """Indices of timm's sampler without a shuffle, i.e. positions in the permutation."""
    for images, replicas, copies in ((300, 1, 3), (300, 4, 3), (1000, 2, 3), (1000, 8, 3), (100, 2, 3), (517, 3, 2)):
        indices = [
            list(RepeatAugSampler(range(images), replicas, rank, shuffle=False, num_repeats=copies))
            for rank in range(replicas)
        ]
        golden[f"sampler_{images}_{replicas}_{copies}"] = np.array(indices, np.int16)


if __name__ == "__main__":
    made = {}
    for part in (rand_augment, lamb, mixing, schedules, crops, sampler):
        part(made)
    versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}, timm {timm.__version__}"
    made["versions"] = np.array(f"{versions}, Pillow {PIL.__version__}, numpy {np.__version__}")
    path = Path(__file__).parent / "goldens" / "rsb.npz"
    np.savez_compressed(path, **made)
    print(f"{path}: {path.stat().st_size} bytes, {len(made)} arrays; {made['versions']}")
