"""Optimizers and learning rates of the recipes."""

import fnmatch
import math
import re
from typing import Any

import keras
from keras import ops

from keras_highway.training.recipe import Recipe


class DenseGradients:
    """A base before a Keras optimizer: make gradients dense before they are clipped.

    TensorFlow's gradient of an embedding is a list of rows, in which a row may
    occur twice: its square would be a sum of squares, not the square of a sum.
    """

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Take one step."""
        parent: Any = super()
        return parent.apply([_dense(gradient) for gradient in grads], trainable_variables)


def _dense(gradient: Any) -> Any:
    if keras.config.backend() != "tensorflow":
        return gradient
    import tensorflow as tf

    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


@keras.saving.register_keras_serializable(package="keras_highway_training")
class CaffeSGD(DenseGradients, keras.optimizers.SGD):
    """SGD with momentum whose L2 penalty and bias multiplier enter through the gradient, as in Caffe.

    `g = (dL/dw + l2 * w) * multiplier`, then Keras's momentum step. Since the
    step is linear in g, a factor on a variable's gradient is one on its rate.
    Keras's own `SGD(weight_decay=...)` is decoupled, `w -= rate * decay * w`
    outside the momentum: another recipe. All of it happens after gradients are
    summed over replicas, so that it does not depend on their number.
    """

    def __init__(
        self,
        learning_rate=0.01,
        momentum=0.9,
        nesterov=True,
        l2=0.0,
        bias_multiplier=1.0,
        l2_on_vectors=False,
        decay_multipliers=(),
        **kwargs,
    ):
        super().__init__(learning_rate, momentum=momentum, nesterov=nesterov, **kwargs)
        self.l2, self.bias_multiplier, self.l2_on_vectors = float(l2), float(bias_multiplier), bool(l2_on_vectors)
        self.decay_multipliers = [(str(pattern), float(factor)) for pattern, factor in decay_multipliers]

    def build(self, variables):
        for pattern, _ in self.decay_multipliers:  # before `super`, which marks the optimizer as built
            if not fnmatch.filter((variable.path for variable in variables), pattern):
                raise ValueError(
                    f"A pattern of `decay_multipliers` matches no variable, such as {variables[-1].path!r}. "
                    f"Received: {pattern!r}"
                )
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        # Under tf.distribute `variable` is one replica's component, without Keras's name and path.
        known = self._trainable_variables[self._get_variable_index(variable)]
        super().update_step(self._caffe_gradient(gradient, variable, known), variable, learning_rate)

    def _caffe_gradient(self, gradient, value, variable):
        kernel = "kernel" in variable.name
        if self.l2 and (kernel or self.l2_on_vectors):
            factors = (f for pattern, f in self.decay_multipliers if fnmatch.fnmatch(variable.path, pattern))
            gradient = gradient + self.l2 * math.prod(factors) * keras.ops.convert_to_tensor(value)
        return gradient if kernel or self.bias_multiplier == 1.0 else gradient * self.bias_multiplier

    def get_config(self):
        return {
            **super().get_config(),
            "l2": self.l2,
            "bias_multiplier": self.bias_multiplier,
            "l2_on_vectors": self.l2_on_vectors,
            "decay_multipliers": self.decay_multipliers,
        }


@keras.saving.register_keras_serializable(package="keras_highway_training")
class ConvMuon(DenseGradients, keras.optimizers.Muon):
    """Muon for kernels of convolutions and dense layers [Jordan et al. 2024, kellerjordan.github.io/posts/muon].

    Keras's own Muon leaves every kernel of rank 4 to AdamW. Here a kernel
    `(height, width, in, out)` is the matrix `(height * width * in, out)`, and
    each singular value of an update is about `learning_rate`. Stem, head,
    embeddings, biases and normalization are trained by AdamW, without decay,
    at `adam_lr_ratio` times the rate. Transforms and gates have matrices of
    their own.
    """

    def __init__(
        self,
        learning_rate=0.03,
        weight_decay=0.02,
        momentum=0.9,
        nesterov=True,
        exclude_layers=("^stem", "^head"),
        adam_lr_ratio=1 / 15,
        rms_rate=None,
        **kwargs,
    ):
        super().__init__(
            learning_rate,
            weight_decay=weight_decay,
            momentum=momentum,
            nesterov=nesterov,
            exclude_layers=list(exclude_layers),
            adam_lr_ratio=adam_lr_ratio,
            rms_rate=rms_rate,
            **kwargs,
        )

    def _should_use_adamw(self, variable):
        excluded = any(re.search(pattern, variable.path) for pattern in (*self.exclude_layers, "embedding"))
        return excluded or "kernel" not in variable.name or len(variable.shape) not in (2, 4)

    def _apply_weight_decay(self, variables):
        """Do nothing: the update does it, where replicas agree."""

    def _muon_update_step(self, gradient, variable, lr, m):
        lr = keras.ops.cast(lr, variable.dtype)
        self.assign_add(m, gradient + m * (self.momentum - 1))
        gradient = gradient + self.momentum * m if self.nesterov else keras.ops.convert_to_tensor(m)
        matrix = keras.ops.reshape(gradient, (-1, gradient.shape[-1]))
        update = self.lr_adjust(self.zeropower_via_newtonschulz5(matrix, self.ns_steps))
        decay = self.weight_decay * keras.ops.convert_to_tensor(variable) if self.weight_decay else 0.0
        self.assign_sub(variable, lr * (keras.ops.reshape(update, variable.shape) + decay))

    def zeropower_via_newtonschulz5(self, x, steps):
        """Compute Keras's iteration on the smaller Gram matrix: two large products instead of ten or more."""
        ops, tall = keras.ops, x.shape[0] >= x.shape[1]
        x = x if tall else ops.transpose(x)
        x = x / (ops.norm(x) + 1e-7)
        gram, eye = ops.matmul(ops.transpose(x), x), ops.eye(x.shape[1], dtype=x.dtype)
        product = eye
        for _ in range(steps):  # all of these are polynomials of the first Gram matrix, which commute
            step = self.muon_a * eye + self.muon_b * gram + self.muon_c * ops.matmul(gram, gram)
            gram, product = ops.matmul(ops.matmul(step, gram), step), ops.matmul(product, step)
        x = ops.matmul(x, product)
        return x if tall else ops.transpose(x)


