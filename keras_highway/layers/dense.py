"""The fully connected highway layer."""

from typing import Any

import keras

from keras_highway._support.keras_models import Activation, Initializer, Shape
from keras_highway.layers.base import PATHS, GatedBlock, check_same_width, checked_size, fresh
from keras_highway.layers.ungated import ChannelGate, Dense, LowRankDense


@keras.saving.register_keras_serializable(package="keras_highway")
class HighwayDense(GatedBlock):
    """Fully connected highway layer [TVDN, Eqs. 2-3].

    `y = h·t + x·c` with `h = activation(x·W_H + b_H)` and
    `t = sigmoid(x·W_T + b_T)`; `gating` determines which gates are learned.

    Input: `(batch, ..., units)`, any float dtype. Output: the same shape, in
    `skip_dtype`.

    Args:
        units: Int, or `None` for the input's width (the only value that
            works, since the skip adds input and output). Defaults to `None`.
        gating: One of `kh.GATINGS`. Defaults to `"coupled"`.
        activation: Activation of the transform. Defaults to `"relu"`.
        gate_bias: Float, initial bias of the transform gate. Defaults to
            `-2.0`.
        gate: `"same"` (a Dense layer), `"low_rank"`, `"channel"` or `"tied"`;
            see `GatedBlock`. Defaults to `"same"`.
        gate_rank: Int, rank of a `"low_rank"` gate.
        kernel_initializer: For the transform's kernel and the gates'. Defaults
            to `"glorot_uniform"`.
        bias_initializer: For the transform's bias; its values are also added
            to the initial biases of `"same"` gates. Defaults to `"zeros"`.
        skip_dtype: Dtype of skip, gates and mix. Defaults to `"float32"`.
        stochastic_depth: Float in [0, 1). Defaults to `0.0`.
        remat: Bool, less memory in training, see `GatedBlock`. Defaults to
            `False`.

    Raises:
        ValueError: If the input's width is not `units`, or an argument is out
            of its range.
    """

    gates = ("same", "low_rank", "channel", "tied")

    def __init__(
        self,
        units: int | None = None,
        gating: str = "coupled",
        activation: Activation = "relu",
        gate_bias: float = -2.0,
        gate: str = "same",
        gate_rank: int | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        skip_dtype: Any = "float32",
        stochastic_depth: float = 0.0,
        bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ):
        super().__init__(gating, gate_bias, gate, gate_rank, skip_dtype, stochastic_depth, **kwargs)
        self.supports_masking = True
        self.units = None if units is None else checked_size(units, "units")
        self.activation = keras.activations.get(activation)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.transform = None

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) < 2:
            raise ValueError(
                f"HighwayDense {self.name!r} needs an input of rank 2 or more: (batch, ..., units). "
                f"Received: input shape {tuple(input_shape)}"
            )
        self._width = check_same_width(self, "units", self.units, input_shape)
        # A mask of stochastic depth, one number a sample, has the rank that it is built for.
        rank = {"ndim": len(input_shape)} if self.stochastic_depth else {"min_ndim": 2}
        self.input_spec = keras.InputSpec(axes={-1: self._width}, **rank)
        self.transform = self._dense("transform", activation=self.activation)
        self.add_gates()
        self.build_paths(input_shape)

    def make_gate(self, bias: float, name: str) -> keras.layers.Layer:
        if self.gate == "channel":
            return ChannelGate(self._width, bias, name=name, dtype=self.dtype_policy)
        if self.gate == "low_rank":
            return LowRankDense(
                self._width, self.gate_rank, bias, self._initializer(name), name=name, dtype=self.dtype_policy
            )
        return self._dense(name, bias)

    def compute_output_shape(self, input_shape: Shape, gate_shape: Any = None) -> tuple[int | None, ...]:
        check_same_width(self, "units", self.units, input_shape)
        return tuple(input_shape)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "activation": keras.activations.serialize(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _dense(self, name: str, bias: float = 0.0, **kwargs: Any):
        spread = fresh(self.bias_initializer, PATHS.index(name))
        return Dense(
            self._width,
            kernel_initializer=self._initializer(name),
            bias_initializer=lambda shape, dtype=None: spread(shape, dtype=dtype) + bias,
            name=name,
            dtype=self.dtype_policy,
            **kwargs,
        )

    def _initializer(self, name: str):
        return fresh(self.kernel_initializer, PATHS.index(name))
