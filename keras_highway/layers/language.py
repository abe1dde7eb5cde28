"""Layers of the language model: character CNN, stateful LSTM, hierarchical softmax."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape
from keras_highway._support.numerics import with_gradient, with_rows
from keras_highway._support.schema import checked_size
from keras_highway.layers.base import freeze_sublayers, fresh
from keras_highway.layers.ungated import Conv1D, add_bias


@keras.saving.register_keras_serializable(package="keras_highway")
class CharEmbedding(keras.layers.Layer):
    """Character embedding in which padding, character 0, stays zero [Kim et al. 2015].

    A constraint sets the padding to zero after each step of the optimizer. As
    in the authors' code, its gradient counts when gradients are clipped.

    Input: integers `(words, length)`. Output: `(words, length, units)`.

    Args:
        characters: Int, number of characters, including padding.
        units: Int, size of an embedding.
        embeddings_initializer: Initializer of the embeddings; padding starts
            at zero. Defaults to `"uniform"`.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(self, characters: int, units: int, embeddings_initializer: Initializer = "uniform", **kwargs: Any):
        super().__init__(autocast=False, **kwargs)
        self.characters, self.units = checked_size(characters, "characters"), checked_size(units, "units")
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)

    def build(self, input_shape: Shape) -> None:
        draw = fresh(self.embeddings_initializer)

        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.characters, self.units),
            initializer=lambda shape, dtype=None: ZeroPadding()(draw(shape, dtype=dtype)),
            constraint=ZeroPadding(),
        )

    def call(self, x: Any) -> Any:
        x = ops.cast(x, "int32")
        # The product makes its gradient on TensorFlow one tensor instead of a list of rows, several of one character:
        # Keras's optimizers would square these one by one, and Adam move other than on JAX.
        table = ops.convert_to_tensor(self.embeddings) * 1.0
        vectors = ops.cast(ops.take(table, x, axis=0), self.compute_dtype)
        # Padding reads as zero even where a file has other values; its gradient is like any other character's.
        return vectors - ops.stop_gradient(vectors) * ops.cast(x == 0, self.compute_dtype)[..., None]

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return (*input_shape, self.units)

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype=self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "characters": self.characters,
            "units": self.units,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


class ZeroPadding(keras.constraints.Constraint):
    """Constraint that sets the embedding of character 0 to zero."""

    def __call__(self, w: Any) -> Any:
        w = ops.convert_to_tensor(w)  # of a variable, which JAX's functions refuse
        return ops.where(ops.arange(w.shape[0])[:, None] == 0, ops.zeros_like(w), w)


