"""`report`: every analysis of a network, as one HTML page and JSON."""

import logging
from pathlib import Path

from keras_highway._support.outside_text import visible
from keras_highway.cli.errors import OK, check_out, usage_errors
from keras_highway.cli.image_classifier import find_classifier_and_data
from keras_highway.reporting import make_report, numbers_of, write_report

_SUFFIX = ".html"


def run(arguments) -> int:
    """Writes the page and the numbers beside it, and prints their paths."""
    check_out(arguments.out, _SUFFIX)
    out = Path(arguments.out)
    check_out(str(out.with_suffix(".json")), ".json")
    with usage_errors():
        numbers_of(out)  # it would be a pity to be refused after all that work
    classifier, data = find_classifier_and_data(arguments.weights, arguments.data_set, arguments.data)
    # TensorFlow warns that many functions are traced: every analysis has a network of its own.
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    model = classifier.model()
    report = make_report(
        model,
        (data.x_test, data.y_test),
        f"{classifier.weights} on {classifier.data}",
        transform=classifier.transform.apply,
        classes=[name for _, name in classifier.classes],
        samples=arguments.samples,
        progress=True,
    )
    with usage_errors():
        numbers = write_report(report, out)
    analyses = f"{len(report.sections)} analyses over {report.facts['images']} test images"
    print(visible(f"wrote {analyses} to {out} and {numbers}"))
    return OK
