"""`fetch`: weights into the cache, for later use without a network."""

from keras_highway.cli.errors import OK, usage_errors
from keras_highway.publishing import kind_of
from keras_highway.weights.resolve import locate


def run(arguments) -> int:
    """Prints where the file is."""
    with usage_errors():
        located = locate(arguments.weights)
        locate(arguments.weights, beside=kind_of(located.variant).beside)  # a language model without words is no use
        print(located.path)
    return OK
