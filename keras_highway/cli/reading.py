"""Image files as the commands read them: what cannot be read is reported and left out."""

import sys

import numpy as np

from keras_highway._support.terminal import visible
from keras_highway.cli.image_classifier import ImageClassifier
from keras_highway.data import ImageError, load_image


def read_images(paths, classifier: ImageClassifier, invert: bool) -> tuple[dict[int, np.ndarray], dict[int, str]]:
    """Reads image files and reports broken ones on stderr.

    Args:
        paths: The files.
        classifier: The network that they are for.
        invert: Whether to swap dark and light.

    Returns:
        Two dicts by position in `paths`: uint8 pixels `(height, width,
        channels)` of what could be read, messages of what could not.
    """
    pixels, errors = {}, {}
    for index, path in enumerate(paths):
        try:
            image = load_image(path, classifier.transform)
        except ImageError as error:
            errors[index] = str(error)
            print(visible(error), file=sys.stderr)
            continue
        pixels[index] = 255 - image if invert else image
        if classifier.data == "mnist" and _border(pixels[index]).mean() > 127:
            print(
                f"{visible(path)}: note: a light background{', with --invert' if invert else ''}; the MNIST networks "
                f"were trained on white digits on black. Try {'without' if invert else 'with'} --invert.",
                file=sys.stderr,
            )
    return pixels, errors


def _border(image) -> np.ndarray:
    return np.concatenate([image[0], image[-1], image[1:-1, 0], image[1:-1, -1]])
