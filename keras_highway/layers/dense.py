"""The fully connected highway layer, and a stack of them as one layer."""

import functools
from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Activation, Initializer, Shape
from keras_highway._support.schema import check_choice, checked_size
from keras_highway.equation import mix
from keras_highway.gating import Signals, carry_gate_bias, check_gate_bias, get_gating
from keras_highway.layers.base import PATHS, GatedBlock, check_same_width, fresh, skip_dtype_of
from keras_highway.layers.ungated import ChannelGate, Dense, LowRankDense, add_bias


@keras.saving.register_keras_serializable(package="keras_highway")
class HighwayDense(GatedBlock):
    """Fully connected highway layer [TVDN, Eqs. 2-3].

    `y = h·t + x·c` with `h = activation(x·W_H + b_H)` and
    `t = sigmoid(x·W_T + b_T)`; `gating` determines which gates are learned.

    Input: `(batch, ..., units)`, any float dtype. Output: the same shape, in
    `skip_dtype`.

    Args:
        units: Int, must equal the input's width, because the skip connection
            adds input and output. Defaults to `None`: the input's width.
        gating: One of `kh.GATINGS`. Defaults to `"coupled"`.
        activation: Activation of the transform. Defaults to `"relu"`.
        gate_bias: Float, initial bias of the transform gate. Defaults to
            `-2.0`.
        gate: `"same"` (a Dense layer), `"low_rank"`, `"channel"` or `"tied"`;
            see `GatedBlock`. Defaults to `"same"`.
        gate_rank: Int, rank of a `"low_rank"` gate.
        kernel_initializer: For the transform's kernel and the gates'. Defaults
            to `"glorot_uniform"`.
        bias_initializer: For the transform's bias. Its values are added to
            the initial bias of `"same"` gates, too. Defaults to `"zeros"`.
        skip_dtype: Dtype of skip, gates and sum. Defaults to `"float32"`.
        stochastic_depth: Float in [0, 1). Defaults to `0.0`.
        remat: Bool, less memory in training, see `GatedBlock`. Defaults to
            `False`.

    Raises:
        ValueError: If the input's width is not `units`, or an argument is
            invalid.
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
                f"HighwayDense {self.name!r} needs an input of shape (batch, ..., units). "
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
            initializer = fresh(self.kernel_initializer, PATHS.index(name))
            return LowRankDense(self._width, self.gate_rank, bias, initializer, name=name, dtype=self.dtype_policy)
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
            kernel_initializer=fresh(self.kernel_initializer, PATHS.index(name)),
            bias_initializer=lambda shape, dtype=None: spread(shape, dtype=dtype) + bias,
            name=name,
            dtype=self.dtype_policy,
            **kwargs,
        )


# Layers per step of the scan. One per step spends its time in TensorFlow's loop; more make a larger graph to trace.
_UNROLL = 9


@keras.saving.register_keras_serializable(package="keras_highway")
class HighwayDenseStack(keras.layers.Layer):
    """`depth` `HighwayDense` layers in a row, with their weights stacked [TVDN, 3.1: 1000 layers].

    Computes the same as `depth` `HighwayDense` layers. Its graph has the size
    of a few layers, so it compiles fast. Keras cannot build a functional model
    of 1000 separate layers, because it recurses once per layer.

    Weights: `transform_kernel` `(depth, units, units)` and `transform_bias`
    `(depth, units)`. Learned gates have the same shapes. Tied gates have one
    kernel `(units, units)` and one bias `(units,)` for all layers.

    Input: `(batch, ..., units)`, any float dtype. Output: the same shape, in
    `skip_dtype`.

    Args:
        depth: Int, number of layers.
        units: Int, or `None` for the input's width. Defaults to `None`.
        gating: One of `kh.GATINGS`. Defaults to `"coupled"`.
        activation: Activation of the transforms. Defaults to `"relu"`.
        gate_bias: Float, initial bias of the transform gates. Defaults to
            `-2.0`.
        gate: `"same"` (each layer has its own gates) or `"tied"` (all layers
            share them [Lu and Renals 2016]). Defaults to `"same"`.
        kernel_initializer: For every layer's kernels. Defaults to
            `"glorot_uniform"`.
        skip_dtype: Dtype of skip, gates and sum. Defaults to `"float32"`.

    Raises:
        ValueError: If the input's width is not `units`, or an argument is
            invalid.
    """

    gates = ("same", "tied")

    def __init__(
        self,
        depth: int,
        units: int | None = None,
        gating: str = "coupled",
        activation: Activation = "relu",
        gate_bias: float = -2.0,
        kernel_initializer: Initializer = "glorot_uniform",
        skip_dtype: Any = "float32",
        gate: str = "same",
        **kwargs: Any,
    ):
        super().__init__(autocast=False, **kwargs)
        self.depth = checked_size(depth, "depth")
        self.supports_masking = True
        # TensorFlow's gradient of a scan is not for XLA (docs/upstream.md), which Keras would use on a GPU.
        self.supports_jit = keras.backend.backend() != "tensorflow"
        self.units = None if units is None else checked_size(units, "units")
        self.gating = get_gating(gating).name
        self.activation = keras.activations.get(activation)
        self.gate_bias = check_gate_bias(gate_bias)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self._requested_skip_dtype = skip_dtype_of(skip_dtype)
        self.skip_dtype = skip_dtype_of(skip_dtype, self.compute_dtype)
        check_choice("gate", gate, self.gates)
        self.gate = gate

    def build(self, input_shape: Shape) -> None:
        self._width = check_same_width(self, "units", self.units, input_shape)
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: self._width})
        biases = {"transform": 0.0, "transform_gate": self.gate_bias, "carry_gate": carry_gate_bias(self.gate_bias)}
        self._names = ["transform"]
        self._names += [{"t": "transform_gate", "c": "carry_gate"}[g] for g in get_gating(self.gating).learned_gates]
        for name in self._names:
            layers = () if self._is_tied(name) else (self.depth,)
            kernel = self.add_weight(
                name=f"{name}_kernel",
                shape=(*layers, self._width, self._width),
                initializer=functools.partial(self._initial_kernels, PATHS.index(name) * self.depth),
            )
            bias = self.add_weight(
                name=f"{name}_bias", shape=(*layers, self._width), initializer=keras.initializers.Constant(biases[name])
            )
            setattr(self, f"{name}_kernel", kernel)
            setattr(self, f"{name}_bias", bias)

    def call(self, x: Any) -> Any:
        def step(y: Any, weights: list[Any]) -> tuple[Any, Any]:
            for i in range(weights[0].shape[0]):
                y = mix(*self._signals(y, [w[i] for w in weights], tied), dtype=self.skip_dtype)
            return y, None

        y, (weights, tied) = ops.cast(x, self.skip_dtype), self._split_weights()
        steps, rest = divmod(self.depth, _UNROLL)
        if steps:
            grouped = [ops.reshape(w[: steps * _UNROLL], (steps, _UNROLL, *w.shape[1:])) for w in weights]
            y, _ = ops.scan(step, y, grouped)  # pyright: ignore[reportGeneralTypeIssues]
        return step(y, [w[steps * _UNROLL :] for w in weights])[0] if rest else y

    def signals(self, x: Any) -> Signals:
        """Return the signals of every layer, as `GatedBlock.signals`, along a new first axis of size `depth`.

        All tensors are in the skip dtype.

        Args:
            x: Tensor, the stack's input.
        """

        def step(carry: Any, weights: list[Any]) -> tuple[Any, Any]:
            signals = self._signals(carry[0], weights, tied)
            kept = {k: ops.cast(v, self.skip_dtype) for k, v in signals._asdict().items() if ops.is_tensor(v)}
            y = mix(*signals, dtype=self.skip_dtype)
            return (y, *kept.values()), (y, *kept.values())

        x = ops.cast(x, self.skip_dtype)
        stacked, tied = self._split_weights()
        first = self._signals(x, [w[0] for w in stacked], tied)  # shows which signals are tensors
        names = [k for k, v in first._asdict().items() if ops.is_tensor(v)]
        _, traced = ops.scan(step, (x, *[ops.zeros_like(x)] * len(names)), stacked)  # pyright: ignore[reportGeneralTypeIssues]
        return first._replace(**dict(zip(names, traced[1:], strict=True)))

    def block(self, index: int) -> HighwayDense:
        """Return a copy of one layer as a `HighwayDense` with its own gates.

        Args:
            index: Int, from 0 to `depth - 1`.

        Raises:
            ValueError: If the stack is not built or has no such layer.
        """
        if not self.built or not 0 <= index < self.depth:
            raise ValueError(
                f"`index` must be from 0 to {self.depth - 1}, and {self.name!r} must be built. "
                f"Received: index={index!r}, built={self.built}"
            )
        block = HighwayDense(
            gating=self.gating,
            activation=self.activation,
            gate_bias=self.gate_bias,
            skip_dtype=self.skip_dtype,
            dtype=self.dtype_policy,
            name=f"{self.name}_block{index + 1}",
        )
        block.build((None, self._width))
        for name in self._names:
            path = getattr(block, name)
            weights = (getattr(self, f"{name}_{part}") for part in ("kernel", "bias"))
            path.set_weights([ops.convert_to_numpy(w) if self._is_tied(name) else w[index] for w in weights])
        return block

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        check_same_width(self, "units", self.units, input_shape)
        return tuple(input_shape)

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype=self.skip_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "depth": self.depth,
            "units": self.units,
            "gating": self.gating,
            "activation": keras.activations.serialize(self.activation),
            "gate_bias": self.gate_bias,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "skip_dtype": self._requested_skip_dtype,  # for a copy of another dtype
            "gate": self.gate,
        }

    def _is_tied(self, name: str) -> bool:
        return self.gate == "tied" and name != "transform"

    def _initial_kernels(self, first: int, shape: tuple[int, ...], dtype: Any = None) -> Any:
        """Draw each layer's kernel with its own copy of the initializer, so that fans count one layer only."""
        if len(shape) == 2:
            return fresh(self.kernel_initializer, first)(shape, dtype=dtype)
        kernels = (fresh(self.kernel_initializer, first + i) for i in range(shape[0]))
        return ops.stack([kernel(shape[1:], dtype=dtype) for kernel in kernels])

    def _split_weights(self) -> tuple[list[Any], list[Any]]:
        """Return kernels and biases in turn, in the compute dtype: the stacked ones per layer, and the tied ones."""
        weights: tuple[list[Any], list[Any]] = ([], [])
        for name in self._names:  # the transform, which is never tied, comes first
            for part in ("kernel", "bias"):
                weight = ops.convert_to_tensor(getattr(self, f"{name}_{part}"))
                weights[self._is_tied(name)].append(ops.cast(weight, self.compute_dtype))
        return weights

    def _signals(self, x: Any, weights: list[Any], tied: list[Any]) -> Signals:
        """One layer's signals, from its own kernels and biases and the tied ones."""
        weights = [*weights, *tied]
        outputs = {  # a cast each, so that under a mixed policy the gradients of x add up in its own precision
            name: add_bias(ops.matmul(ops.cast(x, self.compute_dtype), kernel), bias)
            for name, kernel, bias in zip(self._names, weights[::2], weights[1::2], strict=True)
        }
        gates = {k: ops.sigmoid(ops.cast(v, self.skip_dtype)) for k, v in outputs.items() if k != "transform"}
        c = get_gating(self.gating).constant_carry
        return Signals(
            x, self.activation(outputs["transform"]), gates.get("transform_gate", 1.0), gates.get("carry_gate", c)
        )
