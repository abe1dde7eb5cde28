"""What a part of a report consists of, and what is measured."""

import io
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

_DPI = 180  # sharp at the width of a page, and on a phone


class Picture(NamedTuple):
    """A picture of a section.

    Attributes:
        png: The file's bytes.
        caption: What it shows, in words: also its alternative text.
    """

    png: bytes
    caption: str


class Section(NamedTuple):
    """A part of a report.

    Attributes:
        key: Its name in the JSON, e.g. `"lesions"`.
        title: Its heading.
        text: A few sentences: what was done, and what came out.
        pictures: Its pictures; none where there is nothing to draw.
        numbers: Dict of plain values and lists; `{"absent": reason}` where
            the network has no such thing.
    """

    key: str
    title: str
    text: str
    pictures: tuple[Picture, ...]
    numbers: dict


class ReportInput(NamedTuple):
    """A network and the images it is measured with.

    Attributes:
        model: The network.
        images: Pixels `(n, height, width, channels)`.
        labels: int64 `(n,)`.
        transform: Function from pixels to the network's input, or `None`.
        classes: Names of the classes.
    """

    model: keras.Model
    images: np.ndarray
    labels: np.ndarray
    transform: Callable | None
    classes: tuple[str, ...]

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels."""
        return self.images, self.labels

    @property
    def options(self) -> dict:
        """How the analyses take these data: fewer large images at once."""
        return {"transform": self.transform, "batch_size": 100 if self.images[0].size <= 32 * 32 * 3 else 10}


def picture(figure, caption) -> Picture:
    """Returns a matplotlib figure as a `Picture`."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI, metadata={"Software": None})  # the same numbers give the same bytes
    return Picture(file.getvalue(), caption)


def absent(key, title, reason) -> Section:
    """Returns the section of something that the network does not have.

    Args:
        key: As in `Section`.
        title: As in `Section`.
        reason: Why, or the error that explains it.
    """
    text = str(reason).split(" Received:")[0]
    return Section(key, title, text, (), {"absent": text})
