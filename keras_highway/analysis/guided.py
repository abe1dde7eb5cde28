"""Guided back-propagation: which pixels excite a unit [UIE, Figure 4; Springenberg et al. 2015]."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from keras_highway._support.numerics import input_gradient, with_gradient
from keras_highway._support.schema import is_whole
from keras_highway.analysis.batches import check_batch
from keras_highway.analysis.graph import Blocks, block_name, check_names, data_format_of, is_functional, stages, walk
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.analysis.receptive_field import receptive_field
from keras_highway.analysis.trace import Tracer
from keras_highway.layers import GatedBlock
from keras_highway.models.lora import without_updates

_RELUS = (keras.activations.relu, ops.relu, keras.activations.relu6, ops.relu6)
_OPERATIONS = ("Relu", "Relu6", "ReLU")  # of `keras.ops` and `keras.activations`, whose classes have no public names


class GuidedGradients(NamedTuple):
    """Guided derivatives of one unit's activation with respect to images.

    Attributes:
        blocks: Names of the blocks, in the order of the network.
        channel: The unit's channel.
        gradient: float32 `(blocks, n, height, width, channels)`, in the
            layout of the model's input: positive where a brighter pixel
            raises the activation.
        position: int64 `(blocks, n, 2)`, row and column of the unit: where the
            channel is most active in that block; `(blocks, n, 0)` for fully
            connected blocks.
        value: float32 `(blocks, n)`, its activation.
        data_format: `"channels_last"` or `"channels_first"`, that of the
            derivatives; `None` for Keras's own.
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
    """Back-propagates a unit's activation to images, letting only positive evidence through the ReLUs.

    At every ReLU the derivative is zero where its input was negative, as
    always, and also where the derivative itself is negative. What stays are
    the pixels that excite the unit. ReLUs are those of Keras: its layer, its
    activation and its operation, with or without a highest value, in models
    nested in the model, too; a leaky one is differentiated as it is, and so is
    what a layer of one's own computes by `keras.ops`. The unit
    is a channel of a block's output `y`, at its most active position in each
    image. Gates are differentiated as they are; a net without ReLUs gets its plain derivative.

    ```python
    best = kh.analysis.top_patches(model, images, "stage1_block3", channel=5)
    guided = kh.analysis.guided_backprop(model, images[best.image], "stage1", channel=5)   # the stage's blocks
    kh.analysis.plot_guided(guided, images[best.image])
    ```

    Args:
        model: A functional `keras.Model` with gated blocks. It stays as it
            is: the ReLUs are exchanged in a copy.
        images: Array `(n, height, width, channels)`.
        block: A block's name, the block, a list of them, or a stage's name,
            e.g. `"stage2"`: all of its blocks.
        channel: Int, which channel of the blocks' outputs.
        transform: Function from `images` to the model's input. Defaults to
            `None`: the images are the input.

    Returns:
        A `GuidedGradients`.

    Raises:
        ValueError: For an unknown block or stage, a channel that a block does
            not have, or images of another shape than the model's input.
        ValueError: If a layer that is no model has a `keras.layers.ReLU`
            inside, which cannot be exchanged.
        ValueError: On other backends than TensorFlow, JAX and PyTorch.
    """
    x = images if transform is None else transform(images)
    check_batch(x, model.inputs, "analyse")
    x = ops.cast(ops.convert_to_tensor(x), "float32")
    names = chosen_blocks(blocks_of(model), block)
    copy = _guided_copy(model)
    tracer = Tracer(copy, names)
    per_block = [_of_block(Tracer(copy, name).only("y"), name, tracer.blocks[name], channel, x) for name in names]
    gradient, position, value = (np.stack(parts) for parts in zip(*per_block, strict=True))
    data_format = _input_format(model, tracer.blocks[names[0]])
    return GuidedGradients(tuple(names), int(channel), gradient, position, value, data_format)


