"""Helpers for Keras layers and models: types, data formats, graph ends, names, loss scaling, models without values."""

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import keras

from keras_highway._support.schema import check_choice

Shape = Sequence[int | None]  # with the batch, which is None, as is any other size that is open
Initializer = str | Mapping[str, Any] | Callable[..., Any]  # what `keras.initializers.get` takes
Activation = str | Mapping[str, Any] | Callable[..., Any] | None  # what `keras.activations.get` takes


def checked_data_format(value: str | None) -> str:
    """Return `"channels_last"` or `"channels_first"`; for `None`, Keras's setting."""
    data_format = keras.config.image_data_format() if value is None else value
    check_choice("data_format", data_format, ("channels_last", "channels_first"))
    return data_format


def model_data_format(model: keras.Model) -> str:
    """Return the data format of a model's layers, else Keras's setting."""
    formats = (getattr(layer, "data_format", None) for layer in model.layers)
    return next((known for known in formats if known), keras.config.image_data_format())


@contextlib.contextmanager
def channels_last() -> Iterator[None]:
    """Build networks channels last in the whole process, whatever the user's keras.json says."""
    before = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_last")
    try:
        yield
    finally:
        keras.config.set_image_data_format(before)


def input_in(model: keras.Model, layer: keras.layers.Layer) -> Any:
    """Return the input of a layer in one model: a Keras tensor or a list of them."""
    return _alone(_node(model, layer).input_tensors)


def output_in(model: keras.Model, layer: keras.layers.Layer) -> Any:
    """Return the output of a layer in one model: a Keras tensor or a list of them; of several calls, the last."""
    return _alone(_node(model, layer).output_tensors)


def _alone(tensors: list[Any]) -> Any:
    return tensors[0] if len(tensors) == 1 else tensors


def _node(model: Any, layer: keras.layers.Layer) -> Any:
    by_depth = getattr(model, "_functional", model)._nodes_by_depth  # a sequential model has its graph inside
    return next(node for depth in sorted(by_depth) for node in by_depth[depth] if node.operation is layer)


_STAGE = re.compile(r"(?P<stage>stage(?P<number>\d+))(?:_block(?P<block>\d+)$|_|$)")


def stage_of(name: str) -> str | None:
    """Return the stage in a layer's name (`"stage2"` for `"stage2_block3"`), or `None`."""
    match = _STAGE.match(name)
    return match["stage"] if match else None


def position_of(name: str) -> tuple[int, int] | None:
    """Return the numbers of stage and block, from 1, in a block's name, or `None`."""
    match = _STAGE.match(name)
    return (int(match["number"]), int(match["block"])) if match and match["block"] else None


def scale_losses_as(model: keras.Model, dtype: Any) -> None:
    """Let `compile` scale losses if the policy of a model's layers is `"mixed_float16"`.

    Keras wraps the optimizer in a `LossScaleOptimizer` where the model's own
    policy is `"mixed_float16"`, and a functional model has the global one,
    whatever its layers'. Without it the small gradients of float16 are zero.
    """
    policy = dtype.dtype_policy if isinstance(dtype, keras.Model) else keras.dtype_policies.get(dtype)
    if policy.name == "mixed_float16":
        model.dtype_policy = policy


_Result = TypeVar("_Result")


def without_values(function: Callable[[], _Result]) -> _Result:
    """Call a function in which new variables have shapes and names, but no values and no memory.

    In a thread of its own: Keras notes variables without values by thread and,
    at the end of its next scope in that thread, gives all of them values. What
    else it keeps by thread, e.g. the dtype policy, has its default there.
    """

    def called():
        with keras.StatelessScope(initialize_variables=False):
            return function()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(called).result()


def by_path(variables: Iterable[keras.Variable]) -> dict[str, keras.Variable]:
    """Return variables by path; further variables of one path are numbered: `conv/kernel:2`."""
    named: dict[str, keras.Variable] = {}
    times: dict[str, int] = {}
    for variable in variables:
        path = variable.path
        times[path] = times.get(path, 0) + 1
        named[path if times[path] == 1 else f"{path}:{times[path]}"] = variable
    return named
