"""Commands for image networks: `classify`, `evaluate`, `gates`, `report` and `summary`."""

import argparse
import csv
import logging
import os
import sys
from pathlib import Path

import keras
import numpy as np
from tqdm import tqdm

from keras_highway._support.files import atomic_write
from keras_highway._support.schema import parse_setting
from keras_highway._support.terminal import json_text, table, visible
from keras_highway.analysis import blocks, cost, plot_gates, trace
from keras_highway.analysis.scores import PhotographScores, check_images, measure, measure_photographs
from keras_highway.applications import create_model, get_spec, load
from keras_highway.cli import text
from keras_highway.cli.main import OK, USAGE, UsageError, check_out, size, usage_errors
from keras_highway.data.datasets import DATASETS, Dataset, is_sharded, load_dataset
from keras_highway.data.images import ImageError, load_image
from keras_highway.data.photographs import (
    PhotographSet,
    folder_test_set,
    holds_photographs,
    read_batches,
    read_real_labels,
    relabelled,
    some_of,
    tfds_test_set,
)
from keras_highway.predictions import ImageClassifier, LanguageModelError, best_classes, find_classifier
from keras_highway.report import default_samples, make_report, numbers_path, write_report
from keras_highway.specs import override
from keras_highway.tasks import IMAGES, format_metric, format_recorded, is_of, measured_on, of_this_file
from keras_highway.weights import registry
from keras_highway.weights.hub import is_hub_name
from keras_highway.weights.sources import is_path

_IMAGES, _PHOTOGRAPHS = 500, 100  # at once
_RECORDED = ("metric", "mean", "std", "n", "holdout_images", "test_images")
_COLUMNS = ("weights", "data", "images", "top1", "top5", "loss", "real_images", "real", "broken")
_GATES = {"t": "transform", "c": "carry"}
_SUMMARY = ("stage", "parameters", "multiply-adds", "activation memory")
percent = IMAGES.metric.format


def find_data(classifier: ImageClassifier, folder: str | None) -> Dataset:
    """Read the data set of a classifier, with its labels."""
    weights, data_set = classifier.weights, classifier.data
    with usage_errors():
        if data_set not in DATASETS and (not data_set or (folder and not Path(folder).is_dir())):
            raise UsageError(
                f"{weights} needs --data DIR with photographs, DIR/val/CLASS/* or DIR/CLASS/*, or --data-set NAME. "
                f"Received: --data {folder}"
            )
        data = load_dataset(data_set, folder)
        if len(data.classes) != len(classifier.classes):
            raise UsageError(
                f"The weights have {len(classifier.classes)} classes, {data_set} has {len(data.classes)}: name their "
                f"data set (--data-set). Received: {weights}"
            )
        return relabelled(f"{data_set}.npz", data, classifier.class_names())


def _found(arguments: argparse.Namespace) -> ImageClassifier:
    with usage_errors():
        return find_classifier(arguments.weights, arguments.data_set)


# --- classify and gates -----------------------------------------------------------------------


def classify(arguments: argparse.Namespace) -> int:
    """Print one line per image, or JSON; return 2 if an image could not be read."""
    classifier = _found(arguments)
    pixels, errors = read_images(arguments.images, classifier, arguments.invert)
    with usage_errors():
        found = classifier.classify(list(pixels.values()), arguments.top)
    predictions = dict(zip(pixels, found, strict=True))
    if arguments.json:
        images = [
            {"file": path, "error": errors[index]}
            if index in errors
            else {
                "file": path,
                "predictions": [p._asdict() for p in classifier.above(predictions[index], arguments.threshold)],
            }
            for index, path in enumerate(arguments.images)
        ]
        print(json_text({"weights": classifier.weights, "images": images}))
    else:
        for index, best in predictions.items():
            shown = classifier.above(best, arguments.threshold) or best[:1]
            scores = "  ".join(f"{visible(prediction.name)} {percent(prediction.score)}" for prediction in shown)
            if classifier.activation == "sigmoid" and best[0].score < arguments.threshold:
                scores = f"{'none' if len(classifier.classes) > 1 else f'not {visible(best[0].name)}'} ({scores})"
            print(f"{visible(arguments.images[index])}: {scores}")
    return USAGE if errors else OK


