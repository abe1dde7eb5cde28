"""Take models apart for other tasks: features, new classifiers, freezing, low-rank updates (LoRA, Hu et al. 2021)."""

import contextlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple

import keras

from keras_highway._support.backend import scope_of
from keras_highway._support.keras_models import (
    input_in,
    model_data_format,
    output_in,
    position_of,
    scale_losses_as,
    stage_of,
)
from keras_highway._support.schema import check_choice, checked_size, refuse, reworded
from keras_highway._support.terminal import did_you_mean
from keras_highway.layers import GatedBlock
from keras_highway.weights.info import info_of, note_info


def _opened(model: keras.Model) -> tuple[list[keras.Model], list[keras.layers.Layer]]:
    """Return a model, the models nested in it down to the one with the stages, and all layers in order."""
    if not any(stage_of(layer.name) for layer in model.layers):
        for index, layer in enumerate(model.layers):
            if isinstance(layer, keras.Function | keras.Sequential):
                models, layers = _opened(layer)
                if any(stage_of(part.name) for part in layers):
                    return [model, *models], [*model.layers[:index], *layers, *model.layers[index + 1 :]]
    return [model], list(model.layers)


def set_trainable(layer: keras.layers.Layer, value: bool) -> None:
    """Make a layer or model, all its sublayers and their weights trainable or frozen.

    On TensorFlow, `layer.trainable = value` skips an assignment that changes
    nothing, so frozen sublayers of a trainable block would stay frozen.
    """
    for part in layer._flatten_layers():  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        part.trainable = value
        for weight in part._trainable_variables:  # pyright: ignore[reportPrivateUsage] (the public list lacks frozen ones)
            weight.trainable = value


def admit(model: keras.Model) -> None:
    """Let the layers of a model decide what is trainable: Keras counts no weights of a frozen model."""
    model._trainable = True  # pyright: ignore[reportAttributeAccessIssue] (`trainable` would set the layers, too)


@contextlib.contextmanager
def compiled_again(model: keras.Model) -> Generator[None]:
    """Compile a compiled model again after the body, which changes what is trainable.

    Losses and metrics are the same objects. The optimizer is a new one with the same settings. All is created in the
    scope of the model's strategy.
    """
    with scope_of(model):
        arguments = _arguments(model) if model.compiled else None  # what can fail fails before the model is changed
        yield
        if arguments is None:
            return
        model.compile(**arguments)
        if model.optimizer is not None:
            with reworded("The optimizer does not fit the trainable weights: compile again"):  # a MultiOptimizer
                model.optimizer.build(model.trainable_variables)


@contextlib.contextmanager
def cloned_without_compiling(model: keras.Model) -> Generator[None]:
    """Let `keras.models.clone_model` copy a model without compiling the copy, which fails for a user's own loss."""
    parts: Any = model._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
    compiled = [part for part in parts if getattr(part, "compiled", False)]
    try:
        for part in compiled:
            part.compiled = False
        yield
    finally:
        for part in compiled:
            part.compiled = True


def _arguments(model: keras.Model) -> dict[str, Any]:
    if type(model).compile is not keras.Model.compile:
        raise ValueError(f"Model {model.name!r} has its own compile(): freeze or unfreeze it before compiling.")
    arguments = dict(model._compile_config.config)  # pyright: ignore[reportAttributeAccessIssue] (the live ones)
    scaled = isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)  # not kept among the arguments
    optimizer = arguments["optimizer"]  # None if the model was compiled only to be evaluated
    return {**arguments, "optimizer": optimizer and _fresh(optimizer), "auto_scale_loss": scaled}


def _fresh(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Return an optimizer of the same settings, whose class and schedule may be a user's own."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    parts = (optimizer, inner, getattr(inner, "_learning_rate", None))
    text = f"An optimizer {type(optimizer).__name__} made of a function cannot be copied, so the model is unchanged. "
    known = keras.saving.custom_object_scope({type(part).__name__: type(part) for part in parts})
    with reworded(f"{text}Change what is trainable, then compile", (TypeError, ValueError)), known:
        copy = optimizer.from_config(optimizer.get_config())
    target: Any = getattr(copy, "inner_optimizer", copy)
    for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):  # not in the configuration
        if hasattr(inner, name):
            setattr(target, name, getattr(inner, name))
    return copy