@keras.saving.register_keras_serializable(package="keras_highway")
class CharCNN(keras.layers.Layer):
    """Concatenated 1D convolutions of several widths, with tanh and max pooling over time [Kim et al. 2015, 2.2].

    The convolutions have "valid" padding. Padded characters are not masked, as
    in the authors' code.

    Input: `(words, length, units)`. Output: `(words, sum(filters))`.

    Args:
        kernels: Widths of the convolutions, in characters.
        filters: Number of filters of each.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.

    Raises:
        ValueError: If `kernels` and `filters` differ in length, or words are
            shorter than a kernel.
    """

    def __init__(
        self,
        kernels: Sequence[int],
        filters: Sequence[int],
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        if isinstance(kernels, int) or isinstance(filters, int) or len(kernels) != len(filters) or len(kernels) == 0:
            raise ValueError(
                f"`kernels` and `filters` must have one number per convolution. Received: {kernels=}, {filters=}"
            )
        self.kernels = tuple(checked_size(k, "kernels") for k in kernels)
        self.filters = tuple(checked_size(f, "filters") for f in filters)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 3 or None in input_shape[1:] or input_shape[1] < max(self.kernels):
            raise ValueError(
                f"CharCNN {self.name!r} needs an input of shape (words, length, units) with length >= "
                f"{max(self.kernels)}, its widest kernel. Received: input shape {tuple(input_shape)}"
            )
        self.convolutions = [
            Conv1D(
                filters,
                kernel,
                kernel_initializer=fresh(self.kernel_initializer, i),
                bias_initializer=fresh(self.bias_initializer, i),
                name=f"width{kernel}" if again == 0 else f"width{kernel}_{again + 1}",
                dtype=self.dtype_policy,
            )
            for i, (kernel, filters) in enumerate(zip(self.kernels, self.filters, strict=True))
            for again in (self.kernels[:i].count(kernel),)  # of one width before it: each has a name of its own
        ]
        for convolution in self.convolutions:
            convolution.build(input_shape)
        freeze_sublayers(self)

    def call(self, x: Any) -> Any:
        # tanh grows with its argument: the tanh of the maximum is the maximum of the tanh, for a twentieth of the work.
        best = [ops.max(convolution(x), axis=1) for convolution in self.convolutions]
        return ops.tanh(ops.concatenate(best, axis=-1))

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return (input_shape[0], sum(self.filters))

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "kernels": list(self.kernels),
            "filters": list(self.filters),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


@keras.saving.register_keras_serializable(package="keras_highway")
class TakeRows(keras.layers.Layer):
    """Gather word vectors by position: `vectors[positions]`.

    Inputs: vectors `(words, units)` and integers `(streams, steps)`. Output:
    `(streams, steps, units)`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)

    # Keras names the shape of each input.
    def build(self, vectors_shape: Shape, positions_shape: Shape) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Do nothing: the layer has no weights."""

    def call(self, vectors: Any, positions: Any) -> Any:
        return ops.take(vectors, ops.cast(positions, "int32"), axis=0)

    def compute_output_shape(self, vectors_shape: Shape, positions_shape: Shape) -> tuple[int | None, ...]:
        return (*positions_shape, vectors_shape[-1])

    def compute_output_spec(self, vectors: Any, positions: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(vectors.shape, positions.shape), dtype=vectors.dtype)


def recur(projected: Any, kernel: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
    """Run an LSTM over projected inputs.

    The gradient of the recurrent kernel is one product over all steps, not one
    per step. Products have the dtype of `kernel`. Gates and state are float32,
    or float64 with a float64 kernel.
    """
    # Copies: TensorFlow's custom gradients refuse variables, and converting one to a tensor gives the variable itself.
    return _recurrence(*(ops.copy(x) for x in (projected, kernel, h, c)))


@with_gradient
def _recurrence(projected: Any, kernel: Any, h: Any, c: Any) -> tuple[Any, Any]:
    wide = "float64" if keras.backend.standardize_dtype(kernel.dtype) == "float64" else "float32"
    first_h, first_c = ops.cast(h, wide), ops.cast(c, wide)

    def step(state: Any, z: Any) -> tuple[Any, Any]:
        recurrent = ops.matmul(ops.cast(state[0], kernel.dtype), kernel)
        state = _cell(ops.cast(z, wide) + ops.cast(recurrent, wide), state[1])
        return state, state  # TensorFlow's scan wants outputs of the carry's form: the gates travel in it, too

    by_step = ops.swapaxes(projected, 0, 1)
    start = (first_h, first_c, ops.zeros_like(ops.cast(by_step[0], wide)))
    (last_h, last_c, _), (outputs, cells, gates) = ops.scan(step, start, by_step)  # pyright: ignore[reportGeneralTypeIssues]

    def gradient(dy: Any, last_dh: Any, last_dc: Any) -> tuple[Any, Any, Any, Any]:
        cells_before = ops.concatenate([first_c[None], cells[:-1]])
        transposed, units = ops.transpose(kernel), kernel.shape[0]

        def back(state: Any, saved: Any) -> tuple[Any, Any]:
            dh, dc, _ = state
            parts: Any = ops.split(saved, [units, 5 * units, 6 * units], axis=-1)
            dy, gates, c, c_before = parts
            dz, dc = _cell_gradient(dh + dy, dc, gates, c, c_before)
            dh = ops.cast(ops.matmul(ops.cast(dz, kernel.dtype), transposed), wide)
            return (dh, dc, dz), (dh, dc, dz)

        # One tensor: of several, TensorFlow's scan cannot take an open number of steps (docs/upstream.md).
        saved = ops.concatenate([ops.swapaxes(ops.cast(dy, wide), 0, 1), gates, cells, cells_before], axis=-1)
        start = (ops.cast(last_dh, wide), ops.cast(last_dc, wide), ops.zeros_like(gates[0]))
        (dh, dc, _), (_, _, dz) = ops.scan(back, start, saved, reverse=True)  # pyright: ignore[reportGeneralTypeIssues]
        before = ops.concatenate([first_h[None], outputs[:-1]])
        flat = [ops.cast(ops.reshape(x, (-1, x.shape[-1])), kernel.dtype) for x in (before, dz)]
        d_kernel = ops.matmul(ops.transpose(flat[0]), flat[1])
        d_projected = ops.cast(ops.swapaxes(dz, 0, 1), projected.dtype)
        return d_projected, d_kernel, ops.cast(dh, h.dtype), ops.cast(dc, c.dtype)

    return (ops.swapaxes(outputs, 0, 1), last_h, last_c), gradient


def _cell(z: Any, c: Any) -> tuple[Any, Any, Any]:
    """One step: gates from `z`, `(streams, 4 * units)`, and the cell before; returns output, cell and gates."""
    i, f, g, o = ops.split(z, 4, axis=-1)  # pyright: ignore[reportGeneralTypeIssues]
    i, f, g, o = ops.sigmoid(i), ops.sigmoid(f), ops.tanh(g), ops.sigmoid(o)
    c = f * c + i * g
    return o * ops.tanh(c), c, ops.concatenate([i, f, g, o], axis=-1)


def _cell_gradient(dh: Any, dc: Any, gates: Any, c: Any, c_before: Any) -> tuple[Any, Any]:
    """Return the derivatives by a step's `z` and previous cell, given the derivatives by its output and cell."""
    i, f, g, o = ops.split(gates, 4, axis=-1)  # pyright: ignore[reportGeneralTypeIssues]
    t = ops.tanh(c)
    dc = dc + dh * o * (1 - t * t)
    dz = (dc * g * i * (1 - i), dc * c_before * f * (1 - f), dc * i * (1 - g * g), dh * t * o * (1 - o))
    return ops.concatenate(dz, axis=-1), dc * f


@keras.saving.register_keras_serializable(package="keras_highway")
class CarriedLSTM(keras.layers.Layer):
    """LSTM for truncated backpropagation through time: each batch starts from the last state of the previous batch.

    It replaces `keras.layers.LSTM(stateful=True)`, which loses its state on the
    JAX backend. Training and inference both update the state. Gradients stop at
    it. `reset_state` sets it to zero. `variables` contains the state; `weights`
    and weight files do not.

    Equations, gate order (input, forget, cell, output) and weights equal
    `keras.layers.LSTM(unit_forget_bias=False)`. Gates and state are float32, or
    float64 under the policy `"float64"`.

    Input: `(streams, steps, features)`. Output: `(streams, steps, units)`.

    Args:
        units: Int, size of the state.
        streams: Int, batch size.
        kernel_initializer: Initializer of the input's kernel and, drawn
            separately, of the recurrent one. Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.

    Raises:
        ValueError: If a size is not positive, or a batch does not have
            `streams` rows.
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
        """Project the inputs of all steps to the gates: `(..., 4 * units)`."""
        return add_bias(ops.matmul(x, self.kernel), self.bias)

    def recur(self, projected: Any, h: Any, c: Any) -> tuple[Any, Any, Any]:
        """Run the recurrence.

        Args:
            projected: Tensor `(streams, steps, 4 * units)`, result of `project`.
            h: Tensor `(streams, units)`, the initial output.
            c: Tensor `(streams, units)`, the initial cell.

        Returns:
            Outputs of all steps `(streams, steps, units)`, and the last h and c.
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
        """Set the state to zero, as at the start of a text."""
        for variable in self.carried if self.built else ():
            variable.assign(ops.zeros(variable.shape, variable.dtype))

    @property
    def weights(self) -> list[keras.Variable]:
        """Kernel, recurrent kernel and bias, without the state."""
        return [] if not self.built else [self.kernel, self.recurrent_kernel, self.bias]

    def save_own_variables(self, store: Any) -> None:
        """Save the weights, without the state."""
        for i, variable in enumerate(self.weights):
            store[str(i)] = variable

    def load_own_variables(self, store: Any) -> None:
        """Load the weights; the state is unchanged."""
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
        if len(shape) != 3 or shape[0] not in (None, self.streams) or shape[2] is None:
            raise ValueError(
                f"CarriedLSTM {self.name!r} with streams={self.streams} needs an input of shape "
                f"({self.streams}, steps, features). Received: input shape {tuple(shape)}"
            )


_NEVER = -1e9  # the logit of a position that no class has; infinity would make the derivatives NaN


@keras.saving.register_keras_serializable(package="keras_highway")
class HierarchicalSoftmax(keras.layers.Layer):
    """Hierarchical softmax: `log p(class) = log p(cluster) + log p(class | cluster)`.

    Training needs the probability of one class only. With `sqrt(classes)`
    clusters it costs products with `2 * sqrt(classes)` columns instead of
    `classes` [Kim et al. 2015, 3.2, after Mnih and Hinton]. Class `i` is in
    cluster `i % clusters`; the authors assign clusters at random.

    Input: `(..., features)`. Output: log-probabilities `(..., classes)`, in
    float32 under every dtype policy.

    Args:
        classes: Int, number of classes.
        clusters: Int, number of clusters. Defaults to `ceil(sqrt(classes))`.
        kernel_initializer: Initializer of the clusters' kernel and, drawn
            separately, of the classes'. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of both biases, in the same way. Defaults
            to `"zeros"`.

    Raises:
        ValueError: If a size is not positive, or there are more clusters than
            classes.
    """

    def __init__(
        self,
        classes: int,
        clusters: int | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.classes = checked_size(classes, "classes")
        # isqrt(n - 1) + 1 is the square root rounded up, in whole numbers.
        self.clusters = checked_size(math.isqrt(self.classes - 1) + 1 if clusters is None else clusters, "clusters")
        if self.clusters > self.classes:
            raise ValueError(
                f"`clusters` must not exceed `classes`. Received: clusters={self.clusters}, classes={self.classes}"
            )
        self.cluster_size = -(-self.classes // self.clusters)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        features = input_shape[-1]
        kernel, bias = (fresh(i) for i in (self.kernel_initializer, self.bias_initializer))
        kernels, biases = (fresh(i, 1) for i in (self.kernel_initializer, self.bias_initializer))
        self.cluster_kernel = self.add_weight(
            name="cluster_kernel", shape=(features, self.clusters), initializer=kernel
        )
        self.cluster_bias = self.add_weight(name="cluster_bias", shape=(self.clusters,), initializer=bias)

        def drawn(shape: tuple[int, ...], dtype: Any = None) -> Any:
            # Draw it as one matrix: initializers take the first of three axes for a convolution's kernel size.
            flat = kernels((features, self.clusters * self.cluster_size), dtype=dtype)
            return ops.transpose(ops.reshape(flat, (features, self.clusters, self.cluster_size)), (1, 0, 2))

        # A cluster's part is one piece of memory, which training takes out as a whole.
        self.kernel = self.add_weight(
            name="kernel", shape=(self.clusters, features, self.cluster_size), initializer=drawn
        )
        self.bias = self.add_weight(name="bias", shape=(self.clusters, self.cluster_size), initializer=biases)

    def call(self, x: Any) -> Any:
        logits = add_bias(ops.einsum("...u,cup->...pc", x, self.kernel), ops.transpose(self.bias))
        logits = ops.cast(logits, "float32") + self._absent()
        within = logits - ops.logsumexp(logits, axis=-2, keepdims=True)
        log_p = within + self._cluster_log_p(x)[..., None, :]
        flat = ops.reshape(log_p, (*ops.shape(log_p)[:-2], self.cluster_size * self.clusters))
        return flat[..., : self.classes]

    def target_log_probabilities(self, x: Any, targets: Any) -> Any:
        """Return the log-probability of one class per row, without computing the others.

        Memory: a copy of the kernel of one cluster per target, `features *
        sqrt(classes)` numbers. On TensorFlow the kernel's gradient is sparse:
        convert it to a tensor before you compute its norm, because clusters
        may occur several times.

        Args:
            x: Tensor `(..., features)`.
            targets: Integers `(...)`.

        Returns:
            float32 `(...)`: `call(x)` at the targets.
        """
        targets = ops.cast(targets, "int32")
        cluster, position = targets % self.clusters, targets // self.clusters
        x, taken, bias = self._computed(x, ops.take(self.kernel, cluster, axis=0), ops.take(self.bias, cluster, axis=0))
        logits = ops.matmul(x[..., None, :], taken)[..., 0, :] + bias
        logits = ops.cast(logits, "float32") + ops.take(ops.transpose(self._absent()), cluster, axis=0)
        own = _at(logits, position) - ops.logsumexp(logits, axis=-1)
        return own + _at(self._cluster_log_p(x), cluster)

    def _computed(self, *values: Any) -> list[Any]:
        # Keras casts weights by itself in `call` alone.
        return [ops.cast(value, self.compute_dtype) for value in values]

    def _cluster_log_p(self, x: Any) -> Any:
        kernel, bias = self._computed(self.cluster_kernel, self.cluster_bias)
        logits = ops.cast(add_bias(ops.matmul(x, kernel), bias), "float32")
        return logits - ops.logsumexp(logits, axis=-1, keepdims=True)

    def _absent(self) -> Any:
        """Return a mask of shape `(cluster_size, clusters)` that makes positions without a class improbable."""
        number = ops.reshape(ops.arange(self.cluster_size * self.clusters), (self.cluster_size, self.clusters))
        return ops.where(number < self.classes, 0.0, _NEVER)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.classes)

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "classes": self.classes,
            "clusters": self.clusters,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def _at(values: Any, index: Any) -> Any:
    return ops.take_along_axis(values, index[..., None], axis=-1)[..., 0]
