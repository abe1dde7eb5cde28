"""Dense and convolution layers without a gate, and the layers that gates are made of.

The gradient of a bias is a sum over samples and positions. A sum of equal terms stops growing after about 256 terms in
bfloat16, and after about 2,048 in float16. On CPU, three implementations sum in the dtype of their input:

- TensorFlow's `BiasAddGrad` in bfloat16, the gradient of `keras.ops.add` of a tensor and a bias,
- TensorFlow's sum over broadcast axes in float16,
- JAX's derivative of a broadcast in both dtypes.

`Dense`, `Conv1D` and `Conv2D` sum in float32 there. In all other cases they use Keras's implementation.
"""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.fused_ops import (
    batch_norm,
    fills_lanes,
    fuses_batch_norm,
    in_lanes,
    is_product,
    narrow,
    product,
    widen,
)
from keras_highway._support.keras_models import Initializer, Shape, checked_data_format
from keras_highway._support.numerics import loses_bias_sums, loses_sums
from keras_highway._support.schema import checked_size
from keras_highway.layers.base import freeze_sublayers, fresh

_ONEDNN = ("tensorflow", "torch")  # the backends that compute with oneDNN
_SAFE = 16  # channels from which on the gradient is right


def convolve(
    x: Any, kernel: Any, strides: Sequence[int], padding: str, data_format: str, dilation_rate: Sequence[int] = (1, 1)
) -> Any:
    """Convolve images as `keras.ops.conv` does, avoiding faulty and slow kernels of oneDNN."""
    x, strides = subsampled(x, kernel.shape, strides, data_format)
    if tuple(dilation_rate) == (1, 1) and is_product(x, kernel.shape, strides, padding, data_format):
        return product(x, ops.cast(kernel, x.dtype), strides, padding)
    return ops.conv(x, kernel, list(strides), padding, data_format, dilation_rate)


def subsampled(
    x: Any, kernel_shape: Sequence[int], strides: Sequence[int], data_format: str
) -> tuple[Any, tuple[int, ...]]:
    """Return images and strides of an equal convolution; a strided 1x1 convolution becomes an unstrided one.

    With fewer than 16 input channels, oneDNN's gradient of a strided 1x1 kernel
    writes out of bounds in TensorFlow and PyTorch: the process crashes, hangs or
    computes wrong gradients (docs/upstream.md, 8).
    """
    height, width, channels, _ = kernel_shape  # from the kernel: PyTorch's export traces x's sizes
    down, right = strides
    affected = (height, width) == (1, 1) and (down, right) != (1, 1) and channels < _SAFE
    if not affected or keras.backend.backend() not in _ONEDNN:
        return x, (down, right)
    if data_format == "channels_first":
        return x[:, :, ::down, ::right], (1, 1)
    return x[:, ::down, ::right, :], (1, 1)


def add_bias(x: Any, bias: Any) -> Any:
    """Return `x + bias`, with an accurately summed bias gradient.

    For the `call` of layers, with tensors that are not symbolic.
    """
    if loses_sums(x.dtype):
        # The gradient is summed in float32. XLA makes one loop of it.
        return ops.cast(ops.cast(x, "float32") + ops.cast(bias, "float32"), x.dtype)
    return x + ops.cast(bias, x.dtype)  # the operator, not `ops.add`: Keras makes that TensorFlow's BiasAdd


class _LearnsOn:
    """Low-rank updates that still learn after weights are loaded: Keras 3.15 sets both factors to zero.

    The kernel in a file holds their product. Keeping the first factor leaves the product zero.
    """

    def load_own_variables(self, store: Any) -> None:
        layer: Any = super()
        factor: Any = getattr(self, "lora_kernel_a", None)  # exists after `enable_lora`
        kept = None if factor is None else ops.convert_to_numpy(factor)
        layer.load_own_variables(store)
        if factor is not None:
            factor.assign(kept)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        if type_check:  # `model.quantize` shows the error as a warning, once
            raise NotImplementedError(
                "Layers of keras_highway cannot be quantized in place. Export a quantized file: "
                "`python -m keras_highway export WEIGHTS --format litert --int8 --data DIR --out PATH`. "
                f"Received: mode={mode!r}"
            )
        layer: Any = super()
        layer.quantize(mode, type_check=False, config=config)


