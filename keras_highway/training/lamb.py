"""LAMB as "ResNet strikes back" trained with it."""

import keras
from keras import ops

from keras_highway.training.dense_gradients import DenseGradients


@keras.saving.register_keras_serializable(package="keras_highway_training")
class DecayedLamb(DenseGradients, keras.optimizers.Lamb):
    """LAMB with weight decay inside the trust ratio, as timm's `Lamb` [You et al. 2019, arXiv 1904.00962; RSB].

    With the moments m and v of Adam, without their bias:
    `u = m / (sqrt(v) + epsilon) + decay * w`, then `w -= rate * |w| / |u| * u`;
    the ratio is 1 where either norm is 0. Variables of one axis or none
    (biases, normalization), and biases of more, as those of a
    `HighwayDenseStack`, have no decay, and so no ratio: `w -= rate * u`. Keras's own
    `Lamb(weight_decay=...)` is decoupled, `w -= rate * decay * w` outside the
    ratio, and has a ratio for every variable: another recipe. The layers of a
    `HighwayDenseStack` have a ratio each.

    timm's also clips the gradient to a global norm of 1. That is the recipe's
    `clip_norm` here: the engines clip after the sum over replicas, an
    optimizer would before it.

    Args:
        learning_rate: Float or schedule. Defaults to `0.001`.
        decay: Float, the weight decay. Defaults to `0.0`: then no variable has
            a trust ratio, as in timm's.
        decay_vectors: Bool, whether those variables are decayed, too,
            and so have a trust ratio. Defaults to `False`.
        beta_1: Float, decay of the first moment. Defaults to `0.9`.
        beta_2: Float, decay of the second. Defaults to `0.999`.
        epsilon: Float. Defaults to `1e-6`.
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


# The number of axes of what a `HighwayDenseStack` has of each of its layers, by name.
_OF_STACKS = {
    f"{path}_{kind}": axes
    for path in ("transform", "transform_gate", "carry_gate")
    for kind, axes in (("kernel", 3), ("bias", 2))
}


def _axes_of_one(variable) -> tuple[int, ...]:
    """All axes of a variable; without the first in what a `HighwayDenseStack` has of each of its layers."""
    axes = tuple(range(len(variable.shape)))
    return axes[1:] if _OF_STACKS.get(variable.name) == len(axes) else axes


def _trust_ratio(w, update, axes):
    """`|w| / |update|` over axes, 1 where either is 0."""
    w_norm, norm = (ops.sqrt(ops.sum(ops.square(x), axes, keepdims=True)) for x in (w, update))
    both = (w_norm > 0) & (norm > 0)
    return ops.where(both, w_norm / ops.where(both, norm, 1.0), 1.0)
