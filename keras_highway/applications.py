"""Builders: `create_model` for any variant, `Highway50` and others as in `keras.applications`."""

import dataclasses
import fnmatch
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras

from keras_highway._support.terminal import did_you_mean
from keras_highway.data.transforms import TRANSFORMS, Transform
from keras_highway.models.builder import build, in_format, preprocessed, takes_any_size
from keras_highway.models.char_lm import build_char_lm
from keras_highway.specs import ConvNetSpec, NetSpec, override
from keras_highway.tasks import LANGUAGE
from keras_highway.variants import ALL_VARIANTS, VARIANTS
from keras_highway.weights import keras_archive, registry
from keras_highway.weights.describe import published_for, transform_of
from keras_highway.weights.info import ClassNames, WeightsInfo, convert, note_info
from keras_highway.weights.load import (
    check_language_model,
    load_exactly,
    load_into,
    own_form,
    to_json_values,
    trimmed,
    without_removed,
)
from keras_highway.weights.sources import WeightsFile, resolve


def list_models(pattern: str = "*", weights: bool = False) -> list[str]:
    """Return the names of all variants.

    Args:
        pattern: Shell pattern, e.g. `"highway1*"`. Defaults to all.
        weights: Bool, whether to list only variants with trained weights.
            Defaults to `False`.
    """
    trained = {row.variant for row in registry.WEIGHTS.values()}
    names = fnmatch.filter(ALL_VARIANTS, pattern)
    return [name for name in names if not weights or name in trained]


def get_spec(variant: str) -> NetSpec:
    """Return the spec of a variant.

    Raises:
        ValueError: If no variant has this name, with suggestions.
    """
    known = ALL_VARIANTS
    if variant in known:
        return known[variant]
    hint = did_you_mean(variant, known)
    raise ValueError(f"Unknown variant.{hint} See keras_highway.list_models(). Received: variant={variant!r}")


def create_model(
    variant: str,
    weights: str | os.PathLike[str] | None = None,
    include_top: bool = True,
    input_tensor: Any = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int | Sequence[str] | None = None,
    classifier_activation: str | Callable[..., Any] | None = "auto",
    name: str | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    include_preprocessing: bool | str | Transform = False,
    **spec_overrides: Any,
) -> keras.Model:
    """Build any variant, with trained or random weights.

    Args:
        variant: One of `list_models()`.
        weights: `None` (random), a data set (`"mnist"`), a weights name
            (`"mnist10_w16.tvdn"`) or its part after the dot, a `.weights.h5`
            file or the folder of one, or `"hf://org/name[@revision]"`.
            Defaults to `None`.
        include_top: Bool, whether to end with the classifier. Defaults to `True`.
        input_tensor: Optional Keras tensor to use as the input.
        input_shape: Optional tuple (height, width, channels). Defaults to
            the test image shape of the weights, else of the variant. A
            convolutional net without the classifier takes any height and
            width. Trained convolutional nets take any number of channels, as
            in timm: the first kernel is summed over its channels for one
            channel, else repeated and scaled.
        pooling: Without the top: `None`, `"avg"` or `"max"`.
        classes: Int or list of names. If number or names differ from the
            trained weights, the head is random and a warning
            (`kh.FreshHead`) says so. `kh.save` and `kh.decode_predictions`
            use the names. Defaults to the classes of the weights, else of the
            variant.
        classifier_activation: Activation of the classifier, `None` for
            logits. Defaults to `"auto"`: the weights' own; for a random head
            `"softmax"`, and `"sigmoid"` for one class.
        name: Name of the model. Defaults to the variant.
        dtype: Dtype policy of all layers, e.g. `"mixed_bfloat16"`.
        include_preprocessing: Bool, whether the model resizes, crops and
            normalizes images itself (see `kh.layers.Preprocessing`). It then
            takes images of any size, uint8 or float, with pixels in [0, 255],
            and `input_shape` is their shape. The transform comes with the
            weights; pass a `Transform` or its name (see `get_transform`) for
            another. Defaults to `False`.
        **spec_overrides: Fields of the variant's spec, e.g. `gating="full"`,
            `gate_bias=-2.0`, `stochastic_depth=0.05`, or `remat=True`
            (gradient checkpointing, which takes less memory).

    Returns:
        A functional `keras.Model`: `stem`, `stage1_block1`, ..., `head`. For a
        language model see `models.char_lm.build_char_lm`; `kh.CharLM` adds its
        words.

    Raises:
        ValueError: If an argument is unknown or invalid, or the weights do
            not fit.
    """
    if weights is None:
        override(get_spec(variant), **spec_overrides).check_start()
    file = None if weights is None else resolve(weights, get_spec(variant).name)
    head = include_top, input_tensor, input_shape, pooling, classes, classifier_activation
    return build_with(variant, file, (), *head, name, dtype, include_preprocessing, **spec_overrides)