def read_images(paths, classifier: ImageClassifier, invert: bool) -> tuple[dict[int, np.ndarray], dict[int, str]]:
    """Read image files; report unreadable ones on stderr."""
    pixels, errors = {}, {}
    for index, path in enumerate(paths):
        try:
            image = load_image(path, classifier.transform)
        except ImageError as error:
            errors[index] = str(error)
            print(visible(error), file=sys.stderr)
            continue
        pixels[index] = image = 255 - image if invert else image
        border = np.concatenate([image[0], image[-1], image[1:-1, 0], image[1:-1, -1]])
        if classifier.data == "mnist" and border.mean() > 127:
            print(
                f"{visible(path)}: note: a light background{', with --invert' if invert else ''}; white digits "
                f"on black are expected. Try {'without' if invert else 'with'} --invert.",
                file=sys.stderr,
            )
    return pixels, errors


def gates(arguments: argparse.Namespace) -> int:
    """Write a picture of the gates and print its path."""
    check_out(arguments.out, ".png")
    classifier = _found(arguments)
    pixels, errors = read_images([arguments.image], classifier, arguments.invert)
    if errors:
        return USAGE
    with usage_errors():  # nets in a scan have no blocks
        traces = trace(classifier.model(), classifier.transform.apply(pixels[0][None]))
        best = best_classes(traces.output, classifier.classes, top=1)[0][0]
    constant = {gate: any(getattr(entry, gate).ndim == 0 for entry in traces.values()) for gate in _GATES}
    gate = "c" if constant["t"] and not constant["c"] else "t"
    out = Path(arguments.out)
    title = f"{Path(arguments.image).name}: {best.name} ({percent(best.score)}) by {classifier.weights}"
    with usage_errors():
        atomic_write(out, lambda path: plot_gates(traces, pixels[0].squeeze(), path, gate=gate, title=title))
    print(f"wrote the {_GATES[gate]} gates of {len(traces)} blocks to {visible(out)}")
    return OK


# --- evaluate ---------------------------------------------------------------------------------


def evaluate(arguments: argparse.Namespace) -> int:
    """Print accuracy and loss, or perplexity, next to the recorded result; return 2 if a file could not be read."""
    photographs = arguments.tfds or holds_photographs(arguments.data) or is_sharded(arguments.data)
    with usage_errors():
        try:
            classifier = find_classifier(arguments.weights, arguments.data_set)
        except LanguageModelError:
            classifier = None
    if classifier is None:
        return text.evaluate(arguments)
    return _on_photographs(arguments, classifier) if photographs else _on_data_set(arguments, classifier)


def _on_data_set(arguments: argparse.Namespace, classifier: ImageClassifier) -> int:
    for_photographs = [f"--{name} is" for name in ("v2", "real", "csv") if getattr(arguments, name)]
    for_photographs += ["A head with a sigmoid is"] if classifier.activation == "sigmoid" else []
    if for_photographs:
        raise UsageError(f"{for_photographs[0]} for photographs: add --data DIR.")
    data = find_data(classifier, arguments.data)
    with usage_errors():
        model = classifier.model(logits=True)
        check_images(model, data.x_test, classifier.data)
    accuracy, loss = measure(
        model,
        (data.x_test, data.y_test),
        batch_size=arguments.batch_size or _IMAGES,
        transform=classifier.transform.apply,
        progress=sys.stderr.isatty(),
    )
    result, images, recorded = classifier.result, len(data.x_test), None
    if result and result.get("data", classifier.data) == classifier.data:
        recorded = {key: result[key] for key in _RECORDED if key in result} | of_this_file(result)
    if arguments.json:
        report = {"weights": classifier.weights, "data": classifier.data, "images": images}
        print(json_text({**report, "accuracy": accuracy, "loss": loss, "recorded": recorded}))
        return OK
    where = f"{classifier.weights} on the {images} test images of {classifier.data}"
    print(f"{visible(where)}: accuracy {percent(accuracy)}, loss {loss:.4f}")
    if recorded:
        print(_compared(recorded, accuracy, images))
    return OK


def _compared(recorded: dict, accuracy: float, images: int) -> str:
    """Return the recorded result, and the difference if it is of the same images."""
    number, before = format_recorded(recorded)
    if not is_of(recorded, images):
        return f"recorded {measured_on(recorded)}: {visible(number)}; not compared"
    return f"recorded: {visible(number)}; here {100 * (accuracy - before):+z.2f} points"


