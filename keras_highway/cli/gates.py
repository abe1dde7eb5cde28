"""`gates`: a picture of every block's gate activity for an image."""

from pathlib import Path

from keras_highway._support.files import atomic_write
from keras_highway._support.terminal import visible
from keras_highway.analysis import plot_gates, trace
from keras_highway.cli.errors import OK, USAGE, check_out, usage_errors
from keras_highway.cli.image_classifier import find_classifier
from keras_highway.cli.reading import read_images
from keras_highway.cli.tables import percent

_SUFFIX = ".png"
_NAMES = {"t": "transform", "c": "carry"}


def run(arguments) -> int:
    """Writes the picture, whole or not at all, and prints its path."""
    check_out(arguments.out, _SUFFIX)
    classifier = find_classifier(arguments.weights, arguments.data_set)
    pixels, errors = read_images([arguments.image], classifier, arguments.invert)
    if errors:
        return USAGE
    with usage_errors():  # nets in a scan have no blocks
        traces = trace(classifier.model(), classifier.transform.apply(pixels[0][None]))
    constant = {gate: any(getattr(entry, gate).ndim == 0 for entry in traces.values()) for gate in _NAMES}
    gate = "c" if constant["t"] and not constant["c"] else "t"
    best = classifier.decode(traces.output, top=1)[0][0]
    out = Path(arguments.out)
    title = f"{Path(arguments.image).name}: {best.name} ({percent(best.score)}) by {classifier.weights}"
    with usage_errors():
        atomic_write(out, lambda path: plot_gates(traces, pixels[0].squeeze(), path, gate=gate, title=title))
    print(f"wrote the {_NAMES[gate]} gates of {len(traces)} blocks to {visible(out)}")
    return OK
