"""From the characters of a word to its vector: embedding, convolutions of several widths, maximum over time."""

from collections.abc import Iterable, Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape
from keras_highway.layers.base import checked_size, freeze_sublayers, fresh
from keras_highway.layers.ungated import Conv1D


@keras.saving.register_keras_serializable(package="keras_highway")
class CharEmbedding(keras.layers.Layer):
    """Embedding of characters whose padding, character 0, is zero and stays so [Kim et al. 2015].

    The gradient of the padding is not zero and counts in a clipped norm, as in
    the authors' program. A constraint sets the padding to zero after each
    update of an optimizer.

    Input: integers `(words, length)`. Output: `(words, length, units)`.

    Args:
        characters: Int, number of characters, the padding among them.
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
        # Padding reads as zero even where a file has other values; its gradient is that of any other character.
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
    """Convolutions of several widths over characters, tanh, maximum over time, side by side [Kim et al. 2015, 2.2].

    Windows stay inside the input ("valid"); those that cover padding count
    like any other, as in the authors' code.

    Input: `(words, length, units)`. Output: `(words, sum(filters))`.

    Args:
        kernels: Widths of the convolutions, in characters.
        filters: Number of filters of each.
        kernel_initializer: Defaults to `"glorot_uniform"`.
        bias_initializer: Defaults to `"zeros"`.

    Raises:
        ValueError: If there are not as many filters as kernels, or words are
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
        self.kernels = tuple(checked_size(k, "kernels") for k in _sequence(kernels, "kernels"))
        self.filters = tuple(checked_size(f, "filters") for f in _sequence(filters, "filters"))
        if len(self.kernels) != len(self.filters) or not self.kernels:
            raise ValueError(
                "CharCNN needs a number of filters for each kernel. "
                f"Received: kernels={self.kernels}, filters={self.filters}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        if len(input_shape) != 3 or input_shape[2] is None:
            raise ValueError(
                f"CharCNN {self.name!r} needs an input of shape (words, length, units). "
                f"Received: input shape {tuple(input_shape)}"
            )
        if input_shape[1] is None or input_shape[1] < max(self.kernels):
            raise ValueError(
                f"CharCNN {self.name!r} has a kernel of {max(self.kernels)} characters and needs words of a known "
                f"length of at least as many, with their marks and padding. Received: input shape {tuple(input_shape)}"
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


def _sequence(sizes: Any, name: str) -> Iterable[Any]:
    if not isinstance(sizes, Iterable) or isinstance(sizes, str):
        raise ValueError(
            f"`{name}` must be a list of whole numbers, one of each convolution. Received: {name}={sizes!r}"
        )
    return sizes


@keras.saving.register_keras_serializable(package="keras_highway")
class TakeRows(keras.layers.Layer):
    """Puts the vectors of distinct words where the words stand: `vectors[positions]`.

    Inputs: vectors `(words, units)` and integers `(streams, steps)`. Output:
    `(streams, steps, units)`.
    """

    def __init__(self, **kwargs: Any):
        super().__init__(autocast=False, **kwargs)

    # Keras names the shape of each input.
    def build(self, vectors_shape: Shape, positions_shape: Shape) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Has no weights."""

    def call(self, vectors: Any, positions: Any) -> Any:
        return ops.take(vectors, ops.cast(positions, "int32"), axis=0)

    def compute_output_shape(self, vectors_shape: Shape, positions_shape: Shape) -> tuple[int | None, ...]:
        return (*positions_shape, vectors_shape[-1])

    def compute_output_spec(self, vectors: Any, positions: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(vectors.shape, positions.shape), dtype=vectors.dtype)
