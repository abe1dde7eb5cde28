"""Commands that move weights: `fetch`, `publish`, `verify` and `export`."""

import argparse
from pathlib import Path

import numpy as np

from keras_highway import export as exporting
from keras_highway._support.terminal import visible
from keras_highway.cli.images import find_data, percent
from keras_highway.cli.main import DIFFERENT, OK, UsageError, check_out, usage_errors
from keras_highway.data.datasets import DATASETS
from keras_highway.predictions import find_classifier
from keras_highway.tasks import is_of, measured_on
from keras_highway.weights import publish as publishing
from keras_highway.weights import registry
from keras_highway.weights.sources import resolve
from keras_highway.weights.torch_files import pin
from keras_highway.weights.trained import recorded

_SUFFIXES = {"tf_saved_model": "", "onnx": ".onnx", "litert": ".tflite"}
_INT8_IMAGES = 300  # training images that scale an int8 file


def fetch(arguments: argparse.Namespace) -> int:
    """Download weights into the cache and print the file's path."""
    with usage_errors():
        if arguments.pin:
            pinned = pin(registry.find(arguments.weights))
            print(f"{arguments.weights}: commit {pinned['revision']}, sha256 {pinned['sha256']}")
        print(visible(resolve(arguments.weights).path))
    return OK


def publish(arguments: argparse.Namespace) -> int:
    """Upload weights and print one line per repository."""
    card = {"dataset": arguments.dataset, "license": arguments.license}
    organization, _, name = arguments.repo.partition("/")
    one = bool(arguments.weights) and bool(name) and not arguments.all
    several = arguments.all and not name and not arguments.weights and card == dict.fromkeys(card)
    if not one and not several:
        raise UsageError(
            "publish takes RUN or NAME and --repo ORG/NAME, or --all and --repo ORG without --dataset and --license. "
            f"Received: {arguments.weights}, --repo {arguments.repo}{', --all' * arguments.all}"
        )

    def tell(pushed) -> None:
        print(visible(_line(pushed, arguments.dry_run)), flush=True)

    options = arguments.private, arguments.dry_run
    with usage_errors():
        if arguments.all:
            publishing.publish_all(organization, *options, tell)
        else:
            tell(publishing.publish(arguments.weights, arguments.repo, *options, **card))
    return OK


def _line(pushed, dry_run: bool) -> str:
    upload, remove = ("would upload", "would remove") if dry_run else ("uploaded", "removed")
    parts = {upload: pushed.changed, remove: pushed.removed}
    changes = ", ".join(f"{did} {', '.join(files)}" for did, files in parts.items() if files)
    changes = changes or ("nothing to do" if dry_run else "up to date")
    if not pushed.compared:
        return f"{pushed.repository}: {changes}; not compared with the repository: the Hub cannot be reached"
    state = f"; {pushed.tag or 'no release'}, commit {pushed.commit[:12]}" if pushed.commit else "; not there yet"
    return f"{pushed.repository}: {changes}{state}"


def verify(arguments: argparse.Namespace) -> int:
    """Print what was verified, and with data the metric measured again; return 1 if it differs."""
    with usage_errors():
        verification = publishing.verify(arguments.repository)
    weights, row, metric = verification.weights, verification.row, verification.weights.task.metric
    print(
        f"{arguments.repository}: {visible(row.name)}, sha256 {row.sha256[:12]}..., "
        "model.safetensors and check.npz are right"
    )
    print(f"largest difference from check.npz: {verification.difference:.1e}")
    if arguments.data is None:
        return OK
    with usage_errors():
        measured = weights.measure(arguments.data, arguments.batch_size)
    before, code = recorded(row), OK
    if before is None:
        verdict = "; the record has no result to compare with"
    elif not is_of(row.metrics, measured.samples):
        verdict = f", recorded {measured_on(row.metrics)}: {metric.format(before)}; not compared"
    else:
        code = OK if abs(measured.value - before) <= metric.agreement else DIFFERENT
        verdict = f", recorded: {metric.format(before)}{': DIFFERENT' if code else ''}"
    print(f"{metric.name} {visible(measured.where)}: {metric.format(measured.value)}{verdict}")
    return code


def export(arguments: argparse.Namespace) -> int:
    """Write a file or folder for other programs, and print how far its outputs are from the Keras network's."""
    out, suffix = Path(arguments.out), _SUFFIXES[arguments.format]
    if out.exists():
        raise UsageError(f"{out} exists: remove it, or choose another --out.")
    if suffix:
        check_out(str(out), suffix)
    with usage_errors():
        int8 = _int8_images(arguments) if arguments.int8 else None
        model, spec, samples, where = exporting.load_exportable(arguments.weights, arguments.logits, arguments.any_size)
        if arguments.fold_batch_norm:
            model = exporting.fold_batch_norm(model, spec)
        result = exporting.export(model, out, arguments.format, samples, int8)
    if int8 is not None:
        compared = f"of {len(int8)} training images {percent(result)} are in the Keras network's class"
    else:
        compared = f"on {where} it differs from the Keras network by {result:.1e}"
    print(f"wrote {visible(out)}; {compared}")
    return OK


def _int8_images(arguments: argparse.Namespace) -> np.ndarray:
    """Return training images from all over the data set, as the network takes them."""
    classifier = find_classifier(arguments.weights, arguments.data_set)
    if classifier.data not in DATASETS:
        raise UsageError(
            f"--int8 is scaled by training images of {', '.join(DATASETS)}: pass one with --data-set, or use "
            f"keras_highway.export.export(..., int8=images) in Python. Received: {arguments.weights}, of "
            f"{classifier.data or 'an unknown data set'}"
        )
    images = find_data(classifier, arguments.data).x_train
    chosen = np.linspace(0, len(images) - 1, min(_INT8_IMAGES, len(images))).astype(int)
    return np.asarray(classifier.transform.apply(images[chosen]), "float32")
