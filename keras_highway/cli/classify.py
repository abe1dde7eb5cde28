"""`classify`: what images show."""

import keras
import numpy as np

from keras_highway._support.terminal import json_text, visible
from keras_highway.cli.errors import OK, USAGE
from keras_highway.cli.image_classifier import find_classifier
from keras_highway.cli.reading import read_images
from keras_highway.cli.tables import percent

_BATCH_SIZE = 32


def run(arguments) -> int:
    """Prints one line per image, or JSON; code 2 where some could not be read."""
    classifier = find_classifier(arguments.weights, arguments.data_set)
    pixels, errors = read_images(arguments.images, classifier, arguments.invert)
    guesses = dict(zip(pixels, _guesses(classifier, list(pixels.values()), arguments.top), strict=True))
    if arguments.json:
        images = [
            {"file": path, "error": errors[index]}
            if index in errors
            else {"file": path, "predictions": [guess._asdict() for guess in guesses[index]]}
            for index, path in enumerate(arguments.images)
        ]
        print(json_text({"weights": classifier.weights, "images": images}))
    else:
        for index, best in guesses.items():
            scores = "  ".join(f"{visible(guess.name)} {percent(guess.score)}" for guess in best)
            print(f"{visible(arguments.images[index])}: {scores}")
    return USAGE if errors else OK


def _guesses(classifier, images, top) -> list:
    if not images:
        return []
    model = classifier.model()
    guesses = []
    for start in range(0, len(images), _BATCH_SIZE):
        x = classifier.transform.apply(np.stack(images[start : start + _BATCH_SIZE]))
        # Called, not predict(): for a few images, tracing the graph takes longer than they do.
        guesses += classifier.decode(keras.ops.convert_to_numpy(model(x, training=False)), top)
    return guesses