def build_with(
    variant: str,
    file: WeightsFile | None,
    removed: tuple[str, ...] = (),
    /,
    include_top: bool = True,
    input_tensor: keras.KerasTensor | None = None,
    input_shape: tuple[int | None, ...] | None = None,
    pooling: str | None = None,
    classes: int | Sequence[str] | None = None,
    classifier_activation: str | Callable[..., Any] | None = "auto",
    name: str | None = None,
    dtype: str | keras.DTypePolicy | None = None,
    include_preprocessing: bool | str | Transform = False,
    **spec_overrides: Any,
) -> keras.Model:
    """Do the work of `create_model`, with a resolved file or `None`, and without the blocks `removed`."""
    sizes = {"classes": classes, "input_shape": input_shape}
    own = {} if file is None else own_form(variant, file, {**sizes, **spec_overrides})
    passed = {k: v for k, v in sizes.items() if v is not None} if get_spec(variant).task is LANGUAGE else {}
    spec = override(get_spec(variant), **{**own, **spec_overrides, **passed})
    if spec.task is LANGUAGE:
        if input_tensor is not None or pooling is not None or not include_top or include_preprocessing:
            raise ValueError(
                f"Variant {variant!r} is a language model: leave out the arguments for images. Received: "
                f"{input_tensor=}, {pooling=}, {include_top=}, {include_preprocessing=}"
            )
        if file is not None:
            check_language_model(file, spec)
        activation = "softmax" if classifier_activation == "auto" else classifier_activation
        model = build_char_lm(spec, activation, name or variant, dtype)
        if file is not None:
            load_exactly(model, file)
            note_info(model, file.info)
        return model
    names: tuple[str, ...] = ()
    if isinstance(classes, list | tuple):
        names, classes = convert(list(classes), ClassNames, "`classes`"), len(classes)
    elif classes is None and file is not None:
        classes = file.classes
    if include_preprocessing:
        transform = _transform_of(spec, file, include_preprocessing)
        input_tensor, input_shape = preprocessed(spec, transform, input_tensor, input_shape), None
    elif include_top and input_tensor is None and input_shape is None and file is not None:
        input_shape = _tested_shape(spec, file)
    own_head = include_top and file is not None and (names or file.info.classes) == file.info.classes
    own_head = own_head and file.classes in (None, classes)
    if classifier_activation == "auto":
        fresh = "sigmoid" if classes == 1 else "softmax"
        classifier_activation = file.info.activation if file is not None and own_head else fresh
    model = build(
        spec, include_top, input_tensor, input_shape, pooling, classes, classifier_activation, name or variant, dtype
    )
    model = trimmed(model, removed) if file is None else without_removed(model, file)
    if file is not None:
        load_into(model, file, spec, names)
    note_info(model, _info(spec, file, names, own_head, removed))
    return model


