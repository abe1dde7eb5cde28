"""`trace(model, x)`: every block's x, h, t, c and y, from the same layers and the same arithmetic."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import Shape
from keras_highway.analysis.batches import check_batch
from keras_highway.analysis.graph import (
    Blocks,
    block_name,
    check_names,
    data_format_of,
    holds_blocks,
    walk,
    walk_nested,
)
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.analysis.kept_state import kept_state
from keras_highway.gating import get_gating
from keras_highway.layers import GatedBlock


class BlockTrace(NamedTuple):
    """What a block mixed for a batch, `y = finish(h·t + x·c)`: NumPy arrays.

    Attributes:
        x: The block's input, after the projection in a transition; in the
            skip dtype.
        h: The transform, same shape as `x`; in the compute dtype.
        t: The transform gate, in a shape that broadcasts to `x`'s: `x`'s
            itself, `(1, ..., 1, channels)` for `gate="channel"`, or a 0-d
            array, 1.0, where it is constant.
        c: The carry gate, in the same way; `1 - t` where it is coupled. (The
            forward pass never forms that `1 - t`, it computes
            `x + t·(h − x)`: mix again with `c=None` for the last bit.)
        y: The block's output, after any post-activation.

    bfloat16 and float16 signals are returned as float32, without rounding.
    """

    x: np.ndarray
    h: np.ndarray
    t: np.ndarray
    c: np.ndarray
    y: np.ndarray

    @property
    def data_format(self) -> str:
        """`"channels_last"` or `"channels_first"`: the block's; of one that was made by hand, Keras's own."""
        return keras.config.image_data_format()


class _LastTrace(BlockTrace):
    """Of a block with the channels last. (A field would be among the arrays when a trace is unpacked.)"""

    @property
    def data_format(self) -> str:
        return "channels_last"


class _FirstTrace(BlockTrace):
    """Of a block with the channels first."""

    @property
    def data_format(self) -> str:
        return "channels_first"


class Trace(dict[str, BlockTrace]):
    """Dict from block name to `BlockTrace`, in the order of the network.

    A block that is called several times has one entry per call: its name, then
    its name with `:2`, `:3`.

    Attributes:
        output: The model's output for the same batch, a NumPy array (or the
            model's structure of them).
    """

    def __init__(self, entries: Mapping[str, BlockTrace], output: Any):
        super().__init__(entries)
        self.output = output


class Tracer:
    """Traces one model many times: `tracer(x)` is `trace(model, x)` without building the graph again.

    Args:
        model: A functional `keras.Model` with gated blocks.
        blocks: Which blocks to keep: names or blocks. Defaults to `None`, all
            of them.

    Raises:
        ValueError: If the model is not functional or has no blocks, or for an
            unknown block.

    Attributes:
        blocks: Dict from name to `GatedBlock`: the blocks that are kept.
    """

    def __init__(self, model: keras.Model, blocks: Blocks | None = None):
        known = blocks_of(model)
        selected = set(known) if blocks is None else set(_names(blocks))
        check_names(selected, known)
        self.blocks = {name: block for name, block in known.items() if name in selected}
        self._probes = {name: _Probe(block, name=f"{name}_probe") for name, block in self.blocks.items()}
        self._positions: list[tuple[str, GatedBlock]] = []
        self._signals: list[dict[str, Any]] = []
        graph = walk(model, self._visit)
        self._model = keras.Model(graph.input, [graph.output, self._signals], name=f"{model.name}_trace")

    def __call__(self, x: Any, *, carry: bool = False) -> Trace:
        """Returns the `Trace` of a batch.

        Args:
            x: The batch, as in `trace`.
            carry: Bool, whether state that layers carry from batch to batch
                is afterwards that behind this batch, as after a call of the
                model. Defaults to `False`: as it was before.
        """
        check_batch(x, self._model.inputs)
        with nullcontext() if carry else kept_state(self._model):
            output, signals = self._model(x, training=False)
        entries = {
            name: _block_trace(block, values) for (name, block), values in zip(self._positions, signals, strict=True)
        }
        return Trace(entries, keras.tree.map_structure(_array, output))

    def only(self, signal: str) -> keras.Model:
        """Returns a model of one signal at every position: input -> {position: tensor}.

        Nothing else is kept or converted, for analyses that run over many
        batches. Positions where the signal is constant are left out; a coupled
        carry gate, `1 - t`, counts as such.

        Args:
            signal: `"x"`, `"h"`, `"t"`, `"c"` or `"y"`.
        """
        return keras.Model(self._model.input, self.symbols(signal)[0])

    def symbols(self, signal: str) -> tuple[dict[str, Any], Any]:
        """Returns one signal at every position as symbolic tensors, as `only`, and the model's output of that pass."""
        pairs = zip(self._positions, self._signals, strict=True)
        tensors = {name: signals[signal] for (name, _), signals in pairs if signal in signals}
        return tensors, self._model.output[0]

    def _visit(self, layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if holds_blocks(layer):
            return walk_nested(layer, self._visit, args[0])
        probe = self._probes.get(layer.name) if isinstance(layer, GatedBlock) else None
        if probe is None:
            return layer(*args, **kwargs)
        signals = probe(*args, **kwargs)
        turn = 1 + sum(block is layer for _, block in self._positions)
        self._positions.append((layer.name if turn == 1 else f"{layer.name}:{turn}", layer))
        self._signals.append(signals)
        return signals["y"]


def trace(model: keras.Model, x: Any, blocks: Blocks | None = None) -> Trace:
    """Runs a model on a batch, in inference mode, and returns every block's signals.

    The pass is the model's own: the same layers and operations in the same
    order, so the traced output equals `model(x, training=False)` exactly.
    State that layers carry from batch to batch (of an LSTM) is read and, when
    the pass is over, as it was: all analyses leave a model as it is.

    ```python
    signals = trace(model, images)
    signals["stage2_block3"].t.mean()   # how open the block's gates are
    signals.output                      # the predictions of the same pass
    ```

    Args:
        model: A functional `keras.Model` with gated blocks: any variant, with
            or without the top, reloaded, rewired or nested in another model.
        x: The batch: an array or tensor of the model's input shape. The whole
            batch's signals are kept in memory.
        blocks: Which blocks to keep: names or blocks. Defaults to `None`, all
            of them.

    Returns:
        A `Trace`: a dict from block name to `BlockTrace`, with the model's
        `output`.

    Raises:
        ValueError: If the model is not functional or has no blocks, for an
            unknown block, data of another shape than the model's input, or an
            empty batch.
    """
    return Tracer(model, blocks)(x)


@keras.saving.register_keras_serializable(package="keras_highway", name="Probe")
class _Probe(keras.layers.Layer):
    """A block that returns its signals along with its output; constant gates are left out."""

    def __init__(self, block: GatedBlock, **kwargs: Any):
        super().__init__(autocast=False, **{"dtype": block.dtype_policy, **kwargs})
        self.supports_masking = block.supports_masking
        self.block = block

    def build(self, input_shape: Shape) -> None:
        """Builds the block of a loaded copy."""
        if not self.block.built:
            self.block.build(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config.pop("autocast", None)
        return cls(**{**config, "block": keras.saving.deserialize_keras_object(config["block"])})

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """The block's, for what the following layers see."""
        mask = self.block.compute_mask(inputs, previous_mask)
        return None if mask is None else {**dict.fromkeys(("x", "h", *self._learned)), "y": mask}

    def call(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None) -> Any:
        signals = self.block.signals(x, gate, kernels)
        values: dict[str, Any] = {k: v for k, v in signals._asdict().items() if ops.is_tensor(v)}
        return {**values, "y": self.block.combine(signals)}

    def compute_output_spec(self, x: Any, gate: Any = None, kernels: Any = None) -> Any:
        """What `call` gives. Keras on JAX cannot tell for open sizes: two expressions of one differ for it."""
        block = self.block
        shape = block.compute_output_shape(x.shape)
        shapes = {**dict.fromkeys("xhy", shape), **{name: self._gate_shape(name, x, gate) for name in self._learned}}
        return {
            name: keras.KerasTensor(shape, dtype=block.compute_dtype if name == "h" else block.skip_dtype)
            for name, shape in shapes.items()
        }

    @property
    def _learned(self) -> tuple[str, ...]:
        return get_gating(self.block.gating).learned_gates

    def _gate_shape(self, name: str, x: Any, gate: Any) -> Shape:
        if self.block.gate == "tied":
            return keras.tree.flatten(gate)[self._learned.index(name)].shape
        layer = self.block.transform_gate if name == "t" else self.block.carry_gate
        return layer.compute_output_shape(x.shape)


def _names(chosen: Blocks) -> list[str]:
    if isinstance(chosen, (str, GatedBlock)) or not isinstance(chosen, Iterable):
        chosen = [chosen]
    return [block_name(block) for block in chosen]


def _block_trace(block: GatedBlock, values: Mapping[str, Any]) -> BlockTrace:
    arrays = {name: _array(value) for name, value in values.items()}
    x = arrays["x"]
    t = arrays.get("t", np.ones((), x.dtype))
    c = arrays.get("c")
    if c is None:
        constant = get_gating(block.gating).constant_carry
        c = 1 - t if constant is None else np.asarray(constant, x.dtype)
    kind = _FirstTrace if data_format_of(block) == "channels_first" else _LastTrace
    return kind(x, arrays["h"], t, c, arrays["y"])


def _array(tensor: Any) -> np.ndarray:
    array = np.asarray(ops.convert_to_numpy(tensor))
    return array.astype("float32") if array.dtype.itemsize == 2 else array  # NumPy itself has no bfloat16
