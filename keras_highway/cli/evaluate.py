"""`evaluate`: accuracy and loss, or perplexity, on a test set, beside what was recorded."""

import sys

from keras_highway._support.terminal import json_text, visible
from keras_highway.analysis.scores import check_images, measure
from keras_highway.cli import evaluate_language, evaluate_photographs
from keras_highway.cli.errors import OK, LanguageModelError, UsageError, usage_errors
from keras_highway.cli.image_classifier import find_classifier_and_data
from keras_highway.cli.tables import percent
from keras_highway.data.datasets import holds_shards
from keras_highway.data.photographs import holds_photographs
from keras_highway.tasks import format_recorded, is_of, measured_on, of_this_file

_BATCH = 500
_RECORDED = ("metric", "mean", "std", "n", "holdout_images", "test_images")


def run(arguments) -> int:
    """Prints a line, or JSON; a progress bar on a terminal."""
    try:
        return _of_images(arguments)
    except LanguageModelError:  # known once the weights were looked up, before any data were read
        return evaluate_language.run(arguments)


def _of_images(arguments) -> int:
    if arguments.tfds or holds_photographs(arguments.data) or holds_shards(arguments.data):
        return evaluate_photographs.run(arguments)
    for_photographs = [name for name in ("v2", "real", "csv") if getattr(arguments, name)]
    if for_photographs:
        raise UsageError(f"--{for_photographs[0]} is for photographs: --data DIR of DIR/val/CLASS/* or DIR/CLASS/*.")
    classifier, data = find_classifier_and_data(arguments.weights, arguments.data_set, arguments.data)
    model = classifier.model(classifier_activation=None)
    with usage_errors():
        check_images(model, data.x_test, classifier.data)
    accuracy, loss = measure(
        model,
        (data.x_test, data.y_test),
        batch_size=arguments.batch_size or _BATCH,
        transform=classifier.transform.apply,
        progress=sys.stderr.isatty(),
    )
    same_data = classifier.result.get("data", classifier.data) == classifier.data
    recorded = (
        {key: classifier.result[key] for key in _RECORDED if key in classifier.result} | of_this_file(classifier.result)
        if classifier.result and same_data
        else None
    )
    if arguments.json:
        report = {"weights": classifier.weights, "data": classifier.data, "images": len(data.x_test)}
        print(json_text({**report, "accuracy": accuracy, "loss": loss, "recorded": recorded}))
        return OK
    where = f"{classifier.weights} on the {len(data.x_test)} test images of {classifier.data}"
    print(f"{visible(where)}: accuracy {percent(accuracy)}, loss {loss:.4f}")
    if recorded:
        print(_beside(recorded, accuracy, len(data.x_test)))
    return OK


def _beside(recorded, accuracy, images) -> str:
    """What was recorded, and the difference if it is of the same images."""
    text, before = format_recorded(recorded)
    number = visible(text)
    if not is_of(recorded, images):
        return f"recorded {measured_on(recorded)}: {number}; not compared"
    return f"recorded: {number}; here {100 * (accuracy - before):+z.2f} points"
