"""Which pixels a unit can see: the receptive field, from kernels, strides and padding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import Shape
from keras_highway.analysis.graph import blocks, check_names, data_format_of, is_functional, walk, walk_nested
from keras_highway.layers import Branch, ChannelGate, GatedBlock, LowRankDense, Preprocessing, SharedKernels
from keras_highway.layers.branch import ZeroPadProjection

_CONVOLUTIONS = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D, keras.layers.SeparableConv2D)
_POOLING = (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D)
# What these give at a place, they make of what lies there; a normalization's statistics are left out.
# Augmentation does nothing outside of training.
_LAYERS_IN_PLACE = """
    Activation ReLU LeakyReLU PReLU ELU Identity Rescaling Normalization ActivityRegularization
    BatchNormalization LayerNormalization GroupNormalization RMSNormalization UnitNormalization
    Dropout SpatialDropout2D AlphaDropout GaussianDropout GaussianNoise
    Add Subtract Multiply Average Maximum Minimum
    RandomFlip RandomRotation RandomTranslation RandomZoom RandomShear RandomErasing RandomGaussianBlur
    RandomContrast RandomBrightness RandomHue RandomSaturation RandomColorJitter
"""
_IN_PLACE = tuple(getattr(keras.layers, name) for name in _LAYERS_IN_PLACE.split())
# Of `keras.ops`, whose classes have no public names.
_ELEMENTWISE = """
    Add Subtract Multiply Divide TrueDivide Negative Abs Absolute Square Sqrt Rsqrt Power Exp Expm1 Log Log1p Sign
    Maximum Minimum Clip Where Greater GreaterEqual Less LessEqual Cast Identity
    Relu Relu6 ReLU LeakyRelu Elu Selu Celu Gelu Silu Sigmoid Tanh Softplus Softsign Erf
    HardSigmoid HardSilu HardTanh LogSigmoid
