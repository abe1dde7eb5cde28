"""What a recipe states: everything that decides a run's result."""

import dataclasses
import itertools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from keras_highway._support.schema import check_finite, coerced, parse_setting
from keras_highway._support.terminal import did_you_mean
from keras_highway.data.datasets import FOLDERS
from keras_highway.data.transforms import TRANSFORMS
from keras_highway.specs import override
from keras_highway.tasks import IMAGES, Task
from keras_highway.variants import VARIANTS
from keras_highway.weights.info import check_name

CHOICES = {
    "optimizer": ("sgd", "adamw", "lamb", "muon"),
    "schedule": ("constant", "step", "exponential", "cosine", "epoch_cosine", "one_cycle", "plateau"),
    "loss": ("crossentropy", "bce"),
    "precision": ("float32", "mixed_bfloat16"),
}
DECODED = (*FOLDERS, "tfds")  # data whose images are decoded on the way
_POSITIVE = (
    "epochs",
    "batch_size",
    "learning_rate",
    "decay",
    "micro_batches",
    "repeated_augmentation",
    "train_images",
    "test_images",
    "holdout_images",
    "train_size",
    "clip_norm",
)
_NOT_NEGATIVE = (
    "weight_decay",
    "crop_padding",
    "warmup_epochs",
    "warmup_rate",
    "final_rate",
    "mixup",
    "cutmix",
    "bias_multiplier",
    "plateau_delta",
    "seed",
)
_SHARES = ("momentum", "beta_2", "label_smoothing", "target_threshold", "ema")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How one network is trained.

    Attributes:
        name: The recipe's name, that of its module or row.
        variant: The architecture.
        overrides: Spec fields that differ from the variant's, as pairs.
        weights: The zoo's name of what it trains.
        data: The data set: `"mnist"`, `"cifar10"`, `"cifar100"`, one of
            `"imagenet"`, `"imagenette"`, `"imagewoof"`,
            `"tiny_imagenet"` (a folder of classes, whichever it is),
            `"tfds:NAME"`, or `"synthetic_mnist"` and so on, made up for tests.
        transform: Row of `keras_highway.data.transforms.TRANSFORMS`.
        train_images: Number of images to train on, `None` for all: of images in
            memory the first ones, of files the same share of every class.
        test_images: The same for the test set.
        holdout_images: Number of training images to hold out and test on:
            choices are made on these, never on the test set. They are the same
            for every seed: of MNIST and CIFAR the last of the training set; of
            a folder the last of a fixed shuffle of its files, the same share
            of every class (`keras_highway.training.data.samples.split_off`);
            of TensorFlow Datasets the last in the order of its files, which
            were shuffled by a fixed hash when the set was prepared.
            `train_images` is of the rest, `test_images` of what is held out.
            `None` to train on all and test on the test set.
        train_size: Height and width of training images where they are decoded
            on the way (a folder, TensorFlow Datasets), `None` for the
            transform's size, which is that of test images. Where the two
            differ, the network is built for images of any size.
        train_sizes: Pairs (share of the epochs, height and width): training
            images have this size until that share of the epochs, e.g.
            `((0.4, 16), (0.7, 24))`. Images in memory are resized by area
            before they are normalized.
        crop_padding: Training images are shifted by up to this many pixels per
            side (a random crop of the padded image).
        crop_scale: Smallest share of its area that the random resized crop
            of an image keeps where images are decoded on the way; these are
            always mirrored with a chance of one half.
        flip: Half of the training images are mirrored, of those in memory.
        alternating_flip: With `flip`, an image is mirrored in every second
            epoch [Jordan 2024, arXiv 2404.00498, 3.6] instead of at random.
        epochs: Passes over the training set, its remainder of less than a
            batch left out, another one each epoch.
        batch_size: Global batch size.
        micro_batches: A batch is computed in this many parts, its gradients
            summed (gradient accumulation); batch normalization sees the parts.
        optimizer: `"sgd"` (`CaffeSGD`), `"adamw"`, `"lamb"` (`DecayedLamb`),
            `"muon"` (`ConvMuon`).
        learning_rate: Initial rate.
        schedule: `"constant"`, `"step"` (divided by 10 at each of
            `milestones`), `"exponential"` (multiplied by `decay` each epoch),
            `"cosine"` (to `final_rate`), `"epoch_cosine"` (the same once an
            epoch, as timm's `CosineLRScheduler`), `"one_cycle"` (to
            `final_rate` along a straight line [Smith 2018]),
            `"plateau"` (multiplied by `decay`
            after an epoch whose training loss was not below the best so far
            by `plateau_delta`).
        milestones: Shares of the run, for `"step"`.
        decay: Factor, for `"exponential"` and `"plateau"`.
        final_rate: The last rate of `"cosine"` and `"one_cycle"`.
        plateau_delta: For `"plateau"`.
        warmup_epochs: Epochs at `warmup_rate` (`"step"`), or rising from it
            to `learning_rate` (the cosines, `"one_cycle"`).
        warmup_rate: See there; of `"step"` it must be above 0.
        momentum: Momentum of SGD and Muon.
        nesterov: Whether it is Nesterov's.
        beta_2: AdamW: decay of the mean of squared gradients. Runs of few
            steps may need less than the default, which forgets one in 1,000.
        weight_decay: For SGD an L2 penalty `weight_decay / 2 * |w|^2`, for
            AdamW and Muon decoupled, for LAMB inside the trust ratio; on
            kernels (with Muon on those that it updates).
        decay_vectors: Weight decay on biases and normalization, too.
        bias_multiplier: SGD: factor on the learning rate of all but kernels.
        rate_multipliers: SGD: pairs (shell pattern of variable paths, factor
            on their learning rate).
        decay_multipliers: SGD: the same for their weight decay.
        clip_norm: Largest norm of the gradient over all parameters, after
            its sum over replicas, or `None`.
        loss: `"crossentropy"`, or `"bce"` (one sigmoid per class).
        label_smoothing: Share of the target spread over all classes.
        target_threshold: `"bce"`: targets above it count as 1, or `None`.
        ema: Decay of the moving average of weights and batch statistics, which
            is then what is tested and saved, or `None`.
        precision: Dtype policy; the skip stream stays float32.
        rand_augment: RandAugment's policy, e.g. `"m7-mstd0.5-inc1"`, of images
            in files, or `""`.
        mixup: Alpha of Mixup, or 0.
        cutmix: Alpha of CutMix, or 0; with both a batch has either.
        repeated_augmentation: Copies of an image in an epoch, which then has
            that much fewer images.
        dropout_from: Share of the epochs after which dropout is active; 0 is
            always, 1 never.
        whiten_stem: The stem starts with filters that whiten the patches of
            the training images [Jordan 2024, 3.1]; it is trained like any
            other layer.
        init: Weights to start from, as in `keras_highway.load`, or `""`; the
            head is fresh where they have another number of classes.
        freeze: Everything up to and including this stage (`"stage3"`), block
            or layer stays as it is, see `keras_highway.freeze`; `"body"` is
            everything but the head, `""` nothing.
        seed: Of initialization, order, augmentation and dropout.
        source: Where the recipe is published and what differs from it.
    """

    name: str
    variant: str
    overrides: tuple[tuple[str, object], ...] = ()
    weights: str
    data: str
    transform: str
    train_images: int | None = None
    test_images: int | None = None
    holdout_images: int | None = None
    train_size: int | None = None
    train_sizes: tuple[tuple[float, int], ...] = ()
    crop_padding: int = 0
    crop_scale: float = 0.08
    flip: bool = False
    alternating_flip: bool = False
    epochs: int
    batch_size: int = 100
    micro_batches: int = 1
    optimizer: str = "sgd"
    learning_rate: float
    schedule: str = "step"
    milestones: tuple[float, ...] = (1 / 3, 2 / 3)
    decay: float = 1.0
    final_rate: float = 0.0
    plateau_delta: float = 0.0
    warmup_epochs: int = 0
    warmup_rate: float = 0.0
    momentum: float = 0.9
    nesterov: bool = True
    beta_2: float = 0.999
    weight_decay: float = 0.0
    decay_vectors: bool = False
    bias_multiplier: float = 1.0
    rate_multipliers: tuple[tuple[str, float], ...] = ()
    decay_multipliers: tuple[tuple[str, float], ...] = ()
    clip_norm: float | None = None
    loss: str = "crossentropy"
    label_smoothing: float = 0.0
    target_threshold: float | None = None
    ema: float | None = None
    precision: str = "float32"
    rand_augment: str = ""
    mixup: float = 0.0
    cutmix: float = 0.0
    repeated_augmentation: int = 1
    dropout_from: float = 0.0
    whiten_stem: bool = False
    init: str = ""
    freeze: str = ""
    seed: int = 0
    source: str = ""

    task: ClassVar[Task] = IMAGES

    def to_dict(self) -> dict:
        """Return the recipe as plain JSON values; without a start, of runs that have none."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value or name not in ("init", "freeze")}

    def check(self) -> None:
        """Raise a ValueError where a field of a recipe has an impossible value."""
        for name, known in {**CHOICES, "variant": tuple(VARIANTS), "transform": tuple(TRANSFORMS)}.items():
            value = getattr(self, name)
            if value not in known:
                hint = did_you_mean(value, known)
                raise ValueError(f"`{name}` must be one of {', '.join(known)}.{hint} Received: {name}={value!r}")
        for name in _NOT_NEGATIVE:
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative. Received: {name}={getattr(self, name)!r}")
        check_name(self.name, "`name`")
        check_name(self.weights, "`weights`")
        if not 0 < self.crop_scale <= 1:
            raise ValueError(f"`crop_scale` must be in (0, 1]. Received: crop_scale={self.crop_scale!r}")
        shares = (0.0, *self.milestones, 1.0)
        if self.schedule == "step" and not self.milestones:
            raise ValueError("`milestones` of schedule='step' must be one at least. Received: milestones=()")
        if any(a >= b for a, b in itertools.pairwise(shares)):
            raise ValueError(f"`milestones` must rise between 0 and 1. Received: milestones={self.milestones!r}")
        for name in _POSITIVE:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"`{name}` must be positive. Received: {name}={value!r}")
        spec = override(VARIANTS[self.variant], **dict(self.overrides))  # in the words of the net's own fields
        check_finite(self)
        for name in _SHARES:
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`{name}` must be in [0, 1). Received: {name}={value!r}")
        if not 0 <= self.dropout_from <= 1:
            raise ValueError(f"`dropout_from` must be in [0, 1]. Received: dropout_from={self.dropout_from!r}")
        if TRANSFORMS[self.transform].contrast and self._decoded:
            raise ValueError(
                "Contrast normalization is for sets that fit into memory (cifar10, cifar100). "
                f"Received: transform={self.transform!r}, data={self.data!r}"
            )
        check_together(self)
        if self.freeze and not self.init:
            raise ValueError(
                f"Layers are frozen where weights to start from are named: `init`. Received: freeze={self.freeze!r}"
            )
        if self.rand_augment:
            parse_policy(self.rand_augment)
        if self.batch_size % self.micro_batches:
            raise ValueError(
                "`batch_size` must be a multiple of `micro_batches`. "
                f"Received: batch_size={self.batch_size}, micro_batches={self.micro_batches}"
            )
        self._check_multipliers()
        if self.optimizer != "adamw" and self.beta_2 != Recipe.beta_2:
            raise ValueError(
                "`beta_2` can be set with optimizer='adamw' alone: leave it at its default, or take that optimizer. "
                f"Received: beta_2={self.beta_2}, optimizer={self.optimizer!r}"
            )
        self._check_train_size(spec.min_size)
        self._check_train_sizes()
        self._check_input_shape()
        self._check_augmentation()

    def _check_multipliers(self) -> None:
        for name in ("rate_multipliers", "decay_multipliers"):
            if any(factor < 0 for _, factor in getattr(self, name)):
                raise ValueError(f"`{name}` must not be negative. Received: {name}={getattr(self, name)!r}")
        if self.optimizer != "sgd" and (self.rate_multipliers or self.decay_multipliers or self.bias_multiplier != 1):
            raise ValueError(
                "Multipliers of rate and decay are for SGD: an adaptive optimizer divides them out again. "
                f"Received: optimizer={self.optimizer!r}"
            )

    @property
    def _decoded(self) -> bool:
        """Whether images are decoded on the way, not kept in memory."""
        return self.data.split(":")[0] in DECODED

    def _check_augmentation(self) -> None:
        """Refuses settings that the data would ignore: images in memory are shifted, those in files are cropped."""
        decoded = self._decoded
        fields = ("crop_padding", "flip", "alternating_flip", "whiten_stem") if decoded else ("crop_scale",)
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        ignored = [name for name in fields if getattr(self, name) != defaults[name]]
        if ignored:
            where = "decoded on the way, which are cropped and mirrored" if decoded else "in memory, which are shifted"
            raise ValueError(
                f"`{ignored[0]}` has no effect on images {where}. "
                f"Received: {ignored[0]}={getattr(self, ignored[0])!r}, data={self.data!r}"
            )

    def _check_train_size(self, smallest) -> None:
        if self.train_size is None:
            return
        if self.train_size < smallest:
            raise ValueError(
                f"`train_size` must be at least {smallest}, the least of {self.variant!r}. "
                f"Received: train_size={self.train_size}"
            )
        if not self._decoded:
            raise ValueError(
                "`train_size` is for images that are decoded on the way (data='imagenet' or 'tfds:NAME'); those in "
                f"memory keep their size. Received: train_size={self.train_size}, data={self.data!r}"
            )

    def _check_train_sizes(self) -> None:
        shares = [share for share, _ in self.train_sizes]
        rising = all(a < b for a, b in itertools.pairwise((0.0, *shares, 1.0)))
        if not rising or any(size < 1 for _, size in self.train_sizes):
            raise ValueError(
                "`train_sizes` must be pairs of a share of the epochs, rising between 0 and 1, and a size in pixels. "
                f"Received: train_sizes={self.train_sizes!r}"
            )

    def _check_input_shape(self) -> None:
        """Refuses a network of another size than the images that the transform makes."""
        if shape := self._other_shape:
            size = TRANSFORMS[self.transform].size
            raise ValueError(
                f"transform={self.transform!r} makes images of {size[0]}x{size[1]}: set the transform of another size, "
                f"or leave net.input_shape out, which follows it. Received: net.input_shape={list(shape)}"
            )

    @property
    def _other_shape(self) -> tuple[int | None, ...]:
        """The input shape among the overrides, where images are decoded to another size; else none."""
        shape = dict(self.overrides).get("input_shape") or ()
        size = TRANSFORMS[self.transform].size if self._decoded and self.transform in TRANSFORMS else ()
        return tuple(shape) if any(a not in (None, b) for a, b in zip(shape, size, strict=False)) else ()

    def training_size(self, test_size: tuple[int, int], epoch: int | None = None) -> tuple[int, int]:
        """Return height and width of training images, by those of test images.

        Args:
            test_size: Height and width of test images.
            epoch: Epoch, counted from 0; `None` for the last.
        """
        for share, size in () if epoch is None else self.train_sizes:
            if epoch < round(share * self.epochs):
                return size, size
        return test_size if self.train_size is None else (self.train_size, self.train_size)

    def equivalents(self, test_size: tuple[int, int], epochs: int) -> float:
        """Return the cost of the first `epochs` in epochs at the test images' size: pixels are what a step costs."""
        sizes = [self.training_size(test_size, epoch) for epoch in range(epochs)]
        return sum(height * width for height, width in sizes) / (test_size[0] * test_size[1])

    @property
    def input_shape(self) -> tuple[int | None, int | None, int] | None:
        """Input shape of the network, if it is not its variant's.

        It is the size of the transform for images in files, and any size if
        training and test images differ in size.
        """
        transform = TRANSFORMS[self.transform]
        if self.train_sizes or self.training_size(transform.size) != transform.size:
            return (None, None, transform.channels)
        own = "input_shape" in dict(self.overrides) or VARIANTS[self.variant].input_shape[:2] == transform.size
        if own or not self._decoded:
            return None
        return (*transform.size, transform.channels)

    @property
    def mixes(self) -> bool:
        """Whether samples are mixed, by Mixup or CutMix."""
        return bool(self.mixup or self.cutmix)

    @property
    def partner_distance(self) -> int:
        """How far apart the two samples of a pair that is mixed are, in a micro-batch.

        A micro-batch is every so-many-th sample of a batch. With repeated
        augmentation the copies of an image follow one another, and the distance is
        large enough that none meets its copy: the smallest power of two that
        leads past them.
        """
        distance = 1
        while distance * self.micro_batches < self.repeated_augmentation:
            distance *= 2
        return distance

    @property
    def mixed_samples(self) -> int:
        """How many samples that follow one another in a micro-batch are mixed among themselves: 1 without mixing."""
        return 2 * self.partner_distance if self.mixes else 1


