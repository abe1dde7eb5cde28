"""Where a random resized crop lies: torchvision's distribution, drawn on the host before an image is decoded."""

import math

import numpy as np

SMALLEST = 0.08
RATIO = (3 / 4, 4 / 3)
_ATTEMPTS = 10


def random_crop(
    height: int, width: int, draw: np.random.Generator, smallest: float = SMALLEST
) -> tuple[int, int, int, int]:
    """Draws a crop as torchvision's `RandomResizedCrop.get_params` and timm's do.

    Its share of the area is uniform in [`smallest`, 1], the logarithm of its aspect
    (width / height) uniform between those of 3/4 and 4/3, its position uniform;
    what does not fit is drawn again, ten times at most, and then the largest
    central crop of an aspect in that range is taken.

    Args:
        height: Of the image, pixels.
        width: The same.
        draw: Where random numbers come from.
        smallest: Smallest share of the area. Defaults to `0.08`.

    Returns:
        Top, left, height and width of the crop.
    """
    shares, log_ratios = draw.uniform(smallest, 1.0, _ATTEMPTS), draw.uniform(*np.log(RATIO), _ATTEMPTS)
    for share, log_ratio in zip(shares, log_ratios, strict=True):
        area, ratio = share * height * width, math.exp(log_ratio)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return int(draw.integers(0, height - h + 1)), int(draw.integers(0, width - w + 1)), h, w
    h, w = height, width
    if width / height < RATIO[0]:
        h = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        w = round(height * RATIO[1])
    return (height - h) // 2, (width - w) // 2, h, w
