"""The few operations of a transform on tensors of any library: NumPy's, TensorFlow's, JAX's, PyTorch's and Keras's.

A tensor stays of its own library, whatever Keras's backend: `tf.data` hands
out TensorFlow's on every backend. None is imported here: a program that has a
tensor has imported its library.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_IMAGE = (-3, -2, -1)


@dataclass(frozen=True)
class Library:
    """Whose tensor it is, and how that library does what a transform needs.

    Attributes:
        float32: Function tensor -> the same in float32.
        constant: Function (array, tensor) -> the array as a tensor where the
            tensor is.
        mean: Function tensor -> the mean of every image, `(..., 1, 1, 1)`.
        at_least_one: Function tensor -> larger of it and 1, element by
            element.
        values: Function tensor -> NumPy array of its values; raises where it
            has none yet.
    """

    float32: Callable[[Any], Any]
    constant: Callable[[np.ndarray, Any], Any]
    mean: Callable[[Any], Any]
    at_least_one: Callable[[Any], Any]
    values: Callable[[Any], np.ndarray]


def library_of(x: Any) -> Library | None:
    """Return the library of a tensor; None for what NumPy makes an array of."""
    row = _LIBRARIES.get(type(x).__module__.partition(".")[0])
    return row() if row and hasattr(x, "shape") and hasattr(x, "dtype") else None


def known_shape(x: Any) -> tuple[int | None, ...] | None:
    """Return the shape of a tensor, `None` where a size is open, or for the whole where not even the rank is known."""
    shape = x.shape
    if getattr(shape, "rank", 0) is None:
        return None
    return tuple(shape)


def values_of(x: Any, library: Library | None) -> np.ndarray | None:
    """Return the values of a tensor; None where it has none yet, as inside of a graph or of a compiled function."""
    if library is None:
        return np.asarray(x)
    try:
        return library.values(x)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
        return None  # each library has an error of its own for a symbol's values


def _tensorflow() -> Library:
    tf: Any = sys.modules["tensorflow"]
    return Library(
        float32=lambda x: tf.cast(x, tf.float32),
        constant=lambda array, x: tf.constant(array),
        mean=lambda x: tf.reduce_mean(x, _IMAGE, keepdims=True),
        at_least_one=lambda x: tf.maximum(x, 1.0),
        values=lambda x: x.numpy(),
    )


def _jax() -> Library:
    jnp: Any = sys.modules["jax.numpy"]
    return Library(
        float32=lambda x: x.astype(jnp.float32),
        constant=lambda array, x: jnp.asarray(array),
        mean=lambda x: jnp.mean(x, _IMAGE, keepdims=True),
        at_least_one=lambda x: jnp.maximum(x, 1.0),
        values=np.asarray,
    )


def _torch() -> Library:
    torch: Any = sys.modules["torch"]
    return Library(
        float32=lambda x: x.to(torch.float32),
        constant=lambda array, x: torch.as_tensor(array.copy(), device=x.device),
        mean=lambda x: torch.mean(x, _IMAGE, keepdim=True),
        at_least_one=lambda x: torch.clamp(x, min=1.0),
        values=lambda x: x.detach().cpu().numpy(),
    )


def _keras() -> Library:
    keras: Any = sys.modules["keras"]

    def values(x: Any) -> np.ndarray:
        if keras.utils.is_keras_tensor(x):
            raise TypeError("A symbolic tensor has no values.")
        return keras.ops.convert_to_numpy(x)

    return Library(
        float32=lambda x: keras.ops.cast(x, "float32"),
        constant=lambda array, x: array,
        mean=lambda x: keras.ops.mean(x, _IMAGE, keepdims=True),
        at_least_one=lambda x: keras.ops.maximum(x, 1.0),
        values=values,
    )


_LIBRARIES = {"tensorflow": _tensorflow, "jax": _jax, "jaxlib": _jax, "torch": _torch, "keras": _keras}
