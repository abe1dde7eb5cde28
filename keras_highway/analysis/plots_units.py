"""Pictures of what excites a unit: arrays in, a matplotlib figure out."""

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_highway._support.terminal import in_figure
from keras_highway.analysis.guided import GuidedGradients
from keras_highway.analysis.plots import SMALL, WIDTH, bar_below, channel_axis, new_figure, write
from keras_highway.analysis.top_patches import Patches

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_guided(
    guided: GuidedGradients, images: Any = None, path: str | os.PathLike[str] | None = None, *, title: str | None = None
) -> "Figure":
    """Draws guided derivatives: one column per image, one row per block, the images themselves above [UIE, Figure 4].

    Grey images: red where a brighter pixel raises the activation, blue where
    it lowers it. Colour images: the derivative of each colour about grey. Each
    picture has a scale of its own: 1 is its largest absolute derivative. Above
    it stands the unit's activation y.

    Args:
        guided: What `guided_backprop(model, images, ...)` returned.
        images: Optional array `(n, height, width, channels)`, the images.
        path: Optional file to write.
        title: Text above the picture. Defaults to the channel.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
        ValueError: If there are not as many images as derivatives.
    """
    count = guided.value.shape[1]
    if images is not None and len(images) != count:
        raise ValueError(f"There are derivatives of {count} images. Received: {len(images)} images")
    top = int(images is not None)
    shape = (len(guided.blocks) + top, count)
    figure = new_figure((WIDTH / max(count, 3) + 0.2) * shape[0] + 1.2)
    axes = figure.subplots(*shape, squeeze=False)
    drawn = None
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    for column in range(count):
        if images is not None:
            draw_image(axes[0, column], images[column], guided.data_format)
        for row, name in enumerate(guided.blocks):
            axis = axes[row + top, column]
            drawn = _draw_derivative(axis, guided.gradient[row, column], guided.data_format)
            axis.set_title(f"y {guided.value[row, column]:#.3g}", fontsize=SMALL)
            if column == 0:
                axis.set_ylabel("\n".join(map(in_figure, name.split("_"))), fontsize=SMALL)
    note = "y: the unit's activation where it is strongest in the image"
    if _is_grey(guided.gradient[0, 0], guided.data_format):
        bar_below(figure, drawn, axes, "guided derivative of y, relative to the largest of its panel")
    else:
        note += (
            "\ncolours: guided derivative of y by red, green and blue, relative to the largest of\n"
            "its panel: grey is 0, a bright colour is what raises y, a dark one what lowers it"
        )
    figure.supxlabel(note, fontsize=9)
    return write(figure, path, title or f"guided derivative of channel {guided.channel}")


def plot_patches(patches: Patches, path: str | os.PathLike[str] | None = None, *, title: str | None = None) -> "Figure":
    """Draws the patches that excite a unit most, in rows of three, with its activation y.

    Args:
        patches: What `top_patches(model, data, ...)` returned.
        path: Optional file to write.
        title: Text above the picture. Defaults to block and channel.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    count = len(patches.patches)
    rows = -(-count // 3)
    figure = new_figure((WIDTH / 3 + 0.1) * rows + 1.2)
    axes = figure.subplots(rows, 3, squeeze=False)
    drawn = None
    for axis in axes.ravel():
        axis.axis("off")
    for axis, patch, value in zip(axes.ravel(), patches.patches, patches.value, strict=False):
        drawn = draw_image(axis, patch, patches.data_format)
        axis.set_title(f"y {value:#.3g}", fontsize=9)
    if _is_grey(patches.patches[0], patches.data_format):
        whole = patches.patches.dtype == np.uint8
        label = "value of a pixel" if whole else "value of a pixel, from the lowest to the highest of its patch"
        bar_below(figure, drawn, axes, label)
    figure.supxlabel("y: activation of the unit that sees the patch", fontsize=9)
    return write(figure, path, title or f"{patches.block}, channel {patches.channel}")


def draw_image(axis: Any, image: Any, data_format: str | None = None) -> Any:
    """Draws an image, grey or in colour, of any range of values; uint8 as it is. Returns what a colour bar needs."""
    image = _channels_last(image, data_format)
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = (image - low) / (high - low or 1.0)
    scale = {"vmin": 0, "vmax": 255 if image.dtype == np.uint8 else 1}
    if image.shape[-1] not in (1, 3, 4):  # no colours: the mean over the channels
        image = image.mean(-1, keepdims=True)
    image = image.squeeze(-1) if image.shape[-1] == 1 else image
    return axis.imshow(image, cmap="gray", interpolation="nearest", **scale)


def _draw_derivative(axis: Any, gradient: np.ndarray, data_format: str | None):
    grey, gradient = _is_grey(gradient, data_format), _channels_last(gradient, data_format)
    limit = float(np.abs(gradient).max()) or 1.0
    if not grey:
        return axis.imshow(0.5 + 0.5 * gradient / limit, interpolation="nearest")
    return axis.imshow(gradient.mean(-1) / limit, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")


def _is_grey(image: np.ndarray, data_format: str | None) -> bool:
    """Whether an image has no colours, so that a colour bar can show what its values are."""
    return _channels_last(image, data_format).shape[-1] != 3


def _channels_last(image: np.ndarray, data_format: str | None) -> np.ndarray:
    image = np.asarray(image)
    if image.ndim == 2:
        return image[..., None]
    return np.moveaxis(image, channel_axis(data_format), -1)
