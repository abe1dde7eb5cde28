"""Blocks and signals of a model: the walk over its layers, checked batches, and `trace`."""

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Self

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from keras_highway._support.keras_models import Shape, scale_losses_as, stage_of
from keras_highway._support.schema import check_choice, checked_size
from keras_highway.data.transforms import check_normalized, check_pixels, library_of, values_of
from keras_highway.gating import get_gating
from keras_highway.layers import GatedBlock, HighwayDenseStack, Preprocessing
from keras_highway.weights.info import info_of, note_info

_NORMALIZING = (keras.layers.Rescaling, keras.layers.Normalization)
Blocks = str | GatedBlock | Iterable[str | GatedBlock]  # names or blocks


def blocks(model: keras.Model) -> dict[str, GatedBlock]:
    """Return the gated blocks of a model and of its nested models.

    Args:
        model: A functional or sequential `keras.Model`.

    Returns:
        A dict from name to `GatedBlock`, in the order of the network. A block
        that is called several times is listed once.

    Raises:
        ValueError: If the model is not functional, has no blocks, or has two
            blocks of one name.
    """
    by_name: dict[str, GatedBlock] = {}
    for block in blocks_in(_functional(model)):
        if by_name.setdefault(block.name, block) is not block:
            raise ValueError(f"`model` has two blocks named {block.name!r}: rename one of them.")
    if not by_name:
        scanned = any(isinstance(layer, HighwayDenseStack) for layer in model.layers)
        hint = " A HighwayDenseStack scans its layers: build the model with scanned=False." if scanned else ""
        raise ValueError(
            f"`model` has no gated blocks (HighwayDense, HighwayConv2D, BasicBlock, BottleneckBlock).{hint} "
            f"Received: {model.name!r} with layers {', '.join(layer.name for layer in model.layers[:8])}"
        )
    return by_name


blocks_of = blocks  # for functions with an argument `blocks`


def block_name(block: Any) -> Any:
    """Return the name of a block, passed by name or as the block itself."""
    return block.name if isinstance(block, GatedBlock) else block


def block_names(chosen: Blocks, known: Iterable[str]) -> list[str]:
    """Return the names of the chosen blocks, in the order of the known names."""
    one = isinstance(chosen, (str, GatedBlock)) or not isinstance(chosen, Iterable)
    names = [block_name(block) for block in ([chosen] if one else chosen)]
    check_names(names, known)
    if not names:
        raise ValueError("`blocks` must name a block. Received: blocks=[]")
    return [name for name in known if name in names]


def data_format_of(block: GatedBlock) -> str:
    """Return `"channels_last"` (also for fully connected blocks) or `"channels_first"`."""
    return getattr(block, "data_format", None) or "channels_last"


