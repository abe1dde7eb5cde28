"""`fetch`: weights into the cache, for later use without a network."""

from keras_highway.cli.errors import OK, usage_errors
from keras_highway.weights.resolve import resolve


def run(arguments) -> int:
    """Prints where the file is."""
    with usage_errors():
        print(resolve(arguments.weights).path)
    return OK
