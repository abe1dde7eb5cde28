"""Trainable parameters of a spec, by arithmetic: building the 1000-layer nets to count them takes minutes."""

import functools

from keras_highway.gating import get_gating
from keras_highway.specs import CharLMSpec, ConvNetSpec, ConvStackSpec, DenseStackSpec, NetSpec


@functools.singledispatch
def count_parameters(spec: NetSpec) -> int:
    """Returns the number of trainable parameters of the network that a spec describes, classifier included.

    Args:
        spec: A row of `VARIANTS`, or one with other fields.
    """
    raise TypeError(f"No way to count the parameters of a {type(spec).__name__}. Received: spec={spec!r}")


@count_parameters.register
def _conv_net(spec: ConvNetSpec) -> int:
    channels = spec.stem_width
    total = _branch(spec.input_shape[-1], (channels,), (3 if spec.stem == "cifar" else 7,), spec.batch_norm)
    for stage, (depth, width) in enumerate(zip(spec.blocks, spec.widths, strict=True), start=1):
        filters = (width, width) if spec.block == "basic" else (width, width, 4 * width)
        kernels = (3, 3) if spec.block == "basic" else (1, 3, 1)
        for index in range(1, depth + 1):
            total += _branch(channels, filters, kernels, spec.batch_norm)
            total += _conv_net_gates(spec, index, channels, filters, kernels)
            changes_shape = (index == 1 and stage > 1) or channels != filters[-1]
            if changes_shape and spec.projection == "B":
                total += _branch(channels, filters[-1:], (1,), spec.batch_norm)
            channels = filters[-1]
    if spec.neck_width is not None:
        total += _branch(channels, (spec.neck_width,), (3,), spec.batch_norm)
        channels = spec.neck_width
    return total + _dense(channels, spec.classes)


def _conv_net_gates(spec, index, channels, filters, kernels) -> int:
    """The gates of a stage's block; a tied gate is counted with the second, the first that uses it."""
    if spec.gate == "channel":
        gate = filters[-1]
    elif spec.gate == "pointwise":
        gate = _branch(channels, filters[-1:], (1,), batch_norm=False)
    elif spec.gate == "low_rank":
        gate = _branch(channels, (*[spec.gate_rank] * (len(filters) - 1), filters[-1]), kernels, spec.batch_norm)
    else:
        gate = 0 if spec.gate == "tied" and index > 2 else _branch(channels, filters, kernels, spec.batch_norm)
    return _learned(spec) * gate


@count_parameters.register
def _conv_stack(spec: ConvStackSpec) -> int:
    height, width, channels = spec.input_shape
    total = 0
    for stage in spec.stages:
        if stage.filters is not None:
            total += _branch(channels, (stage.filters,), (stage.kernel,), batch_norm=False)
            channels = stage.filters
            lost = stage.kernel - 1 if stage.padding == "valid" else 0
            height, width = height - lost, width - lost
        for kernel in stage.highways:
            layer = _branch(channels, (channels,), (kernel,), batch_norm=False)
            low_rank = functools.partial(_branch, channels, kernels=(kernel, 1), batch_norm=False)
            total += layer + _learned(spec) * _own_gate(spec, channels, layer, low_rank)
        if stage.pool is not None:
            height, width = (-(-size // stage.pool[1]) for size in (height, width))
    if spec.neck_width is not None:
        total += _dense(channels, spec.neck_width)
        channels = spec.neck_width
    features = channels * (height * width if spec.head_pool == "flatten" else 1)
    if spec.hidden_units is not None:
        total += _dense(features, spec.hidden_units)
        features = spec.hidden_units
    return total + _dense(features, spec.classes)


@count_parameters.register
def _dense_stack(spec: DenseStackSpec) -> int:
    height, width, channels = spec.input_shape
    units = spec.units
    layer = _dense(units, units)

    def low_rank(filters):
        return units * filters[0] + _dense(*filters)

    block = layer + _learned(spec) * _own_gate(spec, units, layer, low_rank)
    return _dense(height * width * channels, units) + (spec.depth - 1) * block + _dense(units, spec.classes)


@count_parameters.register
def _char_lm(spec: CharLMSpec) -> int:
    width = sum(spec.filters)
    total = spec.characters * spec.char_units
    for kernel, filters in zip(spec.kernels, spec.filters, strict=True):
        total += _dense(kernel * spec.char_units, filters)

    def low_rank(filters):
        return width * filters[0] + _dense(*filters)

    layer = _dense(width, width)
    total += spec.highways * (layer + _learned(spec) * _own_gate(spec, width, layer, low_rank))
    inputs = width
    for _ in range(spec.lstms):
        total += _dense(inputs + spec.units, 4 * spec.units)
        inputs = spec.units
    return total + _dense(spec.units, spec.classes)


def _own_gate(spec, width, same, low_rank) -> int:
    """A gate of `HighwayDense` or `HighwayConv2D`."""
    if spec.gate == "channel":
        return width
    return low_rank((spec.gate_rank, width)) if spec.gate == "low_rank" else same


def _learned(spec) -> int:
    return len(get_gating(spec.gating).learned_gates)


def _branch(channels, filters, kernels, batch_norm) -> int:
    """Convolutions, each with a scale and an offset (batch normalization) or a bias a channel."""
    total = 0
    for width, kernel in zip(filters, kernels, strict=True):
        total += kernel * kernel * channels * width + (2 if batch_norm else 1) * width
        channels = width
    return total


def _dense(inputs, units) -> int:
    return (inputs + 1) * units