@keras.saving.register_keras_serializable(package="keras_highway")
class Dense(_LearnsOn, keras.layers.Dense):
    """`keras.layers.Dense` with a bias gradient that is summed in float32 under 16-bit policies."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not _loses_bias(self):
            return super().call(inputs, training=training)
        return _activated(self, ops.matmul(inputs, self.kernel), self.bias)


@keras.saving.register_keras_serializable(package="keras_highway")
class Conv1D(_LearnsOn, keras.layers.Conv1D):
    """`keras.layers.Conv1D` with a bias gradient that is summed in float32 under 16-bit policies."""

    def call(self, inputs: Any) -> Any:
        if not _loses_bias(self):
            return super().call(inputs)
        padding = self.padding
        if padding == "causal":  # as in Keras 3.15, whose Conv1D does not use `convolution_op`
            inputs, padding = ops.pad(inputs, self._compute_causal_padding()), "valid"
        y = ops.conv(inputs, self.kernel, list(self.strides), padding, self.data_format, self.dilation_rate)
        return _activated(self, y, _at_channels(self))


@keras.saving.register_keras_serializable(package="keras_highway")
class Conv2D(_LearnsOn, keras.layers.Conv2D):
    """`keras.layers.Conv2D` with a bias gradient that is summed in float32 under 16-bit policies.

    It also avoids a crash of strided 1x1 convolutions (see `subsampled`), and is
    faster in bfloat16 on TensorFlow.
    """

    def call(self, inputs: Any) -> Any:
        if not _loses_bias(self):
            return super().call(inputs)
        return _activated(self, self.convolution_op(inputs, self.kernel), _at_channels(self))

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        """Convolve, as in Keras 3.15."""
        return convolve(inputs, kernel, self.strides, self.padding, self.data_format, self.dilation_rate)


def _loses_bias(layer: Any) -> bool:
    return layer.use_bias and loses_bias_sums(layer.compute_dtype)


def _at_channels(layer: Any) -> Any:
    """Return the bias of a convolution, in a shape that broadcasts to its output."""
    return layer.bias if layer.data_format == "channels_last" else ops.reshape(layer.bias, (-1,) + (1,) * layer.rank)


def _activated(layer: Any, y: Any, bias: Any) -> Any:
    y = add_bias(y, bias)
    return y if layer.activation is None else layer.activation(y)


@keras.saving.register_keras_serializable(package="keras_highway")
class ChannelGate(keras.layers.Layer):
    """One learned gate per channel, independent of the data [BLOG, Notes & Recommendations].

    Input: any tensor. Output: logits of shape `(1, ..., 1, channels)` that
    broadcast to it, in the dtype of variables (float32 under mixed precision).

    Args:
        channels: Int, number of gates.
        bias: Float, initial logit. Defaults to `-2.0`.
        axis: Int, the channel axis, `-1` or `1`. Defaults to `-1`.
    """

    def __init__(self, channels: int, bias: float = -2.0, axis: int = -1, **kwargs: Any):
        super().__init__(**kwargs)
        self.channels = checked_size(channels, "channels")
        self.bias = float(bias)
        self.axis = axis
        self.supports_masking = True

    def build(self, input_shape: Shape) -> None:
        self.logit = self.add_weight(
            name="logit", shape=(self.channels,), initializer=keras.initializers.Constant(self.bias), autocast=False
        )

    def call(self, x: Any) -> Any:
        shape = [1] * len(x.shape)
        shape[self.axis] = self.channels
        return ops.reshape(self.logit, shape)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """Return no mask: the gates are the same at all positions."""

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        shape = [1] * len(input_shape)
        shape[self.axis] = self.channels
        return tuple(shape)

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype=self.variable_dtype)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "channels": self.channels, "bias": self.bias, "axis": self.axis}


@keras.saving.register_keras_serializable(package="keras_highway")
class LowRankDense(keras.layers.Layer):
    """Dense through a bottleneck of `rank` units: `(x·down)·up + bias`.

    Args:
        units: Int, width of the output.
        rank: Int, width of the bottleneck.
        bias: Float, initial bias. Defaults to `0.0`.
        kernel_initializer: For both kernels. Defaults to `"glorot_uniform"`.
    """

    def __init__(
        self,
        units: int,
        rank: int,
        bias: float = 0.0,
        kernel_initializer: Initializer = "glorot_uniform",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.units, self.rank, self.bias = checked_size(units, "units"), checked_size(rank, "rank"), float(bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.supports_masking = True
        self.down = self._dense(self.rank, "down", use_bias=False)
        self.up = self._dense(self.units, "up", bias_initializer=keras.initializers.Constant(self.bias))

    def build(self, input_shape: Shape) -> None:
        self.down.build(input_shape)
        self.up.build((*input_shape[:-1], self.rank))
        freeze_sublayers(self)

    def call(self, x: Any) -> Any:
        return self.up(self.down(x))

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "rank": self.rank,
            "bias": self.bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    def _dense(self, units: int, name: str, **kwargs: Any):
        initializer = fresh(self.kernel_initializer, ("down", "up").index(name))
        return Dense(units, kernel_initializer=initializer, name=name, dtype=self.dtype_policy, **kwargs)


@keras.saving.register_keras_serializable(package="keras_highway")
class SharedKernels(keras.layers.Layer):
    """Convolution kernels that all blocks of a stage share [Liao and Poggio 2016; UIE, 4].

    A block with `shared_transform=True` takes them as another input. So clones
    and saved copies of the network share them, too.

    Input: images; only the number of channels is used. Output: a list of
        kernels `(height, width, in, out)`, in the dtype of variables (float32
        under mixed precision).

    Args:
        filters: Tuple of ints, output channels of each convolution.
        kernel_sizes: Tuple of ints, one per convolution.
        kernel_initializer: Defaults to `"he_normal"`.
        data_format: As in `keras.layers.Conv2D`.

    Raises:
        ValueError: If the lists differ in length or a size is not positive.
    """

    def __init__(
        self,
        filters: Sequence[int],
        kernel_sizes: Sequence[int],
        kernel_initializer: Initializer = "he_normal",
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.filters = tuple(checked_size(f, "filters") for f in filters)
        self.kernel_sizes = tuple(checked_size(k, "kernel_sizes") for k in kernel_sizes)
        if len(self.filters) != len(self.kernel_sizes):
            raise ValueError(
                "`filters` and `kernel_sizes` must have equal length. "
                f"Received: filters={filters}, kernel_sizes={kernel_sizes}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.data_format = checked_data_format(data_format)

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[1 if self.data_format == "channels_first" else -1]
        self.kernels = [
            self.add_weight(
                name=f"kernel{i + 1}", shape=shape, initializer=fresh(self.kernel_initializer, i), autocast=False
            )
            for i, shape in enumerate(self._shapes(channels))
        ]

    def call(self, x: Any) -> Any:
        return [ops.convert_to_tensor(kernel) for kernel in self.kernels]

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        channels = x.shape[1 if self.data_format == "channels_first" else -1]
        return [keras.KerasTensor(shape, dtype=self.variable_dtype) for shape in self._shapes(channels)]

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_sizes": self.kernel_sizes,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "data_format": self.data_format,
        }

    def _shapes(self, channels: int) -> list[tuple[int, ...]]:
        inputs = (channels, *self.filters[:-1])
        return [(k, k, a, b) for k, a, b in zip(self.kernel_sizes, inputs, self.filters, strict=True)]


class GivenConv2D(keras.layers.Layer):
    """A convolution without weights; every call passes the kernel. Used by `Branch`.

    Args:
        filters: Int, output channels.
        kernel_size: Int or pair.
        strides: Int.
        padding: `"same"` or `"valid"`.
        data_format: As in `keras.layers.Conv2D`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | tuple[int, int],
        strides: int,
        padding: str,
        data_format: str,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.filters = filters
        self.kernel_size = (kernel_size, kernel_size) if isinstance(kernel_size, int) else tuple(kernel_size)
        self.strides, self.padding, self.data_format = (strides, strides), padding, data_format
        self.kernel_shape: tuple[int, ...] = ()

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[1 if self.data_format == "channels_first" else -1]
        self.kernel_shape = (*self.kernel_size, channels, self.filters)

    def call(self, x: Any, kernel: Any) -> Any:
        return self.convolution_op(x, kernel)

    def convolution_op(self, x: Any, kernel: Any) -> Any:
        """Convolve, as `keras.layers.Conv2D`."""
        return convolve(x, ops.cast(kernel, x.dtype), self.strides, self.padding, self.data_format)


