"""Fine-tuning by low-rank updates (LoRA, Hu et al. 2021): Keras's `enable_lora`, on a whole network at once."""

import math
from typing import Any

import keras

from keras_highway._support.keras_models import scale_losses_as
from keras_highway.layers.base import checked_size
from keras_highway.models.trainable import cloned_without_compiling, compiled_again, set_trainable
from keras_highway.weights.info import info_of, note_info

_HEAD = "head"


def enable_lora(model: keras.Model, rank: int = 4) -> int:
    """Freezes a model and gives each of its convolutions and dense layers a trainable low-rank update.

    A kernel `(height, width, channels, filters)` stays as it is beside a
    trainable `A·B`, with `A` of `(height, width, channels, rank)`, random, and
    `B` of `(rank, filters)`, zero at first, so that the model still computes
    the same. The classifier `head` is trained in full. Batch normalization,
    biases, gates of one number per channel, kernels that blocks share or that
    have a constraint and scanned stacks are frozen: Keras has no LoRA for
    them.

    Blocks do not keep their updates in their configuration. Call `merge_lora`
    before you clone the model, or save it to train on.

    Args:
        model: A model of `keras_highway`. It is changed; a compiled model is
            compiled again.
        rank: Int, rank of the updates. Defaults to `4`.

    Returns:
        The number of trainable parameters.

    Raises:
        ValueError: If `rank` is not positive, the model has such updates
            already, or it has no layer for them.

    Example:

    >>> kh.enable_lora(model, rank=4)
    >>> model.fit(images, labels)
    >>> kh.save(model, "pets", class_names=names)     # the updates are merged into the kernels
    """
    rank = checked_size(rank, "rank")
    layers = _leaves(model)
    if has_lora(model):
        raise ValueError(
            f"Model {model.name!r} has low-rank updates already: kh.merge_lora(model) makes them part of its kernels."
        )
    if not any(_takes_lora(layer) for layer in layers):
        raise ValueError(
            f"Model {model.name!r} has no convolution and no dense layer before its head whose kernel is without a "
            "constraint."
        )
    with compiled_again(model):
        set_trainable(model, True)
        for layer in layers:
            if _takes_lora(layer):
                layer.enable_lora(rank)
        train_updates_alone(model)
    return sum(math.prod(weight.shape) for weight in model.trainable_weights)


def merge_lora(model: keras.Model) -> keras.Model:
    """Return a model of the same function whose kernels hold their low-rank updates.

    Args:
        model: A model of `keras_highway` after `enable_lora`; it stays as it
            is.

    Returns:
        A new functional `keras.Model` without updates, all of it trainable. It
        has the model's preprocessing and classes: `kh.get_transform` and
        `kh.decode_predictions` take it, too. It is not compiled, and of a
        `tf.distribute` strategy only where it is called in its scope.

    Raises:
        ValueError: If the model is not functional or sequential: there is no
            graph to build again.
    """
    if not isinstance(model, keras.Function | keras.Sequential):
        raise ValueError(
            "merge_lora builds the graph of a functional model again, which a subclassed model does not have: merge "
            f"the functional model in it. Received: {getattr(model, 'name', model)!r} of type {type(model).__name__}"
        )
    with cloned_without_compiling(model):
        copy = keras.models.clone_model(model, clone_function=_without_lora, recursive=True)
    set_trainable(copy, True)
    scale_losses_as(copy, model)
    for old, new in zip(_all_layers(model), _all_layers(copy), strict=True):
        store: dict[str, Any] = {}
        old.save_own_variables(store)  # Keras's own merging
        new.load_own_variables({key: keras.ops.convert_to_numpy(value) for key, value in store.items()})
    note_info(copy, info_of(model))
    return copy


def without_updates(model: keras.Model) -> keras.Model:
    """Return the model, merged if it has low-rank updates: clones have no place for these."""
    return merge_lora(model) if has_lora(model) else model


def learns_by_updates(model: keras.Model) -> bool:
    """Whether all layers that can have a low-rank update do, as after `enable_lora`; not if a user gave some to one."""
    return all(layer.lora_enabled for layer in _leaves(model) if _takes_lora(layer)) and has_lora(model)


def has_lora(model: keras.Model) -> bool:
    """Whether a layer of the model has a low-rank update."""
    return any(getattr(layer, "lora_enabled", False) for layer in _leaves(model))


def train_updates_alone(part: keras.layers.Layer) -> None:
    """Freezes all of a trainable layer or model with low-rank updates but these and the classifier `head`."""
    for layer in _all_layers(part):
        updated = getattr(layer, "lora_enabled", False)
        if layer.name == _HEAD and not updated:
            continue
        if _is_leaf(layer) and not updated:
            set_trainable(layer, False)
            continue
        # Its own alone, with those that are frozen: a user's layer may have some beside its sublayers.
        for weight in layer._trainable_variables:  # pyright: ignore[reportPrivateUsage]
            weight.trainable = weight.name.startswith("lora_")


def _all_layers(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Return a model and all layers in it, in an order that a copy has, too."""
    return list(model._flatten_layers())  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)


def _leaves(model: keras.layers.Layer) -> list[keras.layers.Layer]:
    """Those without layers inside."""
    return [layer for layer in _all_layers(model) if _is_leaf(layer)]


def _is_leaf(layer: keras.layers.Layer) -> bool:
    return len(_all_layers(layer)) == 1


def _takes_lora(layer: Any) -> bool:
    has = hasattr(layer, "enable_lora") and hasattr(layer, "kernel")  # embeddings have no such kernel
    return has and layer.name != _HEAD and not getattr(layer, "kernel_constraint", None)


def _without_lora(layer: keras.layers.Layer) -> keras.layers.Layer:
    return type(layer).from_config(_plain(layer.get_config()))


def _plain(config: Any) -> Any:
    """Return a layer's configuration without low-rank updates and `trainable`, those of wrapped layers included."""
    if isinstance(config, dict):
        left = {k: v for k, v in config.items() if not str(k).startswith("lora_") and k != "trainable"}
        return {key: _plain(value) for key, value in left.items()}
    return [_plain(value) for value in config] if isinstance(config, list) else config
