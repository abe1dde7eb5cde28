"""Kernels that the transforms of several blocks share, and the convolution that takes one."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape, checked_data_format
from keras_highway.layers.base import checked_size, fresh
from keras_highway.layers.convolve import convolve


@keras.saving.register_keras_serializable(package="keras_highway")
class SharedKernels(keras.layers.Layer):
    """The kernels of the transforms of a stage, once for all of its blocks [Liao and Poggio 2016; UIE, 4].

    A block with `shared_transform=True` takes them as another input: what is
    shared is seen in the graph, so that a copy of the network or one read
    from a file shares it, too.

    Input: images, of which only the number of channels matters. Output: a list
        of kernels `(height, width, in, out)`, in the dtype of variables
        (float32 under mixed precision).

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
                "`filters` and `kernel_sizes` need one number per convolution. "
                f"Received: filters={filters}, kernel_sizes={kernel_sizes}"
            )
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.data_format = checked_data_format(data_format)

    def build(self, input_shape: Shape) -> None:
        channels = input_shape[1 if self.data_format == "channels_first" else -1]
        self.kernels = [
            self.add_weight(name=f"kernel{i + 1}", shape=shape, initializer=fresh(self.kernel_initializer, i))
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
    """A convolution without weights: its kernel is passed at every call. A part of `Branch`, which saves it.

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
        """As that of `keras.layers.Conv2D`."""
        return convolve(x, ops.cast(kernel, x.dtype), self.strides, self.padding, self.data_format)