def changed(recipe: Recipe, **changes) -> Recipe:
    """Return the recipe with some fields changed, checked.

    Raises:
        ValueError: For an unknown field (with suggestions), a value of the
            wrong type or out of its range.
    """
    new = coerced(recipe, f"recipe {recipe.name!r}", **changes)
    new.check()
    return new


def with_settings(recipe: Recipe, settings: list[str]) -> Recipe:
    """Return the recipe with settings of the command line.

    Args:
        recipe: Any recipe.
        settings: `"field=value"` for a field of the recipe, `"net.field=value"`
            for one of the network's spec, see `parse_setting`. Its size follows `transform` unless it is set.

    Raises:
        ValueError: As `changed`, for a setting without `=`, and for one that
            has no effect beside the others.
    """
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
    if isinstance(new, Recipe) and "transform" in changes and not sized and new._other_shape:  # the row's own
        new = dataclasses.replace(new, overrides=tuple(p for p in new.overrides if p[0] != "input_shape"))
    new.check()
    if isinstance(new, Recipe):
        check_used(new, changes)
    return new


# What --set never sets, and why.
NEVER_SET = {
    "net.classes": "The number of classes follows from the data: from its folders, or its vocabulary.",
    "net.name": "A net goes by its variant's name, by which its weights are loaded again.",
}
_WITH_A_LAST_RATE = ("cosine", "epoch_cosine", "one_cycle")
_DECAYING = ("exponential", "plateau")
_WARMING_UP = ("step", *_WITH_A_LAST_RATE)
# The field, and which values of which other field use it.
_USED_WITH = {
    "momentum": ("optimizer", ("sgd", "muon")),
    "nesterov": ("optimizer", ("sgd", "muon")),
    "milestones": ("schedule", ("step",)),
    "decay": ("schedule", _DECAYING),
    "plateau_delta": ("schedule", ("plateau",)),
    "final_rate": ("schedule", _WITH_A_LAST_RATE),
    "warmup_epochs": ("schedule", _WARMING_UP),
    "warmup_rate": ("schedule", _WARMING_UP),
    "target_threshold": ("loss", ("bce",)),
}