_HEAD = "head"


def enable_lora(model: keras.Model, rank: int = 4) -> int:
    """Freeze a model and add LoRA to its convolutions and dense layers.

    A frozen kernel `(height, width, channels, filters)` gets a trainable update
    `A·B`. `A`, `(height, width, channels, rank)`, is random; `B`, `(rank,
    filters)`, is zero, so the outputs do not change at first. The `head` is
    fully trainable. All other weights are frozen: batch normalization, biases,
    gates with one number per channel, shared or constrained kernels, and
    `HighwayDenseStack`.

    Clones of the model lose their updates. Call `merge_lora` before you clone
    or save the model for more training.

    Args:
        model: A model of `keras_highway`, changed in place. A compiled model
            is compiled again.
        rank: Int, rank of the updates. Defaults to `4`.

    Returns:
        The number of trainable parameters.

    Raises:
        ValueError: If `rank` is not positive, the model already has LoRA, or
            no layer supports it.

    Example:

    >>> kh.enable_lora(model, rank=4)
    >>> model.fit(images, labels)
    >>> kh.save(model, "pets", class_names=names)     # the updates are merged into the kernels
    """
    rank = checked_size(rank, "rank")
    layers = _leaves(model)
    if has_lora(model) or not any(_takes_lora(layer) for layer in layers):
        raise ValueError(
            "`model` already has LoRA (call kh.merge_lora first), or has no convolution or dense layer that takes it. "
            f"Received: {model.name!r}"
        )
    with compiled_again(model):
        set_trainable(model, True)
        for layer in layers:
            if _takes_lora(layer):
                layer.enable_lora(rank)
        train_updates_alone(model)
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def merge_lora(model: keras.Model) -> keras.Model:
    """Return a copy of a model with its LoRA updates merged into the kernels.

    Args:
        model: A model of `keras_highway` after `enable_lora`. It is unchanged.

    Returns:
        A new functional `keras.Model` with the same outputs, preprocessing and
        classes. It is trainable and not compiled. To use it with a
        `tf.distribute` strategy, call `merge_lora` in its scope.

    Raises:
        ValueError: If the model is subclassed.
    """
    if not isinstance(model, keras.Function | keras.Sequential):
        raise ValueError(
            "`model` must be functional or sequential: a subclassed model cannot be copied. "
            f"Received: {getattr(model, 'name', model)!r} of type {type(model).__name__}"
        )
    with cloned_without_compiling(model):
        copy = keras.models.clone_model(
            model, clone_function=lambda layer: type(layer).from_config(_plain(layer.get_config())), recursive=True
        )
    set_trainable(copy, True)
    scale_losses_as(copy, model)
    for old, new in zip(_all_layers(model), _all_layers(copy), strict=True):
        store: dict[str, Any] = {}
        old.save_own_variables(store)  # Keras's own merging
        new.load_own_variables({key: keras.ops.convert_to_numpy(value) for key, value in store.items()})
    note_info(copy, info_of(model))
    return copy


def without_updates(model: keras.Model) -> keras.Model:
    """Return the model, or the merged one if it has low-rank updates, which clones lose."""
    return merge_lora(model) if has_lora(model) else model


def learns_by_updates(model: keras.Model) -> bool:
    """Whether every layer that can have a low-rank update has one, as after `enable_lora`."""
    return all(layer.lora_enabled for layer in _leaves(model) if _takes_lora(layer)) and has_lora(model)


def has_lora(model: keras.Model) -> bool:
    """Whether a layer of the model has a low-rank update."""
    return any(getattr(layer, "lora_enabled", False) for layer in _leaves(model))


