"""Data sets and images; nothing here is imported by `import keras_highway`."""

from keras_highway.data.datasets import Dataset as Dataset
from keras_highway.data.datasets import load_dataset as load_dataset
from keras_highway.data.images import ImageError as ImageError
from keras_highway.data.images import load_image as load_image
