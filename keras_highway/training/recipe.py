"""Recipes: everything that decides the result of a run."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from msgspec import Meta

from keras_highway._support.schema import check_choice, coerced, parse_setting
from keras_highway._support.terminal import did_you_mean
from keras_highway.data.datasets import FOLDERS
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.specs import override
from keras_highway.tasks import IMAGES, LANGUAGE, Task
from keras_highway.variants import LM_VARIANTS, VARIANTS

DECODED = (*FOLDERS, "tfds")  # data whose images are decoded on the way

Name = Annotated[str, Meta(pattern=r"^[^./\\:\x00-\x1f][^/\\:\x00-\x1f]*\Z", max_length=200)]  # also names a folder
Precision = Literal["float32", "mixed_bfloat16"]
_Count = Annotated[int, Meta(ge=1, le=10**12)]
_Natural = Annotated[int, Meta(ge=0, le=10**12)]
_Number = Annotated[float, Meta(ge=-1e300, le=1e300)]  # finite: JSON has no others
_Positive = Annotated[float, Meta(gt=0, le=1e300)]
_NotNegative = Annotated[float, Meta(ge=0, le=1e300)]
_Share = Annotated[float, Meta(ge=0, lt=1)]
_Factor = Annotated[float, Meta(gt=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings that decide the result of a run on images."""

    name: Name  # the recipe's name
    variant: str  # the architecture
    overrides: tuple[tuple[str, Any], ...] = ()  # spec fields that differ from the variant's, as pairs
    weights: Name  # name of the trained weights in the zoo
    # the data set: `"mnist"`, `"cifar10"`, `"cifar100"`, one of `"imagenet"`, `"imagenette"`, `"imagewoof"`,
    # `"tiny_imagenet"` (any folder of classes), `"tfds:NAME"`, or `"synthetic_mnist"` and so on, made up for tests
    data: str
    transform: str  # row of `keras_highway.data.transforms.TRANSFORMS`
    # number of images to train on, `None` for all: of images in memory the first ones, of files the same share of
    # every class
    train_images: _Count | None = None
    test_images: _Count | None = None  # the same for the test set
    # number of training images to hold out and test on, to choose settings. They are the same for every seed: the
    # last ones of MNIST, CIFAR and TensorFlow Datasets; of a folder the last ones of a fixed shuffle, the same share
    # of every class (`split_off`). `train_images` then limits the rest, `test_images` the held-out images. `None` to
    # train on all and test on the test set
    holdout_images: _Count | None = None
    # height and width of training images that are decoded on the way (a folder, TensorFlow Datasets). `None` for the
    # size of test images, set by the transform. If the two differ, the network is built for images of any size
    train_size: _Count | None = None
    # pairs (share of the epochs, height and width): training images have this size until that share of the epochs,
    # e.g. `((0.4, 16), (0.7, 24))`. Images in memory are resized by area before they are normalized
    train_sizes: tuple[tuple[_Share, _Count], ...] = ()
    # training images are shifted by up to this many pixels per side (a random crop of the padded image)
    crop_padding: _Natural = 0
    # smallest share of the area that a random resized crop keeps, for images that are decoded on the way. Half of
    # these are always mirrored
    crop_scale: _Factor = 0.08
    flip: bool = False  # mirror half of the training images, for images in memory
    # with `flip`, an image is mirrored in every second epoch [Jordan 2024, arXiv 2404.00498, 3.6] instead of at
    # random
    alternating_flip: bool = False
    epochs: _Count  # passes over the training set. Each leaves out a different remainder of less than a batch
    batch_size: _Count = 100  # global batch size
    # A batch is computed in this many parts, its gradients summed (gradient accumulation); batch normalization sees
    # the parts
    micro_batches: _Count = 1
    # `"sgd"` (`CaffeSGD`), `"adamw"`, `"lamb"` (`DecayedLamb`), `"muon"` (`ConvMuon`)
    optimizer: Literal["sgd", "adamw", "lamb", "muon"] = "sgd"
    learning_rate: _Positive  # initial rate
    # `"constant"`, `"step"` (divided by 10 at each of `milestones`), `"exponential"` (multiplied by `decay` each
    # epoch), `"cosine"` (to `final_rate`), `"epoch_cosine"` (the same once an epoch, as timm's `CosineLRScheduler`),
    # `"one_cycle"` (to `final_rate` along a straight line [Smith 2018])
    schedule: Literal["constant", "step", "exponential", "cosine", "epoch_cosine", "one_cycle"] = "step"
    milestones: tuple[_Share, ...] = (1 / 3, 2 / 3)  # shares of the run, for `"step"`
    decay: _Factor = 1.0  # factor, for `"exponential"`
    final_rate: _NotNegative = 0.0  # the last rate of `"cosine"` and `"one_cycle"`
    # epochs at `warmup_rate` (`"step"`), or rising from it to `learning_rate` (the cosines, `"one_cycle"`)
    warmup_epochs: _Natural = 0
    warmup_rate: _NotNegative = 0.0  # see there; of `"step"` it must be above 0
    momentum: _Share = 0.9  # momentum of SGD and Muon
    nesterov: bool = True  # whether it is Nesterov's
    # AdamW: decay of the mean of squared gradients. Runs of few steps may need less than the default, which forgets
    # one in 1,000
    beta_2: _Share = 0.999
    # decay of kernels (with Muon only of its own): for SGD an L2 penalty `weight_decay / 2 * |w|^2`, for AdamW and
    # Muon decoupled, for LAMB inside the trust ratio
    weight_decay: _NotNegative = 0.0
    decay_vectors: bool = False  # weight decay on biases and normalization, too
    bias_multiplier: _NotNegative = 1.0  # SGD: factor on the learning rate of all but kernels
    # SGD: pairs (shell pattern of variable paths, factor on their weight decay)
    decay_multipliers: tuple[tuple[str, _NotNegative], ...] = ()
    # largest norm of the gradient over all parameters, after its sum over replicas, or `None`
    clip_norm: _Positive | None = None
    loss: Literal["crossentropy", "bce"] = "crossentropy"  # `"crossentropy"`, or `"bce"` (one sigmoid per class)
    label_smoothing: _Share = 0.0  # share of the target spread over all classes
    target_threshold: _Share | None = None  # `"bce"`: targets above it count as 1, or `None`
    # decay of a moving average of weights and batch statistics, which is tested and saved instead of them, or `None`
    ema: _Share | None = None
    precision: Precision = "float32"  # dtype policy; the skip stream stays float32
    rand_augment: str = ""  # RandAugment's policy for images in files, e.g. `"m7-mstd0.5-inc1"`, or `""`
    mixup: _NotNegative = 0.0  # alpha of Mixup, or 0
    cutmix: _NotNegative = 0.0  # alpha of CutMix, or 0; with both a batch has either
    repeated_augmentation: _Count = 1  # copies of an image in an epoch, which then has fewer different images
    # share of the epochs after which dropout is active; 0 is always, 1 is never
    dropout_from: Annotated[float, Meta(ge=0, le=1)] = 0.0
    # the stem starts with filters that whiten the patches of the training images [Jordan 2024, 3.1]; it is trained
    # like any other layer
    whiten_stem: bool = False
    # weights to start from, as in `keras_highway.load`, or `""`. For another number of classes the head is new
    init: str = ""
    # freeze everything up to and including this stage (`"stage3"`), block or layer, see `keras_highway.freeze`;
    # `"body"` is everything but the head, `""` nothing
    freeze: str = ""
    seed: _Natural = 0  # seed of initialization, order, augmentation and dropout
    source: str = ""  # publication of the recipe, and differences from it

    task: ClassVar[Task] = IMAGES

    def to_dict(self) -> dict:
        """Return the recipe as plain JSON values, without `init` and `freeze` if they are empty."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value or name not in ("init", "freeze")}

    def check(self) -> None:
        """Raise a ValueError if a field has an impossible value, or fields contradict each other."""
        _check(self, VARIANTS, _RULES)
        if self.rand_augment:
            parse_policy(self.rand_augment)

    @property
    def decoded(self) -> bool:
        """Whether images are read from files during training, not kept in memory."""
        return self.data.split(":")[0] in DECODED

    @property
    def other_shape(self) -> tuple[int | None, ...]:
        """The overridden input shape, if images have another shape; else `()`."""
        shape = dict(self.overrides).get("input_shape") or ()
        transform = None if self.data.startswith("synthetic_") else TRANSFORMS.get(self.transform)
        own = (*transform.size, transform.channels) if transform else ()
        return tuple(shape) if any(a not in (None, b) for a, b in zip(shape, own, strict=False)) else ()

    def training_size(self, test_size: tuple[int, int], epoch: int | None = None) -> tuple[int, int]:
        """Return height and width of training images."""
        for share, size in () if epoch is None else self.train_sizes:
            if epoch < round(share * self.epochs):
                return size, size
        return test_size if self.train_size is None else (self.train_size, self.train_size)

    def equivalents(self, test_size: tuple[int, int], epochs: int) -> float:
        """Return the cost of the first `epochs` in epochs at the test size, by number of pixels."""
        sizes = [self.training_size(test_size, epoch) for epoch in range(epochs)]
        return sum(height * width for height, width in sizes) / (test_size[0] * test_size[1])

    @property
    def input_shape(self) -> tuple[int | None, int | None, int] | None:
        """Input shape of the network, if it differs from its variant's.

        It is the transform's size for images in files, and any size if
        training and test images differ in size.
        """
        transform = TRANSFORMS[self.transform]
        if self.train_sizes or self.training_size(transform.size) != transform.size:
            return (None, None, transform.channels)
        own = "input_shape" in dict(self.overrides) or VARIANTS[self.variant].input_shape[:2] == transform.size
        if own or not self.decoded:
            return None
        return (*transform.size, transform.channels)

    @property
    def mixes(self) -> bool:
        """Whether samples are mixed, by Mixup or CutMix."""
        return bool(self.mixup or self.cutmix)

    @property
    def partner_distance(self) -> int:
        """Distance of the two samples of a mixed pair in a micro-batch.

        With repeated augmentation, the copies of an image are adjacent. The
        distance is the smallest power of two that mixes no two copies.
        """
        distance = 1
        while distance * self.micro_batches < self.repeated_augmentation:
            distance *= 2
        return distance

    @property
    def mixed_samples(self) -> int:
        """Number of consecutive samples that are mixed with each other; 1 without mixing."""
        return 2 * self.partner_distance if self.mixes else 1


@dataclass(frozen=True, kw_only=True)
class LanguageRecipe:
    """Settings that decide the result of a run of a language model."""

    name: Name  # the recipe's name
    variant: str  # the architecture; its spec has the number of parallel streams
    overrides: tuple[tuple[str, Any], ...] = ()  # spec fields that differ from the variant's, as pairs
    weights: Name  # name of the trained weights in the zoo
    # the corpus: `"ptb"`, any folder that `load_corpus` reads, or `"synthetic_ptb"`, made up for tests
    data: str = "ptb"
    train_tokens: _Count | None = None  # number of tokens to train on, the first ones; `None` for all
    test_tokens: _Count | None = None  # the same for the validation and the test split
    epochs: _Count = 25  # passes over the training split
    steps: _Count = 35  # tokens of a stream in a batch, over which gradients flow back
    learning_rate: _Positive = 1.0  # initial rate of SGD on the loss summed over `steps`
    # factor of the rate after an epoch, from the third, in which the validation perplexity fell by less than
    # `plateau_delta`
    decay: _Factor = 0.5
    plateau_delta: _Number = 1.0  # see there; in units of perplexity. If negative, the perplexity must rise by more
    clip_norm: _Positive | None = 5.0  # largest norm of the gradient over all parameters, or `None`
    precision: Precision = "float32"  # dtype policy. Gates, state, loss and everything that is reported stay float32
    seed: _Natural = 0  # seed of initialization and dropout
    source: str = ""  # publication of the recipe, and differences from it

    task: ClassVar[Task] = LANGUAGE

    # Fields that the engines read of every recipe.
    micro_batches: ClassVar[int] = 1
    ema: ClassVar[float | None] = None
    init: ClassVar[str] = ""

    def to_dict(self) -> dict:
        """Return the recipe as plain JSON values."""
        return dataclasses.asdict(self)

    def check(self) -> None:
        """Raise a ValueError if a field has an impossible value."""
        _check(self, LM_VARIANTS, _LANGUAGE_RULES)


RecipeT = TypeVar("RecipeT", Recipe, LanguageRecipe)
_Rule = tuple[tuple[str, ...], Callable[[Any], Any], str]  # fields, whether they contradict each other, the error
_WITH_A_LAST_RATE = ("cosine", "epoch_cosine", "one_cycle")
_WARMING_UP = ("step", *_WITH_A_LAST_RATE)


def _rises(shares: Iterable[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise((0.0, *shares, 1.0)))


def _no_effect(name: str, decoded: bool, images: str) -> _Rule:
    default = next(f.default for f in dataclasses.fields(Recipe) if f.name == name)
    ignored = lambda r: r.decoded == decoded and getattr(r, name) != default  # noqa: E731
    return (name, "data"), ignored, f"`{name}` has no effect on images {images}."


_RULES: tuple[_Rule, ...] = (
    (("transform",), lambda r: r.transform not in TRANSFORMS, f"`transform` must be one of {', '.join(TRANSFORMS)}."),
    (
        ("milestones", "schedule"),
        lambda r: not _rises(r.milestones) or (r.schedule == "step" and not r.milestones),
        "`milestones` must rise between 0 and 1. schedule='step' needs at least one.",
    ),
    (
        ("train_sizes",),
        lambda r: not _rises(share for share, _ in r.train_sizes),
        "`train_sizes` must be pairs (share of the epochs, size in pixels), with shares rising between 0 and 1.",
    ),
    (
        ("transform", "data"),
        lambda r: TRANSFORMS[r.transform].contrast and r.decoded,
        "Contrast normalization needs images that fit into memory (cifar10, cifar100).",
    ),
    (
        ("warmup_epochs", "epochs", "schedule"),
        lambda r: r.schedule in _WARMING_UP and r.warmup_epochs >= r.epochs,
        "`warmup_epochs` must be less than `epochs`.",
    ),
    (
        ("warmup_epochs", "warmup_rate", "schedule"),
        lambda r: r.schedule == "step" and r.warmup_epochs and not r.warmup_rate,
        "The warm-up would train at rate 0: set `warmup_rate`, or warmup_epochs=0.",
    ),
    (
        ("decay", "schedule"),
        lambda r: r.schedule == "exponential" and r.decay == 1,
        "`decay` must be below 1 with schedule='exponential'.",
    ),
    (  # smoothing s of K classes compares a mixed image's shares with (threshold - s / K) / (1 - s)
        ("label_smoothing", "target_threshold"),
        lambda r: r.loss == "bce" and r.target_threshold is not None and r.label_smoothing and not r.mixes,
        "`target_threshold` undoes `label_smoothing`: set only one of them, or use `mixup` or `cutmix`.",
    ),
    (("freeze", "init"), lambda r: r.freeze and not r.init, "`freeze` needs weights to start from: set `init`."),
    (
        ("batch_size", "micro_batches"),
        lambda r: r.batch_size % r.micro_batches,
        "`batch_size` must be a multiple of `micro_batches`.",
    ),
    (
        ("optimizer", "bias_multiplier", "decay_multipliers"),
        lambda r: r.optimizer != "sgd" and (r.decay_multipliers or r.bias_multiplier != 1),
        "`bias_multiplier` and `decay_multipliers` need optimizer='sgd'.",
    ),
    (
        ("beta_2", "optimizer"),
        lambda r: r.optimizer != "adamw" and r.beta_2 != Recipe.beta_2,
        "`beta_2` needs optimizer='adamw'.",
    ),
    (
        ("train_size", "data"),
        lambda r: r.train_size is not None and not r.decoded,
        "`train_size` has no effect on images in memory, which keep their size.",
    ),
    (
        ("train_size", "variant"),
        lambda r: r.train_size and r.train_size < override(VARIANTS[r.variant], **dict(r.overrides)).min_size,
        "`train_size` is too small for the variant.",
    ),
    (
        ("overrides", "transform"),
        lambda r: r.other_shape,
        "net.input_shape must equal the image shape of `transform`: leave it out.",
    ),
    (
        ("rand_augment", "data"),
        lambda r: r.rand_augment and not r.decoded and not r.data.startswith("synthetic_"),
        "`rand_augment` needs images read from files: a folder, or 'tfds:...'.",
    ),
    _no_effect("crop_scale", False, "in memory, which are shifted"),
    *(
        _no_effect(name, True, "read from files, which are cropped and mirrored")
        for name in ("crop_padding", "flip", "alternating_flip", "whiten_stem")
    ),
)
_LANGUAGE_RULES: tuple[_Rule, ...] = (
    (
        ("overrides",),
        lambda r: {"classes", "characters", "input_shape"} & dict(r.overrides).keys(),
        "net.classes, net.characters and net.input_shape follow from the vocabulary: leave them out.",
    ),
)


def _check(recipe: Any, variants: Mapping[str, Any], rules: tuple[_Rule, ...]) -> None:
    """Raise a ValueError for a wrong type, range or variant, or a contradiction."""
    coerced(recipe, "")
    check_choice("variant", recipe.variant, variants)
    override(variants[recipe.variant], **dict(recipe.overrides))  # its errors name the net's own fields
    for names, contradict, message in rules:
        if contradict(recipe):
            hint = did_you_mean(recipe.transform, TRANSFORMS) if names == ("transform",) else ""
            received = ", ".join(f"{name}={getattr(recipe, name)!r}" for name in names)
            raise ValueError(f"{message}{hint} Received: {received}")


def changed(recipe: RecipeT, **changes) -> RecipeT:
    """Return the recipe with some fields changed, checked."""
    new = coerced(recipe, f"recipe {recipe.name!r}", **changes)
    new.check()
    return new


def with_settings(recipe: RecipeT, settings: list[str]) -> RecipeT:
    """Return the recipe with settings of the command line."""
    changes, overrides, sized = {}, dict(recipe.overrides), False
    for setting in settings:
        name, value = parse_setting(setting)
        if name in NEVER_SET:
            raise ValueError(f"{NEVER_SET[name]} Leave {name} out. Received: {setting}")
        if name.startswith("net."):
            sized |= name == "net.input_shape"
            overrides[name.removeprefix("net.")] = value
        else:
            changes[name] = value
    if overrides != dict(recipe.overrides):
        changes["overrides"] = tuple(overrides.items())
    new = coerced(recipe, f"recipe {recipe.name!r}", **changes)
    if isinstance(new, Recipe) and "transform" in changes and not sized and new.other_shape:  # the row's own
        new = dataclasses.replace(new, overrides=tuple(p for p in new.overrides if p[0] != "input_shape"))
    new.check()
    if isinstance(new, Recipe):
        _check_used(new, changes)
    return new


# Settings that `--set` refuses.
NEVER_SET = {
    "net.classes": "The number of classes follows from the data: from its folders, or its vocabulary.",
    "net.name": "The name of a network is always its variant's name.",
}
# Fields, and the values of other fields that use them.
_USED_WITH = {
    "momentum": ("optimizer", ("sgd", "muon")),
    "nesterov": ("optimizer", ("sgd", "muon")),
    "milestones": ("schedule", ("step",)),
    "decay": ("schedule", ("exponential",)),
    "final_rate": ("schedule", _WITH_A_LAST_RATE),
    "warmup_epochs": ("schedule", _WARMING_UP),
    "warmup_rate": ("schedule", _WARMING_UP),
    "target_threshold": ("loss", ("bce",)),
}


def _check_used(recipe: Recipe, names: Iterable[str]) -> None:
    """Raise a ValueError if a passed setting has no effect."""
    default = {field.name: field.default for field in dataclasses.fields(recipe)}
    for name in names:
        field, values = _USED_WITH.get(name, ("", ()))
        unused = field and getattr(recipe, field) not in values
        if name == "warmup_rate" and not unused and not recipe.warmup_epochs:
            unused, field, values = True, "warmup_epochs", ("above 0",)
        if unused and getattr(recipe, name) != default[name]:
            needed = " or ".join(f"{field}={value!r}" for value in values)
            raise ValueError(
                f"`{name}` needs {needed}: leave `{name}` out, or set {field}, too. "
                f"Received: {name}={getattr(recipe, name)!r}, {field}={getattr(recipe, field)!r}"
            )


LARGEST = 10.0  # magnitudes are in [0, 10]
_FORM = re.compile(r"m(?P<magnitude>\d+)-mstd(?P<deviation>\d+(\.\d+)?)-inc1")


class Policy(NamedTuple):
    """Parameters of RandAugment."""

    magnitude: float  # mean strength of an operation, in [0, 10]
    deviation: float  # standard deviation of the strength
    operations: int = 2  # operations drawn for an image, with replacement
    probability: float = 0.5  # that a drawn operation is done


def parse_policy(name: str) -> Policy:
    """Return the policy of a name in timm's form, `"mM-mstdS-inc1"`; raise a ValueError for another form."""
    match = _FORM.fullmatch(name)
    if not match or float(match["magnitude"]) > LARGEST:
        raise ValueError(
            "`rand_augment` must be mM-mstdS-inc1: magnitude M of 0 to 10, standard deviation S. "
            f"Received: rand_augment={name!r}"
        )
    return Policy(float(match["magnitude"]), float(match["deviation"]))
