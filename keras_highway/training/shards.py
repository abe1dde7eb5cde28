"""`python -m keras_highway.training.shards DIR --out SHARDS`: writes TFRecord shards of a folder of images.

DIR holds train/CLASS/* and val/CLASS/*; a run with `--data SHARDS` then has the
images, labels and order of one with `--data DIR`, from a few hundred large
files instead of a million small ones. Every image is decoded once to see that
it can be: one that cannot is named and left out. A shard is written whole or
not at all; started again, the command compares those that are there with their
indexes, makes what is missing or altered, and the manifest last. A shard is made
again, too, where a photograph of it is of another size or newer than it, or one
that was left out can be decoded now.
`--check SHARDS` compares every shard and its index with their SHA-256.
"""

import argparse
import errno
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from keras_highway._support.backend import tensorflow
from keras_highway._support.files import atomic_write, atomic_write_json, sha256_of
from keras_highway._support.schema import read_json
from keras_highway._support.terminal import visible
from keras_highway.data.datasets import MANIFEST, SHARD_SUFFIX, is_shard
from keras_highway.data.images import ImageError
from keras_highway.training.data.augment import decoded, jpeg_shape
from keras_highway.training.data.folders import class_names, image_files
from keras_highway.training.data.shards import FORMAT, LARGEST_INDEX, index_of, read_manifest
from keras_highway.training.distributed.stopping import USAGE_ERROR

IMAGES = 5_000  # of a shard: some 550 MB of ImageNet, 257 files
_AT_ONCE = 256  # images in memory
_LEADS_NOWHERE = (errno.ENOENT, errno.ELOOP)  # a link to what is not there, or to itself
_JPEG = b"\xff\xd8\xff"  # as TensorFlow knows one
_FRAME = 12, 4  # bytes of a TFRecord before and after its content: length and checksums


def write(folder: Path, out: Path, images: int = IMAGES, workers: int | None = None) -> dict:
    """Write the shards that are missing, and the manifest; returns it.

    Args:
        folder: Folder of train/CLASS/* and val/CLASS/*.
        out: The shards' folder, made if needed.
        images: Images of a shard. Defaults to `5000`.
        workers: Threads that read and decode. Defaults to the number of cores.

    Raises:
        FileNotFoundError: If there is no such folder.
        ValueError: If it has no classes or no images, or `out` holds shards of
            another division.
    """
    classes = class_names(folder / "train")
    if classes != class_names(folder / "val"):
        raise ValueError(f"{folder}/train and {folder}/val have different classes.")
    out.mkdir(parents=True, exist_ok=True)
    _check_manifest(out / MANIFEST)
    plans = {split: _plan(folder / split, classes, split, images) for split in ("train", "val")}
    known = {name for plan in plans.values() for name in plan}
    here = filter(is_shard, (path.name for path in out.iterdir()))  # not what a kill left, nor another program's
    others = sorted(name for name in here if name not in known)
    if others:
        raise ValueError(f"{out} holds shards of another division, {others[0]} for one: choose another --out.")
    splits = {}
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for split, plan in plans.items():
            written = [_shard(folder / split, out / name, rows, classes, pool) for name, rows in plan.items()]
            splits[split] = {
                "images": sum(shard["images"] for shard, _ in written),
                "broken": sorted(name for _, broken in written for name in broken),
                "shards": [shard for shard, _ in written],
            }
    manifest = {"format": FORMAT, "classes": classes, "splits": splits}
    atomic_write_json(out / MANIFEST, manifest)
    return manifest


def _check_manifest(path: Path) -> None:
    """Raise a ValueError where a file is another program's: it would be replaced."""
    if not path.exists():
        return
    try:
        manifest = read_json(path)
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or not str(manifest.get("format")).startswith(FORMAT.rpartition(" ")[0]):
        raise ValueError(f"{path} is not a manifest of shards but another program's file: choose another --out.")


