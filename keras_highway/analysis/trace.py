"""Read the signals of every block: `trace` as arrays, `outputs` as symbolic tensors."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import Shape
from keras_highway.analysis.batches import check_batch
from keras_highway.analysis.graph import (
    Blocks,
    block_names,
    data_format_of,
    holds_blocks,
    kept_state,
    walk,
    walk_nested,
)
from keras_highway.analysis.graph import blocks as blocks_of
from keras_highway.gating import get_gating
from keras_highway.layers import GatedBlock


class BlockTrace(NamedTuple):
    """Signals of one block for a batch, `y = finish(h·t + x·c)`, as NumPy arrays.

    bfloat16 and float16 signals are returned as float32, without rounding.

    Attributes:
        x: Input of the block, after the projection in a transition, in the
            skip dtype.
        h: Transform, same shape as `x`, in the compute dtype.
        t: Transform gate, in the shape of `x`, or `(1, ..., 1, channels)` for
            `gate="channel"`, or a 0-d array, 1.0, where it is constant.
        c: Carry gate, likewise; `1 - t` where it is coupled. The forward pass
            computes `x + t·(h − x)` there: mix again with `c=None` to get
            equal bits.
        y: Output of the block, after any post-activation.
    """

    x: np.ndarray
    h: np.ndarray
    t: np.ndarray
    c: np.ndarray
    y: np.ndarray

    @property
    def data_format(self) -> str:
        """Return `"channels_last"` or `"channels_first"`; Keras's own if you made the trace by hand."""
        return keras.config.image_data_format()


class _LastTrace(BlockTrace):
    """Trace of a block with the channels last. A field would be one more array when a trace is unpacked."""

    @property
    def data_format(self) -> str:
        return "channels_last"


class _FirstTrace(BlockTrace):
    """Trace of a block with the channels first."""

    @property
    def data_format(self) -> str:
        return "channels_first"


class Trace(dict[str, BlockTrace]):
    """Dict from block name to `BlockTrace`, in the order of the network.

    A block that is called several times has one entry per call: its name, then
    its name with `:2`, `:3`.

    Attributes:
        output: Output of the model for the same batch, a NumPy array or the
            model's structure of arrays.
    """

    def __init__(self, entries: Mapping[str, BlockTrace], output: Any):
        super().__init__(entries)
        self.output = output


class Tracer:
    """Trace one model many times: `tracer(x)` is `trace(model, x)` without building the graph again.

    Args:
        model: A functional `keras.Model` with gated blocks.
        blocks: Names or blocks. Defaults to `None`, all blocks.

    Raises:
        ValueError: If the model is not functional or has no blocks, or a block
            is unknown.

    Attributes:
        blocks: Dict from name to `GatedBlock`: the traced blocks.
    """

    def __init__(self, model: keras.Model, blocks: Blocks | None = None):
        known = blocks_of(model)
        self.blocks = {name: known[name] for name in (known if blocks is None else block_names(blocks, known))}
        self._probes = {name: _Probe(block, name=f"{name}_probe") for name, block in self.blocks.items()}
        self._positions: list[tuple[str, GatedBlock]] = []
        self._signals: list[dict[str, Any]] = []
        graph = walk(model, self._visit)
        self._model = keras.Model(graph.input, [graph.output, self._signals], name=f"{model.name}_trace")

    def __call__(self, x: Any, *, carry: bool = False) -> Trace:
        """Return the `Trace` of a batch.

        Args:
            x: The batch, as in `trace`.
            carry: Bool, whether layers keep the state of this batch, as after
                a call of the model. Defaults to `False`: restore their state.
        """
        check_batch(x, self._model.inputs)
        with nullcontext() if carry else kept_state(self._model):
            output, signals = self._model(x, training=False)
        entries = {
            name: _block_trace(block, values) for (name, block), values in zip(self._positions, signals, strict=True)
        }
        return Trace(entries, keras.tree.map_structure(_array, output))

    def only(self, signal: str) -> keras.Model:
        """Return a model of one signal at every position: input -> {position: tensor}.

        It computes nothing else, for analyses of many batches. Positions where
        the signal is constant are left out, also a coupled carry gate `1 - t`.

        Args:
            signal: `"x"`, `"h"`, `"t"`, `"c"` or `"y"`.
        """
        return keras.Model(self._model.input, self.symbols(signal)[0])

    def symbols(self, signal: str) -> tuple[dict[str, Any], Any]:
        """Return one signal at every position as symbolic tensors, and the output of the model."""
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
    """Run a model on a batch, in inference mode, and return the signals of every block.

    The pass uses the same layers and operations in the same order as the
    model, so the traced output equals `model(x, training=False)` exactly.
    Afterwards the model is unchanged, including the state of its LSTMs.

    ```python
    signals = trace(model, images)
    signals["stage2_block3"].t.mean()   # how open the gates of the block are
    signals.output                      # the predictions of the same pass
    ```

    Args:
        model: A functional `keras.Model` with gated blocks: any variant, with
            or without the top, reloaded, rewired or nested in another model.
        x: The batch: an array or tensor of the model's input shape. All
            signals are kept in memory.
        blocks: Names or blocks. Defaults to `None`, all blocks.

    Returns:
        A `Trace`: a dict from block name to `BlockTrace`, with the model's
        `output`.

    Raises:
        ValueError: If the model is not functional or has no blocks, a block
            is unknown, or the batch is empty or does not fit the model.
    """
    return Tracer(model, blocks)(x)


