"""Types of what Keras's layers take, which Keras itself does not name. Tensors are `Any`: each backend has its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = Sequence[int | None]  # with the batch, which is None, as is any other size that is open
Initializer = str | Mapping[str, Any] | Callable[..., Any]  # what `keras.initializers.get` takes
Activation = str | Mapping[str, Any] | Callable[..., Any] | None  # what `keras.activations.get` takes