def _on_photographs(arguments: argparse.Namespace, classifier: ImageClassifier) -> int:
    classes = len(classifier.classes)
    with usage_errors():
        if arguments.csv:
            _check_table(Path(arguments.csv))
        test_set = _test_set(arguments, classifier)
        real = read_real_labels(arguments.real) if arguments.real else None
        if real is not None and classes != 1000:
            raise UsageError(f"ReaL labels are of ImageNet's 1000 classes; the weights have {classes}.")
        model = classifier.model(logits=True)
        batch_size = arguments.batch_size or _PHOTOGRAPHS
        scores = measure_photographs(model, classifier.transform, test_set, batch_size, real)
    if not scores.images:
        raise UsageError(f"None of the {scores.broken} files in {test_set.name} can be read.")
    report = {"weights": classifier.weights, "data": test_set.name, **_figures(scores, classifier)}
    print(json_text(report) if arguments.json else visible(_line(report)))
    if arguments.csv:
        with usage_errors():
            _add_line(Path(arguments.csv), report)
    if classifier.result and not arguments.json:
        data, part = classifier.result.get("data", classifier.data), measured_on(classifier.result)
        where = f"{part} of {data}" if part and data else part or f"on {data or 'its own test images'}"
        print(visible(f"recorded {where}: {format_metric(classifier.result)}"))
    return USAGE if scores.broken else OK


def _test_set(arguments: argparse.Namespace, classifier: ImageClassifier) -> PhotographSet:
    classes, names, sigmoid = len(classifier.classes), classifier.class_names(), classifier.activation == "sigmoid"
    others = [f"--{name}" for name in ("tfds", "v2", "real", "csv") if getattr(arguments, name)]
    if sigmoid and (others or is_sharded(arguments.data)):
        raise UsageError(f"{(*others, 'A folder of shards')[0]} is for heads with a softmax, and this has a sigmoid.")
    if arguments.tfds:
        if arguments.v2:
            raise UsageError("--v2 is for a folder: leave one of --v2 and --tfds out.")
        return tfds_test_set(arguments.tfds, arguments.data, classes, names)
    if is_sharded(arguments.data):
        from keras_highway.training.data.shards import shard_test_set  # only shards need the training code

        return shard_test_set(arguments.data, classes, arguments.v2, names)
    return folder_test_set(arguments.data, classes, arguments.v2, names, sigmoid)


def _figures(scores: PhotographScores, classifier: ImageClassifier) -> dict:
    n = scores.images
    if classifier.activation == "sigmoid":
        per_label = {"per_label": scores.per_label / n} if len(classifier.classes) > 1 else {}
        return {"images": n, "accuracy": scores.top1 / n, **per_label, "loss": scores.loss / n, "broken": scores.broken}
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
    broken = f"; {report['broken']} files could not be read" if report["broken"] else ""
    if "accuracy" in report:
        labels = f" (all labels), {percent(report['per_label'])} (per label)" if "per_label" in report else ""
        where = f"{report['weights']} on the {report['images']} images of {report['data']}"
        return f"{where}: accuracy {percent(report['accuracy'])}{labels}, loss {report['loss']:.4f}{broken}"
    real = f", ReaL {percent(report['real'])} of {report['real_images']}" if report["real"] is not None else ""
    return (
        f"{report['weights']} on the {report['images']} images of {report['data']}: top-1 {percent(report['top1'])}, "
        f"top-5 {percent(report['top5'])}, loss {report['loss']:.4f}{real}{broken}"
    )


def _check_table(path: Path) -> None:
    """Raise an error if the file cannot be written or is another table, before the measurement."""
    check_out(str(path), "", "--csv")
    header = ",".join(_COLUMNS)
    known = path.read_text("utf-8").splitlines()[:1] if path.exists() else []
    if known not in ([], [header]) or (path.exists() and not os.access(path, os.W_OK)):
        raise UsageError(f"--csv must name a new file or a writable table that begins with {header}. Received: {path}")


def _add_line(path: Path, report: dict) -> None:
    """Add a line to a table, and a header to a new or empty one."""
    before = path.read_bytes() if path.exists() else b""
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        if not before:
            writer.writeheader()
        elif not before.endswith(b"\n"):  # an editor may leave out the last line feed
            file.write("\n")
        writer.writerow(report)


# --- report -----------------------------------------------------------------------------------


