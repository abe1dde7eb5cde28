"""In a checkout `python -m training.X` is `python -m keras_highway.training.X`, as older commands have it."""

from keras_highway.training import __path__ as __path__
