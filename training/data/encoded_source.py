"""Made-up images through the whole way of photographs: encoded, in memory."""

import dataclasses

import numpy as np

from keras_highway.data import Dataset
from keras_highway.data.transforms import TRANSFORMS
from training.data.decoding import tensorflow
from training.data.folders import FolderSource
from training.recipe import Recipe


class EncodedSource(FolderSource):
    """A data set in memory as JPEGs, for tests and dry runs of recipes that need files.

    Args:
        recipe: What to train; its transform's size is that of the images.
        data: The images.
    """

    def __init__(self, recipe: Recipe, data: Dataset):
        self._recipe = recipe
        self._transform = dataclasses.replace(TRANSFORMS[recipe.transform], size=data.x_train.shape[1:3])
        train = data.x_train[: recipe.train_images], data.y_train[: recipe.train_images]
        test = data.x_test[: recipe.test_images], data.y_test[: recipe.test_images]
        self._files = {name: (_encoded(x), y.astype(np.int64)) for name, (x, y) in (("train", train), ("val", test))}
        self.images, self.test_images, self.classes = len(train[0]), len(test[0]), len(data.classes)

    def _read(self, path):
        return path  # the image itself


def _encoded(images: np.ndarray) -> np.ndarray:
    tf = tensorflow()
    return np.array([tf.io.encode_jpeg(image, quality=95).numpy() for image in images], object)
