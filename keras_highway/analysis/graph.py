"""A functional model seen as a graph of shared layers: its blocks, and a walk that calls every layer again."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras

from keras_highway._support.keras_models import scale_losses_as, stage_of
from keras_highway._support.terminal import did_you_mean
from keras_highway.layers import GatedBlock, HighwayDenseStack

Blocks = str | GatedBlock | Iterable[str | GatedBlock]  # by their names or by themselves


def blocks(model: keras.Model) -> dict[str, GatedBlock]:
    """Returns the gated blocks of a model.

    Args:
        model: A functional or sequential `keras.Model`; blocks of models
            nested in it count too.

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
            raise ValueError(
                f"Two different blocks are named {block.name!r}, so the name is ambiguous. "
                "Give the nested models' blocks different names."
            )
    if not by_name:
        if any(isinstance(layer, HighwayDenseStack) for layer in model.layers):
            raise ValueError(
                f"The highway layers of {model.name!r} run in a scan (HighwayDenseStack), which has no blocks to walk. "
                "Build the model with scanned=False, or read the stack's own signals: "
                "model.get_layer('stage1').signals(x)."
            )
        raise ValueError(
            "The model has no gated blocks (layers of class kh.layers.GatedBlock: HighwayDense, HighwayConv2D, "
            f"BasicBlock, BottleneckBlock). Received: model={model.name!r} with layers "
            f"{', '.join(layer.name for layer in model.layers[:8])}"
        )
    return by_name


def block_name(block: Any) -> str:
    """Returns the name of a block, passed by name or as the block itself.

    Raises:
        ValueError: If it is neither.
    """
    if isinstance(block, GatedBlock):
        return block.name
    if isinstance(block, str):
        return block
    raise ValueError(f"A block is named by its name or by itself (a GatedBlock). Received: block={block!r}")


def data_format_of(block: GatedBlock) -> str:
    """Where a block's output has its channels: `"channels_last"` (as fully connected blocks) or `"channels_first"`."""
    return getattr(block, "data_format", None) or "channels_last"


def stages(names: Iterable[str]) -> dict[str, list[str]]:
    """Groups blocks by the stage in their names, `stage<n>_...`.

    Args:
        names: Names of blocks, in the order of the network.

    Returns:
        A dict from stage to its blocks; blocks of other names are in
        `"body"`.
    """
    by_stage: dict[str, list[str]] = {}
    for name in names:
        by_stage.setdefault(stage_of(name) or "body", []).append(name)
    return by_stage


def check_names(names: Iterable[str], known: Iterable[str]) -> None:
    """Raises a ValueError, with suggestions, for a name that is not among the known ones."""
    for name in names:
        if name not in known:
            raise ValueError(
                f"The model has no block of that name.{did_you_mean(name, known)} Its blocks are {', '.join(known)}. "
                f"Received: block={name!r}"
            )


def holds_blocks(layer: Any, names: Iterable[str] | None = None) -> bool:
    """Whether a layer is a nested functional model with blocks (of some names)."""
    return is_functional(layer) and any(names is None or b.name in names for b in blocks_in(_functional(layer)))


def is_functional(model: Any) -> bool:
    """Whether a layer is a graph of layers: a functional model, or a sequential one that is built."""
    return isinstance(model, keras.Function) or (isinstance(model, keras.Sequential) and model.built)


def walk(model: keras.Model, visit: Callable[..., Any], swap: Callable[[Any], Any] | None = None) -> keras.Model:
    """Calls the layers of a model again, in order, as `visit(layer, *args, **kwargs)`.

    The result stands on the same layers and inputs; it is not compiled. Nothing about the model or its layers changes,
    except that Keras remembers the calls, as it does for any shared layer.

    However the model calls them, `visit` gets a layer's first input as the
    first of `args`, and what else a block takes (`gate`, `kernels`) in
    `kwargs`.

    Args:
        model: A functional or sequential `keras.Model`.
        visit: Function (layer, *args, **kwargs) -> outputs.
        swap: Function layer -> layer, called before `visit`. Defaults to the
            layer itself.

    Returns:
        A functional `keras.Model`.
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
    """Calls the layers of a nested model on the tensors that reach it, as `walk` does, and returns its output.

    These may come from any layer before it; a model on such tensors of its
    own would be cut off from the outer model's input.

    Args:
        model: A functional or sequential `keras.Model` inside another.
        visit: Function (layer, *args, **kwargs) -> outputs.
        inputs: The Keras tensors it is called on.
    """
    return _functional(model)._run_through_graph(inputs, call_fn=_in_order(visit))


def _in_order(visit: Callable[..., Any]) -> Callable[..., Any]:
    """`visit` for layers that are called in any way that Python allows: `block(x=x)`, `block(x, logits)`."""

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
    """A view of the model's graph. It is never compiled: cloning a compiled model builds a second optimizer."""
    if not is_functional(model):
        raise ValueError(
            "Analysis walks the graph of a functional keras.Model, as kh.create_model and keras.Model(inputs, "
            "outputs) build it; a subclassed or unbuilt model has none. "
            f"Received: model of type {type(model).__name__}"
        )
    if isinstance(model, keras.Sequential):
        return keras.Model(model.inputs[0], model.outputs[0], name=model.name)
    return keras.Model(model.input, model.output, name=model.name)


def blocks_in(graph: keras.Model) -> Iterator[GatedBlock]:
    """Yields the blocks of a graph and of those nested in it; there may be none."""
    for layer in graph.layers:
        if isinstance(layer, GatedBlock):
            yield layer
        elif is_functional(layer):
            yield from blocks_in(_functional(layer))
