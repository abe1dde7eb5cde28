"""Gate layers that are not a copy of the transform: data-independent and low-rank."""

from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape
from keras_highway.layers.base import checked_size, freeze_sublayers, fresh
from keras_highway.layers.biased import Dense


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
            name="logit",
            shape=(self.channels,),
            initializer=keras.initializers.Constant(self.bias),
            autocast=False,
        )

    def call(self, x: Any) -> Any:
        shape = [1] * len(x.shape)
        shape[self.axis] = self.channels
        return ops.reshape(self.logit, shape)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> None:
        """No mask: the gates are those of all positions."""

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
