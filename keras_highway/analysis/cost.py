"""Count parameters, multiply-adds and activation memory by stage."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_highway._support.keras_models import stage_of
from keras_highway.analysis.trace import is_functional, walk, walk_nested
from keras_highway.layers import (
    Branch,
    ChannelGate,
    GatedBlock,
    GivenConv2D,
    HighwayDenseStack,
    LowRankDense,
    SharedKernels,
)

_STATISTICS = ("moving_mean", "moving_variance")


class StageCost(NamedTuple):
    """Cost of one stage.

    Attributes:
        stage: `"stem"`, `"stage1"`, ..., `"head"`, or `"total"`.
        parameters: Trainable parameters, frozen or not. The statistics of batch
            normalization do not count.
        multiply_adds: Multiply-adds for one image.
        activations: Output elements of convolutions and dense layers for one
            image.
        activation_bytes: Bytes of these and of the sums `h·t + x·c`, kept for
            the backward pass of one image.
    """

    stage: str
    parameters: int
    multiply_adds: int
    activations: int
    activation_bytes: int


class Cost(list[StageCost]):
    """List of `StageCost`, in the order of the network, with their `total`."""

    @property
    def total(self) -> StageCost:
        """Return the sum over the stages."""
        return StageCost("total", *(sum(column) for column in zip(*(row[1:] for row in self), strict=True)))


def cost(model: keras.Model) -> Cost:
    """Count parameters, multiply-adds and activations of a model, by stage.

    Convolutions and dense layers count, as in timm and fvcore. The memory also
    includes the sums `h·t + x·c` of the blocks. It leaves out the outputs of
    batch normalization and activation functions: use it to compare networks,
    not to predict peak memory.

    The stage of a layer is in its name, `stage<n>_...`. Other layers belong
    to the stem if they come before the first block, and else to the head.

    ```python
    for row in cost(model): print(*row)
    cost(model).total.multiply_adds
    ```

    Args:
        model: A functional `keras.Model` with a fixed input size.

    Returns:
        A `Cost`: a list of `StageCost`, with their `total`.

    Raises:
        ValueError: If the input size is not fixed, the model is not
            functional, or a layer has kernels of an unknown kind.
    """
    counter = _Counter()
    walk(model, counter.visit)
    return counter.result()


def parameters_of(weights: Iterable[Any]) -> int:
    """Count parameters, without the statistics of batch normalization."""
    return sum(math.prod(w.shape) for w in weights if w.name not in _STATISTICS)


def adapted_weights(model: keras.Model) -> set[int]:
    """Return the ids of the statistics of `Normalization` layers, which are not parameters."""
    layers: Any = model._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
    return {id(w) for layer in layers if isinstance(layer, keras.layers.Normalization) for w in layer.weights}


class _Counter:
    """Add up layers by stage during a walk."""

    def __init__(self):
        self.rows: dict[str, tuple[int, ...]] = {}
        self.seen: set[int] = set()
        self.in_body = False

    def visit(self, layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:
        if is_functional(layer):
            return walk_nested(layer, self.visit, args[0])
        if isinstance(layer, keras.layers.Layer):
            stage, parameters = self._stage(layer), self._parameters(layer)
            parts = list(_parts(layer, _concrete(layer, (*args, *kwargs.values())[0])))
            if parameters or parts:
                totals = [sum(column) for column in zip((0, 0, 0), *parts, strict=True)]
                self._add(stage, parameters, *totals)
        return layer(*args, **kwargs)

    def result(self) -> Cost:
        return Cost(StageCost(stage, *row) for stage, row in self.rows.items())

    def _add(self, stage: str, *counts: int):
        row = self.rows.get(stage, (0,) * len(counts))
        self.rows[stage] = tuple(a + b for a, b in zip(row, counts, strict=True))

    def _stage(self, layer: keras.layers.Layer) -> str:
        self.in_body = self.in_body or isinstance(layer, (GatedBlock, HighwayDenseStack))
        if stage := stage_of(layer.name):
            return stage
        if isinstance(layer, GatedBlock):
            return "body"
        return "head" if self.in_body else "stem"

    def _parameters(self, layer: keras.layers.Layer) -> int:
        if isinstance(layer, keras.layers.Normalization):
            return 0  # mean, variance and count of the data
        new = {id(weight): weight for weight in layer.weights if id(weight) not in self.seen}
        self.seen |= new.keys()
        return parameters_of(new.values())


def _concrete(layer: keras.layers.Layer, tensor: Any) -> tuple[int, ...]:
    """Return the shape of the input of a layer for one image."""
    shape = getattr(tensor, "shape", ())[1:]
    if None in shape:
        raise ValueError(
            "`model` must have a fixed input size: build it with `input_shape=`, e.g. (224, 224, 3). "
            f"Received: input of layer {layer.name!r} of shape {(None, *shape)}"
        )
    return tuple(shape)


def _parts(layer: Any, shape: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield (multiply-adds, activations, bytes) of each part of a layer; `shape` has no batch."""
    if isinstance(layer, GatedBlock):
        for _, path in layer.paths():
            yield from _parts(path, shape)
        yield 0, 0, math.prod(layer.compute_output_shape((1, *shape))) * _bytes(layer.skip_dtype)  # the mix
    elif isinstance(layer, HighwayDenseStack):
        one = list(_parts(layer.block(0), shape))
        for _ in range(layer.depth):
            yield from one
    elif isinstance(layer, Branch):
        for convolution, out in layer.convolutions((1, *shape)):
            yield _kernel(convolution, out)
    elif isinstance(layer, LowRankDense):
        yield from _parts(layer.down, shape)
        yield _kernel(layer.up, layer.compute_output_shape((1, *shape)))
    elif isinstance(layer, (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)):
        yield _kernel(layer, layer.compute_output_shape((1, *shape)))
    elif not isinstance(layer, (ChannelGate, SharedKernels)) and any(len(w.shape) > 1 for w in layer.weights):
        raise ValueError(
            "`model` must have kernels only in convolutions, dense layers and gated blocks. "
            f"Received: layer {layer.name!r} of type {type(layer).__name__}"
        )


def _kernel(layer: Any, out: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the cost of a kernel (..., in, out), applied once at every position of the output."""
    size = math.prod(out)
    shape = layer.kernel_shape if isinstance(layer, GivenConv2D) else layer.kernel.shape
    return size // shape[-1] * math.prod(shape), size, size * _bytes(layer.compute_dtype)


def _bytes(dtype: str) -> int:
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize
