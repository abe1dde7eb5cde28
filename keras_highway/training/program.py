"""One training step on any backend: network, loss, optimizer, moving average; its test, its memory."""

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import ops
from tqdm import tqdm

from keras_highway._support.keras_models import by_path
from keras_highway._support.numerics import rank_of
from keras_highway.analysis import cost
from keras_highway.applications import create_model
from keras_highway.data.datasets import FOLDERS, OWN_CLASSES
from keras_highway.data.transforms import CLASSES, TRANSFORMS, imagenet_classes, in_words
from keras_highway.models.transfer import freeze
from keras_highway.tasks import IMAGES
from keras_highway.training.data.device_images import WEIGHT, DeviceImages, normalized
from keras_highway.training.data.samples import SHARE, Source, epoch_samples, mixed, partners
from keras_highway.training.optimizers import make_optimizer, make_schedule
from keras_highway.training.recipe import Recipe
from keras_highway.variants import VARIANTS
from keras_highway.weights import files as weights_file
from keras_highway.weights.info import FILE as WEIGHTS
from keras_highway.weights.info import info_of
from keras_highway.weights.load import FreshHead, reset_head

BODY = "body"  # value of `freeze` that trains the head alone
SUMS = ("loss", "accuracy", "top5", "weight")
TEST_BATCH = 500
_TEST_PHOTOGRAPHS = 100  # of a replica; 500 at 224 pixels need more memory than many training steps


class Program:
    """Variables of a run, and functions of a batch; subclasses add the loss, the test, the log and the result."""

    sums: tuple[str, ...]
    metric: str
    steps_per_epoch: int
    batch_units: int
    phase: tuple = ()
    classes = 0
    data: DeviceImages | None = None
    fixed: Sequence[keras.Variable] = ()

    # Methods of a task:
    train_loss: Callable[..., tuple]  # (batch) -> loss to differentiate, `sums`
    evaluate: Callable[..., dict[str, float]]  # (engine, strategy) -> measures after an epoch
    columns: Callable[..., dict[str, float]]  # (means in training, measures) -> columns of the log
    bar: Callable[..., dict[str, str]]  # (means so far) -> texts of the progress bar
    line: Callable[..., str]  # (row of the log) -> its metrics as text
    result: Callable[..., tuple[str, float, dict[str, Any]]]  # (last row) -> name of the data, metric, other facts
    save: Callable[..., None]  # (folder): write the weights and the files that belong to them

    def __init__(self, recipe, source, net: keras.Model, optimizer: keras.optimizers.Optimizer, rate):
        self.recipe, self.source, self.net, self.optimizer, self._rate = recipe, source, net, optimizer, rate
        optimizer.build(net.trainable_variables)
        self.averaged = [] if recipe.ema is None else [v for v in net.variables if not is_seed(v)]
        self.averages = [
            keras.Variable(ops.convert_to_numpy(v), dtype=v.dtype, trainable=False, name=f"ema_{i}")
            for i, v in enumerate(self.averaged)
        ]

    def begin_epoch(self, epoch: int, rows: Sequence[dict] = ()) -> None:
        """Prepare the steps of an epoch, counted from 0, after the log's rows of the epochs before."""

    def clipped(self, gradients):
        """Return gradients, summed over replicas, clipped to the recipe's norm."""
        return clipped(gradients, self.recipe.clip_norm)

    @property
    def state(self) -> dict[str, keras.Variable]:
        """All variables of a checkpoint, by names that do not depend on what else the process has made."""
        net = self.net.variables
        seeds = [v for v in net if is_seed(v)]
        return {
            **{f"net/{path}": v for path, v in by_path(v for v in net if not is_seed(v)).items()},
            **{f"seed/{i}": v for i, v in enumerate(seeds)},
            **{f"optimizer/{i}_{v.name}": v for i, v in enumerate(self.optimizer.variables)},
            **{f"average/{i}": v for i, v in enumerate(self.averages)},
        }

    def rate(self, step: int) -> float:
        """Return the learning rate of a step of the run, counted from 0."""
        return float(ops.convert_to_numpy(self._rate(step))) if callable(self._rate) else self._rate

    @contextlib.contextmanager
    def averages_in_place(self, to_numpy):
        """Within it the network has the moving averages of its weights, if the recipe keeps any."""
        own = [to_numpy(v) for v in self.averaged]
        for variable, average in zip(self.averaged, self.averages, strict=True):
            variable.assign(to_numpy(average))
        try:
            yield
        finally:
            for variable, value in zip(self.averaged, own, strict=True):
                variable.assign(value)