def _info(
    spec: NetSpec,
    file: WeightsFile | None,
    names: tuple[str, ...],
    own_head: bool,
    removed: tuple[str, ...],
) -> WeightsInfo:
    """Return the record of a model; without its own classifier, the file's measurements are not the model's."""
    overrides = to_json_values(dataclasses.replace(spec, classes=get_spec(spec.name).classes), get_spec(spec.name))
    if file is None:
        return WeightsInfo(variant=spec.name, overrides=overrides, removed=removed, classes=names)
    if own_head:
        return dataclasses.replace(file.info, variant=spec.name, overrides=overrides)
    return file.info.derived(variant=spec.name, overrides=overrides, classes=names)


def load(weights: str | os.PathLike[str], **kwargs: Any) -> keras.Model:
    """Load trained weights as a model.

    Args:
        weights: A weights name (`"mnist10_w16.tvdn"`), a folder of the zoo or
            of a run, a `.weights.h5` file that `keras_highway` wrote,
            `"hf://org/name[@revision]"`, or a `.keras` file that `model.save`
            wrote for a net of this package. The name of a variant
            (`"mnist10_w16"`) is refused, because it may have several weights.
        **kwargs: As in `create_model`, e.g. `include_top=False`. A `.keras`
            file takes only `classifier_activation`.

    Returns:
        A functional `keras.Model`.

    Raises:
        ValueError: If there are no such weights, or the file is broken.
        HubError: If a download from the Hub fails. It is an `OSError`.
    """
    return model_of(resolve(weights), **kwargs)


def model_of(file: WeightsFile, /, **kwargs: Any) -> keras.Model:
    """Build the model of a `WeightsFile`; see `load`."""
    if file.archive is not None:
        return keras_archive.load(file.archive, **kwargs)
    return build_with(file.variant, file, **kwargs)


def _tested_shape(spec: NetSpec, file: WeightsFile) -> tuple[int, ...] | None:
    """Return the shape of the images that weights were tested on, where any size will do."""
    transform, channels = file.info.transform, spec.input_shape[2]
    if transform is None or transform.channels != channels or not takes_any_size(spec):
        return None
    return in_format((*transform.size, channels))


def _transform_of(spec: NetSpec, file: WeightsFile | None, wanted: bool | str | Transform) -> Transform:
    """Return the wanted transform, else the weights' own, else of the variant's published data set."""
    if isinstance(wanted, Transform):
        return wanted
    if not isinstance(wanted, bool):
        return transform_of(wanted)
    if file is not None and file.info.transform is not None:
        return file.info.transform
    data = published_for(get_spec(spec.name))
    if data is None:
        raise ValueError(
            f"Variant {spec.name!r} has no known preprocessing: pass a Transform. Received: include_preprocessing=True"
        )
    return TRANSFORMS[data]


_DOC = """Build {title} [{source}].

    With the signature and conventions of `keras.applications.ResNet50`, and
    also: any input of {min_size} pixels or more with the classifier, a fresh
    classifier on a trained body (`classes=10`), `dtype=`, and every field of
    the variant's spec as an override.

{about}    Inputs are RGB images that went through `keras_highway.preprocess_input`.

    Args:
        include_top: Bool, whether to end with the classifier. Defaults to
            `True`.
        weights: `None` (random), `"imagenet"`, a weights name or its tag, a
            `.weights.h5` file, or `"hf://org/name[@revision]"`. Defaults to
            `"imagenet"`.
        input_tensor: Optional Keras tensor to use as the input.
        input_shape: Optional tuple (height, width, channels). Defaults to
            the shape of the weights' test images, `(224, 224, 3)` for
            ImageNet; without the classifier any height and width. For other
            numbers of channels see `create_model`.
        pooling: Without the top: `None`, `"avg"` or `"max"`.
        classes: Int or list of names, as in `create_model`. Defaults to the classes of
            the weights, `1000` for ImageNet and without weights.
        classifier_activation: `"softmax"`, `"sigmoid"` or `None` for logits.
            Defaults to `"auto"`, as in `create_model`.
        name: Name of the model. Defaults to `"{name}"`.
        **spec_overrides: `dtype`, `include_preprocessing=True` (images of any
            size, pixels in [0, 255], are resized, cropped and normalized in
            the model, see `create_model`) and fields of the spec, e.g.
            `gating="full"`, `gate_bias=-2.0`, `stochastic_depth=0.05`,
            `skip_dtype="bfloat16"`, `remat=True` (less memory in training).

    Returns:
        A functional `keras.Model` with {parameters:,} trainable parameters;
        its layers are `stem`, `stage1_block1` to `stage4_block{last}`,
        `avg_pool` and `head`.

    Raises:
        ValueError: If an argument is unknown or out of its range, or the
            weights do not exist or do not fit.
    """