def train_updates_alone(part: keras.layers.Layer) -> None:
    """Freeze a trainable layer or model except for its low-rank updates and the classifier `head`."""
    for layer in _all_layers(part):
        updated = getattr(layer, "lora_enabled", False)
        if layer.name == _HEAD and not updated:
            continue
        if _is_leaf(layer) and not updated:
            set_trainable(layer, False)
            continue
        # Only its own, also frozen ones: a user's layer may have weights next to its sublayers.
        for weight in layer._trainable_variables:  # pyright: ignore[reportPrivateUsage]
            weight.trainable = weight.name.startswith("lora_")


def _all_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return a model and all layers in it, in the same order as in a copy."""
    return list(model._flatten_layers())  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)


def _leaves(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    return [layer for layer in _all_layers(model) if _is_leaf(layer)]


def _is_leaf(layer: keras.layers.Layer) -> bool:
    return len(_all_layers(layer)) == 1


def _takes_lora(layer: Any) -> bool:
    has = hasattr(layer, "enable_lora") and hasattr(layer, "kernel")  # embeddings have no such kernel
    return has and layer.name != _HEAD and not getattr(layer, "kernel_constraint", None)


def _plain(config: Any) -> Any:
    """Return a layer's configuration without low-rank updates and `trainable`, also of wrapped layers."""
    if isinstance(config, dict):
        left = {k: v for k, v in config.items() if not str(k).startswith("lora_") and k != "trainable"}
        return {key: _plain(value) for key, value in left.items()}
    return [_plain(value) for value in config] if isinstance(config, list) else config


_POOLS = {"avg": keras.layers.GlobalAveragePooling2D, "max": keras.layers.GlobalMaxPooling2D}
_STEM = "stem"


class FeatureInfo(NamedTuple):
    """Description of one stage output."""

    stage: str  # `"stage1"`, ...
    layer: str  # name of the layer whose output it is, the stage's last block
    stride: int  # input pixels per feature, in height and width
    channels: int  # number of channels


class Features(NamedTuple):
    """Result of `features`."""

    model: keras.Model  # from the input to a dict, stage name to output
    info: tuple[FeatureInfo, ...]  # one `FeatureInfo` per stage, in order


