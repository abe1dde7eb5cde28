"""Builders: `create_model` for any variant, `Highway50` and its kin as in keras.applications."""

import dataclasses
import fnmatch
from collections.abc import Callable

import keras

from keras_highway._support.suggest import did_you_mean
from keras_highway.hub import is_hub_name
from keras_highway.models.builder import build
from keras_highway.models.char_lm import build_char_lm
from keras_highway.specs import ConvNetSpec, NetSpec, override
from keras_highway.tasks import LANGUAGE
from keras_highway.variants import LM_VARIANTS, VARIANTS
from keras_highway.weights import file as weights_file
from keras_highway.weights import registry
from keras_highway.weights.resolve import Located, locate


def list_models(pattern: str = "*", weights: bool = False) -> list[str]:
    """Returns the names of all variants.

    Args:
        pattern: Shell pattern, e.g. `"highway1*"`. Defaults to all.
        weights: Only variants with trained weights. Defaults to `False`.
    """
    trained = {row.variant for row in registry.WEIGHTS.values()}
    names = fnmatch.filter((*VARIANTS, *LM_VARIANTS), pattern)
    return [name for name in names if not weights or name in trained]


def get_spec(variant: str) -> NetSpec:
    """Returns the spec of a variant.

    Raises:
        ValueError: If there is none, with suggestions.
    """
    known = {**VARIANTS, **LM_VARIANTS}
    if variant in known:
        return known[variant]
    hint = did_you_mean(variant, known)
    raise ValueError(f"Unknown variant.{hint} See keras_highway.list_models(). Received: variant={variant!r}")


def create_model(
    variant: str,
    weights: str | Located | None = None,
    include_top: bool = True,
    input_tensor=None,
    input_shape: tuple | None = None,
    pooling: str | None = None,
    classes: int | None = None,
    classifier_activation: str | Callable | None = "softmax",
    name: str | None = None,
    dtype=None,
    **spec_overrides,
) -> keras.Model:
    """Builds any variant, with trained or random weights.

    Args:
        variant: One of `list_models()`.
        weights: `None` (random), a data set (`"mnist"`), a weights name
            (`"mnist10_w16.tvdn"`) or its tag, a `.weights.h5` file or the
            folder of one, or `"hf://org/name[@revision]"`. Defaults to
            `None`.
        include_top: Bool, whether to end with the classifier. Defaults to `True`.
        input_tensor: Optional Keras tensor to build upon.
        input_shape: Optional tuple (height, width, channels). Defaults to the
            variant's.
        pooling: Without the top: `None`, `"avg"` or `"max"`.
        classes: Int. With trained weights and another number of classes than
            theirs, the body is trained and the head fresh. Defaults to that of
            the weights, else of the variant.
        classifier_activation: Activation of the classifier, `None` for
            logits. Defaults to `"softmax"`.
        name: Name of the model. Defaults to the variant.
        dtype: Dtype policy of all layers, e.g. `"mixed_bfloat16"`.
        **spec_overrides: Fields of the variant's spec, e.g. `gating="full"`,
            `gate_bias=-2.0`, `stochastic_depth=0.05`.

    Returns:
        A functional `keras.Model`: `stem`, `stage1_block1`, ..., `head`. Of a
        language model, see `models.char_lm.build_char_lm`; `kh.CharLM` has
        the words to it.

    Raises:
        ValueError: If an argument is unknown or out of its range, or the
            weights do not fit.
    """
    spec = override(get_spec(variant), **spec_overrides)
    if spec.task is LANGUAGE:
        images = {"input_tensor": input_tensor, "pooling": pooling} | ({} if include_top else {"include_top": False})
        _refuse_images(variant, images)
        sizes = {"classes": classes, "input_shape": input_shape}
        return _language_model(spec, sizes, weights, classifier_activation, name or variant, dtype)
    source = _Source.of(weights, variant)
    if classes is None and source is not None:
        classes = source.classes
    model = build(
        spec, include_top, input_tensor, input_shape, pooling, classes, classifier_activation, name or variant, dtype
    )
    if source is not None:
        source.load_into(model, spec, include_top)
    return model


