"""What one step computes: network, loss, optimizer and moving average, free of any backend's way of differentiating."""

import contextlib
import warnings

import keras
import numpy as np
from keras import ops

from keras_highway._support.keras_models import by_path
from keras_highway._support.numerics import rank_of
from keras_highway.applications import create_model
from keras_highway.data.photographs import in_words
from keras_highway.data.transforms import CLASSES, TRANSFORMS
from keras_highway.models.origin import file_of, origin_of
from keras_highway.models.transfer import freeze
from keras_highway.training.data.device_images import WEIGHT, DeviceImages, normalized
from keras_highway.training.data.mixing import SHARE, mixed, partners
from keras_highway.training.data.samples import Source, epoch_samples
from keras_highway.training.losses import make_loss, test_loss
from keras_highway.training.optimizers import make_optimizer, make_schedule
from keras_highway.training.recipe import Recipe
from keras_highway.variants import VARIANTS
from keras_highway.weights.load import FreshHead

BODY = "body"  # what `freeze` leaves the head alone to train
SUMS = ("loss", "accuracy", "top5", "weight")


class Trainable:
    """The variables of a run: a network, its optimizer and moving averages.

    Args:
        recipe: What to train.
        net: The network.
        optimizer: Not yet built.
        rate: Its learning rate, a Keras schedule over steps or a float.

    Attributes:
        sums: Names of what a step sums over samples; the last counts them.
        steps_per_epoch: Set by subclasses.
        batch_units: Images or tokens of a step, for their number per second.
        phase: What steps depend on beside their arguments; hashable.
    """

    sums: tuple[str, ...]
    steps_per_epoch: int
    batch_units: int
    phase: tuple = ()

    def __init__(self, recipe, net: keras.Model, optimizer: keras.optimizers.Optimizer, rate):
        self.recipe, self.net, self.optimizer, self._rate = recipe, net, optimizer, rate
        optimizer.build(net.trainable_variables)
        self.averaged = [] if recipe.ema is None else [v for v in net.variables if not is_seed(v)]
        self.averages = [
            keras.Variable(ops.convert_to_numpy(v), dtype=v.dtype, trainable=False, name=f"ema_{i}")
            for i, v in enumerate(self.averaged)
        ]

    def clipped(self, gradients):
        """Return gradients, summed over replicas, as the optimizer gets them: clipped to the recipe's norm."""
        return clipped(gradients, self.recipe.clip_norm)

    @property
    def fixed(self) -> list[keras.Variable]:
        """Variables that never change."""
        return []

    @property
    def state(self) -> dict[str, keras.Variable]:
        """All that a checkpoint holds, by names that do not depend on what else the process has made."""
        net = self.net.variables
        seeds = [v for v in net if is_seed(v)]
        return {
            **{f"net/{path}": v for path, v in by_path(v for v in net if not is_seed(v)).items()},
            **{f"seed/{i}": v for i, v in enumerate(seeds)},
            **{f"optimizer/{i}_{v.name}": v for i, v in enumerate(self.optimizer.variables)},
            **{f"average/{i}": v for i, v in enumerate(self.averages)},
        }

    def begin_epoch(self, epoch: int) -> None:
        """Prepare for the steps of an epoch, counted from 0."""

    def rate(self, step: int) -> float:
        """Return the learning rate of a step of the run, counted from 0."""
        rate = self._rate
        return float(ops.convert_to_numpy(rate(step))) if callable(rate) else rate

    def set_rate(self, rate: float) -> None:
        """Set the learning rate of a run without a schedule of steps."""
        self._rate = rate
        self.optimizer.learning_rate = rate

    @contextlib.contextmanager
    def averages_in_place(self, to_numpy):
        """Within it the network has the moving averages of its weights, where the recipe keeps any.

        Args:
            to_numpy: Function from a variable to its value.
        """
        own = [to_numpy(v) for v in self.averaged]
        for variable, average in zip(self.averaged, self.averages, strict=True):
            variable.assign(to_numpy(average))
        try:
            yield
        finally:
            for variable, value in zip(self.averaged, own, strict=True):
                variable.assign(value)


def _input_shape(recipe: Recipe) -> dict[str, tuple[int | None, ...]]:
    """Return `create_model`'s `input_shape`, if it is not the variant's; always with weights to start from."""
    own = dict(recipe.overrides).get("input_shape") or VARIANTS[recipe.variant].input_shape
    shape = recipe.input_shape or (own if recipe.init else None)
    return {"input_shape": tuple(shape)} if shape else {}


def _bring_to_classes(net: keras.Model, recipe: Recipe, names: tuple[str, ...]) -> None:
    """Brings the head of weights that are a start to the data's classes, by their names, where both have some.

    The same classes in another order keep theirs; of others, as many, it is
    drawn anew, as the head for another number of classes is. Numbers stand for
    names that are unknown, except for those of weights of a data set whose
    classes are numbers.
    """
    origin, file = origin_of(net), file_of(net)
    known = CLASSES.get(file.data if file else "", ())  # a run on a data set does not record its classes
    theirs = (origin.class_names if origin else ()) or (known if len(known) == len(names) else ())
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
        _draw_anew(head)


def _draw_anew(layer: keras.layers.Layer) -> None:
    """Give a layer initial weights."""
    fresh = layer.__class__.from_config(layer.get_config())
    fresh.build(layer.input.shape)
    layer.set_weights(fresh.get_weights())


class Program(Trainable):
    """The variables of a run and the functions of a batch over them; built inside a strategy's scope.

    Args:
        recipe: What to train.
        source: Its data.
        data: Its images on the device, where they are.

    Attributes:
        test_images: Number of images that it is tested on.
    """

    sums = SUMS

    def __init__(self, recipe: Recipe, source: Source, data: DeviceImages | None):
        self.classes, self.class_names = source.classes, tuple(getattr(source, "class_names", ()))
        set_seed(recipe.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FreshHead)  # the head for these classes is about to be trained
            net = create_model(
                recipe.variant,
                recipe.init or None,
                classes=source.classes,
                classifier_activation=None,
                dtype=recipe.precision,
                **{**dict(recipe.overrides), **_input_shape(recipe)},
            )
        if recipe.init:
            _bring_to_classes(net, recipe, self.class_names)
        if recipe.freeze:
            freeze(net, None if recipe.freeze == BODY else recipe.freeze)
            if not net.trainable_variables:
                raise ValueError(f"Nothing is left to train behind what is frozen. Received: freeze={recipe.freeze!r}")
        samples = epoch_samples(source.images, recipe.repeated_augmentation)
        self.steps_per_epoch, self.batch_units = samples // recipe.batch_size, recipe.batch_size
        self.test_images = source.test_images
        rate = make_schedule(recipe, self.steps_per_epoch)
        super().__init__(recipe, net, make_optimizer(recipe, rate), rate)
        self.data = data
        self._loss = make_loss(recipe, source.classes)
        layers = net._flatten_layers()  # pyright: ignore[reportPrivateUsage] (Keras has no public way to them)
        self._dropouts = [(layer, layer.rate) for layer in layers if isinstance(layer, keras.layers.Dropout)]
        self.begin_epoch(0)
        if recipe.whiten_stem and not recipe.init:
            kernel = next(v for v in net.get_layer("stem").trainable_variables if len(v.shape) == 4)
            kernel.assign(whitening_kernel(data.sample, kernel.shape))

    def begin_epoch(self, epoch: int) -> None:
        recipe = self.recipe
        drops = epoch >= round(recipe.dropout_from * recipe.epochs)
        for layer, rate in self._dropouts:
            layer.rate = rate if drops else 0.0
        self.phase = (recipe.training_size(TRANSFORMS[recipe.transform].size, epoch), drops)

    @property
    def fixed(self) -> list[keras.Variable]:
        """The data."""
        if not self.data:
            return []
        return [v for data in (self.data, *self.data.smaller.values()) for v in data.variables]

    def train_loss(self, batch):
        """Return what is differentiated, and sums for the log.

        Args:
            batch: A tuple of arrays, of the source.

        Returns:
            The sum of the samples' losses divided by the global batch size,
            and `SUMS` over the samples; of a mixed one the own label counts.
        """
        mix = None
        images, labels, weight, *rows = self._samples(batch, self._training_data)
        if rows:
            distance = self.recipe.partner_distance
            images, mix = mixed(images, rows[0], distance), (partners(labels, distance), rows[0][:, SHARE])
        logits = self._logits(images, training=True)
        losses = self._loss(labels, logits, mix) * weight
        return ops.sum(losses) / self.recipe.batch_size, _sums(losses, labels, weight, logits)

    def test_sums(self, batch):
        """Returns `SUMS` over a batch of the test set."""
        images, labels, weight = self._samples(batch, self.data)
        logits = self._logits(images, training=False)
        return _sums(test_loss(labels, logits) * weight, labels, weight, logits)

    @property
    def _training_data(self) -> DeviceImages | None:
        """The images on the device, at the size of this phase."""
        return self.data.smaller.get(self.phase[0], self.data) if self.data else None

    def _samples(self, batch, data):
        """Images, labels and weights of a batch, and what it has beside them."""
        if data is None:
            images, *more = batch
            return normalized(images, TRANSFORMS[self.recipe.transform]), *more
        samples, *more = batch
        images, labels = data(samples)
        return images, labels, ops.cast(samples[:, WEIGHT], "float32"), *more

    def _logits(self, images, training):
        return ops.cast(self.net(images, training=training), "float32")


def whitening_kernel(images: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return a kernel that whitens the patches of images [Jordan 2024, arXiv 2404.00498, 3.1].

    Args:
        images: float32 `(n, height, width, channels)`, normalized.
        shape: Of the kernel: `(rows, columns, channels, filters)`. Filters
            come in pairs of both signs, for ReLU; those beyond twice the
            patches' dimension repeat.
    """
    rows, columns, channels, filters = shape
    patches = np.lib.stride_tricks.sliding_window_view(images, (rows, columns), axis=(1, 2))
    patches = np.moveaxis(patches, 3, -1).reshape(-1, rows * columns * channels).astype(np.float64)
    values, vectors = np.linalg.eigh(np.cov(patches, rowvar=False, bias=True))
    whitening = (vectors / np.sqrt(values + 0.05))[:, ::-1]  # 0.05 bounds the gain of directions without variance
    pairs = np.stack([whitening, -whitening], axis=-1).reshape(len(whitening), -1)
    return np.resize(pairs.T, (filters, len(whitening))).T.reshape(shape).astype(np.float32)


def clipped(gradients, norm):
    """Scale gradients down to a norm over all of them, see `Recipe.clip_norm`.

    Args:
        gradients: Sequence of tensors.
        norm: Float, or `None` to leave them.

    Returns:
        A list of tensors.
    """
    if norm is None:
        return list(gradients)
    total = ops.sqrt(sum(ops.sum(ops.square(g)) for g in gradients))
    scale = norm / ops.maximum(total, norm)
    return [g * scale for g in gradients]


def set_seed(seed: int) -> None:
    """Seeds Python, NumPy and Keras; Keras seeds TensorFlow, too, and imports it for that where another computes."""
    keras.utils.set_random_seed(seed)


def is_seed(variable: keras.Variable) -> bool:
    """Whether a variable is the state of a random generator."""
    return variable.path.endswith("seed_generator_state")


def _sums(losses, labels, weight, logits):
    rank = rank_of(labels, logits)
    hits = [ops.sum(weight * ops.cast(rank < k, "float32")) for k in (1, 5)]
    return ops.stack([ops.sum(losses), *hits, ops.sum(weight)])