"""


class Field(NamedTuple):
    """The pixels that a unit sees: unit `i` along an axis sees pixels `stride·i + first` to `stride·i + last`.

    Both ends may lie outside of the image, in the padding.

    Attributes:
        stride: int64 `(2,)`, along height and width.
        first: int64 `(2,)`.
        last: int64 `(2,)`.
    """

    stride: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """int64 `(2,)`: pixels along height and width."""
        return self.last - self.first + 1


def receptive_field(model: keras.Model, block: str | GatedBlock) -> Field:
    """Returns which pixels a block's units can see.

    Means and variances that a normalization takes over the image are left out.

    Args:
        model: A functional `keras.Model` for images, with convolutional
            gated blocks.
        block: A block's name, or the block.

    Raises:
        ValueError: For an unknown block, or if a layer before it moves pixels
            in an unknown way. Known are convolutions (separable and depthwise
            ones, too), pooling, padding, the blocks, models nested in the
            model, and what leaves every pixel at its place: Keras' activations,
            normalizations, dropouts, sums and the like, and such operations of
            `keras.ops`.
    """
    known = blocks(model)
    name = getattr(block, "name", block)
    check_names([name], known)
    data_format = data_format_of(known[name])
    fields: dict[int, Field | None] = {id(x): _start(x) for x in model.inputs}
    culprits = {id(x): f"input {x.name!r} of shape {x.shape}" for x in model.inputs if fields[id(x)] is None}
    tensors, found = [], []

    def visit(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if is_functional(layer):
            return walk_nested(layer, visit, args[0])
        inputs = [x for x in keras.tree.flatten((args, kwargs)) if keras.utils.is_keras_tensor(x)]
        before = [fields.get(id(x)) for x in inputs]
        y = layer(*args, **kwargs)
        field = None if None in before else _after(layer, _union(before), [x.shape for x in inputs], y, data_format)
        own = f"layer {layer.name!r} of type {type(layer).__name__}"
        culprit = next((culprits[id(x)] for x in inputs if id(x) in culprits), own)
        for tensor in keras.tree.flatten(y):
            fields[id(tensor)] = field
            culprits.update({id(tensor): culprit} if field is None else {})
            tensors.append(tensor)  # keeps it alive, so that no id is used twice
        if layer is known[name]:
            found.append((field, culprit))
        return y

    walk(model, visit)
    field, culprit = found[0]
    if field is None:
        raise ValueError(
            "The receptive field is known behind convolutions, pooling and padding of images only, and behind layers "
            "of Keras that leave every pixel at its place. "
            f"Received: block={name!r} of model {model.name!r}, behind {culprit}"
        )
    return field


def _start(x: Any) -> Field | None:
    return Field(np.ones(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)) if len(x.shape) == 4 else None


def _union(fields: Sequence[Field | None]) -> Field | None:
    known = [field for field in fields if field is not None]
    if not known or len(known) < len(fields) or any((f.stride != known[0].stride).any() for f in known):
        return None
    return Field(known[0].stride, np.min([f.first for f in known], 0), np.max([f.last for f in known], 0))


def _window(field: Field, kernel: Any, stride: Any = 1, before: Any = 0) -> Field:
    """The field behind a window that slides over `field`, with `before` pixels of padding before it."""
    kernel, stride, before = (np.broadcast_to(np.asarray(v, np.int64), 2) for v in (kernel, stride, before))
    first = field.first - field.stride * before
    return Field(field.stride * stride, first, field.last + field.stride * (kernel - 1 - before))


def _after(layer: Any, field: Field | None, shapes: Sequence[Shape], y: Any, data_format: str) -> Field | None:
    """The field behind a layer that gets images of `shapes` and gives `y` (`None` for a block's path)."""
    if field is None:
        return None
    if isinstance(layer, GatedBlock):
        skip = [] if layer.is_transition else [field]
        return _union([*skip, *(_after(path, field, shapes[:1], None, data_format) for _, path in layer.paths())])
    if isinstance(layer, (SharedKernels, ChannelGate)):
        return field  # sees no pixel: the field of its input is part of that of every block behind it
    if _is_in_place(layer, shapes, y, data_format):
        return field
    if getattr(layer, "data_format", None) != data_format:
        return None
    if isinstance(layer, Branch):
        for kernel, stride in zip(layer.kernel_sizes, layer.strides, strict=True):
            field = _window(field, kernel, stride, (np.asarray(kernel) - 1) // 2)
        return field
    if isinstance(layer, ZeroPadProjection):
        return _window(field, 1, layer.stride)
    if isinstance(layer, _CONVOLUTIONS):
        kernel = (np.array(layer.kernel_size) - 1) * layer.dilation_rate + 1
        return _window(field, kernel, layer.strides, _padding(layer, kernel, shapes[0]))
    if isinstance(layer, _POOLING):
        kernel = np.array(layer.pool_size)
        return _window(field, kernel, layer.strides, _padding(layer, kernel, shapes[0]))
    if isinstance(layer, keras.layers.ZeroPadding2D):
        return _window(field, 1, 1, [sides[0] for sides in layer.padding])
    return None


def _is_in_place(layer: Any, shapes: Sequence[Shape], y: Any, data_format: str) -> bool:
    """Whether a unit sees what lies at its own place, and no more.

    By a list, for sizes do not tell: of images of unknown size they are equal behind a stride, too.
    """
    channels_first = data_format == "channels_first"
    if isinstance(layer, (keras.layers.Dense, LowRankDense)):
        return not channels_first  # they mix what is in the last axis
    out = [y.shape] if hasattr(y, "shape") else []
    if len({_image(shape, data_format) for shape in [*shapes, *out]}) != 1 or {len(s) for s in [*shapes, *out]} != {4}:
        return False
    operation = "" if isinstance(layer, keras.layers.Layer) else type(layer).__name__
    if isinstance(layer, (keras.layers.Concatenate, keras.layers.Softmax)) or operation in ("Concatenate", "Softmax"):
        return isinstance(layer.axis, int) and layer.axis % 4 == (1 if channels_first else 3)
    return isinstance(layer, (*_IN_PLACE, Preprocessing)) or operation in _ELEMENTWISE.split()


def _image(shape: Shape, data_format: str) -> tuple[int | None, ...]:
    """Height and width."""
    return tuple(shape[2:]) if data_format == "channels_first" else tuple(shape[1:3])


def _padding(layer: Any, kernel: Any, shape: Shape) -> np.ndarray:
    """Pixels before the first window with padding="same": half of what is missing, rounded down."""
    if layer.padding == "valid":
        return np.zeros(2, np.int64)
    stride = np.array(layer.strides)
    # Of an image of unknown size, a multiple of the stride is the likely one.
    size = np.array([s if n is None else n for n, s in zip(_image(shape, layer.data_format), stride, strict=True)])
    return np.maximum((-(-size // stride) - 1) * stride + kernel - size, 0) // 2
