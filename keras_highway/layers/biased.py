"""Keras's layers with a bias that learns in 16 bits.

The gradient of a bias is a sum over samples and positions. In bfloat16 a sum
of like terms stops growing at some 256 of them, in float16 at some 2,048, and
on CPU three implementations add up in the dtype of their input:

- TensorFlow's `BiasAddGrad` in bfloat16; `keras.ops.add` of a tensor and a
  bias leads to it,
- TensorFlow's sum over broadcast axes in float16,
- JAX's derivative of a broadcast in both.

With these layers the sum is exact. In float32, in float16 on TensorFlow, whose
`BiasAddGrad` is exact there, and on other backends they are Keras's own.
"""

from typing import Any

import keras
from keras import ops

from keras_highway._support.numerics import loses_bias_sums, loses_sums
from keras_highway.layers.convolve import convolve


def add_bias(x: Any, bias: Any) -> Any:
    """Returns `x + bias`, with a gradient of the bias that is right to the precision of `x`.

    For the `call` of layers, where tensors are not symbolic.

    Args:
        x: Tensor of shape `(..., units)`, floating-point.
        bias: Tensor of a shape that broadcasts with `x`'s. It is cast to
            `x`'s dtype, as Keras's layers cast theirs.

    Returns:
        A tensor of the broadcast shape and `x`'s dtype.
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


@keras.saving.register_keras_serializable(package="keras_highway")
class Dense(_LearnsOn, keras.layers.Dense):
    """`keras.layers.Dense`, whose bias's gradient is right where it computes in 16 bits."""

    def call(self, inputs: Any, training: bool | None = None) -> Any:
        if not _loses_bias(self):
            return super().call(inputs, training=training)
        return _activated(self, ops.matmul(inputs, self.kernel), self.bias)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        if type_check:
            raise _not_in_place(mode)
        super().quantize(mode, type_check=False, config=config)


@keras.saving.register_keras_serializable(package="keras_highway")
class Conv1D(_LearnsOn, keras.layers.Conv1D):
    """`keras.layers.Conv1D`, whose bias's gradient is right where it computes in 16 bits."""

    def call(self, inputs: Any) -> Any:
        if not _loses_bias(self):
            return super().call(inputs)
        padding = self.padding
        if padding == "causal":  # as in Keras 3.15, whose Conv1D does not use `convolution_op`
            inputs, padding = ops.pad(inputs, self._compute_causal_padding()), "valid"
        y = ops.conv(inputs, self.kernel, list(self.strides), padding, self.data_format, self.dilation_rate)
        return _activated(self, y, _at_channels(self))

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        raise _not_in_place(mode)


@keras.saving.register_keras_serializable(package="keras_highway")
class Conv2D(_LearnsOn, keras.layers.Conv2D):
    """`keras.layers.Conv2D`, whose bias's gradient is right where it computes in 16 bits.

    On TensorFlow and PyTorch its strides over single pixels of few channels are
    safe, too, and on TensorFlow it is quick in bfloat16, see
    `keras_highway.layers.convolve`.
    """

    def call(self, inputs: Any) -> Any:
        if not _loses_bias(self):
            return super().call(inputs)
        return _activated(self, self.convolution_op(inputs, self.kernel), _at_channels(self))

    def convolution_op(self, inputs: Any, kernel: Any) -> Any:
        """As in Keras 3.15."""
        return convolve(inputs, kernel, self.strides, self.padding, self.data_format, self.dilation_rate)

    def quantize(self, mode: Any = None, type_check: bool = True, config: Any = None) -> None:
        raise _not_in_place(mode)


def _not_in_place(mode: Any) -> NotImplementedError:
    """What `model.quantize` shows as a warning, once: Keras's own says that there is no such method."""
    return NotImplementedError(
        "The convolutions and dense layers of keras_highway are not quantized in place, and stay in float beside those "
        "of Keras that are: build the network again, and write a quantized file with `python -m keras_highway export "
        f"WEIGHTS --format litert --int8 --data DIR --out PATH`. Received: mode={mode!r}"
    )


def _loses_bias(layer: Any) -> bool:
    return layer.use_bias and loses_bias_sums(layer.compute_dtype)


def _at_channels(layer: Any) -> Any:
    """The bias of a convolution, in a shape that broadcasts to its output."""
    return layer.bias if layer.data_format == "channels_last" else ops.reshape(layer.bias, (-1,) + (1,) * layer.rank)


def _activated(layer: Any, y: Any, bias: Any) -> Any:
    y = add_bias(y, bias)
    return y if layer.activation is None else layer.activation(y)
