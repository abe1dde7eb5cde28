"""Blocks of two 3x3 convolutions and bottleneck blocks, with all six gatings; their branches and shortcuts."""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import keras
from keras import ops

from keras_highway._support.fused_ops import LANES, in_lanes, narrow, on_gpu
from keras_highway._support.keras_models import Activation, Initializer, Shape, checked_data_format
from keras_highway._support.schema import check_choice, checked_size
from keras_highway.layers.base import PATHS, GatedBlock, check_images, check_padding, freeze_sublayers, fresh, mode
from keras_highway.layers.ungated import BatchNormalization, ChannelGate, Conv2D, GivenConv2D

BN_MOMENTUM = 0.9  # torch's 0.1
BN_EPSILON = 1e-5


def channel_axis(data_format: str) -> int:
    """Return the axis of the channels: -1, or 1 with `channels_first`."""
    return 1 if data_format == "channels_first" else -1


def _strided(input_shape: Shape, stride: int, filters: int, data_format: str) -> tuple[int | None, ...]:
    """Return the output shape of a convolution that pads images so that only the stride makes them smaller."""
    shape, axis = list(input_shape), channel_axis(data_format)
    for spatial in (2, 3) if axis == 1 else (1, 2):
        if shape[spatial] is not None:
            shape[spatial] = -(-shape[spatial] // stride)
    shape[axis] = filters
    return tuple(shape)


@keras.saving.register_keras_serializable(package="keras_highway")
class Branch(keras.layers.Layer):
    """Convolutions with batch normalization and ReLU between: conv-BN-ReLU-...-conv-BN.

    Sublayers are `conv1`, `bn1`, `conv2`, ... A strided convolution with an odd
    kernel pads by `kernel // 2` on every side, as PyTorch does;
    `padding="same"` would pad the bottom and right alone.

    Input: `(batch, height, width, channels)`. Output: `(batch, height /
    strides, width / strides, filters[-1])`, rounded up, in the compute dtype.

    Args:
        filters: Tuple of ints, output channels of each convolution.
        kernel_sizes: Tuple of ints, one per convolution; a pair is allowed if
            the stride is 1.
        strides: Tuple of ints, one per convolution. Defaults to all `1`.
        batch_norm: Bool; without it the convolutions have biases. Defaults to
            `True`.
        activation: After the last convolution, e.g. `"relu"`. Defaults to
            `None`.
        final_bias: Float, initial offset of the output: the last BN's beta, or
            the last bias. Defaults to `0.0`.
        zero_init: Bool, start at `final_bias` exactly: the last BN's gamma, or
            the last kernel, is 0 ("zeroBN"). Defaults to `False`.
        kernel_initializer: Defaults to `"he_normal"`.
        data_format: As in `keras.layers.Conv2D`.
        own_kernels: Bool, whether the convolutions have their own kernels;
            otherwise every call needs kernels from `SharedKernels`:
            `branch(x, kernels=[...])`. Batch normalization is never shared.
            Defaults to `True`.

    Raises:
        ValueError: If the tuples differ in length, a size is not positive, or
            a strided convolution has a pair as kernel size.
    """

    rectify = staticmethod(ops.relu)  # an attribute, so that guided back-propagation can set another in its copy

    def __init__(
        self,
        filters: Sequence[int],
        kernel_sizes: Sequence[int | tuple[int, int]],
        strides: Sequence[int] | None = None,
        batch_norm: bool = True,
        activation: Activation = None,
        final_bias: float = 0.0,
        zero_init: bool = False,
        kernel_initializer: Initializer = "he_normal",
        data_format: str | None = None,
        own_kernels: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.filters = tuple(checked_size(f, "filters") for f in filters)
        self.kernel_sizes = tuple(tuple(k) if isinstance(k, (list, tuple)) else k for k in kernel_sizes)
        self.strides = tuple(checked_size(s, "strides") for s in strides or (1,) * len(self.filters))
        strided = any(s > 1 and isinstance(k, tuple) for k, s in zip(self.kernel_sizes, self.strides, strict=False))
        if strided or not len(self.filters) == len(self.kernel_sizes) == len(self.strides):
            raise ValueError(
                "`filters`, `kernel_sizes` and `strides` must have equal length. Strided convolutions need a square "
                f"kernel. Received: filters={filters}, kernel_sizes={kernel_sizes}, strides={strides}"
            )
        self.batch_norm = bool(batch_norm)
        self.activation = keras.activations.get(activation)
        self.final_bias = float(final_bias)
        self.zero_init = bool(zero_init)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.data_format = checked_data_format(data_format)
        self.own_kernels = bool(own_kernels)
        for i in range(len(self.filters)):
            setattr(self, f"conv{i + 1}", self._conv(i))
            if self.batch_norm:
                setattr(self, f"bn{i + 1}", self._bn(i))

    @property
    def depth(self) -> int:
        """Number of convolutions."""
        return len(self.filters)

    def build(self, input_shape: Shape) -> None:
        check_images(self, input_shape)
        shape = tuple(input_shape)
        for i in range(self.depth):
            conv = getattr(self, f"conv{i + 1}")
            pads = [sum(pair) for pair in self._padding(i)] or [0] * 4
            conv.build(tuple(None if size is None else size + pad for size, pad in zip(shape, pads, strict=True)))
            shape = self._shape_after(i, shape)
            if self.batch_norm:
                getattr(self, f"bn{i + 1}").build(shape)
        freeze_sublayers(self)

    def call(self, x: Any, training: bool | None = None, kernels: Sequence[Any] | None = None) -> Any:
        wide = training and self._is_quicker_wide(x)
        for i in range(self.depth):
            if pads := self._padding(i):
                x = ops.pad(x, pads)
            kernel = None if self.own_kernels else self._shared_kernel(i, kernels)
            x = self._wide(i, x, kernel) if wide else self._normalized(i, x, training, kernel)
            if i < self.depth - 1:
                x = self.rectify(x)
        return self.activation(narrow(x, self.filters[-1]) if wide else x)

    def _shared_kernel(self, i: int, kernels: Sequence[Any] | None):
        """Return the kernel of a convolution from shared kernels."""
        shapes = [tuple(getattr(self, f"conv{j + 1}").kernel_shape) for j in range(self.depth)]
        received = None if kernels is None else [tuple(kernel.shape) for kernel in kernels]
        if kernels is None or received != shapes:
            raise ValueError(
                f"{self.path!r} needs shared kernels of shapes {shapes}: call block(x, kernels=shared_kernels(x)). "
                f"Received: kernels of shapes {received}"
            )
        return kernels[i]

    def _normalized(self, i: int, x: Any, training: bool | None, kernel: Any):
        conv = getattr(self, f"conv{i + 1}")
        x = conv(x) if kernel is None else conv(x, kernel)
        return getattr(self, f"bn{i + 1}")(x, training=training) if self.batch_norm else x

    def _is_quicker_wide(self, x: Any):
        """Whether training is the same, and quicker, with channels of zeros after each convolution's own.

        It goes past the sublayers' `call`, so they must be those made here, with nothing that `call` adds.
        """
        if not self.batch_norm or not any(f % LANES for f in self.filters):
            return False
        convs, norms = ([getattr(self, f"{kind}{i + 1}") for i in range(self.depth)] for kind in ("conv", "bn"))
        plain = all(type(c) in (Conv2D, GivenConv2D) and c.activity_regularizer is None for c in convs)
        own = plain and all(type(norm) is BatchNormalization and norm.activity_regularizer is None for norm in norms)
        return own and all(norm.trainable and norm.fuses(x) for norm in norms) and not on_gpu(x)

    def _wide(self, i: int, x: Any, kernel: Any):
        """Normalize in training; input and output may have extra channels of zeros."""
        conv, norm = getattr(self, f"conv{i + 1}"), getattr(self, f"bn{i + 1}")
        # Not by `ops.pad`: a graph in which images and kernel are padded ends TensorFlow's process (docs/upstream.md).
        kernel = _lengthened(ops.cast(conv.kernel if kernel is None else kernel, x.dtype), -2, x.shape[-1])
        kernel = _lengthened(kernel, -1, in_lanes(kernel.shape[-1]))
        return norm.normalize(conv.convolution_op(x, kernel), learns=True)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        shape = tuple(input_shape)
        for i in range(self.depth):
            shape = self._shape_after(i, shape)
        return shape

    def convolutions(self, input_shape: Shape) -> Iterator[tuple[keras.layers.Layer, tuple[int | None, ...]]]:
        """Yield (convolution, output shape) in order, for counting multiply-adds and activations."""
        shape = tuple(input_shape)
        for i in range(self.depth):
            shape = self._shape_after(i, shape)
            yield getattr(self, f"conv{i + 1}"), shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_sizes": self.kernel_sizes,
            "strides": self.strides,
            "batch_norm": self.batch_norm,
            "activation": keras.activations.serialize(self.activation),
            "final_bias": self.final_bias,
            "zero_init": self.zero_init,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "data_format": self.data_format,
            "own_kernels": self.own_kernels,
        }

    def _conv(self, i: int):
        padding = "same" if self.strides[i] == 1 else "valid"
        if not self.own_kernels:
            return GivenConv2D(
                self.filters[i],
                self.kernel_sizes[i],
                self.strides[i],
                padding,
                self.data_format,
                dtype=self.dtype_policy,
                name=f"conv{i + 1}",
            )
        kwargs = {}
        if not self.batch_norm and i == self.depth - 1:
            kwargs["bias_initializer"] = keras.initializers.Constant(self.final_bias)
        zero = self.zero_init and not self.batch_norm and i == self.depth - 1
        return Conv2D(
            self.filters[i],
            self.kernel_sizes[i],
            strides=self.strides[i],
            padding=padding,
            use_bias=not self.batch_norm,
            kernel_initializer="zeros" if zero else fresh(self.kernel_initializer, i),
            data_format=self.data_format,
            dtype=self.dtype_policy,
            name=f"conv{i + 1}",
            **kwargs,
        )

    def _bn(self, i: int):
        kwargs = {}
        if i == self.depth - 1:
            kwargs["beta_initializer"] = keras.initializers.Constant(self.final_bias)
            if self.zero_init:
                kwargs["gamma_initializer"] = "zeros"
        return BatchNormalization(
            axis=channel_axis(self.data_format),
            momentum=BN_MOMENTUM,
            epsilon=BN_EPSILON,
            dtype=self.dtype_policy,
            name=f"bn{i + 1}",
            **kwargs,
        )

    def _padding(self, i: int) -> list[list[int]]:
        """Return the pixels around the input of a convolution with a stride, `[]` for none."""
        size: Any = self.kernel_sizes[i]
        if self.strides[i] == 1 or size == 1:
            return []
        image = [[(size - 1) // 2, size // 2]] * 2
        return [[0, 0], [0, 0], *image] if self.data_format == "channels_first" else [[0, 0], *image, [0, 0]]

    def _shape_after(self, i: int, input_shape: Shape) -> tuple[int | None, ...]:
        return _strided(input_shape, self.strides[i], self.filters[i], self.data_format)


def _lengthened(kernel: Any, axis: int, size: int) -> Any:
    """Return a kernel with zeros at the end of an axis, so that it has a size."""
    shape = list(kernel.shape)
    shape[axis] = size - shape[axis]
    return ops.concatenate([kernel, ops.zeros(shape, kernel.dtype)], axis) if shape[axis] else kernel


@keras.saving.register_keras_serializable(package="keras_highway")
class ZeroPadProjection(keras.layers.Layer):
    """Shortcut option A: subsample the image and pad the new channels with zeros.

    Half of the added channels come before the old ones and half after, as in
    the authors' CIFAR ResNet [torch]. No parameters.

    Args:
        filters: Int, output channels, at least the input's.
        stride: Int. Defaults to `1`.
        data_format: As in `keras.layers.Conv2D`.

    Raises:
        ValueError: If the input has more channels than `filters`.
    """

    def __init__(self, filters: int, stride: int = 1, data_format: str | None = None, **kwargs: Any):
        super().__init__(**kwargs)
        self.filters = checked_size(filters, "filters")
        self.stride = checked_size(stride, "stride")
        self.data_format = checked_data_format(data_format)

    def build(self, input_shape: Shape) -> None:
        channels = check_padding(input_shape, channel_axis(self.data_format), self.filters)
        self._before = (self.filters - channels) // 2
        self._after = self.filters - channels - self._before

    def call(self, x: Any) -> Any:
        s, pad = self.stride, [self._before, self._after]
        none = [0, 0]
        if self.data_format == "channels_first":
            return ops.pad(x[:, :, ::s, ::s], [none, pad, none, none])
        return ops.pad(x[:, ::s, ::s, :], [none, none, none, pad])

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return _strided(input_shape, self.stride, self.filters, self.data_format)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "filters": self.filters, "stride": self.stride, "data_format": self.data_format}


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
        `"channel"` (one number per channel) or `"tied"` (shared by several
        blocks); see `GatedBlock`. Defaults to `"same"`.
    gate_rank: Int, inner channels of a `"low_rank"` gate.
    post_activation: Bool, ReLU after the sum, as in ResNet v1. Defaults
        to `False`.
    final_relu: Bool, ReLU at the end of the transform: the "full"
        transform of [UIE, 5.1]. Defaults to `False`.
    zero_init: Bool, whether the transform starts at zero: the gamma of its
        last batch normalization is 0 ("zeroBN"). With `final_relu` and in
        consecutive plain blocks, it would stay at zero. Defaults to
        `False`.
    batch_norm: Bool. If `False`, the convolutions have biases. Defaults to
        `True`.
    projection: `"B"` (1x1 convolution and batch normalization) or `"A"`
        (subsampling and zero channels). Defaults to `"B"`.
    kernel_initializer: For all kernels. Defaults to `"he_normal"`.
    skip_dtype: Dtype of skip, gates and sum. Defaults to `"float32"`.
    stochastic_depth: Float in [0, 1). Defaults to `0.0`.
    remat: Bool, less memory in training, see `GatedBlock`. Defaults to
        `False`.
    data_format: As in `keras.layers.Conv2D`.
    shared_transform: Bool, whether the kernels of the transform come from
        a `SharedKernels` layer, as another input. Each block has its own
        batch normalization, as in Liao and Poggio 2016. Defaults to
        `False`.

Raises:
    ValueError: If an argument is invalid, or the input does not have
        rank 4."""


_Block = TypeVar("_Block", bound="ConvBlock")


def _document(cls: type[_Block]) -> type[_Block]:
    cls.__doc__ = inspect.cleandoc(cls.__doc__).replace("    {arguments}", _ARGUMENTS)
    return cls


class ConvBlock(GatedBlock):
    """Base of `BasicBlock` and `BottleneckBlock`; subclasses set filters and kernels of the transform."""

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
        check_choice("projection", projection, PROJECTIONS)
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
                "A shared transform needs batch normalization in each block. "
                "Received: shared_transform=True, batch_norm=False"
            )

    def shape_of_branch(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return (filters, kernel sizes, strides) of the transform's convolutions."""
        raise TypeError(f"{type(self).__name__} must define shape_of_branch()")

    @property
    def output_filters(self) -> int:
        """Channels of the output."""
        return self.shape_of_branch()[0][-1]

    def build(self, input_shape: Shape) -> None:
        check_images(self, input_shape)
        axis = channel_axis(self.data_format)
        channels = input_shape[axis]
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
            # After the others, of draws and of weights. Option A only moves x.
            where = {"name": "projection", "dtype": self.skip_dtype}
            self.projection = (
                ZeroPadProjection(self.output_filters, self.stride, self.data_format, **where)
                if self.projection_option == "A"
                else self._branch("projection", (self.output_filters,), (1,), (self.stride,))
            )
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
        return _strided(input_shape, self.stride, self.output_filters, self.data_format)

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
