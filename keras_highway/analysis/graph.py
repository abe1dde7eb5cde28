"""Blocks of a functional model, a walk that calls its layers again, and state kept during a walk."""

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import scale_losses_as, stage_of
from keras_highway._support.terminal import did_you_mean
from keras_highway.layers import GatedBlock, HighwayDenseStack

Blocks = str | GatedBlock | Iterable[str | GatedBlock]  # names or blocks


def blocks(model: keras.Model) -> dict[str, GatedBlock]:
    """Return the gated blocks of a model and of its nested models.

    Args:
        model: A functional or sequential `keras.Model`.

    Returns:
        A dict from name to `GatedBlock`, in the order of the network. A block
        that is called several times is listed once.

    Raises:
        ValueError: If the model is not functional, has no blocks, or has two
            blocks of one name.
    """
    by_name: dict[str, GatedBlock] = {}
    for block in blocks_in(_functional(model)):
        if by_name.setdefault(block.name, block) is not block:
            raise ValueError(f"`model` has two blocks named {block.name!r}: rename one of them.")
    if not by_name:
        scanned = any(isinstance(layer, HighwayDenseStack) for layer in model.layers)
        hint = " A HighwayDenseStack scans its layers: build the model with scanned=False." if scanned else ""
        raise ValueError(
            f"`model` has no gated blocks (HighwayDense, HighwayConv2D, BasicBlock, BottleneckBlock).{hint} "
            f"Received: {model.name!r} with layers {', '.join(layer.name for layer in model.layers[:8])}"
        )
    return by_name


def block_name(block: Any) -> Any:
    """Return the name of a block, passed by name or as the block itself."""
    return block.name if isinstance(block, GatedBlock) else block


def block_names(chosen: Blocks, known: Iterable[str]) -> list[str]:
    """Return the names of the chosen blocks, in the order of the known names."""
    one = isinstance(chosen, (str, GatedBlock)) or not isinstance(chosen, Iterable)
    names = [block_name(block) for block in ([chosen] if one else chosen)]
    check_names(names, known)
    if not names:
        raise ValueError("`blocks` must name a block. Received: blocks=[]")
    return [name for name in known if name in names]


def data_format_of(block: GatedBlock) -> str:
    """Return `"channels_last"` (also for fully connected blocks) or `"channels_first"`."""
    return getattr(block, "data_format", None) or "channels_last"


def stages(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names of blocks by their stage, `stage<n>_...`; other names are in `"body"`."""
    by_stage: dict[str, list[str]] = {}
    for name in names:
        by_stage.setdefault(stage_of(name) or "body", []).append(name)
    return by_stage


def check_names(names: Iterable[Any], known: Iterable[str]) -> None:
    """Raise a ValueError with suggestions if a name is unknown."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"`block` must be a block of the model: {', '.join(known)}.{did_you_mean(name, known)} "
                f"Received: block={name!r}"
            )


def holds_blocks(layer: Any, names: Iterable[str] | None = None) -> bool:
    """Return whether a layer is a nested functional model with blocks (with one of these names)."""
    return is_functional(layer) and any(names is None or b.name in names for b in blocks_in(_functional(layer)))


def is_functional(model: Any) -> bool:
    """Return whether a layer is a graph of layers: a functional or built sequential model."""
    return isinstance(model, keras.Function) or (isinstance(model, keras.Sequential) and model.built)


def walk(model: keras.Model, visit: Callable[..., Any], swap: Callable[[Any], Any] | None = None) -> keras.Model:
    """Call the layers of a model again, in order, as `visit(layer, *args, **kwargs)`, and return the new model.

    It has the same layers (or `swap(layer)` for each) and inputs and is not compiled. The model and its layers are
    unchanged, except that Keras remembers the calls, as for any shared layer. `visit` always gets the first input of a
    layer as the first of `args`, and the other inputs of a block (`gate`, `kernels`) in `kwargs`.
    """
    graph = _functional(model)
    walked = keras.models.clone_model(
        graph,
        input_tensors=graph.input,
        clone_function=swap or (lambda layer: layer),
        call_function=_in_order(visit),
    )
    scale_losses_as(walked, model)
    return walked


def walk_nested(model: keras.Model, visit: Callable[..., Any], inputs: Any) -> Any:
    """Call the layers of a nested model on the tensors that reach it, as `walk` does, and return its output.

    A model on new input tensors would be cut off from the input of the outer model.
    """
    return _functional(model)._run_through_graph(inputs, call_fn=_in_order(visit))


def _in_order(visit: Callable[..., Any]) -> Callable[..., Any]:
    """Return `visit` for layers called in any way that Python allows: `block(x=x)`, `block(x, logits)`."""

    def visit_in_order(layer: Any, *args: Any, **kwargs: Any) -> Any:
        # Others stay as they are: operations have one way, and layers of several inputs may take them as `*args`.
        if isinstance(layer, keras.layers.Layer) and (not args or (isinstance(layer, GatedBlock) and len(args) > 1)):
            # By name, not bound to the signature: Keras takes `training=...` for layers whose `call` does not.
            parameters = inspect.signature(layer.call).parameters.values()
            names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
            args = tuple(kwargs.pop(name) for name in names[:1] if name in kwargs)
        return visit(layer, *args, **kwargs)

    return visit_in_order


def _functional(model: keras.Model) -> keras.Model:
    """Return the graph of the model, not compiled: cloning a compiled model builds a second optimizer."""
    if not is_functional(model):
        raise ValueError(
            "`model` must be a functional keras.Model, as kh.create_model or keras.Model(inputs, outputs) builds it. "
            f"Received: model of type {type(model).__name__}"
        )
    if isinstance(model, keras.Sequential):
        return keras.Model(model.inputs[0], model.outputs[0], name=model.name)
    return keras.Model(model.input, model.output, name=model.name)


def blocks_in(graph: keras.Model) -> Iterator[GatedBlock]:
    """Yield the blocks of a graph and of the graphs nested in it."""
    for layer in graph.layers:
        if isinstance(layer, GatedBlock):
            yield layer
        elif is_functional(layer):
            yield from blocks_in(_functional(layer))


@contextmanager
def kept_state(model: keras.Model) -> Generator[None]:
    """Restore the state that layers carry from batch to batch when the context ends.

    State is every variable that is neither trained nor an average of batch normalization: of `CarriedLSTM`, of Keras's
    recurrent layers with `stateful=True`, of your own layers.
    """
    variables = _state(model)
    before = [_copied(variable) for variable in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, before, strict=True):
            # Most states do not change, and an assignment costs more than a comparison.
            if not np.array_equal(_copied(variable), value):
                variable.assign(value)


def _state(model: keras.Model) -> list[keras.Variable]:
    found: dict[int, keras.Variable] = {}
    for layer in model._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        # Averages of batch normalization do not move in inference, and reading them would make the processes of a
        # distributed net wait for each other.
        if isinstance(layer, keras.layers.BatchNormalization):
            continue
        own: list[Any] = list(layer._non_trainable_variables)  # pyright: ignore[reportPrivateUsage] (the public list has frozen kernels)
        if isinstance(layer, keras.layers.RNN):
            own += keras.tree.flatten(layer.states or [])  # Keras does not track them
        found.update((id(variable), variable) for variable in own)
    return list(found.values())


def _copied(variable: keras.Variable) -> np.ndarray:
    return np.array(ops.convert_to_numpy(variable))  # PyTorch gives a view