class ImageProgram(Program):
    """Variables of a run on images, and functions of a batch; made inside a strategy's scope."""

    sums = SUMS
    metric = "test_accuracy"

    def __init__(self, recipe: Recipe, source: Source, data: DeviceImages | None):
        self.classes, self.class_names = source.classes, tuple(getattr(source, "class_names", ()))
        self.test_images, self.data, self.sigmoid = source.test_images, data, getattr(source, "sigmoid", False)
        keras.utils.set_random_seed(recipe.seed)
        net = _network(recipe, source.classes, self.class_names)
        samples = epoch_samples(source.images, recipe.repeated_augmentation)
        self.steps_per_epoch, self.batch_units = samples // recipe.batch_size, recipe.batch_size
        rate = make_schedule(recipe, self.steps_per_epoch)
        super().__init__(recipe, source, net, make_optimizer(recipe, rate), rate)
        if data:
            self.fixed = [v for images in (data, *data.smaller.values()) for v in images.variables]
        self._loss = make_loss(recipe, source.classes)
        layers = net._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        self._dropouts = [(layer, layer.rate) for layer in layers if isinstance(layer, keras.layers.Dropout)]
        self.begin_epoch(0)
        if recipe.whiten_stem and not recipe.init:
            kernel = next(v for v in net.get_layer("stem").trainable_variables if len(v.shape) == 4)
            kernel.assign(whitening_kernel(data.sample, kernel.shape))

    def begin_epoch(self, epoch: int, rows=()) -> None:
        recipe = self.recipe
        drops = epoch >= round(recipe.dropout_from * recipe.epochs)
        for layer, rate in self._dropouts:
            layer.rate = rate if drops else 0.0
        self.phase = (recipe.training_size(TRANSFORMS[recipe.transform].size, epoch), drops)

    def train_loss(self, batch):
        """Return the loss to differentiate, and sums for the log."""
        mix = None
        images, labels, weight, *rows = self._samples(batch, self._training_data)
        if rows:
            distance = self.recipe.partner_distance
            images, mix = mixed(images, rows[0], distance), (partners(labels, distance), rows[0][:, SHARE])
        logits = self._logits(images, training=True)
        losses = self._loss(labels, logits, mix) * weight
        return ops.sum(losses) / self.recipe.batch_size, _sums(losses, labels, weight, logits)

    def test_sums(self, batch):
        """Return `SUMS` over a batch of the test set."""
        images, labels, weight = self._samples(batch, self.data)
        logits = self._logits(images, training=False)
        return _sums(test_loss(labels, logits) * weight, labels, weight, logits)

    @property
    def _training_data(self) -> DeviceImages | None:
        """The images on the device, at the size of this phase."""
        return self.data.smaller.get(self.phase[0], self.data) if self.data else None

    def _samples(self, batch, data):
        """Images, labels and weights of a batch, and how its samples are mixed."""
        if data is None:
            images, *more = batch
            return normalized(images, TRANSFORMS[self.recipe.transform]), *more
        samples, *more = batch
        images, labels = data(samples)
        return images, labels, ops.cast(samples[:, WEIGHT], "float32"), *more

    def _logits(self, images, training):
        return ops.cast(self.net(images, training=training), "float32")

    def evaluate(self, engine, strategy) -> dict[str, float]:
        replicas = strategy.replicas
        most = TEST_BATCH if self.data else _TEST_PHOTOGRAPHS * replicas
        size = -(-min(most, self.test_images) // replicas) * replicas
        with self.averages_in_place(strategy.to_numpy):
            batches = self.source.test_batches(size, strategy.shard)
            bar = tqdm(batches, "testing", -(-self.test_images // size), leave=False, disable=not sys.stderr.isatty())
            return means(np.sum([np.asarray(engine.test(batch), np.float64) for batch in bar], axis=0), self.sums)

    def columns(self, trained, tested):
        top5 = {"test_top5": tested["top5"]} if self.classes >= 100 else {}
        if self.sigmoid:
            top5 = {"test_label_accuracy": tested["top5"]}
        return {
            "train_loss": trained["loss"],
            "train_accuracy": trained["accuracy"],
            "test_loss": tested["loss"],
            "test_accuracy": tested["accuracy"],
            **top5,
        }

    def bar(self, means):
        return {"loss": f"{means['loss']:.4f}", "accuracy": IMAGES.metric.format(means["accuracy"])}

    def line(self, row) -> str:
        train, test = (IMAGES.metric.format(row[f"{split}_accuracy"]) for split in ("train", "test"))
        return f"train {train}  test {row['test_loss']:.4f} {test}"

    def result(self, last):
        recipe = self.recipe
        data, names = data_and_names(recipe, self.class_names)
        facts: dict[str, Any] = {"class_names": names} if names else {}
        if recipe.holdout_images is not None:
            facts["holdout_images"] = recipe.holdout_images
        if recipe.test_images == self.test_images:  # more than there are is no limit
            facts["test_images"] = self.test_images
        if recipe.train_sizes:
            size = TRANSFORMS[recipe.transform].size
            facts["equivalents"] = round(recipe.equivalents(size, int(last["epoch"])), 2)
        if "test_top5" in last:
            facts["top5"] = last["test_top5"]
        facts |= {name: last[name] for name in ("train_loss", "images_per_second")}
        return data, last["test_accuracy"], facts

    def save(self, path) -> None:
        recipe = self.recipe
        facts = {"transform": recipe.transform, **form_of(self.net)}
        facts |= {"activation": "sigmoid"} if self.sigmoid else {}
        weights_file.save(self.net, path / WEIGHTS, recipe.variant, self.classes, **facts)


def _network(recipe: Recipe, classes: int, names: tuple[str, ...]) -> keras.Model:
    """Return the network of a recipe, with the weights to start from."""
    own = dict(recipe.overrides).get("input_shape") or VARIANTS[recipe.variant].input_shape
    shape = recipe.input_shape or (own if recipe.init else None)
    overrides = {**dict(recipe.overrides), **({"input_shape": tuple(shape)} if shape else {})}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FreshHead)  # the head for these classes is about to be trained
        net = create_model(
            recipe.variant,
            recipe.init or None,
            classes=classes,
            classifier_activation=None,
            dtype=recipe.precision,
            **overrides,
        )
    if recipe.init:
        bring_to_classes(net, recipe, names)
    if recipe.freeze:
        freeze(net, None if recipe.freeze == BODY else recipe.freeze)
        if not net.trainable_variables:
            raise ValueError(f"`freeze` leaves nothing to train. Received: freeze={recipe.freeze!r}")
    return net


def bring_to_classes(net: keras.Model, recipe: Recipe, names: tuple[str, ...]) -> None:
    """Match the head of weights to start from with the data's classes, by their names, if both have names.

    The head keeps the same classes in another order. For other classes of the
    same number it is drawn again. Numbers stand for unknown names, except for
    weights of a data set whose classes are numbers.
    """
    info = info_of(net)
    known = CLASSES.get(info.data if info else "", ())  # a run on a data set does not record its classes
    theirs = (info.classes if info else ()) or (known if len(known) == len(names) else ())
    ours = tuple(in_words(names)) or CLASSES.get(recipe.data, ())
    numbers = tuple(map(str, range(len(ours))))
    unknown = ours == numbers or (theirs == numbers != known)
    if not theirs or not ours or theirs == ours or unknown:
        return
    head = net.get_layer("head")
    if sorted(theirs) == sorted(ours) and len(set(ours)) == len(ours):
        order = [theirs.index(name) for name in ours]
        head.set_weights([value[..., order] for value in head.get_weights()])
    else:
        reset_head(net)


def data_and_names(recipe, folders: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the name of the data set, `""` for your own folders, and the names of its classes if it brought them.

    A recipe for ImageNet trains on any folder: it is ImageNet if all classes
    have WordNet identifiers, which are then named in words. Imagenette and
    Imagewoof are known by all of their identifiers, under any recipe.
    """
    names, found = in_words(folders), set(folders)
    if whole := next((data for data, own in OWN_CLASSES.items() if found == own), ""):
        return (whole if recipe.data in FOLDERS else recipe.data), names
    if recipe.data not in FOLDERS or found <= OWN_CLASSES.get(recipe.data, dict(imagenet_classes()).keys()):
        return recipe.data, names
    return next((data for data, own in OWN_CLASSES.items() if found <= own), ""), names


def form_of(net) -> dict[str, Any]:
    """Return the fields of the weight file that describe how a network differs from its variant."""
    info = info_of(net)
    form = {"overrides": dict(info.overrides), "removed": list(info.removed)} if info else {}
    return {name: value for name, value in form.items() if value}


def make_loss(recipe: Recipe, classes: int) -> Callable:
    """Return the training loss of a recipe."""
    kind = keras.losses.CategoricalCrossentropy if recipe.loss == "crossentropy" else keras.losses.BinaryCrossentropy
    function = kind(from_logits=True, reduction=None)
    smoothing = recipe.label_smoothing
    threshold = recipe.target_threshold if recipe.loss == "bce" else None
    least, most = smoothing / classes, 1.0 - smoothing + smoothing / classes
    if threshold is not None and not least <= threshold < most:
        raise ValueError(
            f"`target_threshold` must be between the targets of {classes} classes, {least:.4g} and {most:.4g}. "
            f"Received: target_threshold={threshold}"
        )

    def targets_of(labels):  # a sigmoid's are 0 or 1 for each class already
        return ops.cast(labels, "float32") if len(labels.shape) == 2 else ops.one_hot(labels, classes, dtype="float32")

    def loss(labels, logits, mix=None):
        targets = targets_of(labels)
        if mix is not None:
            others, share = mix
            share = share[:, None]
            targets = share * targets + (1.0 - share) * targets_of(others)
        if smoothing:
            targets = (1.0 - smoothing) * targets + smoothing / (2 if len(labels.shape) == 2 else classes)
        if threshold is not None:
            targets = ops.cast(targets > threshold, "float32")
        return function(targets, logits)

    return loss


def test_loss(labels, logits):
    """Return the cross-entropy of each sample, whatever the training loss was; the mean over a sigmoid's labels."""
    if len(labels.shape) == 2:
        return keras.losses.binary_crossentropy(ops.cast(labels, "float32"), logits, from_logits=True)
    return keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def whitening_kernel(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a kernel that whitens the patches of images [Jordan 2024, arXiv 2404.00498, 3.1]."""
    rows, columns, channels, filters = shape
    patches = np.lib.stride_tricks.sliding_window_view(images, (rows, columns), axis=(1, 2))
    patches = np.moveaxis(patches, 3, -1).reshape(-1, rows * columns * channels).astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(patches, rowvar=False, bias=True))
    whitening = (vectors / np.sqrt(values + 0.05))[:, ::-1]  # 0.05 bounds the gain of directions without variance
    pairs = np.stack([whitening, -whitening], axis=-1).reshape(len(whitening), -1)
    return np.resize(pairs.T, (filters, len(whitening))).T.reshape(shape).astype(np.float32)


def clipped(gradients, norm):
    """Scale gradients down to a norm over all of them, see `Recipe.clip_norm`."""
    if norm is None:
        return list(gradients)
    total = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
    scale = norm / ops.maximum(total, norm)
    return [g * scale for g in gradients]


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a random generator."""
    return variable.path.endswith("seed_generator_state")


def means(sums, names: tuple[str, ...]) -> dict[str, float]:
    """Return the means of sums over samples, by name; the last sum is the number of samples."""
    return {name: float(value / sums[-1]) for name, value in zip(names[:-1], sums[:-1], strict=True)}


def _sums(losses, labels, weight, logits):
    """Return `SUMS`; for a sigmoid, images with all labels right, and the share of right labels in place of top 5."""
    if len(labels.shape) == 2:
        right = ops.cast((logits > 0) == (labels > 0), "float32")
        hits = [ops.sum(weight * ops.min(right, 1)), ops.sum(weight * ops.mean(right, 1))]
    else:
        rank = rank_of(labels, logits)
        hits = [ops.sum(weight * ops.cast(rank < k, "float32")) for k in (1, 5)]
    return ops.stack([ops.sum(losses), *hits, ops.sum(weight)])


# ResNet50 at 224 pixels takes 101 MB an image on TensorFlow's CPU, 1.6 times the count of `cost`; on JAX 1.4 times.
_OF_ACTIVATIONS = 1.5
_OF_PARAMETERS = 3  # themselves, gradients and momentum
_TIGHT, _BEYOND = 0.8, 1.5  # shares of the free memory: a note above the first, an error above the second
_SMALL = 2**20  # bytes of a batch of images; smaller batches are not estimated, which takes seconds
_REMEDY = "Set micro_batches=N, which must divide batch_size, or a smaller batch_size (--set NAME=VALUE)."
_MEMINFO, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup")


def available_bytes() -> float:
    """Return the free memory of the machine, or of its container if that is less; infinity if unknown."""
    amounts = [float("inf")]
    with contextlib.suppress(OSError, AttributeError):
        line = re.search(r"^MemAvailable:\s*(\d+)", _MEMINFO.read_text(), re.M)
        amounts.append(int(line[1]) * 1024)  # pyright: ignore[reportOptionalSubscript] (suppressed above)
    with contextlib.suppress(OSError, ValueError):  # "max": no limit
        amounts.append(int((_GROUP / "memory.max").read_text()) - int((_GROUP / "memory.current").read_text()))
    return min(amounts)


def step_bytes(program, images: int, shape: tuple[int, int, int]) -> int:
    """Return an estimate of the memory of a step on `images` images of a shape."""
    net = program.net
    if None in net.input_shape[1:]:  # built for any size
        one = keras.Input(shape)
        net = keras.Model(one, net(one))
    parameters = 4 * sum(np.prod(w.shape) for w in net.variables)
    return int(_OF_ACTIVATIONS * cost(net).total.activation_bytes * images + _OF_PARAMETERS * parameters)


def check_memory(program, shards: int, gpus: list[str], resumed: bool = False) -> None:
    """Print a note if a step on the CPU may not fit into memory; refuse one that needs far more."""
    recipe = program.recipe
    transform = TRANSFORMS.get(getattr(recipe, "transform", ""))
    off = os.environ.get("KERAS_HIGHWAY_MEMORY_CHECK") == "off" or gpus or shards > 1
    if off or transform is None or dict(recipe.overrides).get("remat"):
        return
    images = recipe.batch_size // recipe.micro_batches
    height, width = recipe.training_size(transform.size)
    if 4 * images * height * width * transform.channels < _SMALL:
        return
    needed, free = step_bytes(program, images, (height, width, transform.channels)), available_bytes()
    message = (
        f"A step on {images} images of {height}x{width} pixels needs about {needed / 2**30:.1f} GiB of memory; "
        f"{free / 2**30:.1f} GiB are free. {_REMEDY}"
    )
    if needed > _BEYOND * free and not resumed:
        raise ValueError(f"{message} Or set the environment variable KERAS_HIGHWAY_MEMORY_CHECK=off.")
    if needed > _TIGHT * free:
        print(f"note: {message}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def explained_memory(recipe) -> Iterator[None]:
    """Raise a `MemoryError` that names the remedy if a GPU runs out of memory."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__} {error}"
        exhausted = re.search("RESOURCE_EXHAUSTED|ResourceExhausted|OutOfMemory", text)
        if exhausted and re.search(r"\bOOM\b|out ?of ?memory|allocat", text, re.IGNORECASE):  # not of open files
            raise MemoryError(f"A step of {recipe.name} does not fit into memory. {_REMEDY}") from error
        raise
