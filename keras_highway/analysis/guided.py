"""Guided backpropagation, receptive fields and top patches of a unit [UIE, Figure 4]."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import Shape
from keras_highway._support.numerics import input_gradient, with_gradient
from keras_highway._support.schema import checked_size, is_whole
from keras_highway.analysis.trace import (
    Blocks,
    Tracer,
    batches,
    block_names,
    blocks,
    check_batch,
    data_format_of,
    is_functional,
    kept_state,
    stages,
    walk,
    walk_nested,
)
from keras_highway.layers import Branch, ChannelGate, GatedBlock, LowRankDense, Preprocessing, SharedKernels
from keras_highway.layers.blocks import ZeroPadProjection
from keras_highway.models.transfer import without_updates

_CONVOLUTIONS = (keras.layers.Conv2D, keras.layers.DepthwiseConv2D, keras.layers.SeparableConv2D)
_POOLING = (keras.layers.MaxPooling2D, keras.layers.AveragePooling2D)
# The output of these at a position depends on the input there, apart from the statistics of a normalization.
# Augmentation does nothing in inference.
_LAYERS_IN_PLACE = """
    Activation ReLU LeakyReLU PReLU ELU Identity Rescaling Normalization ActivityRegularization
    BatchNormalization LayerNormalization GroupNormalization RMSNormalization UnitNormalization
    Dropout SpatialDropout2D AlphaDropout GaussianDropout GaussianNoise
    Add Subtract Multiply Average Maximum Minimum
    RandomFlip RandomRotation RandomTranslation RandomZoom RandomShear RandomErasing RandomGaussianBlur
    RandomContrast RandomBrightness RandomHue RandomSaturation RandomColorJitter
"""
_IN_PLACE = tuple(getattr(keras.layers, name) for name in _LAYERS_IN_PLACE.split())
# Operations of `keras.ops`; their classes have no public names.
_ELEMENTWISE = """
    Add Subtract Multiply Divide TrueDivide Negative Abs Absolute Square Sqrt Rsqrt Power Exp Expm1 Log Log1p Sign
    Maximum Minimum Clip Where Greater GreaterEqual Less LessEqual Cast Identity
    Relu Relu6 ReLU LeakyRelu Elu Selu Celu Gelu Silu Sigmoid Tanh Softplus Softsign Erf
    HardSigmoid HardSilu HardTanh LogSigmoid
"""


class Field(NamedTuple):
    """Pixels that a unit sees: along an axis, unit `i` sees pixels `stride·i + first` to `stride·i + last`.

    Both ends may lie outside the image, in the padding.

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
        """Return int64 `(2,)`: number of pixels along height and width."""
        return self.last - self.first + 1


def receptive_field(model: keras.Model, block: str | GatedBlock) -> Field:
    """Return the pixels that the units of a block see.

    Means and variances that a normalization takes over the image are ignored.

    Args:
        model: A functional `keras.Model` for images, with convolutional
            gated blocks.
        block: Name of a block, or the block.

    Raises:
        ValueError: If the block is unknown, or a layer before it may move
            pixels. Known layers are convolutions (also separable and
            depthwise), pooling, padding, blocks, nested models, and the
            activations, normalizations, dropouts and sums of Keras.
    """
    known = blocks(model)
    (name,) = block_names(block, known)
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
            "All layers before `block` must be convolutions, pooling, padding, or layers that do not move pixels. "
            f"Received: block={name!r}, after {culprit}"
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
    """Return the field behind a window that slides over `field`, with `before` pixels of padding before it."""
    kernel, stride, before = (np.broadcast_to(np.asarray(v, np.int64), 2) for v in (kernel, stride, before))
    first = field.first - field.stride * before
    return Field(field.stride * stride, first, field.last + field.stride * (kernel - 1 - before))


def _after(layer: Any, field: Field | None, shapes: Sequence[Shape], y: Any, data_format: str) -> Field | None:
    """Return the field behind a layer that maps images of `shapes` to `y` (`None` for the path of a block)."""
    if field is None:
        return None
    if isinstance(layer, GatedBlock):
        skip = [] if layer.is_transition else [field]
        return _union([*skip, *(_after(path, field, shapes[:1], None, data_format) for _, path in layer.paths())])
    if isinstance(layer, (SharedKernels, ChannelGate)):
        return field  # sees no pixel: every block behind it has the field of its input, too
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
    """Return whether a unit sees only its own position, for images of any size."""
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
    """Return height and width."""
    return tuple(shape[2:]) if data_format == "channels_first" else tuple(shape[1:3])