@keras.saving.register_keras_serializable(package="keras_highway_training")
class DecayedLamb(DenseGradients, keras.optimizers.Lamb):
    """LAMB with weight decay inside the trust ratio, as timm's `Lamb` [You et al. 2019, arXiv 1904.00962; RSB].

    With the bias-corrected moments m and v of Adam:
    `u = m / (sqrt(v) + epsilon) + decay * w`, then `w -= rate * |w| / |u| * u`;
    the ratio is 1 if either norm is 0. Biases and variables with less than two
    axes (normalization) have no decay, and so no ratio: `w -= rate * u`. Each
    layer of a `HighwayDenseStack` has its own ratio. Keras's own
    `Lamb(weight_decay=...)` is decoupled, `w -= rate * decay * w` outside the
    ratio, and has a ratio for every variable: another recipe.

    timm's LAMB also clips the gradient to a global norm of 1. Here that is the
    recipe's `clip_norm`: the engines clip after the sum over replicas.
    """

    def __init__(
        self, learning_rate=0.001, decay=0.0, decay_vectors=False, beta_1=0.9, beta_2=0.999, epsilon=1e-6, **kwargs
    ):
        super().__init__(learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon, **kwargs)
        self.decay, self.decay_vectors = float(decay), bool(decay_vectors)

    def update_step(self, gradient, variable, learning_rate):
        rate, gradient = ops.cast(learning_rate, variable.dtype), ops.cast(gradient, variable.dtype)
        step = ops.cast(self.iterations + 1, variable.dtype)
        index = self._get_variable_index(variable)
        known = self._trainable_variables[index]  # TensorFlow's own variable has another name
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        m_hat = m / (1 - ops.power(ops.cast(self.beta_1, variable.dtype), step))
        v_hat = v / (1 - ops.power(ops.cast(self.beta_2, variable.dtype), step))
        update = m_hat / (ops.sqrt(v_hat) + self.epsilon)
        vector = len(variable.shape) < 2 or "bias" in known.name
        if self.decay and (self.decay_vectors or not vector):
            w = ops.convert_to_tensor(variable)
            update = update + self.decay * w
            update = update * _trust_ratio(w, update, _axes_of_one(known))
        self.assign_sub(variable, rate * update)

    def get_config(self):
        return {**super().get_config(), "decay": self.decay, "decay_vectors": self.decay_vectors}


