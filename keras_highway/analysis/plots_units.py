"""Pictures of what excites a unit: arrays in, a matplotlib figure out."""

import keras
import numpy as np

from keras_highway._support.outside_text import in_figure
from keras_highway.analysis.plots import figure_class, write


def plot_guided(guided, images=None, path=None, *, title=None):
    """Draws guided derivatives: a column an image, a row a block, the images themselves above [UIE, Figure 4].

    Grey images: red where a brighter pixel raises the activation, blue where
    it lowers it. Colour images: the derivative of each colour about grey. Each
    picture has a scale of its own; the unit's activation is written above it.

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
        raise ValueError(f"The derivatives are of {count} images. Received: {len(images)} images")
    top = int(images is not None)
    shape = (len(guided.blocks) + top, count)
    figure = figure_class()(figsize=(1.1 * count + 1.2, 1.25 * shape[0] + 0.5), layout="constrained")
    axes = figure.subplots(*shape, squeeze=False)
    for axis in axes.ravel():
        axis.set(xticks=[], yticks=[])
    for column in range(count):
        if images is not None:
            draw_image(axes[0, column], images[column])
        for row, name in enumerate(guided.blocks):
            axis = axes[row + top, column]
            _draw_derivative(axis, guided.gradient[row, column])
            axis.set_title(f"{guided.value[row, column]:.3g}", fontsize=7)
            if column == 0:
                axis.set_ylabel("\n".join(map(in_figure, name.split("_"))), fontsize=7)
    return write(figure, path, title or f"guided derivative of channel {guided.channel}, and its activation")


def plot_patches(patches, path=None, *, title=None):
    """Draws the patches that excite a unit most, in rows of three, with its activation.

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
    figure = figure_class()(figsize=(3.9, 1.35 * rows + 0.5), layout="constrained")
    axes = figure.subplots(rows, 3, squeeze=False).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, patch, value in zip(axes, patches.patches, patches.value, strict=False):
        draw_image(axis, patch)
        axis.set_title(f"{value:.3g}", fontsize=7)
    return write(figure, path, title or f"{patches.block}, channel {patches.channel}")


def draw_image(axis, image) -> None:
    """Draws an image, grey or in colour, of any range of values; uint8 as it is."""
    image = _channels_last(image)
    if image.dtype != np.uint8:
        low, high = float(image.min()), float(image.max())
        image = (image - low) / (high - low or 1.0)
    scale = {"vmin": 0, "vmax": 255 if image.dtype == np.uint8 else 1}
    axis.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray", interpolation="nearest", **scale)


def _draw_derivative(axis, gradient) -> None:
    gradient = _channels_last(gradient)
    limit = float(np.abs(gradient).max()) or 1.0
    if gradient.shape[-1] == 3:
        axis.imshow(0.5 + 0.5 * gradient / limit, interpolation="nearest")
    else:
        axis.imshow(gradient.mean(-1) / limit, vmin=-1, vmax=1, cmap="RdBu_r", interpolation="nearest")


def _channels_last(image) -> np.ndarray:
    image = np.asarray(image)
    if image.ndim == 2:
        return image[..., None]
    return np.moveaxis(image, 0, -1) if keras.config.image_data_format() == "channels_first" else image
