"""`evaluate` on photographs: top-1 and top-5 accuracy over a folder of classes, shards of one, or a set of TFDS."""

import csv
import os
from pathlib import Path

from keras_highway._support.terminal import json_text, visible
from keras_highway.analysis.photograph_scores import PhotographScores, measure_photographs
from keras_highway.cli.errors import OK, USAGE, UsageError, check_out, usage_errors
from keras_highway.cli.image_classifier import ImageClassifier, find_classifier
from keras_highway.cli.tables import percent
from keras_highway.data.datasets import holds_shards
from keras_highway.data.photographs import PhotographSet, folder_test_set, read_real_labels
from keras_highway.data.tfds_sets import tfds_test_set
from keras_highway.tasks import format_metric, measured_on

_BATCH = 100
_COLUMNS = ("weights", "data", "images", "top1", "top5", "loss", "real_images", "real", "broken")


def run(arguments) -> int:
    """Prints a line, or JSON, and adds one to a CSV file; code 2 where files could not be read."""
    classifier = find_classifier(arguments.weights, arguments.data_set)
    transform, classes = classifier.transform, len(classifier.classes)
    names = classifier.class_names()
    with usage_errors():
        if arguments.csv:
            _check_table(Path(arguments.csv))
        if arguments.tfds and arguments.v2:
            raise UsageError(
                "--v2 is for a folder; TensorFlow Datasets numbers classes itself. Leave one of --v2, --tfds out."
            )
        test_set = _test_set(arguments, classes, names)
        real = read_real_labels(arguments.real) if arguments.real else None
        if real is not None and classes != 1000:
            raise UsageError(f"ReaL labels are of ImageNet's 1000 classes; the weights have {classes}.")
    # Any size but its own would do, too; the transform's is what it was tested at.
    shape = (*transform.size, transform.channels)
    model = classifier.model(classifier_activation=None, input_shape=shape)
    with usage_errors():
        scores = measure_photographs(model, transform, test_set, arguments.batch_size or _BATCH, real)
    if not scores.images:
        raise UsageError(f"None of the {scores.broken} files in {test_set.name} can be read.")
    report = {"weights": classifier.weights, "data": test_set.name, **_figures(scores)}
    print(json_text(report) if arguments.json else visible(_line(report)))
    if arguments.csv:
        with usage_errors():
            _add_line(Path(arguments.csv), report)
    if classifier.result and not arguments.json:
        print(visible(f"recorded {_recorded_on(classifier)}: {format_metric(classifier.result)}"))
    return USAGE if scores.broken else OK


def _test_set(arguments, classes: int, names: list[str]) -> PhotographSet:
    if arguments.tfds:
        return tfds_test_set(arguments.tfds, arguments.data, classes, names)
    if holds_shards(arguments.data):
        from keras_highway.training.data.shard_test_set import shard_test_set  # the training code, for these alone

        return shard_test_set(arguments.data, classes, arguments.v2, names)
    return folder_test_set(arguments.data, classes, arguments.v2, names)


def _recorded_on(classifier: ImageClassifier) -> str:
    data, part = classifier.result.get("data", classifier.data), measured_on(classifier.result)
    if part:
        return f"{part} of {data}" if data else part
    return f"on {data or 'its own test images'}"


def _figures(scores: PhotographScores) -> dict:
    n = scores.images
    return {
        "images": n,
        "top1": scores.top1 / n,
        "top5": scores.top5 / n,
        "loss": scores.loss / n,
        "real_images": scores.real_images,
        "real": scores.real / scores.real_images if scores.real_images else None,
        "broken": scores.broken,
    }


def _line(report: dict) -> str:
    real = ""
    if report["real"] is not None:
        real = f", ReaL {percent(report['real'])} of {report['real_images']}"
    broken = f"; {report['broken']} files could not be read" if report["broken"] else ""
    return (
        f"{report['weights']} on the {report['images']} images of {report['data']}: top-1 {percent(report['top1'])}, "
        f"top-5 {percent(report['top5'])}, loss {report['loss']:.4f}{real}{broken}"
    )


def _check_table(path: Path) -> None:
    """Raises if the file cannot be written or is another table, before anything is measured."""
    check_out(str(path), "", "--csv")
    if path.exists() and not os.access(path, os.W_OK):
        raise UsageError(f"{path} may not be written: permission denied. Received: --csv {path}")
    header = ",".join(_COLUMNS)
    known = path.read_text("utf-8").splitlines()[:1] if path.exists() else []
    if known not in ([], [header]):
        raise ValueError(f"{path} is another table; it should begin with {header}. Received: {known}")


def _add_line(path: Path, report: dict) -> None:
    """Adds a line to a table; a new or empty one gets its heading."""
    before = path.read_bytes() if path.exists() else b""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        if not before:
            writer.writeheader()
        elif not before.endswith(b"\n"):  # as an editor may leave it: the line would be glued to its last one
            file.write("\n")
        writer.writerow(report)