def report(arguments: argparse.Namespace) -> int:
    """Write the page and its numbers, and print their paths; return 2 if an image could not be read."""
    out = Path(arguments.out)
    check_out(arguments.out, ".html")
    check_out(str(out.with_suffix(".json")), ".json")
    with usage_errors():
        numbers_path(out)  # refuse before the work
    # TensorFlow warns about retracing: every analysis has a network of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    classifier, broken = _found(arguments), 0
    if classifier.activation == "sigmoid":
        raise UsageError(
            f"A report is for heads with a softmax. Received: {arguments.weights}, whose head is a sigmoid"
        )
    if holds_photographs(arguments.data):
        with usage_errors():
            test_set = folder_test_set(arguments.data, len(classifier.classes), class_names=classifier.class_names())
            model, where = classifier.model(), test_set.name
        samples = _samples(model, arguments)
        images, labels, broken = _photographs(classifier, test_set, samples)
    else:
        data, where = find_data(classifier, arguments.data), classifier.data
        with usage_errors():
            model = classifier.model()
            check_images(model, data.x_test, where)
        samples = _samples(model, arguments)
        images, labels = data.x_test, data.y_test
    made = make_report(
        model,
        (images, labels),
        f"{classifier.weights} on {where}",
        transform=classifier.transform.apply,
        classes=[name for _, name in classifier.classes],
        samples=samples,
        progress=True,
    )
    with usage_errors():
        numbers = write_report(made, out)
    analyses = f"{len(made.sections)} analyses over {made.facts['images']} test images"
    unread = f"; {broken} files could not be read" if broken else ""
    print(visible(f"wrote {analyses} to {out} and {numbers}{unread}"))
    return USAGE if broken else OK


def _samples(model: keras.Model, arguments: argparse.Namespace) -> int:
    """Return the number of images; refuse a model without blocks before any image is read."""
    with usage_errors():
        blocks(model)
    return arguments.samples or default_samples(model)


def _photographs(
    classifier: ImageClassifier, test_set: PhotographSet, samples: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Read randomly drawn photographs, not all of the folder; return pixels, labels and the number of broken files."""
    drawn = some_of(test_set, samples)
    batches = []
    with tqdm(total=drawn.images, unit=" images", disable=None, leave=False) as bar:
        for batch in read_batches(drawn.photographs, classifier.transform, _PHOTOGRAPHS):
            for error in batch.errors:
                print(visible(error), file=sys.stderr)
            batches.append(batch)
            bar.update(len(batch.labels) + len(batch.errors))
    good = [batch for batch in batches if len(batch.labels)]
    if not good:
        raise UsageError(f"None of the {drawn.images} files drawn from {drawn.name} can be read.")
    images, labels = (np.concatenate([batch[i] for batch in good]) for i in (0, 1))
    return images, labels, drawn.images - len(labels)


# --- summary ----------------------------------------------------------------------------------


def summary(arguments: argparse.Namespace) -> int:
    """Print the costs of a variant or of weights by stage as a table, or JSON."""
    with usage_errors():
        overrides = dict(map(parse_setting, arguments.overrides))
        if arguments.variant in registry.WEIGHTS or is_hub_name(arguments.variant) or is_path(arguments.variant):
            return _costs(arguments, load(arguments.variant, **overrides, **_shape(arguments)))
        spec = override(get_spec(arguments.variant), **overrides)
        if spec.task is not IMAGES:
            raise UsageError(f"{spec.name} reads {spec.task.inputs}, not images: `list` shows its parameters.")
        model = create_model(arguments.variant, **{"input_shape": spec.input_shape, **overrides, **_shape(arguments)})
    return _costs(arguments, model)


def _shape(arguments: argparse.Namespace) -> dict:
    return {"input_shape": tuple(arguments.input_shape)} if arguments.input_shape else {}


def _costs(arguments: argparse.Namespace, model: keras.Model) -> int:
    costs = cost(model)
    if arguments.json:
        stages = [row._asdict() for row in (*costs, costs.total)]
        print(json_text({"variant": arguments.variant, "input_shape": model.input_shape[1:], "stages": stages}))
        return OK
    rows = [
        (row.stage, f"{row.parameters:,}", f"{row.multiply_adds:,}", f"{row.activation_bytes / 2**20:,.2f} MiB")
        for row in (*costs, costs.total)
    ]
    print(f"{arguments.variant}, one image of {size(model.input_shape[1:])}\n")
    print(table(_SUMMARY, rows, right=_SUMMARY[1:]))
    return OK