def _plan(folder: Path, classes: list[str], split: str, images: int) -> dict[str, list[tuple[int, str, int]]]:
    """Which images are in which shard: names of shards, and of each image its position in the folder, name and label.

    A fixed shuffle, so that a program that reads the shards one after the other sees all classes.
    """
    paths, labels = image_files(folder, classes)
    order = np.random.default_rng(0).permutation(len(paths))
    count = -(-len(paths) // images)
    names = [os.path.relpath(path, folder) for path in paths]
    return {
        f"{split}-{i:05d}-of-{count:05d}{SHARD_SUFFIX}": [(int(k), names[k], int(labels[k])) for k in part]
        for i, part in enumerate(np.array_split(order, count))
    }


def _shard(folder: Path, path: Path, rows, classes, pool) -> tuple[dict, list[str]]:
    """Write a shard and its index, unless they are there; returns its row in the manifest and what was left out."""
    index_path = index_of(path)
    index = _known_index(path, rows) if index_path.exists() and path.exists() else None
    if index is None or _is_older(path, folder, index):
        names = [name for _, name, _ in rows]
        index = {"files": names, "broken": [], "places": [], "labels": [], "offsets": [], "lengths": []}
        atomic_write(path, lambda temporary: _write_records(temporary, folder, rows, classes, pool, index))
        index = {"sha256": sha256_of(path), "bytes": path.stat().st_size, **index}
        atomic_write(index_path, lambda temporary: temporary.write_text(json.dumps(index), "utf-8"))
        print(f"{path.name}: {len(index['places'])} images", flush=True)
    for name in index["broken"]:
        print(f"left out, not an image that can be decoded: {visible(folder / name)}", file=sys.stderr)
    row = {"file": path.name, "images": len(index["places"]), "bytes": index["bytes"], "sha256": index["sha256"]}
    return {**row, "index_sha256": sha256_of(index_path)}, index["broken"]


def _is_older(path: Path, folder: Path, index: dict) -> bool:
    """Whether a file of a shard's images has been changed since it was written, or one that was left out is mended."""
    written = path.stat().st_mtime_ns
    broken = set(index["broken"])
    kept = iter(index["lengths"])  # those in their records
    for name in index["files"]:
        try:
            file = (folder / name).stat()
        except OSError as error:
            if error.errno not in _LEADS_NOWHERE:
                raise
            if name in broken:
                continue
            return True
        if file.st_mtime_ns > written or (name not in broken and file.st_size != next(kept)):
            return True
    return any(_encoded(folder / name) is not None for name in broken)


def _known_index(path: Path, rows) -> dict | None:
    """Return a shard's index if both are as written and of these images; else None: they are then made again."""
    try:
        index = read_json(index_of(path), most=LARGEST_INDEX)
    except ValueError:
        return None
    # The shard itself is authoritative: an index that differs anywhere would give images other bytes or labels.
    return index if index == _index_from(path, rows) else None


def _index_from(path: Path, rows) -> dict | None:
    """Return the index that a shard should have, read from its records; their checksums are compared."""
    from google.protobuf.message import DecodeError  # which TensorFlow brings

    tf = tensorflow()
    records, position = [], 0
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            features = tf.train.Example.FromString(record).features.feature
            encoded, name = (features[f"image/{key}"].bytes_list.value[0] for key in ("encoded", "filename"))
            label = features["image/class/label"].int64_list.value[0]
            if _is_too_large(encoded):  # written by a version that took any size: made again, without it
                return None
            records.append((name.decode(), label, position + _FRAME[0] + record.index(encoded), len(encoded)))
            position += sum(_FRAME) + len(record)
    except (tf.errors.DataLossError, DecodeError, IndexError, UnicodeDecodeError):  # altered, or of another program
        return None
    names = {name for name, *_ in records}
    kept = [row for row in rows if row[1] in names]
    if [(name, label) for _, name, label in kept] != [(name, label) for name, label, *_ in records]:
        return None
    return {
        "sha256": sha256_of(path),
        "bytes": path.stat().st_size,
        "files": [name for _, name, _ in rows],
        "broken": [name for _, name, _ in rows if name not in names],
        "places": [number for number, _, _ in kept],
        "labels": [label for _, _, label in kept],
        "offsets": [offset for _, _, offset, _ in records],
        "lengths": [length for *_, length in records],
    }


def _is_too_large(encoded: bytes) -> bool:
    tf = tensorflow()
    try:
        with tf.device("CPU"):
            _ = jpeg_shape(encoded) if encoded.startswith(_JPEG) else None
    except tf.errors.InvalidArgumentError:
        return True
    return False


def _write_records(path, folder, rows, classes, pool, index) -> None:
    """Write a shard's records, and into `index` what and where they are."""
    position = 0
    with tensorflow().io.TFRecordWriter(str(path)) as writer:
        for some in (rows[first : first + _AT_ONCE] for first in range(0, len(rows), _AT_ONCE)):
            contents = pool.map(lambda row: _encoded(folder / row[1]), some)
            for (number, name, label), encoded in zip(some, contents, strict=True):
                if encoded is None:
                    index["broken"].append(name)
                    continue
                record = _example(encoded, label, classes[label], name)
                writer.write(record)
                index["places"].append(number)
                index["labels"].append(label)
                index["offsets"].append(position + _FRAME[0] + record.index(encoded))
                index["lengths"].append(len(encoded))
                position += sum(_FRAME) + len(record)


def _encoded(path: Path) -> bytes | None:
    """Return an image file's content, or None where it cannot be decoded, or is a link to nothing."""
    tf = tensorflow()
    try:
        content = path.read_bytes()
    except OSError as error:
        if error.errno not in _LEADS_NOWHERE:
            raise
        return None
    try:
        # As in training; on the CPU, which a machine's GPUs need not know of.
        with tf.device("CPU"):
            decoded(content, channels=3)
    except (tf.errors.InvalidArgumentError, ImageError):
        return None
    return content


def _example(encoded: bytes, label: int, class_name: str, name: str) -> bytes:
    train = tensorflow().train

    def text(value: bytes):
        return train.Feature(bytes_list=train.BytesList(value=[value]))

    features = {
        "image/encoded": text(encoded),
        "image/class/label": train.Feature(int64_list=train.Int64List(value=[label])),
        "image/class/name": text(class_name.encode()),
        "image/filename": text(name.encode()),
    }
    return train.Example(features=train.Features(feature=features)).SerializeToString(deterministic=True)


def check(folder: Path) -> list[str]:
    """Return the names of files that are missing or differ from the manifest."""
    splits = read_manifest(folder)["splits"]
    shards = [shard for split in ("train", "val") for shard in splits[split]["shards"]]
    hashes = {folder / shard["file"]: shard["sha256"] for shard in shards}
    hashes |= {index_of(folder / shard["file"]): shard["index_sha256"] for shard in shards}
    return [path.name for path, sha256 in hashes.items() if not path.exists() or sha256_of(path) != sha256]


def main(argv=None) -> int:
    """Parse the command line, writes or checks; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m keras_highway.training.shards",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="train/CLASS/*, val/CLASS/*; with --check, shards")
    parser.add_argument("--out", type=Path, metavar="SHARDS", help="where to write them")
    parser.add_argument("--images", type=int, default=IMAGES, help="images of a shard (default: %(default)s)")
    parser.add_argument("--workers", type=int, help="threads (default: one per core)")
    parser.add_argument("--check", action="store_true", help="compare shards and indexes in DIR with their SHA-256")
    args = parser.parse_args(argv)
    if bool(args.out) == args.check or args.images < 1:
        parser.error("either --out SHARDS or --check; --images must be positive")
    try:
        return _check(args.folder) if args.check else _write(args)
    except (ValueError, OSError) as error:
        print(f"error: {visible(error)}", file=sys.stderr)
        return USAGE_ERROR


def _check(folder: Path) -> int:
    wrong = check(folder)
    for name in wrong:
        print(f"missing or altered: {visible(folder / name)}", file=sys.stderr)
    where = visible(folder)
    print(f"{where}: {len(wrong)} files are wrong" if wrong else f"{where}: all shards are as written")
    return 1 if wrong else 0


def _write(args) -> int:
    for split, row in write(args.folder, args.out, args.images, args.workers)["splits"].items():
        print(
            f"{split}: {row['images']} images in {len(row['shards'])} shards, {len(row['broken'])} broken ones "
            f"left out (named in {visible(args.out / MANIFEST)})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
