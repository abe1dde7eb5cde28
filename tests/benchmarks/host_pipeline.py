"""Images a second of CPU that the host makes of photographs, ours and timm's loader in turn, on one core.

    taskset -c 0 .venv/bin/python -m tests.benchmarks.host_pipeline DIR [--timm .torchenv/bin/python] [--rounds 3]
    .venv/bin/python -m tests.benchmarks.host_pipeline DIR --make PHOTOGRAPHS  # before, for files like ImageNet's

DIR holds train/CLASS/* and val/CLASS/* with at least 150 training images.
`tests/oracles/make_goldens.py` describes `.torchenv`. Both make uint8 batches of
48 images of 224 pixels from files, bicubically: normalization is the device's part.
CPU seconds of the process are counted, as other programs may use the core.
With --timm what was measured goes into results.json, from which docs/speed.md has it.

`--make` fills DIR with 400 of the photographs in a folder, enlarged to 500 x 375
pixels, a common size in ImageNet, with grain: enlarged ones alone would be
smoother and quicker to decode. Made of Imagenette's they still have half of the
109 kB that a file of ImageNet has on average, so that both loaders are slower there.
"""

import argparse
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

POLICY = "m7-mstd0.5-inc1"
CASES = {"plain": ("", 1), "RandAugment": (POLICY, 1), "RandAugment, 3 copies": (POLICY, 3)}
_BATCH, _IMAGES = 48, 480
MADE, SIZE, GRAIN = 400, (500, 375), 4.0  # photographs; pixels; standard deviation, of 255

_TIMM = """
import sys, time, types
sys.modules["torchvision._meta_registrations"] = types.ModuleType("stub")
import torch
from timm.data import create_dataset, create_loader
torch.set_num_threads(1)
folder, policy, batch, images = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
data = create_dataset("", root=folder, split="train", is_training=True)
loader = create_loader(data, (3, 224, 224), batch, is_training=True, color_jitter=0.0, interpolation="bicubic",
    auto_augment="rand-" + policy if policy else None, num_workers=0, device=torch.device("cpu"),
    persistent_workers=False).loader  # inside of it the batches are uint8
def batches():
    while True:
        yield from loader
iterator = batches()
next(iterator)
start, count = time.process_time(), 0
while count < images:
    count += len(next(iterator)[0])
import timm
print(count / (time.process_time() - start), timm.__version__)
"""


def ours(folder, policy, copies) -> float:
    """Images a second of CPU of our pipeline."""
    from keras_highway.training.data.samples import Shard
    from keras_highway.training.data.source import open_source
    from keras_highway.training.recipes import RECIPES

    recipe = replace(
        RECIPES["highway50_a2"],
        batch_size=_BATCH,
        rand_augment=policy,
        repeated_augmentation=copies,
        mixup=0.0,
        cutmix=0.0,
    )
    source = open_source(recipe, folder)

    def batches():
        for epoch in range(1000):
            yield from source.batches(epoch, 0, Shard())

    iterator = batches()
    next(iterator)
    start, count = time.process_time(), 0
    while count < _IMAGES:
        count += len(next(iterator)[0])
    return count / (time.process_time() - start)


def make(photographs: Path, folder: Path) -> None:
    """Fills a folder with photographs as large as ImageNet's, a tenth of them once more as test images.

    Args:
        photographs: Holds photographs at any depth, `MADE` at least.
        folder: To fill.

    Raises:
        ValueError: If there are fewer photographs, or the folder is not empty.
    """
    files = sorted(path for path in photographs.rglob("*") if path.suffix.lower() in (".jpeg", ".jpg"))
    if len(files) < MADE:
        raise ValueError(f"{photographs} must hold at least {MADE} JPEGs. Received: {len(files)}")
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} must be empty: it holds {next(folder.iterdir()).name}.")
    draw = np.random.default_rng(0)
    for i, k in enumerate(draw.choice(len(files), MADE, replace=False)):
        with Image.open(files[k]) as image:
            large = np.asarray(image.convert("RGB").resize(SIZE, Image.Resampling.BICUBIC), np.float32)
        grainy = np.clip(np.rint(large + draw.normal(0, GRAIN, (*large.shape[:2], 1))), 0, 255).astype(np.uint8)
        for split in ("train", "val")[: 2 if i % 10 == 0 else 1]:
            path = folder / split / "photographs" / f"{i:03}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(grainy).save(path, quality=90)


def main() -> None:
    """Prints a line a case: the best of the rounds of either, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make", type=Path, metavar="PHOTOGRAPHS", help="fill DIR, measure nothing")
    parser.add_argument("--timm", help="Python of an environment with timm")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    if args.make:
        make(args.make, args.folder)
        return
    import tensorflow as tf

    from tests.benchmarks.comparison import record

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    sizes = [path.stat().st_size for path in (args.folder / "train").rglob("*") if path.is_file()]
    for name, (policy, copies) in CASES.items():
        own, theirs, version = [], [], ""
        for _ in range(args.rounds):
            own.append(ours(args.folder, policy, copies))
            if args.timm:
                command = [args.timm, "-c", _TIMM, args.folder, policy, str(_BATCH), str(_IMAGES)]
                speed, version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
                theirs.append(float(speed))
        line = f"{name}: {max(own):.0f} images/s of CPU"
        print(f"{line}; timm {max(theirs):.0f}; ratio {max(own) / max(theirs):.2f}" if theirs else line, flush=True)
        if theirs:
            what = {"images": len(sizes), "mean_bytes": statistics.mean(sizes), "timm_version": version}
            record(f"host pipeline, 224 px, {name}, images/s of a core", ours=own, timm=theirs, **what)


if __name__ == "__main__":
    sys.exit(main())