def chosen_blocks(known: Mapping[str, GatedBlock], block: Blocks) -> list[str]:
    """Returns the names that `block` stands for, in the order of the network.

    Args:
        known: Dict from name to `GatedBlock`.
        block: As in `guided_backprop`.

    Raises:
        ValueError: For an unknown block or stage.
    """
    groups = stages(known)
    if isinstance(block, str) and block in groups:
        return groups[block]
    items = [block] if isinstance(block, (str, GatedBlock)) or not isinstance(block, Iterable) else block
    selected = {block_name(item) for item in items}
    check_names(selected, {**known, **groups})
    if not selected <= set(known):
        raise ValueError(f"A stage stands alone, not in a list with blocks. Received: block={block!r}")
    if not selected:
        raise ValueError("No block is named. Received: block=[]")
    return [name for name in known if name in selected]


def channel_of(y: Any, block: GatedBlock, channel: int | np.integer[Any]) -> Any:
    """One channel of a block's output: `(n, ...)`.

    Raises:
        ValueError: If there is no such channel.
    """
    axis = 1 if len(y.shape) == 4 and data_format_of(block) == "channels_first" else -1
    if not is_whole(channel) or not 0 <= channel < y.shape[axis]:
        raise ValueError(f"Block {block.name!r} has channels 0 to {y.shape[axis] - 1}. Received: channel={channel!r}")
    return y[:, channel] if axis == 1 else y[..., channel]


def strongest(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Position `(n, rank)` and value `(n,)` of the highest of each sample's values `(n, ...)`."""
    flat = values.reshape(len(values), -1)
    best = flat.argmax(1)
    position = np.stack(np.unravel_index(best, values.shape[1:]), 1) if values.ndim > 1 else np.zeros((len(values), 0))
    return position.astype(np.int64), flat[np.arange(len(flat)), best]


@with_gradient
def positive_evidence(y: Any) -> Any:
    """The value itself, whose derivative is zero where it is negative."""
    return ops.copy(y), lambda dy: ops.relu(dy)


def guided_relu(x: Any) -> Any:
    """ReLU whose derivative is also zero where that of its output is negative."""
    return positive_evidence(ops.relu(x))


def _input_format(model: keras.Model, block: GatedBlock) -> str | None:
    """The block's data format, where nothing before it may have moved the axes."""
    try:
        receptive_field(model, block)
    except ValueError:
        return None
    return data_format_of(block)


def _of_block(
    outputs: keras.Model, name: str, block: GatedBlock, channel: int | np.integer[Any], x: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient, position and value of one block's unit."""

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
    """A copy of a network with layers of its own, its ReLUs guided."""
    pairs: list[tuple[Any, Any]] = []
    met: set[int] = set()

    def copied(layer: Any) -> Any:
        if is_functional(layer):
            return walk(layer, visit, copied)
        if not isinstance(layer, keras.layers.Layer):
            return layer  # an operation has nothing of its own
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
                "A ReLU layer inside a layer that is no functional model cannot be guided: use "
                f"keras.layers.Activation('relu') there. Received: {layer.name!r} in model {model.name!r}"
            )
        _guide_functions(layer)
    return copy


def _is_relu(layer: Any) -> bool:
    """Whether a layer or operation is a ReLU, possibly with a threshold and a highest value, and not a leaky one."""
    is_one = isinstance(layer, keras.layers.ReLU) or (
        not isinstance(layer, keras.layers.Layer) and type(layer).__name__ in _OPERATIONS
    )
    return is_one and not getattr(layer, "negative_slope", 0.0)


def _guide_functions(layer: keras.layers.Layer) -> None:
    """Exchanges the ReLUs among the functions that a layer has as attributes."""
    names = [name for name, value in vars(layer).items() if any(value is relu for relu in _RELUS)]
    for name in [*names, *(["rectify"] if hasattr(layer, "rectify") else [])]:
        relu = getattr(layer, name)
        setattr(layer, name, lambda x, relu=relu: positive_evidence(relu(x)))
