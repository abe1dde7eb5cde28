"""RandAugment as timm defines it, by Pillow: which operations, how strong, with what chance [Cubuk et al. 2019; RSB].

Pillow makes every operation, as it does for timm, so that both give the same
pixels. It lets go of Python's lock while it resizes, transforms and filters.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from keras_highway.training.recipe import LARGEST, parse_policy

_FILTERS = {"bilinear": (Image.Resampling.BILINEAR,), "bicubic": (Image.Resampling.BICUBIC,)}
_FILTERS["random"] = _FILTERS["bilinear"] + _FILTERS["bicubic"]


class Context(NamedTuple):
    """What operations other than those on colours need.

    Attributes:
        fill: Colour of what comes from outside of the image.
        resample: Filter of geometric operations.
    """

    fill: tuple[int, int, int]
    resample: Image.Resampling


class Operation(NamedTuple):
    """One operation.

    Attributes:
        apply: Function (image, argument, context) to an image.
        argument: Function from a magnitude, in [0, 10], to the argument.
        signed: Whether the argument's sign, or for colours the side of 1 on
            which their factor lies, is drawn, too.
    """

    apply: Callable[[Image.Image, float, Context], Image.Image]
    argument: Callable[[float], float]
    signed: bool = False


def _nothing(magnitude: float) -> float:
    return 0.0


def _up_to(largest: float) -> Callable[[float], float]:
    return lambda magnitude: magnitude / LARGEST * largest


def _enhanced(enhancer) -> Operation:
    """Blends an image with its degenerate form: by a factor up to 0.9 away from 1, which would change nothing."""
    return Operation(lambda image, shift, _: enhancer(image).enhance(max(0.1, 1.0 + shift)), _up_to(0.9), signed=True)


def _affine(image, matrix, context):
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=context.resample, fillcolor=context.fill
    )


def _rotate(image, degrees, context):
    return image.rotate(degrees, resample=context.resample, fillcolor=context.fill)


def _posterize(image, bits, _):
    # By a table: Pillow's own refuses 0 bits, which magnitude 10 requires: black.
    return image.point([i & -(1 << (8 - int(bits))) for i in range(256)] * 3)


def _solarize_add(image, add, _):
    return image.point([min(255, i + int(add)) if i < 128 else i for i in range(256)] * 3)


# In timm's order, which is also that of the draws.
OPERATIONS: dict[str, Operation] = {
    "AutoContrast": Operation(lambda image, *_: ImageOps.autocontrast(image), _nothing),
    "Equalize": Operation(lambda image, *_: ImageOps.equalize(image), _nothing),
    "Invert": Operation(lambda image, *_: ImageOps.invert(image), _nothing),
    "Rotate": Operation(_rotate, _up_to(30.0), signed=True),
    "Posterize": Operation(_posterize, lambda m: 4 - int(m / 10 * 4)),
    "Solarize": Operation(lambda image, at, _: ImageOps.solarize(image, int(at)), lambda m: 256 - int(m / 10 * 256)),
    "SolarizeAdd": Operation(_solarize_add, lambda m: int(m / 10 * 110)),
    "Color": _enhanced(ImageEnhance.Color),
    "Contrast": _enhanced(ImageEnhance.Contrast),
    "Brightness": _enhanced(ImageEnhance.Brightness),
    "Sharpness": _enhanced(ImageEnhance.Sharpness),
    "ShearX": Operation(lambda i, shear, c: _affine(i, (1, shear, 0, 0, 1, 0), c), _up_to(0.3), signed=True),
    "ShearY": Operation(lambda i, shear, c: _affine(i, (1, 0, 0, shear, 1, 0), c), _up_to(0.3), signed=True),
    "TranslateXRel": Operation(
        lambda i, share, c: _affine(i, (1, 0, share * i.width, 0, 1, 0), c), _up_to(0.45), signed=True
    ),
    "TranslateYRel": Operation(
        lambda i, share, c: _affine(i, (1, 0, 0, 0, 1, share * i.height), c), _up_to(0.45), signed=True
    ),
}


class RandAugment:
    """A policy with its colours and filter.

    Args:
        policy: Its name, e.g. `"m7-mstd0.5-inc1"`.
        fill: Colour of what comes from outside of the image; timm's is the
            data set's mean, rounded. Defaults to ImageNet's.
        interpolation: `"bicubic"`, `"bilinear"` or `"random"`, one of both for
            each operation. Defaults to `"bicubic"`.

    Raises:
        ValueError: For an unknown policy or interpolation.
    """

    def __init__(self, policy: str, fill=(124, 116, 104), interpolation: str = "bicubic"):
        if interpolation not in _FILTERS:
            raise ValueError(
                f"`interpolation` must be one of {', '.join(_FILTERS)}. Received: interpolation={interpolation!r}"
            )
        self.policy, self.fill, self._filters = parse_policy(policy), fill, _FILTERS[interpolation]

    def __call__(self, image: Image.Image, draw: np.random.Generator) -> Image.Image:
        """Return the image after the operations drawn for it.

        Args:
            image: RGB.
            draw: Where random numbers come from.
        """
        for name, argument, resample in self.drawn(draw):
            image = OPERATIONS[name].apply(image, argument, Context(self.fill, resample))
        return image

    def drawn(self, draw: np.random.Generator) -> list[tuple[str, float, Image.Resampling]]:
        """Return the operations to do, in order: names, arguments and filters."""
        policy, names, drawn = self.policy, tuple(OPERATIONS), []
        for _ in range(policy.operations):
            # All are drawn, whether needed or not: what one operation does must not move the next one's numbers.
            name = names[draw.integers(len(names))]
            done, negative = draw.random() < policy.probability, draw.random() < 0.5
            magnitude = min(max(draw.normal(policy.magnitude, policy.deviation), 0.0), LARGEST)
            resample = self._filters[draw.integers(len(self._filters))]
            if done:
                drawn.append((name, argument(name, magnitude, negative), resample))
        return drawn


def argument(name: str, magnitude: float, negative: bool) -> float:
    """Return an operation's argument.

    Args:
        name: One of `OPERATIONS`.
        magnitude: In [0, 10].
        negative: Whether the argument of a signed operation is below 0.
    """
    operation = OPERATIONS[name]
    value = operation.argument(magnitude)
    return -value if negative and operation.signed else value