@keras.saving.register_keras_serializable(package="keras_highway")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization`, fused on TensorFlow: the same arguments, weights and results.

    It is fused for images in float32, bfloat16 or float16 with the channels
    last (on a GPU, also first). It falls back to Keras's layer under XLA, with
    statistics synchronized over replicas, with a mask, with `renorm`, and in
    inference on a CPU if the number of channels is not a multiple of 16.
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        learns = training and self.trainable
        if mask is None and self.fuses(inputs):
            if fills_lanes(inputs, self.axis):
                return self.normalize(inputs, learns)
            if learns:
                channels = inputs.shape[-1]
                return narrow(self.normalize(widen(inputs, in_lanes(channels)), learns), channels)
        return super().call(inputs, training=training, mask=mask)

    def fuses(self, x: Any) -> bool:
        """Whether the fused operation supports a tensor."""
        return not self.renorm and fuses_batch_norm(x, self.axis, self.synchronized)

    def normalize(self, x: Any, learns: bool | None) -> Any:
        """Compute `call` in one operation; in training, `x` may have extra channels of zeros at the end."""
        moving = None if learns else (self.moving_mean, self.moving_variance)
        y, mean, variance = batch_norm(x, self.gamma, self.beta, self.axis, self.epsilon, moving)
        if learns:
            _move(self.moving_mean, mean, self.momentum)
            _move(self.moving_variance, variance, self.momentum)
        return ops.cast(y, self.compute_dtype)


def _move(average: keras.Variable, value: Any, momentum: float) -> None:
    value = value[: average.shape[0]]
    average.assign(ops.cast(average, "float32") * momentum + value * (1.0 - momentum))
