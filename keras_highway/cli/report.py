"""`report`: every analysis of a network, as one HTML page and JSON."""

import logging
import sys
from pathlib import Path

import keras
import numpy as np
from tqdm import tqdm

from keras_highway._support.terminal import visible
from keras_highway.analysis import blocks
from keras_highway.analysis.scores import check_images
from keras_highway.cli.errors import OK, USAGE, UsageError, check_out, usage_errors
from keras_highway.cli.image_classifier import ImageClassifier, find_classifier, find_classifier_and_data
from keras_highway.data.photographs import PhotographSet, folder_test_set, holds_photographs, read_batches, some_of
from keras_highway.reporting import default_samples, make_report, numbers_of, write_report

_SUFFIX = ".html"
_BATCH = 100


def run(arguments) -> int:
    """Writes the page and the numbers beside it, and prints their paths; code 2 where images could not be read."""
    check_out(arguments.out, _SUFFIX)
    out = Path(arguments.out)
    check_out(str(out.with_suffix(".json")), ".json")
    with usage_errors():
        numbers_of(out)  # it would be a pity to be refused after all that work
    # TensorFlow warns that many functions are traced: every analysis has a network of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    if holds_photographs(arguments.data):
        classifier = find_classifier(arguments.weights, arguments.data_set)
        with usage_errors():
            test_set = folder_test_set(arguments.data, len(classifier.classes), class_names=classifier.class_names())
        model, where = classifier.model(), test_set.name
        samples = _samples(model, arguments)
        images, labels, broken = _photographs(classifier, test_set, samples)
    else:
        classifier, data = find_classifier_and_data(arguments.weights, arguments.data_set, arguments.data)
        model, where = classifier.model(), classifier.data
        with usage_errors():
            check_images(model, data.x_test, where)
        samples = _samples(model, arguments)
        images, labels, broken = data.x_test, data.y_test, 0
    report = make_report(
        model,
        (images, labels),
        f"{classifier.weights} on {where}",
        transform=classifier.transform.apply,
        classes=[name for _, name in classifier.classes],
        samples=samples,
        progress=True,
    )
    with usage_errors():
        numbers = write_report(report, out)
    analyses = f"{len(report.sections)} analyses over {report.facts['images']} test images"
    unread = f"; {broken} files could not be read" if broken else ""
    print(visible(f"wrote {analyses} to {out} and {numbers}{unread}"))
    return USAGE if broken else OK


def _samples(model: keras.Model, arguments) -> int:
    """How many images are drawn; a model without blocks is refused before any is read."""
    with usage_errors():
        blocks(model)
    return arguments.samples or default_samples(model)


def _photographs(
    classifier: ImageClassifier, test_set: PhotographSet, samples: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Pixels and labels of the images that are drawn, and how many of their files could not be read; these are named.

    Only what is drawn is read: a folder may hold millions.
    """
    drawn = some_of(test_set, samples)
    batches = []
    with tqdm(total=drawn.images, unit=" images", disable=None, leave=False) as bar:
        for batch in read_batches(drawn.photographs, classifier.transform, _BATCH):
            for error in batch.errors:
                print(visible(error), file=sys.stderr)
            batches.append(batch)
            bar.update(len(batch.labels) + len(batch.errors))
    good = [batch for batch in batches if len(batch.labels)]
    if not good:
        raise UsageError(f"None of the {drawn.images} files that were drawn from {drawn.name} can be read.")
    images, labels = (np.concatenate([batch[i] for batch in good]) for i in (0, 1))
    return images, labels, drawn.images - len(labels)