def load(weights: str, **kwargs) -> keras.Model:
    """Loads trained weights as a model.

    Args:
        weights: A weights name (`"mnist10_w16.tvdn"`), a folder of the zoo or
            of a run, a `.weights.h5` file that `keras_highway` wrote, or
            `"hf://org/name[@revision]"`.
        **kwargs: As in `create_model`, e.g. `include_top=False`.

    Returns:
        A functional `keras.Model`.

    Raises:
        ValueError: If there are no such weights, or the file is broken.
        HubError: An `OSError`; if they are on the Hub and cannot be had.
    """
    located = locate(str(weights))
    if not located.variant:
        raise ValueError(
            f"{located.path} does not say which variant it is of. "
            f"Use keras_highway.create_model(VARIANT, weights={str(located.path)!r})."
        )
    return create_model(located.variant, located, **kwargs)


def _language_model(spec, sizes, weights, classifier_activation, name, dtype) -> keras.Model:
    """A language model of the sizes that are given; trained weights must be of the very model that was asked for."""
    spec = override(spec, **{key: value for key, value in sizes.items() if value is not None})
    model = build_char_lm(spec, classifier_activation, name, dtype)
    if weights is not None:
        located = weights if isinstance(weights, Located) else locate(str(weights), spec.name, spec.recipe)
        weights_file.load(model, located.path, spec.name)
    return model


def _refuse_images(variant, arguments) -> None:
    given = {name: value for name, value in arguments.items() if value is not None}
    if given:
        raise ValueError(
            f"Variant {variant!r} takes words, not images: leave these arguments out. "
            f"Received: {', '.join(f'{name}={value!r}' for name, value in given.items())}"
        )


# Fields that change no trained function: how parameters start, what happens in training alone, precision.
_HARMLESS = {"gate_bias", "stochastic_depth", "dropout_scale", "zero_init", "skip_dtype", "input_shape", "classes"}


class _Source:
    """A checked weight file and what is known of it."""

    def __init__(self, path, variant, classes, exact):
        self.path, self.variant, self.classes, self.exact = path, variant, classes, exact

    @classmethod
    def of(cls, weights, variant):
        """Finds the file that a `weights` argument names; None for random weights."""
        if weights is None:
            return None
        known = isinstance(weights, Located)
        located = weights if known else locate(str(weights), variant, VARIANTS[variant].recipe)
        return cls(located.path, variant, located.classes, exact=located.published)

    def load_into(self, model, spec, include_top) -> None:
        """Sets the weights; layer by layer, from a model of the file's own form, where the two differ.

        The zoo's files are of the variant as it is. A user's file may be of
        the very model that was asked for, overrides and all.
        """
        row = VARIANTS[self.variant]
        same_head = include_top and self.classes in (None, model.get_layer("head").units)
        if same_head and (not self.exact or spec == row) and weights_file.fits(model, self.path):
            weights_file.load(model, self.path, self.variant)
            return
        self._check_function(spec, row)
        donor = build(row, classes=self.classes)
        weights_file.load(donor, self.path, self.variant)
        self._copy(donor, model)

    def _check_function(self, spec, row) -> None:
        """Refuses overrides under which the trained numbers would mean something else."""
        changed = [
            f.name
            for f in dataclasses.fields(row)
            if f.name not in _HARMLESS and getattr(spec, f.name) != getattr(row, f.name)
        ]
        if changed:
            raise ValueError(
                f"Trained weights of {self.variant!r} do not fit the model that was asked for: it overrides "
                f"{', '.join(f'{name}={getattr(spec, name)!r}' for name in changed)}. Leave the overrides out, or pass "
                "weights=None."
            )

    def _copy(self, donor, model) -> None:
        """Sets every layer but a fresh head; nothing is set unless everything fits."""
        pairs = []
        for layer in donor.layers:
            target = next((t for t in model.layers if t.name == layer.name), None)
            if not layer.weights or (layer.name == "head" and (target is None or target.units != layer.units)):
                continue
            wanted = None if target is None else [tuple(w.shape) for w in target.weights]
            given = [tuple(w.shape) for w in layer.weights]
            if wanted != given:
                raise ValueError(
                    f"Trained weights of {self.variant!r} do not fit the model that was asked for: layer "
                    f"{layer.name!r} has shapes {given} in {self.path} and {wanted} in the model. Use the input shape "
                    f"of the weights, {donor.input_shape[1:]}, or pass weights=None."
                )
            pairs += zip(target.weights, layer.get_weights(), strict=True)
        for variable, value in pairs:
            variable.assign(value)


