"""A softmax in two steps, for vocabularies that one step would be too slow for."""

import math
from typing import Any

import keras
from keras import ops

from keras_highway._support.keras_models import Initializer, Shape
from keras_highway.layers.base import checked_size, fresh
from keras_highway.layers.ungated import add_bias

_NEVER = -1e9  # the logit of a position that no class has; infinity would make the derivatives NaN


@keras.saving.register_keras_serializable(package="keras_highway")
class HierarchicalSoftmax(keras.layers.Layer):
    """Log-probabilities of classes in clusters: `log p(class) = log p(cluster) + log p(class | cluster)`.

    With about `sqrt(classes)` clusters the probability of one class, all that
    training needs, costs products with `2 * sqrt(classes)` columns in place of
    `classes` [Kim et al. 2015, 3.2, after Mnih and Hinton]. They split the
    classes at random; here class `i` is in cluster `i % clusters`, which is
    equally independent of the meaning of words and needs no table.

    Input: `(..., features)`. Output: `(..., classes)`, float32 under every
    dtype policy, log-probabilities: they sum to one after `exp`, and a softmax
    of them changes nothing.

    Args:
        classes: Int, number of classes.
        clusters: Int, number of clusters. Defaults to `ceil(sqrt(classes))`.
        kernel_initializer: Initializer of the clusters' kernel and, drawn
            separately, of the classes'. Defaults to `"glorot_uniform"`.
        bias_initializer: Initializer of both biases, in the same way. Defaults
            to `"zeros"`.

    Raises:
        ValueError: If a size is not positive, or there are more clusters than
            classes.
    """

    def __init__(
        self,
        classes: int,
        clusters: int | None = None,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.classes = checked_size(classes, "classes")
        # isqrt(n - 1) + 1 is the square root rounded up, in whole numbers.
        self.clusters = checked_size(math.isqrt(self.classes - 1) + 1 if clusters is None else clusters, "clusters")
        if self.clusters > self.classes:
            raise ValueError(
                f"`clusters` must not exceed `classes`. Received: clusters={self.clusters}, classes={self.classes}"
            )
        self.cluster_size = -(-self.classes // self.clusters)
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)

    def build(self, input_shape: Shape) -> None:
        features = input_shape[-1]
        kernel, bias = (fresh(i) for i in (self.kernel_initializer, self.bias_initializer))
        kernels, biases = (fresh(i, 1) for i in (self.kernel_initializer, self.bias_initializer))
        self.cluster_kernel = self.add_weight(
            name="cluster_kernel", shape=(features, self.clusters), initializer=kernel
        )
        self.cluster_bias = self.add_weight(name="cluster_bias", shape=(self.clusters,), initializer=bias)

        def drawn(shape: tuple[int, ...], dtype: Any = None) -> Any:
            # As the one matrix it is: of three axes, initializers would take the first for that of a convolution.
            flat = kernels((features, self.clusters * self.cluster_size), dtype=dtype)
            return ops.transpose(ops.reshape(flat, (features, self.clusters, self.cluster_size)), (1, 0, 2))

        # A cluster's part is one piece of memory, which training takes out as a whole.
        self.kernel = self.add_weight(
            name="kernel", shape=(self.clusters, features, self.cluster_size), initializer=drawn
        )
        self.bias = self.add_weight(name="bias", shape=(self.clusters, self.cluster_size), initializer=biases)

    def call(self, x: Any) -> Any:
        logits = add_bias(ops.einsum("...u,cup->...pc", x, self.kernel), ops.transpose(self.bias))
        logits = ops.cast(logits, "float32") + self._absent()
        within = logits - ops.logsumexp(logits, axis=-2, keepdims=True)
        log_p = within + self._cluster_log_p(x)[..., None, :]
        flat = ops.reshape(log_p, (*ops.shape(log_p)[:-2], self.cluster_size * self.clusters))
        return flat[..., : self.classes]

    def target_log_probabilities(self, x: Any, targets: Any) -> Any:
        """Return the log-probabilities of one class each, without those of the others.

        It takes a copy of the kernel of each target's cluster: `features *
        sqrt(classes)` numbers per target. On TensorFlow the kernel's gradient
        is sparse, one slice per target: convert it to a tensor before its norm
        is taken, or repeated clusters count wrongly.

        Args:
            x: Tensor `(..., features)`.
            targets: Integers `(...)`.

        Returns:
            float32 `(...)`: `call(x)` at the targets.
        """
        targets = ops.cast(targets, "int32")
        cluster, position = targets % self.clusters, targets // self.clusters
        x, taken, bias = self._computed(x, ops.take(self.kernel, cluster, axis=0), ops.take(self.bias, cluster, axis=0))
        logits = ops.matmul(x[..., None, :], taken)[..., 0, :] + bias
        logits = ops.cast(logits, "float32") + ops.take(ops.transpose(self._absent()), cluster, axis=0)
        own = _at(logits, position) - ops.logsumexp(logits, axis=-1)
        return own + _at(self._cluster_log_p(x), cluster)

    def _computed(self, *values: Any) -> list[Any]:
        # Keras casts weights by itself in `call` alone.
        return [ops.cast(value, self.compute_dtype) for value in values]

    def _cluster_log_p(self, x: Any) -> Any:
        kernel, bias = self._computed(self.cluster_kernel, self.cluster_bias)
        logits = ops.cast(add_bias(ops.matmul(x, kernel), bias), "float32")
        return logits - ops.logsumexp(logits, axis=-1, keepdims=True)

    def _absent(self) -> Any:
        """Return a mask of shape `(cluster_size, clusters)` that makes positions without a class improbable."""
        number = ops.reshape(ops.arange(self.cluster_size * self.clusters), (self.cluster_size, self.clusters))
        return ops.where(number < self.classes, 0.0, _NEVER)

    def compute_output_shape(self, input_shape: Shape) -> tuple[int | None, ...]:
        return (*input_shape[:-1], self.classes)

    def compute_output_spec(self, x: Any, **kwargs: Any) -> Any:
        return keras.KerasTensor(self.compute_output_shape(x.shape), dtype="float32")

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "classes": self.classes,
            "clusters": self.clusters,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }


def _at(values: Any, index: Any) -> Any:
    return ops.take_along_axis(values, index[..., None], axis=-1)[..., 0]
