"""Made-up images through the whole way of photographs: encoded, in memory."""

import dataclasses

import numpy as np

from keras_highway._support.host_tensorflow import tensorflow
from keras_highway.data import Dataset
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.training.data.folders import FolderSource
from keras_highway.training.recipe import Recipe


class EncodedSource(FolderSource):
    """A data set in memory as JPEGs, for tests and dry runs of recipes that need files.

    Args:
        recipe: What to train; its transform's size is that of the images.
        data: The images.
    """

    def __init__(self, recipe: Recipe, data: Dataset):
        transform = dataclasses.replace(TRANSFORMS[recipe.transform], size=data.x_train.shape[1:3])
        splits = {"train": (data.x_train, data.y_train), "val": (data.x_test, data.y_test)}
        files = {name: (_encoded(x), y.astype(np.int64)) for name, (x, y) in splits.items()}
        self._start(recipe, transform, files, len(data.classes))

    def _read(self, path):
        return path  # the image itself


def _encoded(images: np.ndarray) -> np.ndarray:
    tf = tensorflow()
    return np.array([tf.io.encode_jpeg(image, quality=95).numpy() for image in images], object)
