"""Data sets and images; what needs Pillow is imported on first use."""

import typing as _typing

from keras_highway._support.backend import only_public as _only_public
from keras_highway.data.datasets import Dataset as Dataset
from keras_highway.data.datasets import load_dataset as load_dataset
from keras_highway.data.datasets import sample_digits as sample_digits
from keras_highway.data.transforms import Transform as Transform

if _typing.TYPE_CHECKING:
    from keras_highway.data.images import ImageError as ImageError
    from keras_highway.data.images import load_image as load_image


_LAZY = ("ImageError", "load_image")


def __getattr__(name: str) -> _typing.Any:
    """Import what needs Pillow on first access: training does without."""
    if name in _LAZY:
        from keras_highway.data import images

        return getattr(images, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_only_public(__name__, lazy=_LAZY)
