"""The patches of a data set that excite a unit most [UIE, Figure 4]."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway.analysis.batches import batches
from keras_highway.analysis.graph import data_format_of
from keras_highway.analysis.guided import channel_of, chosen_blocks, strongest
from keras_highway.analysis.kept_state import kept_state
from keras_highway.analysis.receptive_field import Field, receptive_field
from keras_highway.analysis.trace import Tracer
from keras_highway.layers import GatedBlock
from keras_highway.layers.base import checked_size


class Patches(NamedTuple):
    """The patches that excite a unit most, the strongest first; at most one per image.

    Attributes:
        block: The block's name.
        channel: The unit's channel.
        patches: `(count, height, width, channels)`, cut from the data as
            passed, in their dtype and layout.
        image: int64 `(count,)`, which sample of the data.
        corner: int64 `(count, 2)`, row and column of the patch's first pixel.
        position: int64 `(count, 2)`, row and column in the block's output.
        value: float32 `(count,)`, the activation.
        data_format: `"channels_last"` or `"channels_first"`, that of the
            patches; `None` for Keras's own.
    """

    block: str
    channel: int
    patches: np.ndarray
    image: np.ndarray
    corner: np.ndarray
    position: np.ndarray
    value: np.ndarray
    data_format: str | None = None


def top_patches(
    model: keras.Model,
    data: Iterable[Any],
    block: str | GatedBlock,
    channel: int | np.integer[Any],
    *,
    count: int = 9,
    size: int | None = None,
    batch_size: int = 100,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
) -> Patches:
    """Finds where in a data set one channel of a block's output is most active.

    A patch is what the unit can see, its receptive field; where that reaches
    beyond the image it is moved inside, and it is never larger than the image.

    Args:
        model: A functional `keras.Model` with convolutional gated blocks, for
            images of one size.
        data: An array of images, or an iterable of batches; labels are
            ignored.
        block: A block's name, or the block.
        channel: Int, which channel of its output.
        count: Int, how many patches at most. Defaults to `9`.
        size: Int, height and width of the patches. Defaults to `None`: the
            receptive field's.
        batch_size: Int, images at once. Defaults to `100`.
        transform: Function from a batch of images to the model's input; it
            keeps their shape.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `Patches`.

    Raises:
        ValueError: For an unknown block, a channel that it does not have, a
            fully connected block, or data that are empty or of another shape.
    """
    count = checked_size(count, "count")
    tracer = Tracer(model, block)
    (name,) = chosen_blocks(tracer.blocks, block)
    field, data_format = receptive_field(model, name), data_format_of(tracer.blocks[name])
    outputs = tracer.only("y")
    best: list[tuple[Any, ...]] = []
    seen = 0
    with kept_state(outputs):
        for x, _ in batches(data, model, batch_size=batch_size, progress=progress):
            y = outputs(x if transform is None else transform(x), training=False)[name]
            values = channel_of(y, tracer.blocks[name], channel)
            positions, strengths = strongest(np.asarray(ops.convert_to_numpy(ops.cast(values, "float32"))))
            x = np.asarray(x)
            for i in np.argsort(-strengths, kind="stable")[:count]:
                cut = _cut(x[i], positions[i], field, size, data_format == "channels_first")
                best.append((strengths[i], seen + i, positions[i], *cut))
            best = sorted(best, key=lambda entry: -entry[0])[:count]  # stable: of equals, the first image
            seen += len(x)
    value, image, position, patch, corner = (np.array(part) for part in zip(*best, strict=True))
    return Patches(name, int(channel), patch, image, corner, position, value, data_format)


def _cut(
    image: np.ndarray, position: np.ndarray, field: Field, size: int | None, first: bool
) -> tuple[np.ndarray, np.ndarray]:
    """A patch around what a unit sees, and its first pixel; `first` for channels that come first."""
    image = np.expand_dims(image, 0 if first else -1) if image.ndim == 2 else image
    shape = np.array(image.shape[1:] if first else image.shape[:2])
    height_width = np.minimum(field.size if size is None else checked_size(size, "size"), shape)
    middle = field.stride * position + field.first + field.last  # twice its offset, to stay in whole numbers
    middle = middle + field.stride * position
    corner = np.clip((middle - height_width + 1) // 2, 0, shape - height_width)
    rows, columns = (slice(start, start + n) for start, n in zip(corner, height_width, strict=True))
    return (image[:, rows, columns] if first else image[rows, columns]), corner
