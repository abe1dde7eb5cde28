"""An LSTM whose state is carried from one batch to the next, on every backend."""

from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape
from keras_highway._support.numerics import with_rows
from keras_highway.layers.base import checked_size, fresh
from keras_highway.layers.lstm_recurrence import recur
from keras_highway.layers.ungated import add_bias


@keras.saving.register_keras_serializable(package="keras_highway")
class CarriedLSTM(keras.layers.Layer):
    """LSTM for truncated back-propagation: each batch starts from the state that the last one left.

    `keras.layers.LSTM(stateful=True)` has the same purpose but loses its state
    on the JAX backend; here the state is two variables of the layer. Gradients
    stop at them. They are not weights: `variables` has them, `weights` and
    weight files do not. Training and inference both continue from them;
    `reset_state` starts anew.

    The equations, the order of the gates (input, forget, cell, output) and the
    weights are those of `keras.layers.LSTM` without an offset on the forget
    gate. The products of the inputs of all steps are computed at once before
    the recurrence, and the gradient of the recurrent kernel at once after it.
    Gates and state are float32 under every dtype policy but float64.

    Input: `(streams, steps, features)`. Output: `(streams, steps, units)`.

    Args:
        units: Int, size of the state.
        streams: Int, size of the batch, which the state belongs to.
        kernel_initializer: Initializer of the input's kernel and, drawn
            separately, of the recurrent one. Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.

    Raises:
        ValueError: If a size is not positive, or a batch is not of `streams`
            rows.
    """

    def __init__(
        self,
        units: int,
        streams: int,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.units, self.streams = checked_size(units, "units"), checked_size(streams, "streams")
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        self._check_streams(input_shape)
        if input_shape[2] is None:
            raise ValueError(
                f"CarriedLSTM {self.name!r} needs to know the number of features of its input. "
                f"Received: input shape {tuple(input_shape)}"
            )
        wide = 4 * self.units
        self.kernel = self.add_weight(
            name="kernel", shape=(input_shape[-1], wide), initializer=fresh(self.kernel_initializer)
        )
        self.recurrent_kernel = self.add_weight(
            name="recurrent_kernel", shape=(self.units, wide), initializer=fresh(self.kernel_initializer, 1)
        )
        self.bias = self.add_weight(name="bias", shape=(wide,), initializer=fresh(self.bias_initializer))
        wide_enough = "float64" if self.variable_dtype == "float64" else "float32"
        self.carried = [
            self.add_weight(
                name=name,
                shape=(self.streams, self.units),
                initializer="zeros",
                dtype=wide_enough,
                trainable=False,
                autocast=False,
            )
            for name in ("carried_h", "carried_c")
        ]

    def project(self, x: Any) -> Any:
        """Return what the input adds to the gates, of all steps: `(..., 4 * units)`."""
        return add_bias(ops.matmul(x, self.kernel), self.bias)

    def recur(self, projected: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
        """Run the recurrence.

        Args:
            projected: Tensor `(streams, steps, 4 * units)`, what `project` gave.
            h: Tensor `(streams, units)`, the output before the first step.
            c: Tensor `(streams, units)`, the cell before it.

        Returns:
            Outputs of all steps `(streams, steps, units)`, and h and c after
            the last.
        """
        # Cast once, not in every step.
        kernel = ops.cast(ops.convert_to_tensor(self.recurrent_kernel), self.compute_dtype)
        y, h, c = recur(projected, kernel, h, c)
        return ops.cast(y, self.compute_dtype), h, c

    def call(self, x: Any) -> Any:
        self._check_streams(x.shape)
        x = with_rows(x, self.streams)  # one row would be added to every stream
        y, *state = self.recur(self.project(x), *(ops.convert_to_tensor(v) for v in self.carried))
        for variable, value in zip(self.carried, state, strict=True):
            variable.assign(ops.cast(ops.stop_gradient(value), variable.dtype))
        return y

    def reset_state(self) -> None:
        """Set the state to zero: what comes next does not follow what came before. Before `build` there is none."""
        for variable in self.carried if self.built else ():
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    @property
    def weights(self) -> list[keras.Variable]:
        """Kernel, recurrent kernel and bias; not the state, which belongs to a batch."""
        return [] if not self.built else [self.kernel, self.recurrent_kernel, self.bias]

    def save_own_variables(self, store: Any) -> None:
        """Save the weights, without the state."""
        for i, variable in enumerate(self.weights):
            store[str(i)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Load the weights; the state stays as it is."""
        if len(store.keys()) != len(self.weights):
            raise ValueError(
                f"CarriedLSTM {self.name!r} has {len(self.weights)} weights. Received: a file with {len(store.keys())}"
            )
        for i, variable in enumerate(self.weights):
            variable.assign(store[str(i)])

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.units)

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "units": self.units,
            "streams": self.streams,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }

    def _check_streams(self, shape: Shape):
        if len(shape) != 3 or shape[0] not in (None, self.streams):
            raise ValueError(
                f"CarriedLSTM {self.name!r} carries the state of {self.streams} streams and needs an input of shape "
                f"({self.streams}, steps, features). Received: input shape {tuple(shape)}"
            )