def stages(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names of blocks by their stage, `stage<n>_...`; other names are in `"body"`."""
    by_stage: dict[str, list[str]] = {}
    for name in names:
        by_stage.setdefault(stage_of(name) or "body", []).append(name)
    return by_stage


def check_names(names: Iterable[Any], known: Iterable[str]) -> None:
    """Raise a ValueError with suggestions if a name is unknown."""
    for name in names:
        check_choice("block", name, known)


def holds_blocks(layer: Any, names: Iterable[str] | None = None) -> bool:
    """Return whether a layer is a nested functional model with blocks (with one of these names)."""
    return is_functional(layer) and any(names is None or b.name in names for b in blocks_in(_functional(layer)))


def is_functional(model: Any) -> bool:
    """Return whether a layer is a graph of layers: a functional or built sequential model."""
    return isinstance(model, keras.Function) or (isinstance(model, keras.Sequential) and model.built)


def walk(model: keras.Model, visit: Callable[..., Any], swap: Callable[[Any], Any] | None = None) -> keras.Model:
    """Call the layers of a model again, in order, as `visit(layer, *args, **kwargs)`, and return the new model.

    It has the same layers (or `swap(layer)` for each) and inputs and is not compiled. The model and its layers are
    unchanged, except that Keras remembers the calls, as for any shared layer. `visit` always gets the first input of a
    layer as the first of `args`, and the other inputs of a block (`gate`, `kernels`) in `kwargs`.
    """
    graph = _functional(model)
    walked = keras.models.clone_model(
        graph, input_tensors=graph.input, clone_function=swap or (lambda layer: layer), call_function=_in_order(visit)
    )
    scale_losses_as(walked, model)
    return walked


def walk_nested(model: keras.Model, visit: Callable[..., Any], inputs: Any) -> Any:
    """Call the layers of a nested model on the tensors that reach it, as `walk` does, and return its output."""
    return _functional(model)._run_through_graph(inputs, call_fn=_in_order(visit))


def _in_order(visit: Callable[..., Any]) -> Callable[..., Any]:
    """Return `visit` for layers called in any way that Python allows: `block(x=x)`, `block(x, logits)`."""

    def visit_in_order(layer: Any, *args: Any, **kwargs: Any) -> Any:
        # Others stay as they are: operations have one way, and layers of several inputs may take them as `*args`.
        if isinstance(layer, keras.layers.Layer) and (not args or (isinstance(layer, GatedBlock) and len(args) > 1)):
            # By name, not bound to the signature: Keras takes `training=...` for layers whose `call` does not.
            parameters = inspect.signature(layer.call).parameters.values()
            names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
            args = tuple(kwargs.pop(name) for name in names[:1] if name in kwargs)
        return visit(layer, *args, **kwargs)

    return visit_in_order


def _functional(model: keras.Model) -> keras.Model:
    """Return the graph of the model, not compiled: cloning a compiled model builds a second optimizer."""
    if not is_functional(model):
        raise ValueError(
            "`model` must be a functional keras.Model, as kh.create_model or keras.Model(inputs, outputs) builds it. "
            f"Received: model of type {type(model).__name__}"
        )
    if isinstance(model, keras.Sequential):
        return keras.Model(model.inputs[0], model.outputs[0], name=model.name)
    return keras.Model(model.input, model.output, name=model.name)


def blocks_in(graph: keras.Model) -> Iterator[GatedBlock]:
    """Yield the blocks of a graph and of the graphs nested in it."""
    for layer in graph.layers:
        if isinstance(layer, GatedBlock):
            yield layer
        elif is_functional(layer):
            yield from blocks_in(_functional(layer))


@contextmanager
def kept_state(model: keras.Model) -> Generator[None]:
    """Restore the state that layers carry from batch to batch when the context ends.

    State is every variable that is neither trained nor an average of batch normalization: of `CarriedLSTM`, of Keras's
    recurrent layers with `stateful=True`, of your own layers.
    """
    variables = _state(model)
    before = [_copied(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            # Most states do not change, and an assignment costs more than a comparison.
            if not np.array_equal(_copied(variable), value):
                variable.assign(value)


def _state(model: keras.Model) -> list[keras.Variable]:
    found: dict[int, keras.Variable] = {}
    for layer in model._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        # Averages of batch normalization do not move in inference, and reading them would make the processes of a
        # distributed net wait for each other.
        if isinstance(layer, keras.layers.BatchNormalization):
            continue
        own: list[Any] = list(layer._non_trainable_variables)  # pyright: ignore[reportPrivateUsage] (the public list has frozen kernels)
        if isinstance(layer, keras.layers.RNN):
            own += keras.tree.flatten(layer.states or [])  # Keras does not track them
        found.update((id(variable), variable) for variable in own)
    return list(found.values())


def _copied(variable: keras.Variable) -> np.ndarray:
    return np.array(ops.convert_to_numpy(variable))  # PyTorch gives a view


class Batch(NamedTuple):
    """Some samples of a data set."""

    x: Any  # `(n, ...)`, the input of the model after the transform, or the model's structure of inputs
    labels: np.ndarray | None  # int64 `(n, ...)`, or `None` if not requested


def batches(
    data: Iterable[Any],
    model: keras.Model,
    *,
    labelled: bool = False,
    per_sample: bool = False,
    batch_size: int = 200,
    transform: Callable[[Any], Any] | None = None,
    progress: bool = False,
    raw: bool = False,
) -> Iterator[Batch]:
    """Yield the batches of a data set, checked against the input of a model; `raw` images have any range."""
    pieces, total = _pieces(data, batch_size)
    seen = 0
    with tqdm(total=total, unit=" samples", disable=not progress, leave=False) as bar:
        for piece in pieces:
            samples, labels = _parts(piece, model)
            n = samples_of(samples, model)
            if n:
                x = samples if transform is None else transform(samples)
                check_batch(x, model, raw)
                yield Batch(x, _labels(labels, n, per_sample) if labelled else None)
            seen += n
            bar.update(n)
    if not seen:
        raise ValueError(f"`data` must not be empty. Received: {_shape_of(data)}")


def check_batch(x: Any, model: keras.Model, raw: bool = False) -> None:
    """Raise a ValueError if a batch (or a nested structure of batches) is empty or does not fit the inputs."""
    inputs: Sequence[Any] = model.inputs
    tensors = keras.tree.flatten(x)
    if len(inputs) != len(tensors):  # e.g. a list of images: Keras's own message is good
        tensors = [np.asarray(x)] if len(inputs) == 1 else []
    for tensor, known in zip(tensors, inputs, strict=False):
        shape, expected = tuple(np.shape(tensor)), tuple(known.shape)
        if len(shape) == len(expected) - 1 and expected[-1] == 1 and _fits(shape, expected[:-1]):
            expected = expected[:-1]  # Keras adds the channel axis of grey images
        values = values_of(tensor, library_of(tensor))
        finite = values is None or values.dtype.kind != "f" or np.isfinite(values).all()
        if not _fits(shape, expected) or shape[0] == 0 or not finite:
            hint = " One image needs a batch axis: x[None]." if _fits(shape, expected[1:]) else ""
            raise ValueError(
                f"`x` must be a non-empty batch of shape {expected}, of finite numbers.{hint} "
                f"Received: {f'x.shape={shape}' if finite else 'NaN or infinite values'}"
            )
    if not raw:
        check_range(x, model)


def check_range(x: Any, model: keras.Model) -> None:
    """Warn of images in another range than the model takes, see `PixelRange`."""
    known = model.inputs[0]
    if len(model.inputs) != 1 or len(known.shape) != 4 or not keras.backend.is_float_dtype(known.dtype):
        return
    x = keras.tree.flatten(x)[0] if isinstance(x, Mapping) else x
    if any(isinstance(layer, Preprocessing) for layer in model.layers):
        check_pixels(np.asarray(x) if library_of(x) is None else x, library_of(x))
    elif not any(isinstance(layer, _NORMALIZING) for layer in model.layers):
        check_normalized(x, getattr(info_of(model), "transform", None))


def samples_of(x: Any, model: keras.Model) -> int:
    """Return the number of samples of a batch, which may be a structure of arrays."""
    return np.shape(_first(x, model))[0]


class Moments:
    """Mean and variance over the samples of many batches, in float64 and in the memory of one sample.

    Batches are merged by the pairwise update of Chan, Golub, LeVeque (1979),
    which does not cancel where the mean is much larger than the deviation.
    """

    def __init__(self):
        self.count = 0
        self.mean = np.float64(0.0)
        self._squares = np.float64(0.0)

    @property
    def variance(self) -> np.ndarray:
        """The population variance, a float64 array in the shape of one sample."""
        return np.asarray(self._squares / max(self.count, 1))

    def add(self, values: Any) -> None:
        """Add a batch `(n, ...)` of samples of one shape."""
        values = np.asarray(values, np.float64)
        if self.count and values.shape[1:] != self.mean.shape:
            raise ValueError(
                "All samples must have one shape: resize all images to one size. "
                f"Received: a batch of shape {values.shape} after samples of shape {self.mean.shape}"
            )
        if not len(values):
            return
        mean = values.mean(0)
        delta, total = mean - self.mean, self.count + len(values)
        self._squares = self._squares + np.square(values - mean).sum(0)
        self._squares = self._squares + np.square(delta) * (self.count * len(values) / total)
        self.mean = np.asarray(self.mean + delta * (len(values) / total))
        self.count = total


def _pieces(data: Any, batch_size: Any) -> tuple[Iterable[Any], int | None]:
    """Return the data in pieces, and the number of samples if it is known."""
    batch_size = checked_size(batch_size, "batch_size")
    if hasattr(data, "shape") and len(data.shape):
        return _slices(data, batch_size), len(data)
    is_pair = isinstance(data, tuple) and len(data) == 2 and all(hasattr(part, "shape") for part in data)
    if is_pair and len(data[0]) == len(data[1]):
        return zip(*(_slices(part, batch_size) for part in data), strict=True), len(data[0])
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict, tuple)):
        return data, None
    raise ValueError(
        "`data` must be an array of samples, a pair (samples, labels) of equal length, or an iterable of batches. "
        f"Received: {_shape_of(data)}"
    )


def _slices(array: Any, size: int) -> Iterator[Any]:
    return (array[start : start + size] for start in range(0, len(array), size))


def _parts(piece: Any, model: keras.Model) -> tuple[Any, Any]:
    """Return samples and labels of a batch; `None` without labels."""
    samples, labels = piece, None
    if isinstance(piece, (tuple, list)) and len(piece) == 2:
        samples, labels = piece
    elif isinstance(piece, tuple) and len(piece) == 1:  # as of tf.data.Dataset.from_tensor_slices((x,))
        samples = piece[0]
    if (isinstance(piece, tuple) and len(piece) > 2) or not np.shape(_first(samples, model)):
        raise ValueError(
            "Each batch must be samples, or a pair (samples, labels) without sample weights. "
            f"Received: {_shape_of(piece)}"
        )
    return samples, labels


def _first(x: Any, model: keras.Model) -> Any:
    """Return the array of the first input: of a batch in the model's structure, or the batch itself."""
    if not isinstance(x, (tuple, list, dict)):
        return x
    arrays = keras.tree.flatten(x)
    whole = len(model.inputs) > 1 or (len(arrays) == 1 and np.ndim(arrays[0]) > 0)  # else lists of numbers
    return arrays[0] if whole else x


def _labels(labels: Any, n: int, per_sample: bool) -> np.ndarray:
    labels = np.asarray(labels)
    if per_sample and labels.shape == (n, 1):
        labels = labels[:, 0]
    wrong_shape = labels.shape != (n,) if per_sample else labels.shape[:1] != (n,)
    if wrong_shape or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
        received = "no labels" if labels.dtype == object else f"labels of dtype {labels.dtype}, shape {labels.shape}"
        raise ValueError(f"Labels must be class numbers from 0, one per sample. Received: {received}, for {n} samples")
    return labels.astype(np.int64)


def _shape_of(data: Any) -> str:
    if isinstance(data, (tuple, list)):
        return f"{type(data).__name__} of {len(data)}: " + ", ".join(_shape_of(part) for part in data[:3])
    shape = getattr(data, "shape", None)
    return type(data).__name__ + ("" if shape is None else f" of shape {tuple(shape)}")


def _fits(shape: Shape, expected: Shape) -> bool:
    return len(shape) == len(expected) and all(w in (None, s) for s, w in zip(shape, expected, strict=True))


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
            of a coupled block computes `x + t·(h − x)`, which may differ from
            `h·t + x·c` in the last bits.
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
        note_info(self._model, info_of(model))

    def __call__(self, x: Any, *, carry: bool = False) -> Trace:
        """Return the `Trace` of a batch."""
        check_batch(x, self._model)
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
    gates. Use `output` of the result instead of the model's output, so that the
    blocks run only once.

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
    check_choice("signal", signal, _SIGNALS)
    return Outputs(*Tracer(model, blocks).symbols(signal))