_ABOUT_BASELINE = """    The highway net of {baseline}'s widths that computes what the trained
    {baseline} does: coupled gates, one number per channel, that start at T = 0.1,
    C = 0.9 for every image. Its `"imagenet"` weights are made from timm's
    ("ResNet strikes back") on first use, as `keras_highway.highway_from_resnet`
    describes. Fine-tuning trains the gates.

"""


class Application(Protocol):
    """A builder of an ImageNet network with the signature of `keras.applications.ResNet50`."""

    def __call__(
        self,
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,  # a keras.KerasTensor; a checker takes what keras.Input returns for a list, too
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int | Sequence[str] | None = None,
        classifier_activation: str | Callable[..., Any] | None = "auto",
        name: str = ...,
        **spec_overrides: Any,
    ) -> keras.Model:
        """Build it."""
        ...


def _application(variant: str, title: str) -> Application:
    """Return the keras.applications-style builder of an ImageNet variant."""
    spec = VARIANTS[variant]
    assert isinstance(spec, ConvNetSpec)

    def builder(
        include_top: bool = True,
        weights: str | os.PathLike[str] | None = "imagenet",
        input_tensor: Any = None,
        input_shape: tuple[int | None, ...] | None = None,
        pooling: str | None = None,
        classes: int | Sequence[str] | None = None,
        classifier_activation: str | Callable[..., Any] | None = "auto",
        name: str = variant,
        **spec_overrides: Any,
    ) -> keras.Model:
        file = None if weights is None else resolve(weights, variant)
        head = include_top, input_tensor, input_shape, pooling, classes, classifier_activation
        return build_with(variant, file, (), *head, name, **spec_overrides)

    builder.__name__ = builder.__qualname__ = title
    builder.__doc__ = _DOC.format(
        title=title,
        about=_ABOUT_BASELINE.format(baseline=title.removeprefix("Highway")) if spec.baseline else "",
        source=spec.source,
        min_size=spec.min_size,
        name=variant,
        parameters=_parameters(spec),
        last=spec.blocks[-1],
    )
    return builder


def _parameters(spec: ConvNetSpec) -> int:
    """Return the published count; for a net made of a ResNet, the ResNet's plus one gate per channel."""
    if spec.baseline:
        gates = sum(4 * width * blocks for width, blocks in zip(spec.widths, spec.blocks, strict=True))
        return _parameters(VARIANTS[spec.baseline]) + gates
    assert spec.published_parameters is not None
    return spec.published_parameters


Highway50: Application = _application("highway50", "Highway50")
Highway101: Application = _application("highway101", "Highway101")
Highway152: Application = _application("highway152", "Highway152")
HighwayResNet50: Application = _application("highway_resnet50", "HighwayResNet50")
HighwayResNet101: Application = _application("highway_resnet101", "HighwayResNet101")
HighwayResNet152: Application = _application("highway_resnet152", "HighwayResNet152")
ResNet50: Application = _application("resnet50", "ResNet50")
ResNet101: Application = _application("resnet101", "ResNet101")
ResNet152: Application = _application("resnet152", "ResNet152")
