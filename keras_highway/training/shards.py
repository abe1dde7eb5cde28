"""`python -m keras_highway.training.shards DIR --out SHARDS`: writes a folder of images as TFRecord shards.

DIR holds train/CLASS/* and val/CLASS/*. A run with `--data SHARDS` has the
batches of one with `--data DIR`, read from a few hundred large files instead of
a million small ones. Every image is decoded once; those that cannot be are
named, counted and left out. `--check SHARDS` compares the files with their
SHA-256.
"""

import argparse
import errno
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import atomic_write_json, read_bounded, sha256_of
from keras_highway._support.schema import checked_size
from keras_highway._support.terminal import visible
from keras_highway.data.datasets import SHARDS
from keras_highway.data.images import MOST_BYTES
from keras_highway.training.data.augment import decoded
from keras_highway.training.data.folders import common_class_names, image_files
from keras_highway.training.data.shards import FORMAT, SPLITS, read_manifest
from keras_highway.training.distributed.stopping import USAGE_ERROR

IMAGES = 5_000  # per shard: about 550 MB of ImageNet
_AT_ONCE = 256  # images in memory
_HEADER, _FOOTER = 12, 4  # bytes of a TFRecord around its content


def write(folder: Path, out: Path, images: int = IMAGES, workers: int | None = None) -> dict:
    """Write the shards of a folder, their index and last the manifest; returns the manifest."""
    classes, images = common_class_names(folder), checked_size(images, "images")
    files = {split: image_files(folder / split, classes) for split in SPLITS}
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise ValueError(f"{out} is not empty: remove it or choose another --out.")
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        splits = {split: _write_split(out, split, folder / split, *files[split], images, pool) for split in SPLITS}
    manifest = {"format": FORMAT, "classes": classes, "splits": splits}
    atomic_write_json(out / SHARDS, manifest)
    return manifest


def _write_split(out: Path, split: str, folder: Path, paths, labels, images, pool) -> dict:
    # Shuffled, so that a program that reads one shard after the other sees all classes.
    order = np.random.default_rng(0).permutation(len(paths))
    count = -(-len(paths) // images)
    names = [f"{split}-{i:05d}-of-{count:05d}.tfrecord" for i in range(count)]
    places, broken = np.zeros((len(paths), 3), np.int64), []  # shard, offset, length
    for i, part in enumerate(np.array_split(order, count)):
        position = 0
        with tensorflow().io.TFRecordWriter(str(out / names[i])) as writer:
            for some in (part[first : first + _AT_ONCE] for first in range(0, len(part), _AT_ONCE)):
                for k, encoded in zip(some, pool.map(_encoded, paths[some]), strict=True):
                    name = os.path.relpath(paths[k], folder)
                    if encoded is None:
                        broken.append(name)
                        print(f"left out, cannot be decoded: {visible(paths[k])}", file=sys.stderr)
                        continue
                    record = _example(encoded, labels[k], name)
                    writer.write(record)
                    places[k] = i, position + _HEADER + record.index(encoded), len(encoded)
                    position += _HEADER + len(record) + _FOOTER
    kept = places[:, 2] > 0
    files = np.array([os.path.relpath(path, folder) for path in paths[kept]])
    np.savez(out / f"{split}.npz", places=places[kept], labels=labels[kept], names=files)
    hashes = {name: sha256_of(out / name) for name in (*names, f"{split}.npz")}
    return {"images": int(kept.sum()), "broken": sorted(broken), "files": hashes}


def _encoded(path: str) -> bytes | None:
    """Return an image file's content, or None if it is missing or cannot be decoded as in training."""
    tf = tensorflow()
    try:
        content = read_bounded(path, MOST_BYTES)
        with tf.device("CPU"):
            decoded(content, channels=3)
    except (tf.errors.InvalidArgumentError, ValueError):
        return None
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):  # a link to nothing, or to itself
            return None
        raise
    return content


def _example(encoded: bytes, label: int, name: str) -> bytes:
    train = tensorflow().train
    features = {
        "image/encoded": train.Feature(bytes_list=train.BytesList(value=[encoded])),
        "image/class/label": train.Feature(int64_list=train.Int64List(value=[label])),
        "image/filename": train.Feature(bytes_list=train.BytesList(value=[name.encode()])),
    }
    return train.Example(features=train.Features(feature=features)).SerializeToString(deterministic=True)


def check(folder: Path) -> list[str]:
    """Return the names of files that are missing or differ from the manifest."""
    files = {name: sha for split in read_manifest(folder)["splits"].values() for name, sha in split["files"].items()}
    return [name for name, sha in files.items() if not (folder / name).exists() or sha256_of(folder / name) != sha]


def main(argv=None) -> int:
    """Parse the command line, write or check; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_highway.training.shards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="train/CLASS/*, val/CLASS/*; with --check, shards")
    parser.add_argument("--out", type=Path, metavar="SHARDS", help="where to write them")
    parser.add_argument("--images", type=int, default=IMAGES, help="images per shard (default: %(default)s)")
    parser.add_argument("--workers", type=int, help="threads (default: one per core)")
    parser.add_argument("--check", action="store_true", help="compare the files in DIR with their SHA-256")
    args = parser.parse_args(argv)
    if bool(args.out) == args.check or args.images < 1:
        parser.error("either --out SHARDS or --check; --images must be positive")
    try:
        if args.check:
            wrong = check(args.folder)
            for name in wrong:
                print(f"missing or altered: {visible(args.folder / name)}", file=sys.stderr)
            print(f"{visible(args.folder)}: {len(wrong)} files are missing or altered")
            return 1 if wrong else 0
        for split, row in write(args.folder, args.out, args.images, args.workers)["splits"].items():
            print(f"{split}: {row['images']} images, {len(row['broken'])} broken ones left out")
    except (ValueError, OSError) as error:
        print(f"error: {visible(error)}", file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