# Number of axes of the stacked variables of a `HighwayDenseStack`, by name.
_OF_STACKS = {
    f"{path}_{kind}": axes
    for path in ("transform", "transform_gate", "carry_gate")
    for kind, axes in (("kernel", 3), ("bias", 2))
}


def _axes_of_one(variable) -> tuple[int, ...]:
    """All axes of a variable; without the first for the stacked variables of a `HighwayDenseStack`."""
    axes = tuple(range(len(variable.shape)))
    return axes[1:] if _OF_STACKS.get(variable.name) == len(axes) else axes


def _trust_ratio(w, update, axes):
    """`|w| / |update|` over axes, 1 where either is 0."""
    w_norm, norm = (ops.sqrt(ops.sum(ops.square(x), axes, keepdims=True)) for x in (w, update))
    both = (w_norm > 0) & (norm > 0)
    return ops.where(both, w_norm / ops.where(both, norm, 1.0), 1.0)


def make_optimizer(recipe: Recipe, rate) -> keras.optimizers.Optimizer:
    """Return the optimizer of a recipe."""
    if recipe.optimizer == "sgd":
        return CaffeSGD(
            rate,
            momentum=recipe.momentum,
            nesterov=recipe.nesterov,
            l2=recipe.weight_decay,
            bias_multiplier=recipe.bias_multiplier,
            l2_on_vectors=recipe.decay_vectors,
            decay_multipliers=recipe.decay_multipliers,
        )
    if recipe.optimizer == "lamb":
        return DecayedLamb(rate, decay=recipe.weight_decay, decay_vectors=recipe.decay_vectors)
    if recipe.optimizer == "muon":
        return ConvMuon(rate, weight_decay=recipe.weight_decay, momentum=recipe.momentum, nesterov=recipe.nesterov)
    optimizer = keras.optimizers.AdamW(rate, weight_decay=recipe.weight_decay, beta_2=recipe.beta_2)
    if not recipe.decay_vectors:
        optimizer.exclude_from_weight_decay(var_names=["bias", "beta", "gamma", "logit"])
    return optimizer


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate of a recipe at each step of a run."""

    def __init__(self, recipe: Recipe, steps_per_epoch: int):
        self.recipe, self.steps_per_epoch = recipe, steps_per_epoch

    def __call__(self, step):
        return learning_rate(self.recipe, self.steps_per_epoch, step)


def make_schedule(recipe: Recipe, steps_per_epoch: int) -> Schedule | float:
    """Return the learning rate of a recipe: a schedule, or a float that the loop may change."""
    return recipe.learning_rate if recipe.schedule == "constant" else Schedule(recipe, steps_per_epoch)


def learning_rate(recipe: Recipe, steps_per_epoch: int, step):
    """Return the learning rate of a step of a run, see `Recipe.schedule`."""
    ops, peak, first, last = keras.ops, recipe.learning_rate, recipe.warmup_rate, recipe.final_rate
    # By integers: XLA divides by a multiplication, which moves the first step of some epochs into the one before.
    epoch = ops.cast(ops.floor_divide(ops.cast(step, "int32"), steps_per_epoch), "float32")
    if recipe.schedule == "exponential":
        return peak * ops.power(ops.cast(recipe.decay, "float32"), epoch)
    whole = recipe.schedule == "epoch_cosine"  # timm's: by epoch, the warm-up is part of the cosine
    now, end = (epoch, recipe.epochs) if whole else (ops.cast(step, "float32"), recipe.epochs * steps_per_epoch)
    warmup = recipe.warmup_epochs * (1 if whole else steps_per_epoch)
    start = 0 if whole else warmup
    left = ops.clip((end - now) / (end - start), 0.0, 1.0)
    if recipe.schedule == "step":
        passed = sum(ops.cast(now >= round(share * end), "float32") for share in recipe.milestones)
        return ops.where(now < warmup, first, peak * ops.power(0.1, passed))
    if recipe.schedule != "one_cycle":
        left = ops.sin(0.5 * math.pi * left) ** 2  # (1 - cos(pi * left)) / 2, without its rounding near 0
    return ops.where(now < warmup, first + (peak - first) * now / max(warmup, 1), last + (peak - last) * left)
