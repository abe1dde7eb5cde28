"""Taking models apart for other tasks: feature pyramids, new classifiers, freezing."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras

from keras_highway._support.keras_models import (
    input_in,
    model_data_format,
    output_in,
    position_of,
    scale_losses_as,
    stage_of,
)
from keras_highway._support.terminal import did_you_mean
from keras_highway.layers import GatedBlock
from keras_highway.layers.base import checked_size
from keras_highway.models.lora import learns_by_updates, train_updates_alone
from keras_highway.models.trainable import admit, compiled_again, set_trainable
from keras_highway.weights.info import info_of, note_info

_POOLS = {"avg": keras.layers.GlobalAveragePooling2D, "max": keras.layers.GlobalMaxPooling2D}
_STEM = "stem"


class FeatureInfo(NamedTuple):
    """A level of the pyramid.

    Attributes:
        stage: `"stage1"`, ...
        layer: Name of the layer whose output it is, the stage's last block.
        stride: Input pixels per feature, in height and width.
        channels: Number of channels.
    """

    stage: str
    layer: str
    stride: int
    channels: int


class Features(NamedTuple):
    """What `features` returns.

    Attributes:
        model: A `keras.Model` from the input to a dict, stage name to output.
        info: One `FeatureInfo` per stage, in order.
    """

    model: keras.Model
    info: tuple[FeatureInfo, ...]


def features(model: keras.Model, stages: str | tuple[str, ...] | None = None, pool: str | None = None) -> Features:
    """Return the pyramid of stage outputs of a convolutional model, for detection or segmentation.

    Args:
        model: A model of `keras_highway`, with or without its top.
        stages: Which stages, e.g. `("stage2", "stage4")` or `"stage4"`.
            Defaults to all.
        pool: `"avg"` or `"max"` for one vector per stage, `(batch, channels)`,
            its mean or maximum over all positions. Defaults to `None`: maps.

    Returns:
        `Features(model, info)`; the model shares all layers with the original.

    Raises:
        ValueError: If the model has no stages of convolutional blocks, a stage
            does not exist, or `pool` is unknown.

    Example:

    >>> pyramid = kh.features(kh.Highway50(weights=None, include_top=False))
    >>> [(f.stage, f.stride, f.channels) for f in pyramid.info]
    [('stage1', 4, 192), ('stage2', 8, 384), ('stage3', 16, 768), ('stage4', 32, 1536)]
    """
    ends = _stage_ends(model)
    outputs = {stage: output_in(model, layer) for stage, layer in ends.items()}
    if any(len(output.shape) != 4 for output in outputs.values()):
        raise ValueError(f"Model {model.name!r} is not convolutional; its stages have no pyramid.")
    chosen = _chosen(stages, ends)
    for stage in chosen:
        _check_stage(stage, ends, model)
    if pool not in (None, *_POOLS):
        raise ValueError(f"`pool` must be None, 'avg' or 'max'. Received: pool={pool!r}")
    name, maps = f"{model.name}_features", {stage: outputs[stage] for stage in chosen}
    pyramid = keras.Model(model.input, maps, name=name)
    info = _info(pyramid, {stage: ends[stage].name for stage in chosen})
    if pool is not None:
        dtype = "float64" if "float64" in {y.dtype for y in maps.values()} else "float32"
        where = {"dtype": dtype, "data_format": model_data_format(model)}
        vectors = {stage: _POOLS[pool](name=f"{stage}_{pool}_pool", **where)(y) for stage, y in maps.items()}
        pyramid = keras.Model(model.input, vectors, name=name)
    return Features(pyramid, info)


def layer_groups(model: keras.Model) -> dict[str, list[keras.layers.Layer]]:
    """Return the layers of a model in groups from input to output, for rates that fall with the distance from the head.

    ```python
    groups = kh.layer_groups(model)
    rates = [1e-3 * 0.75**k for k in reversed(range(len(groups)))]
    own = {
        weight.path: optimizer
        for rate, layers in zip(rates, groups.values())
        for optimizer in [keras.optimizers.AdamW(rate)]
        for layer in layers
        for weight in layer.weights
    }
    model.compile(keras.optimizers.MultiOptimizer(lambda weight: own[weight.path]), ...)  # Keras 3.15
    ```

    Args:
        model: A model of `keras_highway`, with or without its top.

    Returns:
        Dict from name to layers with weights: `"stem"` (what comes before the
        first stage), `"stage1"` and the others, `"head"` (what comes after
        the last). A group without weights is left out; every trainable weight
        is in one group.

    Raises:
        ValueError: If the model has no stages.
    """
    groups: dict[str, list[keras.layers.Layer]] = {}
    stages = _stages([layer.name for layer in model.layers])
    if not any(stages):
        raise ValueError(f"Model {model.name!r} has no layers named 'stage1_block1', ...: no stages to group by.")
    last = max(index for index, stage in enumerate(stages) if stage)
    group = "stem"
    for index, (layer, stage) in enumerate(zip(model.layers, stages, strict=True)):
        group = "head" if index > last else stage or group
        if layer.weights:
            groups.setdefault(group, []).append(layer)
    return groups


def num_features(model: keras.Model) -> int:
    """Return the number of features that a model's classifier sees; without one, the channels of its output.

    Args:
        model: A model of `keras_highway`, with or without its top.
    """
    head = next((layer for layer in model.layers if layer.name == "head"), None)
    features = model.output if head is None else input_in(model, head)
    first = model_data_format(model) == "channels_first" and len(features.shape) == 4
    return features.shape[1 if first else -1]


def reset_classifier(
    model: keras.Model,
    classes: int,
    activation: str | Callable[..., Any] | None = "softmax",
    pooling: str = "avg",
) -> keras.Model:
    """Put a fresh classifier on a model's body.

    Args:
        model: A model of `keras_highway`, with or without its top.
        classes: Int, number of classes of the new `head`.
        activation: Activation of the new head, `None` for logits. Defaults to
            `"softmax"`.
        pooling: `"avg"` or `"max"`, only where the body's output is of rank
            4. Defaults to `"avg"`.

    Returns:
        A new `keras.Model`; the body is shared with the original, not copied.

    Raises:
        ValueError: If `classes` is not a positive integer, or the model has
            several outputs.
    """
    classes = checked_size(classes, "classes")
    if len(model.outputs) != 1:
        raise ValueError(
            f"Only a model of one output gets another classifier: name the one that is meant, as keras.Model(inputs, "
            f"output). Received: {model.name!r} with {len(model.outputs)} outputs"
        )
    last = model.layers[-1]
    if last.name != "head" and any(layer.name == "head" for layer in model.layers):
        raise ValueError(
            f"Model {model.name!r} goes on after its layer 'head', as language models do: no classifier can take that "
            f"layer's place. Received: a model whose last layer is {last.name!r}"
        )
    x = input_in(model, last) if last.name == "head" else model.output
    dtype = "float64" if x.dtype == "float64" else "float32"
    if len(x.shape) == 4:
        if pooling not in _POOLS:
            raise ValueError(f"`pooling` must be 'avg' or 'max'. Received: pooling={pooling!r}")
        x = _POOLS[pooling](name=f"{pooling}_pool", dtype=dtype, data_format=model_data_format(model))(x)
    initializer = last.kernel_initializer.clone() if last.name == "head" else "glorot_uniform"
    head = keras.layers.Dense(classes, activation=activation, kernel_initializer=initializer, name="head", dtype=dtype)
    changed, info = keras.Model(model.input, head(x), name=model.name), info_of(model)
    note_info(changed, info and info.derived(classes=()))  # the classes are others
    scale_losses_as(changed, model)
    return changed


def freeze(model: keras.Model, until: str | None = None) -> None:
    """Freezes a model from its input up to and including a stage; what comes after is trainable.

    Frozen batch normalization uses and keeps its moving statistics (Keras's
    rule for `trainable=False`). A compiled model is compiled again with the
    same arguments, since Keras would otherwise continue to train frozen
    weights; its optimizer starts anew. After `kh.enable_lora`, trainable are
    the low-rank updates and the head of what comes after.

    Args:
        model: A model of `keras_highway`.
        until: Last frozen stage (`"stage3"`), block (`"stage3_block2"`) or
            layer (`"stem"`). Defaults to `None`: everything but `head`.

    Raises:
        ValueError: If there is no such stage or layer, with suggestions; or
            if nothing is named and the last layer is not `head`.
    """
    names = [layer.name for layer in model.layers]
    if until is None and names[-1] != "head":
        raise ValueError(
            f"Model {model.name!r} has no layer 'head' at its end, so nothing would be left to train. Name the last "
            f"frozen layer, e.g. until={names[-2 if len(names) > 2 else -1]!r}, or set model.trainable = False. "
            f"Received: until=None, and the last layer is {names[-1]!r}"
        )
    last = len(names) - 2 if until is None else _last_of(model, names, until, "until")
    updates = learns_by_updates(model)
    with compiled_again(model):
        admit(model)
        for index, layer in enumerate(model.layers):
            set_trainable(layer, index > last)
            if updates and index > last:
                train_updates_alone(layer)


def unfreeze(model: keras.Model, since: str | None = None) -> None:
    """Make a model trainable again, all of it or from a stage on; earlier layers stay as they are.

    Fine-tuning in two steps: `freeze(model)` and train the head, then
    `unfreeze(model, since="stage3")` and train on, at a lower rate. A
    compiled model is compiled again, as by `freeze`. After `kh.enable_lora`,
    kernels learn beside their low-rank updates.

    Args:
        model: A model of `keras_highway`.
        since: First trainable stage (`"stage3"`), block (`"stage3_block2"`)
            or layer (`"head"`). Defaults to `None`: everything.

    Raises:
        ValueError: If there is no such stage or layer, with suggestions.
    """
    names = [layer.name for layer in model.layers]
    first = 0 if since is None else _first_of(model, names, since)
    with compiled_again(model):
        admit(model)
        for layer in model.layers[first:]:
            set_trainable(layer, True)


def _last_of(model: keras.Model, names: list[str], stage_or_layer: str, argument: str) -> int:
    """Return the index of a layer, or of the last block of a stage."""
    ends = {stage: name for name in names if (stage := stage_of(name))}
    if stage_or_layer not in ends and stage_or_layer not in names:
        hint = did_you_mean(stage_or_layer, [*ends, *names])
        raise ValueError(
            f"Model {model.name!r} has no such stage or layer.{hint} Its stages are {', '.join(ends)}. "
            f"Received: {argument}={stage_or_layer!r}"
        )
    return names.index(ends.get(stage_or_layer, stage_or_layer))


def _first_of(model: keras.Model, names: list[str], stage_or_layer: str) -> int:
    """Return the index of a layer, or of the first block of a stage."""
    last = _last_of(model, names, stage_or_layer, "since")
    return next((index for index, stage in enumerate(_stages(names)) if stage == stage_or_layer), last)


def _stages(names: list[str]) -> list[str | None]:
    """Return the stage of each layer: of none up to the stem, which may come after the first stage's dropout."""
    after = names.index(_STEM) + 1 if _STEM in names else 0
    return [stage_of(name) if index >= after else None for index, name in enumerate(names)]