@keras.saving.register_keras_serializable(package="keras_highway", name="Probe")
class _Probe(keras.layers.Layer):
    """A block that also returns its signals, except constant gates."""

    def __init__(self, block: GatedBlock, **kwargs: Any):
        super().__init__(autocast=False, **{"dtype": block.dtype_policy, **kwargs})
        self.supports_masking = block.supports_masking
        self.block = block

    def build(self, input_shape: Shape) -> None:
        """Build the block of a loaded copy."""
        if not self.block.built:
            self.block.build(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        config.pop("autocast", None)
        return cls(**{**config, "block": keras.saving.deserialize_keras_object(config["block"])})

    def compute_mask(self, inputs: Any, previous_mask: Any) -> Any:
        """Return the mask of the block for the following layers."""
        mask = self.block.compute_mask(inputs, previous_mask)
        return None if mask is None else {**dict.fromkeys(("x", "h", *self._learned)), "y": mask}

    def call(self, x: Any, gate: Any = None, kernels: Sequence[Any] | None = None) -> Any:
        signals = self.block.signals(x, gate, kernels)
        values: dict[str, Any] = {k: v for k, v in signals._asdict().items() if ops.is_tensor(v)}
        return {**values, "y": self.block.combine(signals)}

    def compute_output_spec(self, x: Any, gate: Any = None, kernels: Any = None) -> Any:
        """Return the shapes of the signals. Keras on JAX cannot infer them for sizes that are `None`."""
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


_SIGNALS = ("x", "h", "t", "c", "y")


class Outputs(dict[str, Any]):
    """Dict from block name to a symbolic tensor, in the order of the network.

    Attributes:
        output: Output of the model in the same pass, a symbolic tensor.
    """

    def __init__(self, entries: Mapping[str, Any], output: Any):
        super().__init__(entries)
        self.output = output


def outputs(model: keras.Model, signal: str, blocks: Blocks | None = None) -> Outputs:
    """Return one signal of every block as symbolic tensors.

    Use them to build a model that also returns its gates, or a loss on the
    gates. The pass is separate from the model's own: use its `output`
    instead of the model's, so that the blocks run once.

    ```python
    gates = kh.analysis.outputs(model, "t")
    mean = keras.ops.mean(keras.ops.stack([keras.ops.mean(t, axis=-1) for t in gates.values()]), axis=0)  # of fc nets
    both = keras.Model(model.input, [gates.output, mean])
    both.compile("sgd", ["sparse_categorical_crossentropy", lambda y, t: 0.01 * keras.ops.mean(t)])
    ```

    Args:
        model: A functional `keras.Model` with gated blocks.
        signal: `"x"`, `"h"`, `"t"`, `"c"` or `"y"`, see `BlockTrace`. Blocks
            where it is constant are left out, also a coupled carry gate
            `1 - t`.
        blocks: Names or blocks. Defaults to `None`, all blocks.

    Returns:
        `Outputs`: a dict from block name to symbolic tensor, with the model's
        `output`.

    Raises:
        ValueError: If the model is not functional or has no blocks, or a block
            or signal is unknown.
    """
    if signal not in _SIGNALS:
        raise ValueError(f"`signal` must be one of {_SIGNALS}. Received: signal={signal!r}")
    return Outputs(*Tracer(model, blocks).symbols(signal))