def features(
    model: keras.Model,
    stages: str | tuple[str, ...] | None = None,
    pool: str | None = None,
    out_indices: Sequence[int] | None = None,
) -> Features:
    """Return the stage outputs of a convolutional model (a feature pyramid), for detection or segmentation.

    Args:
        model: A model of `keras_highway`, with or without its top.
        stages: Names of stages, e.g. `("stage2", "stage4")` or `"stage4"`.
            Defaults to all.
        pool: `"avg"` or `"max"` to pool each stage to `(batch, channels)`.
            Defaults to `None`: feature maps.
        out_indices: Numbers of stages instead of `stages`, as in timm's
            ResNets: `(2, 4)` is `("stage2", "stage4")`.

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
    if out_indices is not None:
        stages = tuple(f"stage{index}" for index in out_indices)
    if nested := _opened(model)[0][1:]:
        inner, info = features(nested[0], stages, pool)
        outputs = inner(input_in(model, nested[0]))
        return Features(keras.Model(model.inputs[0], outputs, name=f"{model.name}_features"), info)
    ends = _stage_ends(model)
    outputs = {stage: output_in(model, layer) for stage, layer in ends.items()}
    try:
        chosen = tuple(ends) if stages is None else (stages,) if isinstance(stages, str) else tuple(stages)
    except TypeError:
        chosen = ()
    refuse(
        (
            any(len(output.shape) != 4 for output in outputs.values()),
            f"Model {model.name!r} is not convolutional; its stages have no pyramid.",
        ),
        (
            not chosen or not set(chosen) <= set(ends),
            f"`stages` must be one or more of {', '.join(ends)}. Received: stages={stages!r}",
        ),
    )
    check_choice("pool", pool, (None, *_POOLS))
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
    """Return the layers of a model in groups from input to output, for layer-wise learning-rate decay.

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
        Dict from group to its layers with weights: `"stem"` (before the first
        stage), `"stage1"` and so on, `"head"` (after the last stage). Groups
        without weights are left out. Every trainable weight is in one group.

    Raises:
        ValueError: If the model has no stages.
    """
    groups: dict[str, list[keras.layers.Layer]] = {}
    layers = _opened(model)[1]
    stages = _stages([layer.name for layer in layers])
    if not any(stages):
        raise ValueError(f"`model` must have layers named 'stage1_block1', ... Received: {model.name!r}")
    last = max(index for index, stage in enumerate(stages) if stage)
    group = "stem"
    for index, (layer, stage) in enumerate(zip(layers, stages, strict=True)):
        group = "head" if index > last else stage or group
        if layer.weights:
            groups.setdefault(group, []).append(layer)
    return groups


def num_features(model: keras.Model) -> int:
    """Return the number of input features of a model's classifier, or else the channels of its output.

    Args:
        model: A model of `keras_highway`, with or without its top.
    """
    head = next((layer for layer in model.layers if layer.name == "head"), None)
    features = model.output if head is None else input_in(model, head)
    first = model_data_format(model) == "channels_first" and len(features.shape) == 4
    return features.shape[1 if first else -1]


def reset_classifier(
    model: keras.Model, classes: int, activation: str | Callable[..., Any] | None = "softmax", pooling: str = "avg"
) -> keras.Model:
    """Replace the classifier of a model by a new one.

    Args:
        model: A model of `keras_highway`, with or without its top.
        classes: Int, number of classes of the new `head`; `0` for none, the
            features that a head would see.
        activation: Activation of the new head, `None` for logits. Defaults to
            `"softmax"`.
        pooling: `"avg"` or `"max"`, used if the body's output has rank 4.
            Defaults to `"avg"`.

    Returns:
        A new `keras.Model` that shares its body with the original.

    Raises:
        ValueError: If `classes` is not a whole number from 0 on, or the model
            has several outputs.
    """
    classes = classes if classes == 0 else checked_size(classes, "classes")
    last = model.layers[-1]
    if nested := _opened(model)[0][1:]:
        if last is nested[0]:
            inner = reset_classifier(last, classes, activation, pooling)
            return keras.Model(model.inputs[0], inner(input_in(model, last)), name=model.name)
        if last.name != _HEAD and isinstance(last, keras.layers.Dense):
            raise ValueError(
                f"Model {model.name!r} ends in a layer {last.name!r}, not 'head': pass "
                f"model.get_layer({nested[0].name!r}), or name its classifier 'head'."
            )
    if len(model.outputs) != 1 or (last.name != "head" and any(layer.name == "head" for layer in model.layers)):
        raise ValueError(
            "`model` must have one output, and its `head`, if any, must be the last layer. Pass a keras.Model. "
            f"Received: {model.name!r} with {len(model.outputs)} outputs and last layer {last.name!r}"
        )
    x = input_in(model, last) if last.name == "head" else model.outputs[0]
    dtype = "float64" if x.dtype == "float64" else "float32"
    if len(x.shape) == 4:
        check_choice("pooling", pooling, _POOLS)
        x = _POOLS[pooling](name=f"{pooling}_pool", dtype=dtype, data_format=model_data_format(model))(x)
    initializer = last.kernel_initializer.clone() if last.name == "head" else "glorot_uniform"
    if classes:
        options = {"activation": activation, "kernel_initializer": initializer, "name": "head", "dtype": dtype}
        x = keras.layers.Dense(classes, **options)(x)
    inputs = model.inputs[0] if isinstance(model, keras.Sequential) else model.input  # a model never called has none
    changed, info = keras.Model(inputs, x, name=model.name), info_of(model)
    note_info(changed, info and info.derived(classes=()))  # the classes are others
    scale_losses_as(changed, model)
    return changed


def freeze(model: keras.Model, until: str | None = None) -> None:
    """Freeze a model from its input to a stage (inclusive), and make the rest trainable.

    Frozen batch normalization uses its moving statistics and does not update
    them (Keras's rule for `trainable=False`). A compiled model is compiled again
    with a new optimizer of the same settings. After `kh.enable_lora`, kernels
    stay frozen.

    Args:
        model: A model of `keras_highway`.
        until: Last frozen stage (`"stage3"`), block (`"stage3_block2"`) or
            layer (`"stem"`). Defaults to `None`: everything but `head`.

    Raises:
        ValueError: If the stage or layer is unknown, or `until` is `None` and
            the last layer is not `head`.
    """
    models, layers = _opened(model)
    names = [layer.name for layer in layers]
    if until is None and names[-1] != "head":
        raise ValueError(
            f"`until` must name the last frozen layer, because model {model.name!r} does not end in a layer 'head'. "
            f"Received: until=None, last layer {names[-1]!r}"
        )
    last = len(names) - 2 if until is None else _span_of(model, names, until, "until")[1]
    updates = learns_by_updates(model)
    with compiled_again(model):
        for part in models:
            admit(part)
        for index, layer in enumerate(layers):
            set_trainable(layer, index > last)
            if updates and index > last:
                train_updates_alone(layer)


def freeze_batch_norm(model: keras.Model) -> None:
    """Freeze batch normalization alone: it uses and keeps its moving statistics, and its scales are not trained.

    For fine-tuning on small batches. A compiled model is compiled again, as by
    `freeze`. `unfreeze` makes it trainable again.

    Args:
        model: A model of `keras_highway`.
    """
    with compiled_again(model):
        for layer in _all_layers(model):
            if isinstance(layer, keras.layers.BatchNormalization):
                set_trainable(layer, False)


def unfreeze(model: keras.Model, since: str | None = None) -> None:
    """Make a model trainable again, fully or from a stage on. Earlier layers do not change.

    To fine-tune in two steps, call `freeze(model)` and train the head, then call
    `unfreeze(model, since="stage3")` and continue at a lower rate. A compiled
    model is compiled again, as by `freeze`. After `kh.enable_lora`, the kernels
    become trainable together with their updates.

    Args:
        model: A model of `keras_highway`.
        since: First trainable stage (`"stage3"`), block (`"stage3_block2"`)
            or layer (`"head"`). Defaults to `None`: everything.

    Raises:
        ValueError: If the stage or layer is unknown.
    """
    models, layers = _opened(model)
    names = [layer.name for layer in layers]
    first = 0 if since is None else _span_of(model, names, since, "since")[0]
    with compiled_again(model):
        for part in models:
            admit(part)
        for layer in layers[first:]:
            set_trainable(layer, True)


def _span_of(model: keras.Model, names: list[str], stage_or_layer: str, argument: str) -> tuple[int, int]:
    """Return the indices of the first and last layer of a stage, or twice the index of a layer."""
    ends = {stage: name for name in names if (stage := stage_of(name))}
    if stage_or_layer not in ends and stage_or_layer not in names:
        hint = did_you_mean(stage_or_layer, [*ends, *names])
        raise ValueError(
            f"`{argument}` must be a stage ({', '.join(ends)}) or layer of model {model.name!r}.{hint} "
            f"Received: {argument}={stage_or_layer!r}"
        )
    last = names.index(ends.get(stage_or_layer, stage_or_layer))
    return next((index for index, stage in enumerate(_stages(names)) if stage == stage_or_layer), last), last


def _stages(names: list[str]) -> list[str | None]:
    """Return the stage of each layer; `None` up to the stem, which may come after the first stage's dropout."""
    after = names.index(_STEM) + 1 if _STEM in names else 0
    return [stage_of(name) if index >= after else None for index, name in enumerate(names)]


def _stage_ends(model: keras.Model) -> dict[str, keras.layers.Layer]:
    ends: dict[str, keras.layers.Layer] = {}
    for layer in model.layers:
        if position_of(layer.name) and isinstance(layer, GatedBlock):
            ends[stage_of(layer.name)] = layer
    if not ends:
        raise ValueError(f"`model` must have gated blocks named 'stage1_block1', ... Received: {model.name!r}")
    return ends


def _info(pyramid: keras.Model, layers: Mapping[str, str]) -> tuple[FeatureInfo, ...]:
    """Count strides from the stem on, at 1024 pixels: border effects are small there."""
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
