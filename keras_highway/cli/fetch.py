"""`fetch`: weights into the cache, for later use without a network."""

from keras_highway._support.terminal import visible
from keras_highway.cli.errors import OK, usage_errors
from keras_highway.weights import registry
from keras_highway.weights.resolve import resolve
from keras_highway.weights.torch_files import pin


def run(arguments) -> int:
    """Prints where the file is, and what it is pinned to."""
    with usage_errors():
        if arguments.pin:
            pinned = pin(registry.get(arguments.weights))
            print(f"{arguments.weights}: commit {pinned['revision']}, sha256 {pinned['sha256']}")
        print(visible(resolve(arguments.weights).path))
    return OK
