"""Images a second of CPU that the host makes of photographs, ours and timm's loader in turn, on one core.

    taskset -c 0 .venv/bin/python -m tests.benchmarks.host_pipeline DIR [--timm .torchenv/bin/python] [--rounds 3]

DIR holds train/CLASS/* and val/CLASS/* with at least 150 training images.
`.torchenv` is that of `tests/oracles/make_goldens.py`. Both make uint8 batches of
48 images of 224 pixels from files, bicubically: normalization is the device's part.
CPU seconds of the process are counted, as other programs may use the core.
"""

import argparse
import subprocess
import sys
import time
from dataclasses import replace

POLICY = "m7-mstd0.5-inc1"
CASES = {"plain": ("", 1), "RandAugment": (POLICY, 1), "RandAugment, 3 copies": (POLICY, 3)}
_BATCH, _IMAGES = 48, 480

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
print(count / (time.process_time() - start))
"""


def ours(folder, policy, copies) -> float:
    """Images a second of CPU of our pipeline."""
    from keras_highway.training.data.shard import Shard
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


def main() -> None:
    """Prints a line a case: the best of the rounds of either, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--timm", help="Python of an environment with timm")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    for name, (policy, copies) in CASES.items():
        own, theirs = [], []
        for _ in range(args.rounds):
            own.append(ours(args.folder, policy, copies))
            if args.timm:
                command = [args.timm, "-c", _TIMM, args.folder, policy, str(_BATCH), str(_IMAGES)]
                theirs.append(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
        line = f"{name}: {max(own):.0f} images/s of CPU"
        print(f"{line}; timm {max(theirs):.0f}; ratio {max(own) / max(theirs):.2f}" if theirs else line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