def _padding(layer: Any, kernel: Any, shape: Shape) -> np.ndarray:
    """Return the pixels before the first window with padding="same": half of the missing ones, rounded down."""
    if layer.padding == "valid":
        return np.zeros(2, np.int64)
    stride = np.array(layer.strides)
    # Assume that an image of unknown size is a multiple of the stride.
    size = np.array([s if n is None else n for n, s in zip(_image(shape, layer.data_format), stride, strict=True)])
    return np.maximum((-(-size // stride) - 1) * stride + kernel - size, 0) // 2


_RELUS = (keras.activations.relu, ops.relu, keras.activations.relu6, ops.relu6)
_OPERATIONS = ("Relu", "Relu6", "ReLU")  # classes without public names


class GuidedGradients(NamedTuple):
    """Guided derivatives of the activation of one unit with respect to images.

    Attributes:
        blocks: Names of the blocks, in the order of the network.
        channel: Channel of the unit.
        gradient: float32 `(blocks, n, height, width, channels)`, in the
            layout of the model's input: positive where a brighter pixel
            raises the activation.
        position: int64 `(blocks, n, 2)`, row and column of the unit: the most
            active position of the channel. `(blocks, n, 0)` for fully
            connected blocks.
        value: float32 `(blocks, n)`, the activation.
        data_format: `"channels_last"` or `"channels_first"`; `None` for
            Keras's own.
    """

    blocks: tuple[str, ...]
    channel: int
    gradient: np.ndarray
    position: np.ndarray
    value: np.ndarray
    data_format: str | None = None


def guided_backprop(
    model: keras.Model,
    images: Any,
    block: Blocks,
    channel: int | np.integer[Any],
    *,
    transform: Callable[[Any], Any] | None = None,
) -> GuidedGradients:
    """Return the guided gradients of a unit with respect to images (guided backpropagation).

    Every ReLU also sets negative gradients to zero, so that only pixels that
    excite the unit remain. This includes ReLUs in nested models, but not leaky
    ReLUs and `keras.ops.relu` inside your own layers. The unit is a channel of
    the output `y` of a block, at its most active position in each image.

    ```python
    best = kh.analysis.top_patches(model, images, "stage1_block3", channel=5)
    guided = kh.analysis.guided_backprop(model, images[best.image], "stage1", channel=5)   # the stage's blocks
    kh.analysis.plot_guided(guided, images[best.image])
    ```

    Args:
        model: A functional `keras.Model` with gated blocks. It is unchanged:
            the ReLUs are replaced in a copy.
        images: Array `(n, height, width, channels)`.
        block: Name of a block, the block, a list of them, or the name of a
            stage, e.g. `"stage2"`.
        channel: Int, channel of the output of the blocks.
        transform: Function from `images` to the input of the model. Defaults to
            `None`: the images are the input.

    Returns:
        A `GuidedGradients`.

    Raises:
        ValueError: If a block, stage or channel is unknown, the images do not
            fit, a layer (not a model) contains a `keras.layers.ReLU`, or the
            backend is not TensorFlow, JAX or PyTorch.
    """
    x = images if transform is None else transform(images)
    check_batch(x, model)
    x = ops.cast(ops.convert_to_tensor(x), "float32")
    known = blocks(model)
    groups = stages(known)
    names = groups[block] if isinstance(block, str) and block in groups else block_names(block, known)
    copy = _guided_copy(model)
    tracer = Tracer(copy, names)
    per_block = [_of_block(Tracer(copy, name).only("y"), name, tracer.blocks[name], channel, x) for name in names]
    gradient, position, value = (np.stack(parts) for parts in zip(*per_block, strict=True))
    data_format = _input_format(model, tracer.blocks[names[0]])
    return GuidedGradients(tuple(names), int(channel), gradient, position, value, data_format)


def channel_of(y: Any, block: GatedBlock, channel: int | np.integer[Any]) -> Any:
    """Return one channel of the output of a block: `(n, ...)`."""
    axis = 1 if len(y.shape) == 4 and data_format_of(block) == "channels_first" else -1
    if not is_whole(channel) or not 0 <= channel < y.shape[axis]:
        raise ValueError(f"`channel` must be from 0 to {y.shape[axis] - 1}. Received: channel={channel!r}")
    return y[:, channel] if axis == 1 else y[..., channel]


def strongest(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return position `(n, rank)` and value `(n,)` of the highest value of each sample in `(n, ...)`."""
    flat = values.reshape(len(values), -1)
    best = flat.argmax(1)
    position = np.stack(np.unravel_index(best, values.shape[1:]), 1) if values.ndim > 1 else np.zeros((len(values), 0))
    return position.astype(np.int64), flat[np.arange(len(flat)), best]


@with_gradient
def positive_evidence(y: Any) -> Any:
    """Return the value itself, with a derivative that is zero where it is negative."""
    return ops.copy(y), lambda dy: ops.relu(dy)


def _input_format(model: keras.Model, block: GatedBlock) -> str | None:
    """Return the data format of the block, unless layers before it may have moved the axes."""
    try:
        receptive_field(model, block)
    except ValueError:
        return None
    return data_format_of(block)


def _of_block(
    outputs: keras.Model, name: str, block: GatedBlock, channel: int | np.integer[Any], x: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gradient, position and value of the unit of one block."""

    def unit(x: Any) -> Any:
        return ops.cast(channel_of(outputs(x, training=False)[name], block, channel), "float32")

    values = np.asarray(ops.convert_to_numpy(unit(x)))
    position, value = strongest(values)
    mask = np.zeros(values.shape, np.float32)
    mask[(np.arange(len(values)), *position.T)] = 1.0
    chosen = ops.convert_to_tensor(mask)
    return np.asarray(ops.convert_to_numpy(input_gradient(lambda x: unit(x) * chosen, x))), position, value


class _PositiveEvidence(keras.layers.Layer):
    """`positive_evidence` as a layer, in any dtype."""

    def __init__(self):
        super().__init__(autocast=False)
        self.supports_masking = True

    def call(self, y: Any) -> Any:
        return positive_evidence(y)

    def compute_output_spec(self, y: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(y.shape, y.dtype)


def _guided_copy(model: keras.Model) -> keras.Model:
    """Return a copy of a network with its own layers and guided ReLUs."""
    pairs: list[tuple[Any, Any]] = []
    met: set[int] = set()

    def copied(layer: Any) -> Any:
        if is_functional(layer):
            return walk(layer, visit, copied)
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation has no weights
        pairs.append((layer, layer.__class__.from_config(layer.get_config())))
        return pairs[-1][1]

    def visit(layer: Any, *args: Any, **kwargs: Any) -> Any:
        y = layer(*args, **kwargs)
        if not _is_relu(layer):
            return y
        met.add(id(layer))
        return _PositiveEvidence()(y)

    copy = walk(without_updates(model), visit, copied)
    for old, new in pairs:
        new.set_weights(old.get_weights())
    for layer in copy._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public one)
        if _is_relu(layer) and id(layer) not in met:
            raise ValueError(
                "A layer of `model` must not contain a keras.layers.ReLU: use keras.layers.Activation('relu'). "
                f"Received: {layer.name!r}"
            )
        _guide_functions(layer)
    return copy


def _is_relu(layer: Any) -> bool:
    """Return whether a layer or operation is a ReLU, possibly with a threshold and a highest value, and not leaky."""
    is_one = isinstance(layer, keras.layers.ReLU) or (
        not isinstance(layer, keras.layers.Layer) and type(layer).__name__ in _OPERATIONS
    )
    return is_one and not getattr(layer, "negative_slope", 0.0)


def _guide_functions(layer: keras.layers.Layer) -> None:
    """Replace the ReLUs among the functions that a layer has as attributes."""
    names = [name for name, value in vars(layer).items() if any(value is relu for relu in _RELUS)]
    for name in [*names, *(["rectify"] if hasattr(layer, "rectify") else [])]:
        relu = getattr(layer, name)
        setattr(layer, name, lambda x, relu=relu: positive_evidence(relu(x)))


class Patches(NamedTuple):
    """Patches that excite a unit most, the strongest first; at most one per image.

    Attributes:
        block: Name of the block.
        channel: Channel of the unit.
        patches: `(count, height, width, channels)`, cut from the data, in
            their dtype and layout.
        image: int64 `(count,)`, index of the sample in the data.
        corner: int64 `(count, 2)`, row and column of the first pixel.
        position: int64 `(count, 2)`, row and column in the output of the block.
        value: float32 `(count,)`, the activation.
        data_format: `"channels_last"` or `"channels_first"`; `None` for
            Keras's own.
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
    """Find the positions in a data set where one channel of a block is most active.

    A patch is the receptive field of the unit. A patch that reaches beyond
    the image is moved inside, and it is at most as large as the image.

    Args:
        model: A functional `keras.Model` with convolutional gated blocks. All
            images must have one size.
        data: An array of images, or an iterable of batches. Labels are
            ignored.
        block: Name of a block, or the block.
        channel: Int, channel of its output.
        count: Int, largest number of patches. Defaults to `9`.
        size: Int, height and width of the patches. Defaults to `None`: the
            size of the receptive field.
        batch_size: Int, images per batch. Defaults to `100`.
        transform: Function from a batch of images to the input of the model; it
            keeps their shape.
        progress: Bool, whether to show a progress bar. Defaults to `False`.

    Returns:
        A `Patches`.

    Raises:
        ValueError: If the block or channel is unknown, the block is fully
            connected, or the data are empty or do not fit.
    """
    count = checked_size(count, "count")
    tracer = Tracer(model, block)
    (name,) = tracer.blocks
    field, data_format = receptive_field(model, name), data_format_of(tracer.blocks[name])
    outputs = tracer.only("y")
    best: list[tuple[Any, ...]] = []
    seen = 0
    with kept_state(outputs):
        for x, _ in batches(data, model, batch_size=batch_size, progress=progress, raw=transform is not None):
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
    """Cut a patch around the field of a unit, and return its first pixel; `first` for channels first."""
    image = np.expand_dims(image, 0 if first else -1) if image.ndim == 2 else image
    shape = np.array(image.shape[1:] if first else image.shape[:2])
    height_width = np.minimum(field.size if size is None else checked_size(size, "size"), shape)
    middle = field.stride * position + field.first + field.last  # twice its offset, to stay in whole numbers
    middle = middle + field.stride * position
    corner = np.clip((middle - height_width + 1) // 2, 0, shape - height_width)
    rows, columns = (slice(start, start + n) for start, n in zip(corner, height_width, strict=True))
    return (image[:, rows, columns] if first else image[rows, columns]), corner
