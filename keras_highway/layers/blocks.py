"""Residual-style blocks under all six gatings: two 3x3 convolutions, or a bottleneck."""

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape, checked_data_format
from keras_highway.layers.base import PATHS, GatedBlock, checked_size, fresh, mode
from keras_highway.layers.branch import Branch, ZeroPadProjection, channel_axis
from keras_highway.layers.checks import check_images, check_padding
from keras_highway.layers.gates import ChannelGate

PROJECTIONS = ("A", "B")

_ARGUMENTS = """\
    stride: Int, 1 or more; a stride or a change of channels makes the
        block a transition, whose x goes through a projection. Defaults to
        `1`.
    gating: One of `kh.GATINGS`. Defaults to `"coupled"`.
    gate_bias: Float, initial bias of the transform gate: the beta of its
        last batch normalization. Defaults to `-2.0`.
    gate: `"same"` (as deep as the transform), `"pointwise"` (one 1x1
        convolution: the exclusive gating of He et al. 2016),
        `"low_rank"` (as `"same"`, with `gate_rank` channels inside),
        `"channel"` (independent of the data) or `"tied"` (the logits are
        a second input, with the gating `"full"` a pair of them). Defaults
        to `"same"`.
    gate_rank: Int, inner channels of a `"low_rank"` gate.
    post_activation: Bool, ReLU after the mix, as in ResNet v1. Defaults
        to `False`.
    final_relu: Bool, ReLU at the end of the transform: the "full"
        transform of [UIE, 5.1]. Defaults to `False`.
    zero_init: Bool, the transform starts at zero: the gamma of its last
        batch normalization is 0 ("zeroBN"). Not with `final_relu`, whose
        derivative is 0 there, nor in plain blocks one behind the other: it
        would stay at zero. Defaults to `False`.
    batch_norm: Bool; without it the convolutions have biases. Defaults to
        `True`.
    projection: `"B"` (1x1 convolution and batch normalization) or `"A"`
        (subsampling and zero channels). Defaults to `"B"`.
    kernel_initializer: For all kernels. Defaults to `"he_normal"`.
    skip_dtype: Dtype of skip, gates and mix. Defaults to `"float32"`.
    stochastic_depth: Float in [0, 1). Defaults to `0.0`.
    remat: Bool, less memory in training, see `GatedBlock`. Defaults to
        `False`.
    data_format: As in `keras.layers.Conv2D`.
    shared_transform: Bool; the kernels of the transform are another input,
        from a `SharedKernels` layer that several blocks share. Batch
        normalization stays the block's own, as Liao and Poggio's is each
        time step's: the stream's statistics change from block to block,
        and moving averages over all of them would fit none. Defaults to
        `False`.

Raises:
    ValueError: If an argument is out of its range, or the input is not of
        rank 4."""


_Block = TypeVar("_Block", bound="ConvBlock")


def _document(cls: type[_Block]) -> type[_Block]:
    cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("    {arguments}", _ARGUMENTS)
    return cls