def _stage_ends(model: keras.Model) -> dict[str, keras.layers.Layer]:
    ends: dict[str, keras.layers.Layer] = {}
    for layer in model.layers:
        if position_of(layer.name) and isinstance(layer, GatedBlock):
            ends[stage_of(layer.name)] = layer
    if not ends:
        raise ValueError(f"Model {model.name!r} has no gated blocks named 'stage1_block1', ...: no stages to return.")
    return ends


def _chosen(stages: Any, ends: Mapping[str, Any]) -> tuple[str, ...]:
    try:
        chosen = tuple(ends) if stages is None else (stages,) if isinstance(stages, str) else tuple(stages)
    except TypeError:
        chosen = ()
    if not chosen:
        raise ValueError(
            "`stages` must be the name of a stage, several names, at least one, or None for all. "
            f"Received: stages={stages!r}"
        )
    return chosen


def _check_stage(stage: str, ends: Mapping[str, keras.layers.Layer], model: keras.Model) -> None:
    if stage not in ends:
        raise ValueError(f"Model {model.name!r} has no stage {stage!r}; its stages are {', '.join(ends)}.")


def _info(pyramid: keras.Model, layers: Mapping[str, str]) -> tuple[FeatureInfo, ...]:
    """Count strides at 1024 pixels: at the model's own size, border effects may be a good part of an output.

    They are of the pixels that the network sees: what comes before its stem is passed over.
    """
    first = model_data_format(pyramid) == "channels_first"
    rows, axis = (2, 1) if first else (1, 3)
    stem = next((layer for layer in pyramid.layers if layer.name == "stem"), None)
    images = pyramid.inputs[0] if stem is None else input_in(pyramid, stem)
    shape = [1024, 1024]
    shape.insert(axis - 1, images.shape[axis])
    net = keras.Model(images, pyramid.output)
    large = keras.models.clone_model(net, input_tensors=keras.Input(shape))
    return tuple(
        FeatureInfo(stage, layers[stage], round(1024 / y.shape[rows]), y.shape[axis])
        for stage, y in large.output.items()
    )
