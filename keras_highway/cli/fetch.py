"""`fetch`: weights into the cache, for later use without a network."""

from keras_highway.applications import get_spec
from keras_highway.cli.errors import OK, usage_errors
from keras_highway.weights.resolve import locate


def run(arguments) -> int:
    """Prints where the file is."""
    with usage_errors():
        located = locate(arguments.weights)
        if located.variant:  # a language model without its words is of no use
            locate(arguments.weights, beside=get_spec(located.variant).task.files)
        print(located.path)
    return OK
