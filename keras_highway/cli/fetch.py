"""`fetch`: weights into the cache, for later use without a network."""

from keras_highway.cli.errors import OK, usage_errors
from keras_highway.hub import locate


def run(arguments) -> int:
    """Prints where the file is."""
    with usage_errors():
        print(locate(arguments.weights).path)
    return OK