def check_used(recipe: Any, names: Iterable[str]) -> None:
    """Refuses a setting that was given and is not used.

    Args:
        recipe: The `Recipe` with its settings.
        names: The fields that were given. Not looked at are the others, which
            the recipe's row states and another setting leaves without a use,
            and those that were given their default.

    Raises:
        ValueError: If one has no effect beside the others.
    """
    default = {field.name: field.default for field in dataclasses.fields(recipe)}
    given = [name for name in names if getattr(recipe, name) != default[name]]
    for name in given:
        field, values = _USED_WITH.get(name, ("", ()))
        if field and getattr(recipe, field) not in values:
            needed = " or ".join(f"{field}={value!r}" for value in values)
            raise ValueError(
                f"`{name}` is used only with {needed}: leave it out, or set that as well. "
                f"Received: {name}={getattr(recipe, name)!r}, {field}={getattr(recipe, field)!r}"
            )
    if "warmup_rate" in given and not recipe.warmup_epochs:
        raise ValueError(
            "`warmup_rate` is used only with a warm-up: leave it out, or set `warmup_epochs` as well. "
            f"Received: warmup_rate={recipe.warmup_rate!r}, warmup_epochs=0"
        )


def check_together(recipe: Any) -> None:
    """Refuses settings of which one takes another's effect away, and a warm-up that is the whole run or at a rate of 0.

    Args:
        recipe: The `Recipe`.

    Raises:
        ValueError: If it is. The cosines and `"one_cycle"` may begin at 0,
            from which they rise; the rate of `"step"` stays until its end.
    """
    if recipe.schedule in _WARMING_UP and recipe.warmup_epochs >= recipe.epochs:
        raise ValueError(
            f"`warmup_epochs` must be less than `epochs` with schedule={recipe.schedule!r}. "
            f"Received: warmup_epochs={recipe.warmup_epochs}, epochs={recipe.epochs}"
        )
    if recipe.schedule == "step" and recipe.warmup_epochs and not recipe.warmup_rate:
        raise ValueError(
            f"The warm-up would train {recipe.warmup_epochs} epochs at rate 0: set `warmup_rate`, or warmup_epochs=0. "
            f"Received: warmup_epochs={recipe.warmup_epochs}, warmup_rate={recipe.warmup_rate}, schedule='step'"
        )
    if not 0 < recipe.decay <= 1 or (recipe.schedule in _DECAYING and recipe.decay == 1):
        raise ValueError(
            "`decay`, the factor of the rate, must be above 0 and at most 1, and below 1 with a schedule that decays, "
            f"{' or '.join(_DECAYING)}. Received: decay={recipe.decay!r}, schedule={recipe.schedule!r}"
        )
    # With smoothing s of K classes a mixed image's shares are compared with (threshold - s / K) / (1 - s).
    thresholded = recipe.loss == "bce" and recipe.target_threshold is not None and not recipe.mixes
    if thresholded and recipe.label_smoothing:
        raise ValueError(
            "`target_threshold` makes smoothed targets 0 and 1 again: set one of the two, target_threshold=None or "
            f"label_smoothing=0, or mix images. Received: label_smoothing={recipe.label_smoothing}, "
            f"target_threshold={recipe.target_threshold}"
        )


LARGEST = 10.0  # magnitudes are in [0, 10]
_FORM = re.compile(r"m(?P<magnitude>\d+)-mstd(?P<deviation>\d+(\.\d+)?)-inc1")


@dataclass(frozen=True)
class Policy:
    """The parameters in a policy's name.

    Attributes:
        magnitude: Mean strength of an operation, in [0, 10].
        deviation: Standard deviation of the strength.
        operations: Operations drawn for an image, with replacement.
        probability: That a drawn operation is done.
    """

    magnitude: float
    deviation: float
    operations: int = 2
    probability: float = 0.5


def parse_policy(name: str) -> Policy:
    """Return the policy of a name in timm's language, `"mM-mstdS-inc1"`.

    Raises:
        ValueError: If it is not such a name.
    """
    match = _FORM.fullmatch(name)
    if not match or float(match["magnitude"]) > LARGEST:
        raise ValueError(
            "A RandAugment policy is mM-mstdS-inc1: magnitude M of 0 to 10, its standard deviation S, operations that "
            f"grow stronger with the magnitude. Received: rand_augment={name!r}"
        )
    return Policy(float(match["magnitude"]), float(match["deviation"]))
