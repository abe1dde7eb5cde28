"""The convolutional highway layer."""

from typing import Any

import keras

from keras_highway._support.keras_models import Activation, Initializer, Shape, checked_data_format
from keras_highway._support.schema import checked_size
from keras_highway.layers.base import PATHS, GatedBlock, check_images, check_same_width, fresh
from keras_highway.layers.blocks import Branch, channel_axis
from keras_highway.layers.ungated import ChannelGate, Conv2D

_NO_KERNEL = ("channel", "tied")  # gates without a kernel of the layer's own


@keras.saving.register_keras_serializable(package="keras_highway")
class HighwayConv2D(GatedBlock):
    """Convolutional highway layer [TVDN, 2.1 and 3.2]: no normalization, stride 1, same padding.

    `y = h·t + x·c` with `h = activation(conv(x))`, `t = sigmoid(conv(x))`;
    transform and gates have the same receptive field unless
    `gate_kernel_size` is set.

    Input: `(batch, height, width, filters)`, any float dtype
    (`(batch, filters, height, width)` with `channels_first`). Output: the same
    shape, in `skip_dtype`.

    Args:
        filters: Int, must equal the input's channels, because the skip
            connection adds input and output. Defaults to `None`: the input's.
        kernel_size: Int or pair. Defaults to `3`.
        gating: One of `kh.GATINGS`. Defaults to `"coupled"`.
        activation: Activation of the transform. Defaults to `"relu"`.
        gate_bias: Float, initial bias of the transform gate. Defaults to
            `-2.0`.
        gate: `"same"` (a convolution), `"low_rank"` (a convolution to
            `gate_rank` channels, ReLU, a 1x1 convolution), `"channel"` or
            `"tied"`; see `GatedBlock`. Defaults to `"same"`.
        gate_rank: Int, rank of a `"low_rank"` gate.
        gate_kernel_size: Int or pair, kernel of the gates; `1` is the
            exclusive gating of He et al. 2016. Not with `"channel"` and
            `"tied"`. Defaults to `None`: `kernel_size`.
        kernel_initializer: For all kernels. Defaults to `"glorot_uniform"`.
        skip_dtype: Dtype of skip, gates and sum. Defaults to `"float32"`.
        stochastic_depth: Float in [0, 1). Defaults to `0.0`.
        remat: Bool, less memory in training, see `GatedBlock`. Defaults to
            `False`.
        data_format: `"channels_last"`, `"channels_first"` or `None` for
            `keras.config.image_data_format()`.

    Raises:
        ValueError: If the input's channels are not `filters`, or an argument
            is invalid.
    """

    gates = ("same", "low_rank", "channel", "tied")

    def __init__(
        self,
        filters: int | None = None,
        kernel_size: int | tuple[int, int] = 3,
        gating: str = "coupled",
        activation: Activation = "relu",
        gate_bias: float = -2.0,
        gate: str = "same",
        gate_rank: int | None = None,
        gate_kernel_size: int | tuple[int, int] | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        skip_dtype: Any = "float32",
        stochastic_depth: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(gating, gate_bias, gate, gate_rank, skip_dtype, stochastic_depth, **kwargs)
        self.filters = None if filters is None else checked_size(filters, "filters")
        self.kernel_size = _int_or_pair(kernel_size, "kernel_size")
        if gate_kernel_size is not None and gate in _NO_KERNEL:
            raise ValueError(
                "`gate_kernel_size` must be None with gate='channel' or gate='tied', which have no kernel. "
                f"Received: gate={gate!r}, gate_kernel_size={gate_kernel_size}"
            )
        self.gate_kernel_size = None if gate_kernel_size is None else _int_or_pair(gate_kernel_size, "gate_kernel_size")
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.data_format = checked_data_format(data_format)
        self.transform = None

    def build(self, input_shape: Shape) -> None:
        check_images(self, input_shape)
        axis = channel_axis(self.data_format)
        self._width = check_same_width(self, "filters", self.filters, input_shape, axis)
        self.input_spec = keras.InputSpec(ndim=4, axes={axis: self._width})
        self.transform = self._conv("transform", self.kernel_size, activation=self.activation)
        self.add_gates()
        self.build_paths(input_shape)

    def make_gate(self, bias: float, name: str) -> keras.layers.Layer:
        if self.gate == "channel":
            return ChannelGate(self._width, bias, channel_axis(self.data_format), name=name, dtype=self.dtype_policy)
        kernel_size = self.kernel_size if self.gate_kernel_size is None else self.gate_kernel_size
        if self.gate == "low_rank":
            return Branch(
                (self.gate_rank, self._width),
                (kernel_size, 1),
                batch_norm=False,
                activation=None,
                final_bias=bias,
                kernel_initializer=fresh(self.kernel_initializer, PATHS.index(name)),
                data_format=self.data_format,
                name=name,
                dtype=self.dtype_policy,
            )
        return self._conv(name, kernel_size, bias_initializer=keras.initializers.Constant(bias))

    def compute_output_shape(self, input_shape: Shape, gate_shape: Any = None) -> tuple[int | None, ...]:
        check_same_width(self, "filters", self.filters, input_shape, channel_axis(self.data_format))
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "filters": self.filters,
            "kernel_size": self.kernel_size,
            "gate_kernel_size": self.gate_kernel_size,
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "data_format": self.data_format,
        }

    def _conv(self, name: str, kernel_size: int | tuple[int, int], **kwargs: Any):
        return Conv2D(
            self._width,
            kernel_size,
            padding="same",
            data_format=self.data_format,
            kernel_initializer=fresh(self.kernel_initializer, PATHS.index(name)),
            name=name,
            dtype=self.dtype_policy,
            **kwargs,
        )


def _int_or_pair(kernel_size: int | tuple[int, int], name: str) -> int | tuple[int, ...]:
    """JSON knows no tuples: a pair comes back from a saved config as a list."""
    if not isinstance(kernel_size, (list, tuple)):
        return checked_size(kernel_size, name)
    if len(kernel_size) != 2:
        raise ValueError(f"`{name}` must be a positive integer or two. Received: {name}={kernel_size!r}")
    return tuple(checked_size(size, name) for size in kernel_size)
