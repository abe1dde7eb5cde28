"""Batch normalization folded into the convolutions before it, for inference: the same function, fewer operations."""

import keras
import numpy as np

from keras_highway._support.keras_models import stage_of
from keras_highway.analysis.graph import blocks
from keras_highway.exporting.export import TOLERANCE, random_images, relative_difference
from keras_highway.exporting.precision import in_float32
from keras_highway.layers import Preprocessing, SharedKernels
from keras_highway.layers.branch import Branch
from keras_highway.models.builder import build
from keras_highway.models.lora import without_updates
from keras_highway.specs import ConvNetSpec, override
from keras_highway.weights.overrides import trimmed


def fold_batch_norm(model: keras.Model, spec: ConvNetSpec | None) -> keras.Model:
    """Returns a network without batch normalization that computes the same in inference.

    `gamma · (conv(x) − mean) / √(variance + ε) + beta` is a convolution with a
    bias: the kernel times one number per channel. Training it would be another
    matter: the statistics are frozen in it.

    Args:
        model: A network of a `ConvNetSpec`, with its top.
        spec: That spec, `None` where it is not known.

    Raises:
        ValueError: If there is no batch normalization to fold, or the spec is
            not known, or it is not the network's: what was folded computes
            something else.
    """
    if spec is None:
        raise ValueError(
            f"Which layers belong together is not known of model {model.name!r}, a .keras file: save it with "
            "keras_highway.save and export that folder."
        )
    if not isinstance(spec, ConvNetSpec) or not spec.batch_norm:
        raise ValueError(f"There is no batch normalization to fold. Received: spec of {spec.name!r}")
    model = without_updates(model)
    head = model.get_layer("head")
    images = keras.Input(model.input_shape[1:], dtype=model.inputs[0].dtype)
    first = model.layers[1]
    folded = build(
        override(spec, batch_norm=False, shared_transforms=False),  # a kernel that is multiplied is a block's own
        input_tensor=type(first).from_config(first.get_config())(images)
        if isinstance(first, Preprocessing)
        else images,
        classes=head.units,
        classifier_activation=head.activation,
        name=f"{model.name}_folded",
        dtype="float64" if head.compute_dtype == "float64" else "float32",
    )
    names = {layer.name for layer in model.layers}
    folded = trimmed(folded, [name for name in blocks(folded) if name not in names])
    shared = {stage_of(layer.name): layer.kernels for layer in model.layers if isinstance(layer, SharedKernels)}
    for old in model.layers:
        if old.weights and not isinstance(old, SharedKernels):
            _fold_layer(old, folded.get_layer(old.name), shared.get(stage_of(old.name)))
    _check_equal(model, folded, spec)
    return folded


def _check_equal(model, folded, spec) -> None:
    exact = in_float32(model) if folded.layers[-1].compute_dtype == "float32" else model
    for images in random_images(folded):
        ours, theirs = (np.asarray(keras.ops.convert_to_numpy(net(images, training=False))) for net in (folded, exact))
        difference = relative_difference(ours, theirs)
        if not difference <= TOLERANCE:  # NaN is not an agreement
            raise ValueError(
                f"What was folded does not compute what model {model.name!r} does (they differ by {difference:.2g}): "
                f"it is not a network of this spec. Received: spec of {spec.name!r}"
            )


def _fold_layer(old, new, shared=None) -> None:
    if isinstance(old, Branch):
        _fold_branch(old, new, shared)
    elif hasattr(old, "paths"):
        for (_, branch), (_, target) in zip(old.paths(), new.paths(), strict=True):
            _fold_layer(branch, target, shared)
    else:
        new.set_weights(old.get_weights())


def _fold_branch(old: Branch, new: Branch, shared) -> None:
    for i in range(1, old.depth + 1):
        conv, target = getattr(old, f"conv{i}"), getattr(new, f"conv{i}")
        if not old.batch_norm:  # the 1x1 gate of the exclusive gating has none
            target.set_weights(conv.get_weights())
            continue
        norm = getattr(old, f"bn{i}")
        gamma, beta, mean, variance = (
            np.asarray(keras.ops.convert_to_numpy(v), "float64")
            for v in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
        )
        scale = gamma / np.sqrt(variance + norm.epsilon)
        kernel = conv.kernel if old.own_kernels else shared[i - 1]
        target.kernel.assign(np.asarray(keras.ops.convert_to_numpy(kernel)) * scale)
        target.bias.assign(beta - mean * scale)
