"""Which pixels a unit can see: the receptive field, from kernels, strides and padding."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.type_aliases import Shape
from keras_highway.analysis.graph import blocks, check_names, holds_blocks, walk, walk_nested
from keras_highway.layers import Branch, GatedBlock, SharedKernels
from keras_highway.layers.branch import ZeroPadProjection

_POOLING = (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D)


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

    Args:
        model: A functional `keras.Model` for images, with convolutional
            gated blocks.
        block: A block's name, or the block.

    Raises:
        ValueError: For an unknown block, or if a layer before it moves pixels
            in an unknown way (convolutions, pooling, padding, the blocks, and
            layers that keep the image's size are known).
    """
    known = blocks(model)
    name = getattr(block, "name", block)
    check_names([name], known)
    fields: dict[int, Field | None] = {id(x): _start(x) for x in model.inputs}
    tensors, block_fields = [], []

    def visit(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if holds_blocks(layer):
            return walk_nested(layer, visit, args[0])
        inputs = [x for x in keras.tree.flatten((args, kwargs)) if keras.utils.is_keras_tensor(x)]
        before = [fields.get(id(x)) for x in inputs]
        y = layer(*args, **kwargs)
        field = None if None in before else _after(layer, _union(before), inputs[0].shape, y)
        for tensor in keras.tree.flatten(y):
            fields[id(tensor)] = field
            tensors.append(tensor)  # keeps it alive, so that no id is used twice
        if layer is known[name]:
            block_fields.append(field)
        return y

    walk(model, visit)
    if block_fields[0] is None:
        raise ValueError(
            "The receptive field is known behind convolutions, pooling and padding of images only. "
            f"Received: block={name!r} of model {model.name!r}"
        )
    return block_fields[0]


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


def _after(layer: Any, field: Field | None, shape: Shape, y: Any) -> Field | None:
    """The field behind a layer that gets `shape` and gives `y`."""
    if field is None:
        return None
    if isinstance(layer, GatedBlock):
        skip = [] if layer.is_transition else [field]
        return _union([*skip, *(_after(path, field, shape, None) for _, path in layer.paths())])
    if isinstance(layer, SharedKernels):
        return field  # sees no pixel: the field of its input is part of that of every block behind it
    if isinstance(layer, Branch):
        for kernel, stride in zip(layer.kernel_sizes, layer.strides, strict=True):
            field = _window(field, kernel, stride, (np.asarray(kernel) - 1) // 2)
        return field
    if isinstance(layer, ZeroPadProjection):
        return _window(field, 1, layer.stride)
    if isinstance(layer, keras.layers.Conv2D):
        kernel = (np.array(layer.kernel_size) - 1) * layer.dilation_rate + 1
        return _window(field, kernel, layer.strides, _padding(layer, kernel, shape))
    if isinstance(layer, _POOLING):
        kernel = np.array(layer.pool_size)
        return _window(field, kernel, layer.strides, _padding(layer, kernel, shape))
    if isinstance(layer, keras.layers.ZeroPadding2D):
        return _window(field, 1, 1, [sides[0] for sides in layer.padding])
    same = y is None or (hasattr(y, "shape") and len(y.shape) == 4 and _image(y.shape, layer) == _image(shape, layer))
    return field if same else None


def _image(shape: Shape, layer: Any) -> tuple[int | None, ...]:
    """Height and width."""
    first = getattr(layer, "data_format", None) or keras.config.image_data_format()
    return tuple(shape[2:]) if first == "channels_first" else tuple(shape[1:3])


def _padding(layer: Any, kernel: Any, shape: Shape) -> np.ndarray:
    """Pixels before the first window with padding="same": half of what is missing, rounded down."""
    if layer.padding == "valid":
        return np.zeros(2, np.int64)
    stride = np.array(layer.strides)
    # Of an image of unknown size, a multiple of the stride is the likely one.
    size = np.array([s if n is None else n for n, s in zip(_image(shape, layer), stride, strict=True)])
    return np.maximum((-(-size // stride) - 1) * stride + kernel - size, 0) // 2