_DOC = """Builds {title} [{source}].

    With the signature and habits of `keras.applications.ResNet50`, and beyond
    them: any input of {min_size} pixels or more with the classifier, a fresh
    classifier on a trained body (`classes=10`), `dtype=`, and every field of
    the variant's spec as an override.

    Inputs are RGB images that went through `keras_highway.preprocess_input`.

    Args:
        include_top: Bool, whether to end with the classifier. Defaults to
            `True`.
        weights: `None` (random), `"imagenet"`, a weights name or its tag, a
            `.weights.h5` file, or `"hf://org/name[@revision]"`. Defaults to
            `"imagenet"`.
        input_tensor: Optional Keras tensor to build upon.
        input_shape: Optional tuple (height, width, channels). Defaults to
            `(224, 224, 3)`; channels other than 3 need `weights=None`.
        pooling: Without the top: `None`, `"avg"` or `"max"`.
        classes: Int. Defaults to `1000`.
        classifier_activation: `"softmax"` or `None` for logits.
        name: Name of the model. Defaults to `"{name}"`.
        **spec_overrides: `dtype` and fields of the spec, e.g.
            `gating="full"`, `gate_bias=-2.0`, `stochastic_depth=0.05`,
            `skip_dtype="bfloat16"`.

    Returns:
        A functional `keras.Model` with {parameters:,} trainable parameters;
        its layers are `stem`, `stage1_block1` to `stage4_block{last}`,
        `avg_pool` and `head`.

    Raises:
        ValueError: If an argument is unknown or out of its range, or the
            weights do not exist or do not fit.
    """


def _application(variant: str, title: str):
    """The keras.applications-style builder of an ImageNet variant."""
    spec = VARIANTS[variant]
    assert isinstance(spec, ConvNetSpec)

    def builder(
        include_top=True,
        weights="imagenet",
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=1000,
        classifier_activation="softmax",
        name=variant,
        **spec_overrides,
    ):
        if is_hub_name(weights):
            weights = locate(weights)
        _check_default_classes(weights, include_top, classes)
        return create_model(
            variant,
            weights,
            include_top,
            input_tensor,
            input_shape,
            pooling,
            classes,
            classifier_activation,
            name,
            **spec_overrides,
        )

    builder.__name__ = builder.__qualname__ = title
    builder.__doc__ = _DOC.format(
        title=title,
        source=spec.source,
        min_size=spec.min_size,
        name=variant,
        parameters=spec.published_parameters,
        last=spec.blocks[-1],
    )
    return builder


def _check_default_classes(weights, include_top, classes) -> None:
    """The default of 1000 classes is keras.applications'; with a file of fewer, it would mean a random head."""
    if not include_top or classes != 1000 or weights is None:
        return
    if isinstance(weights, Located):
        held, weights = weights.classes, weights.path
    elif str(weights).endswith(weights_file.SUFFIX):
        held = weights_file.read_stamp(str(weights)).get("classes")
    else:
        return
    if held not in (None, classes):
        raise ValueError(f"{weights} has {held} classes: pass classes={held}. Received: classes={classes}")


Highway50 = _application("highway50", "Highway50")
Highway101 = _application("highway101", "Highway101")
Highway152 = _application("highway152", "Highway152")
ResNet50 = _application("resnet50", "ResNet50")
ResNet101 = _application("resnet101", "ResNet101")
ResNet152 = _application("resnet152", "ResNet152")