class ConvBlock(GatedBlock):
    """What the residual-style blocks share; subclasses set filters and kernels of the transform."""

    rectify = staticmethod(ops.relu)  # as in Branch

    def __init__(
        self,
        stride: int = 1,
        gating: str = "coupled",
        gate_bias: float = -2.0,
        gate: str = "same",
        gate_rank: int | None = None,
        post_activation: bool = False,
        final_relu: bool = False,
        zero_init: bool = False,
        batch_norm: bool = True,
        projection: str = "B",
        kernel_initializer: Initializer = "he_normal",
        skip_dtype: Any = "float32",
        stochastic_depth: float = 0.0,
        data_format: str | None = None,
        shared_transform: bool = False,
        **kwargs: Any,
    ):
        super().__init__(gating, gate_bias, gate, gate_rank, skip_dtype, stochastic_depth, **kwargs)
        if projection not in PROJECTIONS:
            raise ValueError(f"`projection` must be one of {PROJECTIONS}. Received: projection={projection!r}")
        self.stride = checked_size(stride, "stride")
        self.post_activation = bool(post_activation)
        self.final_relu = bool(final_relu)
        self.zero_init = bool(zero_init)
        self.batch_norm = bool(batch_norm)
        self.projection_option = projection
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.data_format = checked_data_format(data_format)
        self.shared_transform = bool(shared_transform)
        if self.shared_transform and not self.batch_norm:
            raise ValueError(
                "Blocks share the kernels of their transforms and each normalizes by itself, which needs batch "
                "normalization. Received: shared_transform=True, batch_norm=False"
            )

    def shape_of_branch(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Returns (filters, kernel sizes, strides) of the transform's convolutions."""
        raise TypeError(f"{type(self).__name__} must define shape_of_branch()")

    @property
    def output_filters(self) -> int:
        """Channels of the output."""
        return self.shape_of_branch()[0][-1]

    def build(self, input_shape: Shape) -> None:
        check_images(self, input_shape)
        axis = channel_axis(self.data_format)
        channels = input_shape[axis]
        if channels is None:
            raise ValueError(
                f"{type(self).__name__} {self.name!r} needs an input with a known number of channels. "
                f"Received: input shape {tuple(input_shape)}"
            )
        filters, kernels, strides = self.shape_of_branch()
        changes = self.stride != 1 or channels != self.output_filters
        if changes and self.projection_option == "A":
            check_padding(input_shape, axis, self.output_filters)  # before anything is made
        self.input_spec = keras.InputSpec(ndim=4, axes={axis: channels})
        self.transform = self._branch(
            "transform",
            filters,
            kernels,
            strides,
            activation="relu" if self.final_relu else None,
            zero_init=self.zero_init,
            own_kernels=not self.shared_transform,
        )
        self.add_gates()
        if changes:
            self.projection = self._make_projection()  # after the others, of draws and of weights
        self.build_paths(input_shape)

    def make_gate(self, bias: float, name: str) -> keras.layers.Layer:
        filters, kernels, strides = self.shape_of_branch()
        if self.gate == "channel":
            return ChannelGate(filters[-1], bias, channel_axis(self.data_format), name=name, dtype=self.dtype_policy)
        if self.gate == "pointwise":
            return self._branch(name, filters[-1:], (1,), (self.stride,), batch_norm=False, final_bias=bias)
        if self.gate == "low_rank":
            filters = (*[self.gate_rank] * (len(filters) - 1), filters[-1])
        return self._branch(name, filters, kernels, strides, final_bias=bias)

    def transformed(self, x: Any, kernels: Sequence[Any] | None = None, training: bool | None = None) -> Any:
        shared = {"kernels": kernels} if self.shared_transform else {}
        return self.transform(x, **mode(training), **shared)

    def finish(self, y: Any) -> Any:
        return self.rectify(y) if self.post_activation else y

    def compute_output_shape(self, input_shape: Shape, gate_shape: Any = None) -> tuple[int | None, ...]:
        shape = list(input_shape)
        axis = channel_axis(self.data_format)
        for spatial in (2, 3) if axis == 1 else (1, 2):
            if shape[spatial] is not None:
                shape[spatial] = -(-shape[spatial] // self.stride)
        shape[axis] = self.output_filters
        return tuple(shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "stride": self.stride,
            "post_activation": self.post_activation,
            "final_relu": self.final_relu,
            "zero_init": self.zero_init,
            "batch_norm": self.batch_norm,
            "projection": self.projection_option,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "data_format": self.data_format,
            "shared_transform": self.shared_transform,
        }

    def _make_projection(self):
        if self.projection_option == "A":
            return ZeroPadProjection(
                self.output_filters,
                self.stride,
                self.data_format,
                name="projection",
                dtype=self.skip_dtype,  # it only moves x
            )
        return self._branch("projection", (self.output_filters,), (1,), (self.stride,))

    def _branch(
        self, name: str, filters: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...], **kwargs: Any
    ):
        kwargs.setdefault("batch_norm", self.batch_norm)
        return Branch(
            filters,
            kernels,
            strides,
            kernel_initializer=fresh(self.kernel_initializer, 10 * PATHS.index(name)),
            data_format=self.data_format,
            dtype=self.dtype_policy,
            name=name,
            **kwargs,
        )


@keras.saving.register_keras_serializable(package="keras_highway")
@_document
class BasicBlock(ConvBlock):
    """Two 3x3 convolutions, gated: the block of the CIFAR 110-layer nets [BLOG, Evidence 1].

    Input: `(batch, height, width, channels)`. Output: `(batch, height /
    stride, width / stride, filters)`, rounded up, in `skip_dtype`.

    Args:
        filters: Int, channels of both convolutions and of the output.
        {arguments}
    """

    def __init__(self, filters: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.filters = checked_size(filters, "filters")

    def shape_of_branch(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return (self.filters, self.filters), (3, 3), (self.stride, 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters}


@keras.saving.register_keras_serializable(package="keras_highway")
@_document
class BottleneckBlock(ConvBlock):
    """1x1, 3x3, 1x1 convolutions, gated: the block of Highway50 [UIE, 5.1; BLOG, Evidence 3].

    The stride is in the 3x3 convolution (the "v1.5" form of timm and
    torchvision; `keras.applications.ResNet50` has it in the first 1x1).

    Input: `(batch, height, width, channels)`. Output: `(batch, height /
    stride, width / stride, expansion * width)`, rounded up, in `skip_dtype`.

    Args:
        width: Int, channels inside.
        expansion: Int, output channels over `width`. Defaults to `4`.
        {arguments}
    """

    def __init__(self, width: int, expansion: int = 4, **kwargs: Any):
        super().__init__(**kwargs)
        self.width = checked_size(width, "width")
        self.expansion = checked_size(expansion, "expansion")

    def shape_of_branch(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return (self.width, self.width, self.expansion * self.width), (1, 3, 1), (1, self.stride, 1)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "width": self.width, "expansion": self.expansion}
